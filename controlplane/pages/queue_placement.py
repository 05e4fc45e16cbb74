"""Where a queue's jobs may run and what it is stated to deserve: one form."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from controlplane.forms import queue_placement as forms
from controlplane.forms.people import TextForm
from controlplane.pages.frame import PageRequest, now, page, render_page
from scheduling.domain import queue_placement
from scheduling.domain.cycles import configuration_of
from scheduling.domain.deeds import Deed
from scheduling.domain.queries import cluster as cluster_queries
from scheduling.domain.queries import queues as queue_queries
from scheduling.domain.queue_placement import NodeGroups
from scheduling.models import Cluster, Queue
from tenants.domain.access import Verb, may
from tenants.domain.errors import Conflict, Invalid

READERS = ("nodegroup", "capacity")
"""The plugins that go by it."""


@page
def placement(request: PageRequest, name: str) -> HttpResponse:
    """Show what is stated of a queue as fields; on POST state it anew."""
    cluster = cluster_queries.load_cluster(request.GET.get("cluster", ""))
    queue = queue_queries.by_name(request.actor, cluster.id, name)
    queue_placement.require_editor(request.actor, queue)
    if request.method != "POST":
        form = forms.form_of_placement(queue_placement.placement_of(queue))
        return _show(request, cluster, queue, form)
    form = forms.form_of_post(request.POST)
    groups = _save(request, queue, form)
    if groups is None:
        return _show(request, cluster, queue_queries.by_name(request.actor, cluster.id, name), form)
    _tell(request, cluster, groups, is_deserved=bool(forms.deserved_of(form)))
    _warn_of_unknown(request, cluster, groups)
    return HttpResponseRedirect(reverse("pages:queue", args=[name]))


def _save(request: PageRequest, queue: Queue, form: TextForm) -> NodeGroups | None:
    """State what was typed; None if something is wrong, which the form then says at its field."""
    groups, deserved = forms.groups_of(form), forms.deserved_of(form)
    if problems := queue_placement.problems_of(groups):
        forms.take(form, Invalid(problems))  # all at once, beside what could not be read
    if not form.is_valid:
        return None
    try:
        queue_placement.edit(
            deed=Deed(request.actor, now(), form.text("reason")[:500]),
            queue_id=queue.id,
            node_groups=groups,
            stated_deserved=deserved,
            expected_version=form.number("version"),
        )
    except (Conflict, Invalid) as error:
        forms.take(form, error)
        return None
    return groups


def _tell(request: PageRequest, cluster: Cluster, groups: NodeGroups, *, is_deserved: bool) -> None:
    """Say that it is saved, and which plugin is missing for it to have an effect."""
    wanted = {"nodegroup": bool(groups.named()), "capacity": is_deserved}
    missing = [name for name in _unread(cluster) if wanted[name]]
    if missing:
        text = _("Saved. The scheduler's configuration does not name %(plugins)s: no effect yet.")
        messages.warning(request, text % {"plugins": ", ".join(missing)})
    else:
        messages.success(request, _("Saved; the next cycle goes by it."))
    if groups.named() and not groups.allowed():
        text = _("Its jobs may run on no group: name those that it runs on, prefers or avoids.")
        messages.warning(request, text)


def _unread(cluster: Cluster) -> list[str]:
    """Return which of the plugins that go by it the configuration does not name."""
    named = {one.name for tier in configuration_of(cluster.id).tiers for one in tier}
    return [name for name in READERS if name not in named]


def _warn_of_unknown(request: PageRequest, cluster: Cluster, groups: NodeGroups) -> None:
    """Name the groups that no node has, where the person may know the nodes' labels."""
    if not may(request.actor, Verb.NODE_LABELS, None):
        return
    unknown = sorted(groups.named() - cluster_queries.node_groups(cluster).keys())
    if unknown:
        text = ngettext(
            "No node is in the group %(names)s now; a label of a node puts it there.",
            "No node is in the groups %(names)s now; labels of nodes put them there.",
            len(unknown),
        )
        messages.warning(request, text % {"names": ", ".join(unknown)})


def _show(request: PageRequest, cluster: Cluster, queue: Queue, form: TextForm) -> HttpResponse:
    knows_nodes = may(request.actor, Verb.NODE_LABELS, None)
    context = {
        "queue": queue,
        "form": form,
        "group_fields": forms.GROUPS,
        "deserved_fields": forms.deserved_fields(form),
        "stated": queue_placement.placement_of(queue),
        "known_groups": cluster_queries.node_groups(cluster) if knows_nodes else None,
        "unread": _unread(cluster),
        "may_see_scheduler": may(request.actor, Verb.SETTINGS_READ, None),
    }
    return render_page(
        request, "queues/placement.html", context, section="pages:queue_tree", status=form.status
    )
