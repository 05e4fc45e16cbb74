"""Taking queues and nodes out of service: what that concerns is shown first, then asked for."""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from django.contrib import messages
from django.http import HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from controlplane.pages.frame import PageRequest, now, page, render_page
from controlplane.pages.job_actions import error_text
from scheduling.domain import nodes, queue_draining
from scheduling.domain.bootstrap import DEFAULT
from scheduling.domain.queries import cluster as cluster_queries
from scheduling.domain.queries import queues as queue_queries
from scheduling.domain.queue_draining import Drained, Running, Waiting
from scheduling.models import Job, Queue
from tenants.domain.access import Verb, require
from tenants.domain.errors import Conflict, Invalid, Problem

SHOWN_REFUSALS = 5
NODE_ACTS = {"cordon": nodes.cordon, "drain": nodes.drain, "remove": nodes.remove}
SHOWN_TARGETS = 500


@page
def queue(request: PageRequest, name: str) -> HttpResponse:
    """Say what closing a queue concerns, and close it as was chosen."""
    cluster = cluster_queries.load_cluster(request.GET.get("cluster", ""))
    found = queue_queries.by_name(request.actor, cluster.id, name)
    if request.method == "POST":
        try:
            _tell(request, _drain(request, found))
        except (Conflict, Invalid) as error:
            messages.error(request, error_text(error))
        return HttpResponseRedirect(reverse("pages:queue_retire", args=[name]))
    detail = queue_queries.detail(request.actor, found.id, most=0)
    contents = queue_draining.contents(found)
    context = {
        "queue": detail.row,
        "path": detail.path[:-1],
        "contents": contents,
        "targets": list(queue_draining.targets(request.actor, found)[:SHOWN_TARGETS]),
        "is_protected": found.parent_id is None or found.name == DEFAULT,
        "can_delete": not contents.below and not contents.ever and found.state == "Closed",
    }
    return render_page(request, "queues/retire.html", context, section="pages:queue_tree")


def _drain(request: PageRequest, found: Queue) -> Drained:
    return queue_draining.drain(
        actor=request.actor,
        queue_id=found.id,
        waiting=Waiting(_chosen(request, "waiting", Waiting)),
        running=Running(_chosen(request, "running", Running)),
        target_id=_uuid(request.POST.get("target", "")),
        now=now(),
        reason=request.POST.get("reason", "")[:500],
    )


def _chosen(request: PageRequest, field: str, kind: Iterable[str]) -> str:
    value = request.POST.get(field, "keep")
    if value not in list(kind):
        raise Invalid([Problem(field, "unknown_action", {"action": value[:40]})])
    return value


def _uuid(text: str) -> UUID | None:
    try:
        return UUID(text) if text else None
    except ValueError:
        return None


def _tell(request: PageRequest, result: Drained) -> None:
    messages.success(request, _("The queue takes no new jobs."))
    if result.done:
        text = ngettext("Done for %(n)d job.", "Done for %(n)d jobs.", result.done)
        messages.success(request, text % {"n": result.done})
    if result.left:
        text = ngettext(
            "%(n)d job is left; send the form again to go on.",
            "%(n)d jobs are left; send the form again to go on.",
            result.left,
        )
        messages.warning(request, text % {"n": result.left})
    shown = result.refused[:SHOWN_REFUSALS]
    names = dict(
        Job.objects.visible_to(request.actor)
        .filter(id__in=[one.job_id for one in shown])
        .values_list("id", "name")
    )
    for one in shown:
        assert one.error is not None  # noqa: S101 - only refused ones are listed
        messages.error(request, f"{names.get(one.job_id, one.job_id)}: {error_text(one.error)}")


@page
def node(request: PageRequest, name: str) -> HttpResponse:
    """Say what runs on a node and what would happen to it, then cordon, drain or remove it."""
    require(request.actor, Verb.NODE_ADMIN, None, what="node")
    cluster = cluster_queries.load_cluster(request.GET.get("cluster", ""))
    found = cluster_queries.load_node(cluster, name)
    attempts, others = cluster_queries.live_attempts(request.actor, found)
    if request.method == "POST":
        action = request.POST.get("action", "")
        if action not in NODE_ACTS:
            raise Invalid([Problem("action", "unknown_action", {"action": action[:40]})])
        is_confirmed = request.POST.get("confirmation", "").strip() == found.name
        if action != "cordon" and (attempts or others) and not is_confirmed:
            refusal = Conflict("node_name_to_confirm", {"node": found.name})
            messages.error(request, error_text(refusal))
        else:
            return _act_on_node(request, found.id, name, action)
    context = {
        "cluster": cluster,
        "node": found,
        "attempts": attempts,
        "others": others,
        "busy": len(attempts) + others,
    }
    return render_page(request, "cluster/retire.html", context, section="pages:cluster")


def _act_on_node(request: PageRequest, node_id: UUID, name: str, action: str) -> HttpResponse:
    reason = request.POST.get("reason", "")[:500]
    try:
        NODE_ACTS[action](actor=request.actor, node_id=node_id, now=now(), reason=reason)
    except Conflict as error:
        messages.error(request, error_text(error))
        return HttpResponseRedirect(reverse("pages:node_retire", args=[name]))
    done = {
        "cordon": _("Nothing new starts on it; what runs goes on."),
        "drain": _("It is being emptied; its tasks are moved with grace."),
        "remove": _("It was taken out of the cluster."),
    }
    messages.success(request, done[action])
    if action == "remove":
        return HttpResponseRedirect(reverse("pages:cluster"))
    return HttpResponseRedirect(reverse("pages:node", args=[name]))
