"""API tokens: made for oneself or a service account, shown once, listed, revoked."""

from __future__ import annotations

from datetime import datetime, timedelta
from uuid import UUID

from django.contrib import messages
from django.db.models import Q
from django.http import HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils.http import url_has_allowed_host_and_scheme
from django.utils.translation import gettext as _
from django.utils.translation import ngettext
from django.views.decorators.http import require_POST

from controlplane.forms import people as forms
from controlplane.forms.people import Choices, TextForm
from controlplane.pages.frame import PageRequest, now, page, render_page
from scheduling.domain import access_wording
from scheduling.domain.queries import org as org_queries
from tenants.domain import tokens, users
from tenants.domain.access import ROLES, Verb, may
from tenants.domain.errors import Conflict, Denied, Invalid, NotFound
from tenants.models import ApiToken, OrgUnit, User

SECTION = "pages:tokens"
PAGE_SIZE = 50
DAYS = (7, 30, 90, 180, 365)
NAMES = {"unit": "target", "expires_at": "days"}


@page
def listing(request: PageRequest) -> HttpResponse:
    """List the viewer's tokens and those of people in units that they look after."""
    moment = now()
    found = tokens.visible_tokens(request.actor).select_related("user", "unit")
    is_all = "all" in request.GET
    if not is_all:
        found = found.filter(revoked_at__isnull=True, expires_at__gt=moment)
    if name := request.GET.get("person", "").strip()[:150]:
        found = found.filter(user__username__icontains=name)
    if (before := _cursor(request.GET.get("before", ""))) is not None:
        at, token_id = before
        found = found.filter(Q(created_at__lt=at) | Q(created_at=at, id__gt=token_id))
    rows = list(found[: PAGE_SIZE + 1])
    shown = rows[:PAGE_SIZE]
    context = {
        "tokens": shown,
        "is_all": is_all,
        "person": name,
        "now": moment,
        "next_cursor": (
            f"{shown[-1].created_at.isoformat()}~{shown[-1].id}" if len(rows) > PAGE_SIZE else ""
        ),
    }
    return render_page(request, "admin_tokens/list.html", context, section=SECTION)


def _cursor(text: str) -> tuple[datetime, UUID] | None:
    at, _sep, token_id = text.partition("~")
    try:
        return datetime.fromisoformat(at), UUID(token_id)
    except ValueError:
        return None


@page
def new(request: PageRequest) -> HttpResponse:
    """Make a token and show its secret, this once."""
    owner = _owner(request)
    given = request.POST if request.method == "POST" else request.GET
    form = forms.form_of(given, "name", "target", "days")
    form.values["days"] = form.values["days"] or "90"
    chosen = request.POST.getlist("verbs")[:100]
    if request.method == "POST":
        made = _make(request, owner, form, chosen)
        if made is not None:
            token, secret = made
            context = {"token": token, "secret": secret, "owner": owner}
            return render_page(request, "admin_tokens/made.html", context, section=SECTION)
    context = {
        "form": form,
        "owner": owner,
        "is_own": owner.id == request.user.id,
        "chosen": chosen,
        "verbs": _verbs_of(owner),
        "places": [("", _("wherever the account has a role")), *_places(request)],
        "days": [
            (str(days), ngettext("%(n)d day", "%(n)d days", days) % {"n": days}) for days in DAYS
        ],
    }
    return render_page(
        request, "admin_tokens/new.html", context, section=SECTION, status=form.status
    )


def _owner(request: PageRequest) -> User:
    """Return whose token it shall be: the viewer's own, or a service account's.

    Raises:
        NotFound: there is no such account to be seen.
    """
    text = request.POST.get("user") or request.GET.get("user") or ""
    if not text:
        return request.user
    try:
        return users.visible_user(request.actor, UUID(text))
    except ValueError:
        raise NotFound("user") from None


def _make(
    request: PageRequest, owner: User, form: TextForm, chosen: list[str]
) -> tuple[ApiToken, str] | None:
    unit_id = form.unit("target", is_required=False)
    days = form.number("days")
    if not form.is_valid:
        return None
    moment = now()
    try:
        return tokens.create_token(
            actor=request.actor,
            user=owner,
            name=form.text("name"),
            verbs=chosen,
            unit=_unit(request, unit_id),
            expires_at=moment + timedelta(days=min(days, tokens.LONGEST_LIFE.days + 1)),
            now=moment,
        )
    except (Invalid, Conflict, Denied) as error:
        form.take(error, NAMES)
        return None


def _unit(request: PageRequest, unit_id: UUID | None) -> OrgUnit | None:
    if unit_id is None or not may(request.actor, Verb.ORG_READ, unit_id):
        return None if unit_id is None else _not_found()
    return OrgUnit.objects.get(id=unit_id)


def _not_found() -> OrgUnit:
    raise NotFound("org unit")


def _places(request: PageRequest) -> Choices:
    units = org_queries.paths_of(request.actor, Verb.ORG_READ)
    return [(str(unit_id), path) for unit_id, path in units]


def _verbs_of(owner: User) -> list[tuple[str, list[tuple[str, str]]]]:
    """Return the verbs that the owner's roles give, by what they are about."""
    roles = set(owner.grants.values_list("role", flat=True))
    held = {verb for role, rights in ROLES.items() if role in roles for verb in rights.always}
    held |= {verb for role, rights in ROLES.items() if role in roles for verb in rights.own}
    groups: dict[str, list[tuple[str, str]]] = {}
    for verb in Verb:
        if verb in held and verb != Verb.TOKEN_CREATE:
            group = groups.setdefault(verb.value.partition(".")[0], [])
            group.append((verb.value, access_wording.verb_name(verb)))
    return list(groups.items())


@page
@require_POST
def revoke(request: PageRequest, token_id: UUID) -> HttpResponse:
    """End a token at once."""
    token = tokens.revoke_token(
        actor=request.actor,
        token_id=token_id,
        now=now(),
        reason=request.POST.get("reason", "")[:500],
    )
    messages.success(request, _("“%(name)s” is revoked.") % {"name": token.name})
    target = request.POST.get("next", "")
    if not url_has_allowed_host_and_scheme(target, allowed_hosts={request.get_host()}):
        target = reverse("pages:tokens")
    return HttpResponseRedirect(target)
