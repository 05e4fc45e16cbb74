"""Quotas: what units and people may have in all, how much of it is used, and a form to set it."""

from __future__ import annotations

from uuid import UUID

from django.contrib import messages
from django.http import HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from controlplane.forms import quotas as forms
from controlplane.forms.people import Choices, TextForm, form_of
from controlplane.pages.frame import PageRequest, now, page, render_page
from scheduling.domain import quotas
from scheduling.domain.queries.quotas import (
    load_quota,
    own_quotas,
    page_of_quotas,
    where_one_works,
)
from scheduling.domain.quotas import Subject, limits_of
from scheduling.models import Quota, QuotaScope
from tenants.domain.access import Actor, Verb, allowed, reads, require
from tenants.domain.errors import Conflict, Denied, Invalid, NotFound
from tenants.models import OrgClosure, OrgUnit, User

SECTION = "pages:quotas"
SCOPES = {
    QuotaScope.UNIT: gettext_lazy("the unit as a whole"),
    QuotaScope.EACH_USER: gettext_lazy("every person by themselves"),
    QuotaScope.USER: gettext_lazy("one person"),
}
TYPED = tuple(one.name for one in forms.FIELDS)
NAMES = {"running_jobs": "running_jobs", "queued_jobs": "queued_jobs", "nvidia.com/gpu": "gpu"}


@page
def listing(request: PageRequest) -> HttpResponse:
    """Show the quotas that the viewer may read, with their use, and what counts the viewer."""
    actor = request.actor
    unit = _unit_of(request)
    found = page_of_quotas(
        actor, unit_id=unit.id if unit else None, after=_uuid(request.GET.get("after", ""))
    )
    scope = reads(actor, Verb.QUOTA_EDIT)
    edited_at = {view.quota.id: _edited_at(view.quota) for view in found.views}
    editable = allowed(actor, Verb.QUOTA_EDIT, edited_at.values())
    context = {
        "views": found.views,
        "next_after": found.next_after,
        "unit": unit,
        "own": own_quotas(request.user.pk, where_one_works(actor)),
        "may_edit": scope.sees_everything or bool(scope.readable_units),
        "editable": {quota_id for quota_id, at in edited_at.items() if at in editable},
    }
    return render_page(request, "admin_quotas/list.html", context, section=SECTION)


def _unit_of(request: PageRequest) -> OrgUnit | None:
    """Return the unit that the address narrows the list to, if the viewer may read its quotas."""
    unit_id = _uuid(request.GET.get("unit", ""))
    if unit_id is None:
        return None
    require(request.actor, Verb.QUOTA_READ, unit_id, what="org unit")
    return OrgUnit.objects.get(id=unit_id)


def _uuid(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None


@page
def edit(request: PageRequest) -> HttpResponse:
    """Set, change or take away a quota."""
    actor = request.actor
    known = _known(actor, request.GET.get("quota", ""))
    units = [] if known else _units(actor)
    if known is not None:
        require(actor, Verb.QUOTA_EDIT, _edited_at(known), seen_at=known.unit_id, what="quota")
    elif not units:
        raise Denied("role_lacks_verb", {"verb": Verb.QUOTA_EDIT.value, "roles": "org_admin"})
    if request.method == "POST":
        return _save(request, known, units)
    values = forms.values_of(limits_of(known) if known else {})
    form = TextForm(
        {
            "unit": request.GET.get("unit", ""),
            "scope": request.GET.get("scope", str(QuotaScope.EACH_USER)),
            "user": request.GET.get("user", ""),
            "version": str(known.version if known else 0),
            "reason": "",
            **values,
        }
    )
    return _show(request, form, known, units)


def _save(request: PageRequest, known: Quota | None, units: list[OrgUnit]) -> HttpResponse:
    form = form_of(request.POST, "unit", "scope", "user", "version", "reason", *TYPED)
    is_removal = request.POST.get("action") == "remove"
    limits = {} if is_removal else forms.limits_of(form)
    subject = Subject(known.unit_id, QuotaScope(known.scope), known.user_id) if known else None
    subject = subject or _subject(form)
    if form.is_valid and not limits and not is_removal:
        form.general.append(_("Limit at least one thing."))
    if not form.is_valid or subject is None:
        return _show(request, form, known, units)
    try:
        quotas.set_quota(
            actor=request.actor,
            subject=subject,
            limits=limits,
            expected_version=form.number("version"),
            now=now(),
            reason=form.text("reason"),
        )
    except (Invalid, Conflict, Denied) as error:
        form.take(error, NAMES)
        return _show(request, form, known, units)
    done = _("The quota is gone.") if is_removal else _("Saved; it holds from now on.")
    messages.success(request, done)
    return HttpResponseRedirect(reverse("pages:quotas"))


def _subject(form: TextForm) -> Subject | None:
    """Return whom the form names, and say at its fields what is missing."""
    unit_id = form.unit("unit")
    scope = form.text("scope")
    if scope not in set(QuotaScope):
        form.say("scope", "required")
    user = None
    if scope == QuotaScope.USER:
        user = User.objects.filter(username__iexact=form.text("user")).first()
        if user is None:
            form.say("user", "user_missing")
    if not form.is_valid or unit_id is None:
        return None
    return Subject(unit_id, QuotaScope(scope), user.id if user else None)


def _show(
    request: PageRequest, form: TextForm, known: Quota | None, units: list[OrgUnit]
) -> HttpResponse:
    choices: Choices = [
        ("", ""),
        *(
            (str(unit.id), f"{unit.name} · {unit.parent.name}" if unit.parent else unit.name)
            for unit in units
        ),
    ]
    context = {
        "form": form,
        "quota": known,
        "fields": forms.FIELDS,
        "units": choices,
        "scopes": [(str(scope), str(label)) for scope, label in SCOPES.items()],
    }
    template = "admin_quotas/edit.html"
    return render_page(request, template, context, section=SECTION, status=form.status)


def _known(actor: Actor, text: str) -> Quota | None:
    if not text:
        return None
    quota_id = _uuid(text)
    view = load_quota(actor, quota_id) if quota_id else None
    if view is None:
        raise NotFound("quota")
    return view.quota


def _edited_at(quota: Quota) -> UUID | None:
    """Return the unit whose administrators may change a quota."""
    return quota.unit.parent_id if quota.scope == QuotaScope.UNIT else quota.unit_id


def _editable_units(actor: Actor) -> set[UUID | None]:
    """Return the units, None for the installation, whose quotas of people the actor may edit."""
    units = OrgUnit.objects.values_list("id", flat=True)
    whole: set[UUID | None] = set()
    scope = reads(actor, Verb.QUOTA_EDIT)
    if scope.sees_everything:
        whole.add(None)
    else:
        below = OrgClosure.objects.filter(ancestor__in=scope.readable_units)
        units = units.filter(id__in=below.values("descendant_id"))
    return whole | set(units)


def _units(actor: Actor) -> list[OrgUnit]:
    editable = [unit for unit in _editable_units(actor) if unit is not None]
    rows = OrgUnit.objects.filter(id__in=editable, is_archived=False).select_related("parent")
    return list(rows.order_by("name", "id"))
