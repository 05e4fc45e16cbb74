"""The organisation: its tree, one unit, and changes of units with their effect shown first."""

from __future__ import annotations

from uuid import UUID

from django.contrib import messages
from django.http import HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from controlplane.forms import people as forms
from controlplane.forms.people import Choices, TextForm
from controlplane.pages.frame import PageRequest, now, page, render_page
from scheduling.domain import access_wording, org_preview
from scheduling.domain.deeds import Deed
from scheduling.domain.org_preview import UnitChange, UnitRequest
from scheduling.domain.queries import org as queries
from scheduling.domain.queries.org import UnitHead, UnitPage
from tenants.domain import org
from tenants.domain.access import Verb, may
from tenants.domain.errors import Conflict, Denied, Invalid, NotFound
from tenants.models import OrgUnit, OrgUnitKind

SECTION = "pages:org_tree"
TITLES = {
    UnitChange.RENAME: gettext_lazy("Rename"),
    UnitChange.MOVE: gettext_lazy("Move"),
    UnitChange.MERGE: gettext_lazy("Merge into another unit"),
    UnitChange.ARCHIVE: gettext_lazy("Archive"),
    UnitChange.RESTORE: gettext_lazy("Restore"),
}
DONE = {
    UnitChange.RENAME: gettext_lazy("Renamed."),
    UnitChange.MOVE: gettext_lazy("Moved, with its queues and all below it."),
    UnitChange.MERGE: gettext_lazy("Merged; this unit has it all now."),
    UnitChange.ARCHIVE: gettext_lazy("Archived: it stays readable and takes nothing new."),
    UnitChange.RESTORE: gettext_lazy("In use again."),
}
AT_ONCE = frozenset({UnitChange.ARCHIVE, UnitChange.RESTORE})
"""Changes that need nothing typed: their effect is shown when the page opens."""
NAMES = {"parent": "target", "into": "target"}


@page
def tree(request: PageRequest) -> HttpResponse:
    """Show the organisation as far as the viewer may read it, with the queues that hang on it."""
    with_archived = "archived" in request.GET
    rows = queries.unit_tree(request.actor, with_archived=with_archived)
    parents = {row.parent_id for row in rows}
    context = {
        "rows": [(row, row.id in parents) for row in rows],
        "with_archived": with_archived,
        "may_make_tenant": may(request.actor, Verb.ORG_ADMIN, None),
        "may_create": any(row.may_create_below for row in rows),
        "is_beginning": not any(row.people for row in rows),
    }
    return render_page(request, "admin_org/tree.html", context, section=SECTION)


@page
def unit(request: PageRequest, unit_id: UUID) -> HttpResponse:
    """Show one unit: what is below it, its queues, and who may do what there."""
    found = queries.unit_page(request.actor, unit_id)
    context = {"found": found, "unit": found.unit, "changes": _changes(found)}
    return render_page(request, "admin_org/unit.html", context, section=SECTION)


def _changes(found: UnitPage) -> list[tuple[str, str]]:
    """Return the changes that the viewer may make, as (word of the address, shown name)."""
    if not found.may_change:
        return []
    if found.unit.is_archived:
        return [(UnitChange.RESTORE, str(TITLES[UnitChange.RESTORE]))]
    wanted = [UnitChange.RENAME, UnitChange.ARCHIVE]
    if found.unit.parent_id is not None:
        wanted = [UnitChange.RENAME, UnitChange.MOVE, UnitChange.MERGE, UnitChange.ARCHIVE]
    return [(change, str(TITLES[change])) for change in wanted]


# --- a new unit -----------------------------------------------------------------------------------


@page
def new(request: PageRequest) -> HttpResponse:
    """Make a unit below one that the viewer administers, or a tenant."""
    given = request.POST if request.method == "POST" else request.GET
    form = forms.form_of(given, "name", "kind", "target", "reason")
    if request.method == "POST":
        made = _make(request, form)
        if made is not None:
            messages.success(request, _("“%(name)s” is there now.") % {"name": made.name})
            return HttpResponseRedirect(reverse("pages:unit", args=[made.id]))
    parents = _places(request, Verb.ORG_ADMIN)
    if may(request.actor, Verb.ORG_ADMIN, None):
        parents = [*parents, ("", _("none: a new tenant"))]
    if not parents:
        raise NotFound("org unit")
    form.values["kind"] = form.values["kind"] or OrgUnitKind.TEAM
    if request.method != "POST" and "target" not in request.GET:
        # A department that became a tenant of its own would be found out late.
        form.values["target"] = parents[0][0]
    context = {"form": form, "parents": parents, "kinds": _kinds()}
    return render_page(request, "admin_org/new.html", context, section=SECTION, status=form.status)


def _make(request: PageRequest, form: TextForm) -> OrgUnit | None:
    parent_id = form.unit("target", is_required=False)
    kind = form.text("kind") if parent_id else OrgUnitKind.TENANT.value
    if kind not in OrgUnitKind.values:
        form.say("kind", "required")
    if not form.is_valid:
        return None
    try:
        return org.create_unit(
            actor=request.actor,
            parent_id=parent_id,
            name=form.text("name"),
            kind=OrgUnitKind(kind),
            now=now(),
            reason=form.text("reason"),
        )
    except (Invalid, Conflict) as error:
        form.take(error, NAMES)
        return None


def _kinds() -> Choices:
    kinds = [kind for kind in OrgUnitKind if kind != OrgUnitKind.TENANT]
    return [(kind.value, str(access_wording.KIND_NAMES[kind])) for kind in kinds]


def _places(request: PageRequest, verb: Verb) -> list[tuple[str, str]]:
    return [(str(unit_id), path) for unit_id, path in queries.paths_of(request.actor, verb)]


# --- changes --------------------------------------------------------------------------------------


@page
def change(request: PageRequest, unit_id: UUID, what: str) -> HttpResponse:
    """Show the form of a change, then its effect; make it when told to."""
    if what not in set(UnitChange):
        raise NotFound("page")
    wanted = UnitChange(what)
    found = queries.unit_head(request.actor, unit_id)
    given = request.POST if request.method == "POST" else {}
    form = forms.form_of(given, "name", "target", "version", "reason")
    if request.method == "GET":
        form.values |= {"name": found.unit.name, "version": str(found.unit.version)}
    if request.method == "POST" and request.POST.get("action") == "apply":
        changed = _apply(request, unit_id, wanted, form)
        if changed is not None:
            messages.success(request, str(DONE[wanted]))
            return HttpResponseRedirect(reverse("pages:unit", args=[changed.id]))
    effect = None
    if form.is_valid and (request.method == "POST" or wanted in AT_ONCE):
        effect = _preview(request, unit_id, wanted, form)
    if form.is_conflict:
        # What is there now is shown above the form, and the next try is about that.
        form.values["version"] = str(
            OrgUnit.objects.values_list("version", flat=True).get(id=unit_id)
        )
    context = {
        "found": found,
        "unit": found.unit,
        "change": wanted.value,
        "title": TITLES[wanted],
        "form": form,
        "effect": effect,
        "places": _targets(request, found, wanted),
        "is_at_once": wanted in AT_ONCE,
    }
    return render_page(
        request, "admin_org/change.html", context, section=SECTION, status=form.status
    )


def _targets(request: PageRequest, found: UnitHead, wanted: UnitChange) -> Choices:
    """Return where the unit may go: units of its tenant that the viewer administers."""
    if wanted not in {UnitChange.MOVE, UnitChange.MERGE}:
        return []
    inside = dict(queries.paths_of(request.actor, Verb.ORG_READ, below=found.unit.id))
    within = queries.paths_of(request.actor, Verb.ORG_ADMIN, below=found.unit.tenant_id)
    return [("", _("choose a unit"))] + [
        (str(place), path)
        for place, path in within
        if place not in inside and not (wanted == UnitChange.MOVE and place == found.unit.parent_id)
    ]


def _request(unit_id: UUID, wanted: UnitChange, form: TextForm) -> UnitRequest | None:
    """Read what is wanted; None, with the problem said, if something is missing."""
    target = None
    if wanted in {UnitChange.MOVE, UnitChange.MERGE}:
        target = form.unit("target")
    if not form.is_valid:
        return None
    return UnitRequest(
        change=wanted,
        unit_id=unit_id,
        expected_version=form.number("version"),
        name=form.text("name"),
        target_id=target,
    )


def _apply(
    request: PageRequest, unit_id: UUID, wanted: UnitChange, form: TextForm
) -> OrgUnit | None:
    asked = _request(unit_id, wanted, form)
    if asked is None:
        return None
    deed = Deed(request.actor, now(), form.text("reason"))
    try:
        return org_preview.apply_unit_change(deed, asked)
    except (Invalid, Conflict, Denied) as error:
        form.take(error, NAMES)
        return None


def _preview(
    request: PageRequest, unit_id: UUID, wanted: UnitChange, form: TextForm
) -> org_preview.UnitEffect | None:
    asked = _request(unit_id, wanted, form)
    if asked is None:
        return None
    try:
        return org_preview.preview_unit(deed=Deed(request.actor, now()), wanted=asked)
    except (Invalid, Conflict, Denied) as error:
        form.take(error, NAMES)
        return None
