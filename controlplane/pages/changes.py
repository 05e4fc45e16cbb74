"""Change sets: several edits of queues drafted, simulated, reviewed, applied, reverted as one."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from uuid import UUID

from django.contrib import messages
from django.http import HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.urls import reverse
from django.utils import timezone
from django.utils.http import urlencode
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_POST

from controlplane.charts import change_effect
from controlplane.forms import changes as forms
from controlplane.forms.changes import ChangeForm
from controlplane.pages.frame import PageRequest, now, page, render_page
from controlplane.pages.job_actions import error_text
from scheduling.domain import change_set_rows, change_sets, queue_preview
from scheduling.domain.change_sets import EDITABLE, Need
from scheduling.domain.queries import change_sets as reading
from scheduling.domain.queries import cluster as cluster_queries
from scheduling.domain.queries.activity import subject_activity
from scheduling.domain.queue_preview import Preview
from scheduling.models import ChangeSet, Queue
from scheduling.models.change_set import ChangeSetState as State
from tenants.domain.errors import Conflict, Denied, Invalid, Problem

SECTION = "pages:change_list"
TABS = (
    ("open", gettext_lazy("Open")),
    ("review", gettext_lazy("In review")),
    ("scheduled", gettext_lazy("Scheduled")),
    ("failed", gettext_lazy("Refused")),
    ("applied", gettext_lazy("Applied")),
)
STEPS: dict[str, tuple[Callable[..., object], object]] = {
    "ask_review": (change_sets.ask_review, gettext_lazy("A second person can look at it now.")),
    "unschedule": (change_sets.unschedule, gettext_lazy("It has no time any more.")),
}
REVIEWS: dict[str, tuple[Callable[..., object], object]] = {
    "approve": (change_sets.approve, gettext_lazy("Approved; it can be applied.")),
    "reject": (change_sets.reject, gettext_lazy("Sent back to its author.")),
}
SHOWN_QUEUES = 500
"""So many names are offered while typing; any other can be typed in full."""


@page
def listing(request: PageRequest) -> HttpResponse:
    """List the change sets of the queues that the viewer sees, the newest first."""
    tab = request.GET.get("state", "open")
    tab = tab if tab in reading.TABS else "open"
    found = reading.list_change_sets(
        request.actor, states=reading.TABS[tab], before=_moment(request.GET.get("before", ""))
    )
    counts = reading.counts(request.actor)
    context = {
        "tab": tab,
        "tabs": [(name, label, counts[name]) for name, label in TABS],
        "rows": found.rows,
        "next_cursor": found.next_cursor,
        "may_create": reading.manages_any(request.actor),
    }
    return render_page(request, "changes/list.html", context, section=SECTION)


def _moment(text: str) -> datetime | None:
    try:
        found = datetime.fromisoformat(text) if text else None
    except ValueError:
        return None
    return found if found is not None and found.tzinfo is not None else None


@page
@require_POST
def new(request: PageRequest) -> HttpResponse:
    """Begin a draft, empty or with a queue whose numbers are to be typed."""
    cluster = cluster_queries.load_cluster(request.GET.get("cluster", ""))
    added = request.POST.getlist("add")[: forms.MOST_QUEUES]
    try:
        row = change_sets.create(
            actor=request.actor,
            cluster_id=cluster.id,
            title=request.POST.get("title", "") or (_title_of(added) if added else ""),
            now=now(),
        )
    except Invalid as error:
        messages.error(request, error_text(error))
        return HttpResponseRedirect(reverse("pages:change_list"))
    return _to(row, added)


@page
def detail(request: PageRequest, change_set_id: UUID) -> HttpResponse:
    """Show one change set: what it changes, what that would do, how far it has come."""
    row = reading.load(request.actor, change_set_id)
    return _show(request, row)


def _show(
    request: PageRequest, row: ChangeSet, form: ChangeForm | None = None, *, status: int = 200
) -> HttpResponse:
    may_edit = reading.may_edit(request.actor, row)
    can_edit = may_edit and row.state in EDITABLE
    editable = reading.editable(request.actor, row.cluster_id)
    if form is None and can_edit:
        names = request.GET.getlist("add")[: forms.MOST_QUEUES]
        form = forms.form_of(row, list(editable.filter(name__in=names)) if names else ())
    is_open = row.state in {*EDITABLE, State.SCHEDULED}
    context = {
        "change": row,
        "form": form,
        "lines": forms.lines(row),
        "conflicts": forms.conflict_lines(change_set_rows.differences(row)) if is_open else [],
        "is_open": is_open,
        "may_edit": may_edit,
        "can_edit": can_edit,
        "is_own": row.author_id == request.actor.user_id,
        "impact": change_sets.impact_of(row),
        "need": _need(row),
        "problems": [forms.problem_text(one) for one in row.problems],
        "names": list(editable.values_list("name", flat=True)[:SHOWN_QUEUES]) if can_edit else [],
        "record": subject_activity(request.actor, "changeset", str(row.id)),
        "reverting": list(reading.visible(request.actor).filter(reverts=row)),
    }
    return render_page(request, "changes/detail.html", context, section=SECTION, status=status)


def _need(row: ChangeSet) -> Need:
    found = change_sets.impact_of(row)
    return change_sets.need_of(found) if found else Need.NOTHING


@page
def effect(request: PageRequest, change_set_id: UUID) -> HttpResponse:
    """Simulate on the live cluster what is stored or, by POST, what was typed; write nothing."""
    row = reading.load(request.actor, change_set_id)
    if request.method == "POST":
        form = forms.form_of_post(request.POST)
        edits = form.edits()
    else:
        form, edits = ChangeForm(), change_set_rows.edits_of(row)
    context: dict[str, object] = {"change": row, "form": form, "edits": edits}
    if edits and form.is_valid:
        try:
            found = queue_preview.preview_edits(actor=request.actor, edits=edits, now=now())
        except Invalid as error:
            form.take(error.problems)
        except (Conflict, Denied) as error:
            form.general.append(error_text(error))
        else:
            context |= effect_context(found)
    context["errors"] = [
        (one.name, item.queue, one.label, text)
        for item in form.items.values()
        for one in item.inputs.values()
        for text in one.errors
    ]
    if request.htmx:
        return render(request, "changes/_effect.html", context)
    return render_page(request, "changes/effect.html", context, section=SECTION)


def effect_context(found: Preview) -> dict[str, object]:
    """Return what `queues/_effect.html` draws."""
    return {
        "preview": found,
        "share_rows": change_effect.share_rows(found),
        "chart": change_effect.chart(found),
        "need": change_sets.need_of(found.impact),
    }


@page
@require_POST
def save(request: PageRequest, change_set_id: UUID) -> HttpResponse:
    """Keep what was typed; then check it, or add a queue to it."""
    row = reading.load(request.actor, change_set_id)
    form = forms.form_of_post(request.POST)
    action = request.POST.get("action", "save")
    edits = form.edits()
    if not form.is_valid:
        return _show(request, row, form, status=422)
    try:
        version = request.POST.get("version", "")
        row = change_sets.edit(
            actor=request.actor,
            change_set_id=row.id,
            expected_version=int(version) if version.isdecimal() else row.version,
            edits=edits,
            title=request.POST.get("title", row.title),
            reason=request.POST.get("reason", row.reason),
            now=now(),
        )
        if action == "check":
            change_sets.validate(actor=request.actor, change_set_id=row.id, now=now())
            messages.success(request, _("It keeps all the rules. What it would do is shown below."))
    except Invalid as error:
        form.take(error.problems)
        return _show(request, reading.load(request.actor, row.id), form, status=422)
    except Conflict as error:
        messages.error(request, error_text(error))
        return _to(row)
    return _after_save(request, row, form, action)


def _after_save(
    request: PageRequest, row: ChangeSet, form: ChangeForm, action: str
) -> HttpResponse:
    """Come back to the page, with the queues that are to be added and were not changed yet."""
    kept = {str(edit.queue_id) for edit in form.edits()}
    names = [item.queue for queue_id, item in form.items.items() if queue_id not in kept]
    if action == "add":
        name = request.POST.get("add", "").strip()
        if reading.editable(request.actor, row.cluster_id).filter(name=name).exists():
            names.append(name)
        else:
            messages.error(
                request,
                _("There is no queue “%(name)s” whose numbers are yours to plan.") % {"name": name},
            )
    elif action == "save":
        messages.success(request, _("Kept as a draft."))
    return _to(row, names if action != "check" else ())


@page
@require_POST
def act(request: PageRequest, change_set_id: UUID) -> HttpResponse:
    """Take one step: review, apply, schedule, revert, settle a conflict, throw away."""
    row = reading.load(request.actor, change_set_id)
    action = request.POST.get("action", "")
    if action not in ACTS:
        raise Invalid([Problem("action", "unknown_action", {"action": action[:40]})])
    try:
        return ACTS[action](request, row)
    except (Conflict, Invalid) as error:
        messages.error(request, error_text(error))
    return _to(row)


def _step(request: PageRequest, row: ChangeSet) -> HttpResponse:
    do, done = STEPS[request.POST["action"]]
    do(actor=request.actor, change_set_id=row.id, now=now())
    messages.success(request, str(done))
    return _to(row)


def _review(request: PageRequest, row: ChangeSet) -> HttpResponse:
    do, done = REVIEWS[request.POST["action"]]
    comment = request.POST.get("comment", "")
    do(actor=request.actor, change_set_id=row.id, now=now(), comment=comment)
    messages.success(request, str(done))
    return _to(row)


def _validate(request: PageRequest, row: ChangeSet) -> HttpResponse:
    change_sets.validate(actor=request.actor, change_set_id=row.id, now=now())
    messages.success(request, _("It keeps all the rules. What it would do is shown below."))
    return _to(row)


def _apply(request: PageRequest, row: ChangeSet) -> HttpResponse:
    confirmation = request.POST.get("confirmation", "")
    change_sets.apply(
        actor=request.actor, change_set_id=row.id, now=now(), confirmation=confirmation
    )
    messages.success(request, _("It is in force. “Revert” brings back what was before."))
    return _to(row)


def _schedule(request: PageRequest, row: ChangeSet) -> HttpResponse:
    try:
        at = datetime.fromisoformat(request.POST.get("apply_at", ""))
    except ValueError:
        raise Invalid([Problem("apply_at", "change_set_time", {"days": 366})]) from None
    zone = timezone.get_current_timezone()
    change_sets.schedule(
        actor=request.actor,
        change_set_id=row.id,
        apply_at=at if at.tzinfo else at.replace(tzinfo=zone),
        now=now(),
        confirmation=request.POST.get("confirmation", ""),
    )
    messages.success(request, _("It will be applied by itself, with your rights at that time."))
    return _to(row)


def _revert(request: PageRequest, row: ChangeSet) -> HttpResponse:
    made = change_sets.revert(
        actor=request.actor,
        change_set_id=row.id,
        now=now(),
        reason=request.POST.get("reason", ""),
    )
    if made.state == State.APPLIED:
        messages.success(request, _("What was before is in force again."))
    else:
        messages.warning(request, _("This draft brings back what was; look at it, then apply it."))
    return _to(made)


def _rebase(request: PageRequest, row: ChangeSet) -> HttpResponse:
    change_sets.rebase(
        actor=request.actor,
        change_set_id=row.id,
        expected_version=row.version,
        theirs=forms.chosen_theirs(request.POST),
        now=now(),
    )
    messages.success(request, _("Brought up to date; check it once more."))
    return _to(row)


def _discard(request: PageRequest, row: ChangeSet) -> HttpResponse:
    change_sets.discard(
        actor=request.actor, change_set_id=row.id, expected_version=row.version, now=now()
    )
    messages.success(request, _("The draft is gone."))
    return HttpResponseRedirect(reverse("pages:change_list"))


ACTS: dict[str, Callable[[PageRequest, ChangeSet], HttpResponse]] = {
    **dict.fromkeys(STEPS, _step),
    **dict.fromkeys(REVIEWS, _review),
    "validate": _validate,
    "apply": _apply,
    "schedule": _schedule,
    "revert": _revert,
    "rebase": _rebase,
    "discard": _discard,
}


def _to(row: ChangeSet, added: object = ()) -> HttpResponse:
    target = reverse("pages:change", args=[row.id])
    names = list(added) if isinstance(added, (list, tuple)) else []
    query = f"?{urlencode({'add': names}, doseq=True)}" if names else ""
    return HttpResponseRedirect(target + query)


def title_for(queues: list[Queue]) -> str:
    """Return a title for edits that were typed elsewhere."""
    return _title_of([queue.name for queue in queues])


def _title_of(queues: list[str]) -> str:
    names = ", ".join(queues[:3])
    more = len(queues) - 3
    text = _("Shares of %(names)s") % {"names": names}
    return (f"{text} +{more}" if more > 0 else text)[: change_sets.LONGEST_TITLE]
