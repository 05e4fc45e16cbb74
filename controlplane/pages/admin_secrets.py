"""Secrets: their names, who may use them, and forms that only write; no page shows a value."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.contrib import messages
from django.http import HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from controlplane.forms.people import Choices, TextForm, form_of
from controlplane.pages.frame import PageRequest, now, page, render_page
from tenants.domain import secrets
from tenants.domain.access import Verb, may, reads
from tenants.domain.errors import Conflict, Denied, Invalid, NotFound
from tenants.domain.secrets import REGISTRY_KEYS, NewSecret
from tenants.models import OrgClosure, OrgUnit, Secret, SecretKind

SECTION = "pages:secrets"
KINDS = {
    SecretKind.VARIABLES: gettext_lazy("Variables"),
    SecretKind.FILES: gettext_lazy("Files"),
    SecretKind.REGISTRY: gettext_lazy("Login of an image registry"),
}
WHO = (
    ("shared", gettext_lazy("everybody who submits jobs in the unit or below")),
    ("own", gettext_lazy("only you")),
)


@page
def listing(request: PageRequest) -> HttpResponse:
    """Show the names of the secrets that the viewer may use or look after."""
    rows = secrets.visible_to(request.actor).filter(revoked_at__isnull=True)
    context = {
        "secrets": rows.select_related("unit", "owner").order_by("name", "unit__name", "id"),
        "may_create": bool(_units(request)),
        "kinds": [(str(kind), label) for kind, label in KINDS.items()],
    }
    return render_page(request, "admin_secrets/list.html", context, section=SECTION)


@page
def new(request: PageRequest) -> HttpResponse:
    """Make a secret; what was typed as its value is never shown again, not even after an error."""
    kind = _kind(request.GET.get("kind", ""))
    form = form_of(request.POST or request.GET, "unit", "name", "who", "reason")
    if request.method != "POST":
        return _show_new(request, form, kind)
    unit_id = form.unit("unit")
    values = _values(request, kind, form)
    if not form.is_valid or unit_id is None:
        return _show_new(request, form, kind)
    try:
        secret = secrets.create_secret(
            actor=request.actor,
            unit_id=unit_id,
            new=NewSecret(form.text("name"), kind, values, is_shared=form.text("who") != "own"),
            now=now(),
            reason=form.text("reason"),
        )
    except (Invalid, Conflict, Denied) as error:
        _take(form, error)
        return _show_new(request, form, kind)
    messages.success(request, _("Sealed. Jobs name it “%(name)s”.") % {"name": secret.name})
    return HttpResponseRedirect(reverse("pages:secret", args=[secret.id]))


@page
def detail(request: PageRequest, secret_id: UUID) -> HttpResponse:
    """Show what may be known of a secret; replace its values or revoke it."""
    rows = secrets.visible_to(request.actor).select_related("unit", "owner")
    secret = rows.filter(id=secret_id).first()
    if secret is None:
        raise NotFound("secret")
    form = form_of(request.POST, "version", "reason")
    form.values["version"] = form.values["version"] or str(secret.version)
    if request.method == "POST" and _change(request, secret, form):
        return HttpResponseRedirect(reverse("pages:secrets"))
    context = {
        "secret": secret,
        "form": form,
        "kind_label": KINDS[SecretKind(secret.kind)],
        "may_edit": secret.revoked_at is None
        and may(request.actor, Verb.SECRET_EDIT, secret.unit_id, owner_id=secret.owner_id),
        "registry_keys": REGISTRY_KEYS,
    }
    template = "admin_secrets/detail.html"
    return render_page(request, template, context, section=SECTION, status=form.status)


def _change(request: PageRequest, secret: Secret, form: TextForm) -> bool:
    """Do what the button says; True if it was done."""
    is_revoking = request.POST.get("action") == "revoke"
    values = {} if is_revoking else _values(request, SecretKind(secret.kind), form)
    if not form.is_valid:
        return False
    given: dict[str, Any] = {
        "actor": request.actor,
        "secret_id": secret.id,
        "expected_version": form.number("version"),
        "now": now(),
        "reason": form.text("reason"),
    }
    try:
        if is_revoking:
            secrets.revoke_secret(**given)
        else:
            secrets.replace_values(values=values, **given)
    except (Invalid, Conflict, Denied) as error:
        _take(form, error)
        return False
    messages.success(
        request,
        _("Revoked: no task gets it any more.")
        if is_revoking
        else _("Replaced: tasks that start from now on get the new values."),
    )
    return True


def _take(form: TextForm, error: Invalid | Conflict | Denied) -> None:
    """Put problems of all values at the one field of them."""
    names = {"values": "values"}
    if isinstance(error, Invalid):
        names |= {one.path: "values" for one in error.problems if one.path.startswith("values.")}
    form.values.setdefault("values", "")
    form.take(error, names)


def _values(request: PageRequest, kind: SecretKind, form: TextForm) -> dict[str, bytes]:
    """Read the values of a POST; they go into no form that is shown."""
    if kind == SecretKind.FILES:
        return {
            str(one.name): one.read(secrets.LARGEST + 1) for one in request.FILES.getlist("files")
        }
    if kind == SecretKind.REGISTRY:
        return {name: request.POST.get(name, "").encode() for name in REGISTRY_KEYS}
    values: dict[str, bytes] = {}
    for line in request.POST.get("values", "").splitlines():
        name, equals, text = line.partition("=")
        if not line.strip():
            continue
        if not equals:
            form.say("values", "secret_line")
            return {}
        values[name.strip()] = text.encode()
    return values


def _show_new(request: PageRequest, form: TextForm, kind: SecretKind) -> HttpResponse:
    units = _units(request)
    if not units:
        raise Denied("role_lacks_verb", {"verb": Verb.SECRET_EDIT.value, "roles": "researcher"})
    choices: Choices = [(str(unit.id), unit.name) for unit in units]
    if len(units) > 1:
        choices = [("", ""), *choices]
    context = {
        "form": form,
        "kind": str(kind),
        "kind_label": KINDS[kind],
        "kinds": [(str(one), label) for one, label in KINDS.items()],
        "units": choices,
        "who": [(value, str(label)) for value, label in WHO],
        "was_typed": request.method == "POST",
    }
    template = "admin_secrets/new.html"
    return render_page(request, template, context, section=SECTION, status=form.status)


def _kind(text: str) -> SecretKind:
    return SecretKind(text) if text in set(SecretKind) else SecretKind.VARIABLES


def _units(request: PageRequest) -> list[OrgUnit]:
    """Return the units where the viewer may make secrets."""
    scopes = [reads(request.actor, verb) for verb in (Verb.SECRET_EDIT, Verb.JOB_CREATE)]
    rows = OrgUnit.objects.filter(is_archived=False).order_by("name", "id")
    if not any(scope.sees_everything for scope in scopes):
        units = {unit for scope in scopes for unit in scope.readable_units}
        below = OrgClosure.objects.filter(ancestor__in=units)
        rows = rows.filter(id__in=below.values("descendant_id"))
    return list(rows)
