"""The tree of queues, one queue, and their numbers edited with the effect shown first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

from django.contrib import messages
from django.http import HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_POST

from controlplane.charts import allocation as allocation_charts
from controlplane.charts import queue_tree as tree_chart
from controlplane.forms import changes as change_forms
from controlplane.forms import queues as forms
from controlplane.forms.people import TextForm
from controlplane.forms.people import form_of as text_form_of
from controlplane.forms.queues import QueueForm
from controlplane.pages import queue_detail
from controlplane.pages.changes import effect_context, title_for
from controlplane.pages.frame import PageRequest, now, page, render_page
from controlplane.pages.job_actions import error_text
from controlplane.pages.queue_rows import View, context_of
from scheduling.domain import change_sets, queue_preview
from scheduling.domain import queues as queue_domain
from scheduling.domain.change_sets import Need
from scheduling.domain.queries import change_sets as change_reading
from scheduling.domain.queries import cluster as cluster_queries
from scheduling.domain.queries import lending, operations
from scheduling.domain.queries import queues as queue_queries
from scheduling.domain.queries.queues import TreePart
from scheduling.domain.queue_changes import QueueEdit
from scheduling.models import Cluster, Queue
from scheduling.spec.queue_tree import MOST_WEIGHT
from tenants.domain.access import Actor, Verb, reads
from tenants.domain.errors import Conflict, Invalid, NotFound, Problem
from tenants.models import OrgUnit

SECTION = "pages:queue_tree"
SHOWN_SPAN = timedelta(hours=6)
ACTIONS = {
    "open": (queue_domain.open_queue, gettext_lazy("The queue takes jobs again.")),
    "close": (
        queue_domain.close_queue,
        gettext_lazy("The queue takes no new jobs; those it has go on to their end."),
    ),
}


@page
def tree(request: PageRequest) -> HttpResponse:
    """Show the tree; with `?edit=1` the numbers that the viewer may edit are fields."""
    cluster = cluster_queries.load_cluster(request.GET.get("cluster", ""))
    found = queue_queries.part(request.actor, cluster.id, View.of_query(request.GET).cut)
    view = View.of_query(request.GET, found.rows)
    form = forms.form_of_rows(found.rows, view.resource) if "edit" in request.GET else None
    return _show_tree(request, cluster, found, view, form)


def _show_tree(
    request: PageRequest,
    cluster: Cluster,
    found: TreePart,
    view: View,
    form: QueueForm | None,
    *,
    status: int = 200,
) -> HttpResponse:
    rows = found.rows
    context = {
        **context_of(found, view, form),
        "cluster": cluster,
        "form": form,
        "resources": [(one, replace(view, resource=one).url()) for one in forms.RESOURCES],
        "edit_url": view.url(edit="1"),
        "may_edit": any(row.may_edit and row.parent_id is not None for row in rows),
        "may_create": any(row.may_create_below for row in rows),
        "refused": change_reading.refused(request.actor, cluster.id),
        "chart": tree_chart.chart(rows, view.resource),
    }
    return render_page(request, "queues/tree.html", context, section=SECTION, status=status)


@page
@require_POST
def edit(request: PageRequest) -> HttpResponse:
    """Check what was typed, show its effect, or apply it."""
    cluster = cluster_queries.load_cluster(request.GET.get("cluster", ""))
    form = forms.form_of_post(request.POST)
    action = request.POST.get("action")
    if action in {"apply", "keep"}:
        return _apply(request, cluster, form, is_kept=action == "keep")
    return _preview(request, cluster, form)


def _names(request: PageRequest, form: QueueForm) -> dict[str, str]:
    """Return queue name -> id for those of the form that the viewer may read."""
    rows = Queue.objects.visible_to(reads(request.actor, Verb.QUEUE_READ)).filter(
        id__in=list(form.rows)
    )
    return {name: str(queue_id) for name, queue_id in rows.values_list("name", "id")}


def _preview(request: PageRequest, cluster: Cluster, form: QueueForm) -> HttpResponse:
    edits = form.edits()
    context: dict[str, object] = {"form": form, "edits": edits, "resource": form.resource}
    if edits and form.is_valid:
        try:
            found = queue_preview.preview_edits(actor=request.actor, edits=edits, now=now())
            context |= effect_context(found)
        except Invalid as error:
            form.take(error.problems, _names(request, form))
        except Conflict as error:
            form.general.append(error_text(error))
    if not request.htmx:
        if not form.is_valid:
            return _show_problems(request, cluster, form)
        return render_page(request, "queues/preview.html", context, section=SECTION)
    by_id = {queue_id: name for name, queue_id in _names(request, form).items()}
    context["problems"] = [
        (f"q-{row.id}-{name}", by_id.get(row.id, ""), forms.LABELS[name], text)
        for row in form.rows.values()
        for name, texts in row.errors.items()
        for text in texts
    ]
    return render(request, "queues/_preview.html", context)


def _show_problems(request: PageRequest, cluster: Cluster, form: QueueForm) -> HttpResponse:
    """Show the tree with what was typed, and what is wrong with it at its field."""
    view = replace(View.of_query(request.GET), resource=form.resource)
    found = queue_queries.part(request.actor, cluster.id, view.cut)
    return _show_tree(request, cluster, found, view, form, status=422)


def _apply(
    request: PageRequest, cluster: Cluster, form: QueueForm, *, is_kept: bool
) -> HttpResponse:
    edits = form.edits()
    target = f"{reverse('pages:queue_tree')}?resource={form.resource}"
    if form.is_valid and not edits:
        messages.info(request, _("Nothing was changed."))
        return HttpResponseRedirect(target)
    if form.is_valid:
        try:
            if is_kept or _need(request, edits) != Need.NOTHING:
                return _keep(request, cluster, edits, is_asked=is_kept)
            changed = change_sets.edit_now(
                actor=request.actor,
                edits=edits,
                now=now(),
                reason=request.POST.get("reason", "")[:500],
            )
        except Invalid as error:
            form.take(error.problems, _names(request, form))
        except Conflict as error:
            return _conflict(request, form, error)
        else:
            names = ", ".join(queue.name for queue in changed)
            messages.success(request, _("Applied to %(names)s.") % {"names": names})
            return HttpResponseRedirect(target)
    return _show_problems(request, cluster, form)


def _need(request: PageRequest, edits: Sequence[QueueEdit]) -> Need:
    """Say whether so large a change is to be looked at or confirmed before it is made."""
    found = queue_preview.preview_edits(actor=request.actor, edits=edits, now=now())
    return change_sets.need_of(found.impact)


def _keep(
    request: PageRequest, cluster: Cluster, edits: Sequence[QueueEdit], *, is_asked: bool
) -> HttpResponse:
    """Keep what was typed as a change set and go on there."""
    queues = Queue.objects.filter(id__in=[edit.queue_id for edit in edits]).order_by("name")
    row = change_sets.create(
        actor=request.actor,
        cluster_id=cluster.id,
        title=title_for(list(queues)),
        edits=edits,
        reason=request.POST.get("reason", "")[:500],
        now=now(),
    )
    if is_asked:
        messages.success(request, _("Kept as a draft; nothing is applied yet."))
    else:
        change_sets.validate(actor=request.actor, change_set_id=row.id, now=now())
        text = _("It takes so much from those who run now that it was kept as a change set.")
        messages.warning(request, text)
    return HttpResponseRedirect(reverse("pages:change", args=[row.id]))


def _conflict(request: PageRequest, form: QueueForm, error: Conflict) -> HttpResponse:
    """Show what somebody else changed meanwhile, beside what was wanted."""
    differences = error.current if isinstance(error.current, list) else []
    if not differences:
        raise error
    stale = {str(one.queue.id) for one in differences}
    context = {
        "form": form,
        "rows": forms.conflict_rows(differences, form),
        "others": [row for queue_id, row in form.rows.items() if queue_id not in stale],
        "reason": request.POST.get("reason", ""),
    }
    return render_page(request, "queues/conflict.html", context, section=SECTION, status=409)


@page
def detail(request: PageRequest, name: str) -> HttpResponse:
    """Show one queue: what it has, deserves and lends, what waits in it."""
    cluster = cluster_queries.load_cluster(request.GET.get("cluster", ""))
    found = queue_detail.named(request.actor, cluster, name)
    context = {
        "cluster": cluster,
        "path": found.path[:-1],
        **queue_detail.share_context(cluster, found),
        **queue_detail.jobs_context(request.actor, found),
        "orders": change_forms.policies(),
    }
    return render_page(request, "queues/detail.html", context, section=SECTION)


@page
def sharing(request: PageRequest, name: str) -> HttpResponse:
    """Show who borrows and lends beside a queue, and what it held and deserved over time."""
    cluster = cluster_queries.load_cluster(request.GET.get("cluster", ""))
    queue = queue_queries.by_name(request.actor, cluster.id, name)
    capacity = queue_detail.capacity(cluster)
    resource = queue_detail.main_resource(capacity)
    history = operations.allocation(
        cluster, [(queue.id, queue.name)], now=now(), span=SHOWN_SPAN, resource=resource
    )
    context = {
        "queue": queue,
        "resource": resource,
        **_sharing_out(request.actor, queue, capacity, resource),
        "chart": allocation_charts.against_deserved(history),
    }
    if request.htmx:
        return render(request, "queues/_sharing.html", context)
    return render_page(request, "queues/sharing.html", context, section=SECTION)


def _sharing_out(
    actor: Actor, queue: Queue, capacity: dict[str, int], resource: str
) -> dict[str, object]:
    """Compare a queue with its siblings, where the reader sees the parent and so all of them."""
    if queue.parent_id is None:
        return {"balances": [], "total": 0}
    try:
        parent = queue_queries.detail(actor, queue.parent_id)
    except NotFound:
        return {"balances": [], "total": 0}
    owed = (parent.row.deserved or {}).get(resource)
    total = capacity.get(resource, 0) if parent.row.parent_id is None or owed is None else owed
    return {"balances": lending.balances(parent.children, total, resource), "total": total}


@page
@require_POST
def act(request: PageRequest, name: str) -> HttpResponse:
    """Open, close or delete a queue, or let it serve its jobs in another order."""
    cluster = cluster_queries.load_cluster(request.GET.get("cluster", ""))
    queue = queue_queries.by_name(request.actor, cluster.id, name)
    action = request.POST.get("action", "")
    reason = request.POST.get("reason", "")[:500]
    if action not in {*ACTIONS, "delete", "order"}:
        raise Invalid([Problem("action", "unknown_action", {"action": action[:40]})])
    try:
        if action == "delete":
            return _delete(request, queue, reason)
        if action == "order":
            return _order(request, queue, reason)
        do, done = ACTIONS[action]
        do(actor=request.actor, queue_id=queue.id, now=now(), reason=reason)
    except (Conflict, Invalid) as error:
        messages.error(request, error_text(error))
    else:
        messages.success(request, str(done))
    return HttpResponseRedirect(reverse("pages:queue", args=[name]))


def _version(request: PageRequest, queue: Queue) -> int:
    """Return the version that the person saw."""
    version = request.POST.get("version", "")
    return int(version) if version.isdecimal() else queue.version


def _order(request: PageRequest, queue: Queue, reason: str) -> HttpResponse:
    edit = QueueEdit(
        queue_id=queue.id,
        expected_version=_version(request, queue),
        policy=request.POST.get("policy", "")[:40],
    )
    if change_sets.edit_now(actor=request.actor, edits=[edit], now=now(), reason=reason):
        messages.success(request, _("It serves its jobs in another order from now on."))
    else:
        messages.info(request, _("Nothing was changed."))
    return HttpResponseRedirect(reverse("pages:queue", args=[queue.name]))


def _delete(request: PageRequest, queue: Queue, reason: str) -> HttpResponse:
    queue_domain.delete_queue(
        actor=request.actor,
        queue_id=queue.id,
        expected_version=_version(request, queue),
        now=now(),
        reason=reason,
    )
    messages.success(request, _("The queue is gone."))
    return HttpResponseRedirect(reverse("pages:queue_tree"))


@page
def new(request: PageRequest) -> HttpResponse:
    """Give an org unit a queue."""
    cluster = cluster_queries.load_cluster(request.GET.get("cluster", ""))
    rows = queue_queries.tree(request.actor, cluster.id)
    parents = [row for row in rows if row.may_create_below]
    if not parents:
        raise NotFound("queue")
    given = request.POST if request.method == "POST" else {"weight": "1", **request.GET.dict()}
    form = text_form_of(given, "name", "unit", "parent", "weight")
    if request.method == "POST":
        queue = _create(request, form)
        if queue is not None:
            messages.success(request, _("The queue takes jobs now."))
            return HttpResponseRedirect(reverse("pages:queue", args=[queue.name]))
    context = {
        "cluster": cluster,
        "form": form,
        "parents": [(str(row.id), row.name) for row in parents],
        "units": [
            (str(unit.id), f"{unit.parent.name} / {unit.name}" if unit.parent else unit.name)
            for unit in _units_without_queue(request.actor, cluster)
        ],
    }
    return render_page(request, "queues/new.html", context, section=SECTION, status=form.status)


def _create(request: PageRequest, form: TextForm) -> Queue | None:
    """Make the queue; None if something is wrong, which the form then says at its field."""
    parent_id, unit_id, weight = form.unit("parent"), form.unit("unit"), form.number("weight")
    if not 1 <= weight <= MOST_WEIGHT:
        given = form.text("weight")[:40]
        form.say("weight", "out_of_range", {"value": given, "min": 1, "max": MOST_WEIGHT})
    if parent_id is None or unit_id is None or not form.is_valid:
        return None
    try:
        return queue_domain.create_queue(
            actor=request.actor,
            parent_id=parent_id,
            unit_id=unit_id,
            name=form.text("name"),
            now=now(),
            numbers=queue_domain.QueueNumbers(weight=weight),
        )
    except (Invalid, Conflict) as error:
        form.take(error)
        return None


def _units_without_queue(actor: Actor, cluster: Cluster) -> list[OrgUnit]:
    """Return the units below the viewer's grants that have no queue in this cluster yet."""
    scope = reads(actor, Verb.ORG_READ)
    units = OrgUnit.objects.filter(is_archived=False).exclude(queues__cluster=cluster)
    if not scope.sees_everything:
        units = units.filter(ancestor_links__ancestor__in=scope.readable_units)
    return list(units.select_related("parent").order_by("name").distinct()[:500])
