"""The machines: the map of a cluster, one node, adding a machine, cordon, drain, remove."""

from __future__ import annotations

from datetime import timedelta

from django.conf import settings
from django.contrib import messages
from django.http import HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_POST

from controlplane.charts import slot_groups
from controlplane.forms.nodes import MarksForm
from controlplane.pages.fragments import map_context
from controlplane.pages.frame import PageRequest, now, page, render_page
from controlplane.pages.job_actions import error_text
from controlplane.pages.node_detail import node_context
from scheduling.domain import node_marks, nodes
from scheduling.domain.deeds import Deed
from scheduling.domain.queries import cluster as cluster_queries
from scheduling.models import Cluster, Node
from tenants.domain.access import Verb, may, require
from tenants.domain.errors import Conflict, Invalid, Problem

SECTION = "pages:cluster"
TOKEN_HOURS = 1
ACTIONS = {
    "cordon": (nodes.cordon, gettext_lazy("Nothing new starts on it; what runs goes on.")),
    "uncordon": (nodes.uncordon, gettext_lazy("Tasks may start on it again.")),
    "drain": (nodes.drain, gettext_lazy("It is being emptied; its tasks are moved with grace.")),
    "remove": (nodes.remove, gettext_lazy("It was taken out of the cluster.")),
}


@page
def overview(request: PageRequest) -> HttpResponse:
    """Show nodes and GPUs, coloured by measured use or by what the address asks for."""
    cluster = cluster_queries.load_cluster(request.GET.get("cluster", ""))
    after = request.GET.get("after", "")[:253]
    found = cluster_queries.cluster_map(request.actor, cluster, now=now(), after=after)
    colour = slot_groups.colouring(request.GET.get("colour", ""))
    context = {
        "cluster": cluster,
        **map_context(found, colour),
        "live_argument": f"{colour}|{after}",
        "may_join": may(request.actor, Verb.NODE_JOIN, None),
        "may_see_scheduler": may(request.actor, Verb.SETTINGS_READ, None),
    }
    return render_page(request, "cluster/map.html", context, section=SECTION)


@page
def node(request: PageRequest, name: str) -> HttpResponse:
    """Show one node: what it has, what runs there, what was measured."""
    cluster = cluster_queries.load_cluster(request.GET.get("cluster", ""))
    require(request.actor, Verb.NODE_READ, None, what="node")
    return _show_node(request, cluster, cluster_queries.load_node(cluster, name))


def _show_node(
    request: PageRequest,
    cluster: Cluster,
    found: Node,
    typed: dict[str, object] | None = None,
    status: int = 200,
) -> HttpResponse:
    context = {
        "cluster": cluster,
        "may_administer": may(request.actor, Verb.NODE_ADMIN, None),
        **node_context(request.actor, found, now=now()),
        "marks": MarksForm.of_node(found),
        **(typed or {}),
    }
    return render_page(request, "cluster/node.html", context, section=SECTION, status=status)


@page
@require_POST
def node_mark(request: PageRequest, name: str) -> HttpResponse:
    """Replace the labels and taints of a node; what cannot be is shown beside what was typed."""
    cluster = cluster_queries.load_cluster(request.GET.get("cluster", ""))
    found = cluster_queries.load_node(cluster, name)
    form = MarksForm.of_post(request.POST)
    try:
        node_marks.edit(
            deed=Deed(request.actor, now(), request.POST.get("reason", "")[:500]),
            node_id=found.id,
            labels=form.read_labels(),
            taints=form.read_taints(),
            expected_version=form.version,
        )
    except (Conflict, Invalid) as error:
        form.take(error)
        status = 422 if isinstance(error, Invalid) else 409
        return _show_node(request, cluster, found, {"marks": form}, status=status)
    messages.success(request, _("Saved; the next cycle goes by it."))
    return HttpResponseRedirect(reverse("pages:node", args=[name]))


@page
@require_POST
def node_act(request: PageRequest, name: str) -> HttpResponse:
    """Cordon, uncordon, drain or remove a node."""
    cluster = cluster_queries.load_cluster(request.GET.get("cluster", ""))
    found = cluster_queries.load_node(cluster, name)
    action = request.POST.get("action", "")
    if action not in ACTIONS:
        raise Invalid([Problem("action", "unknown_action", {"action": action[:40]})])
    act, done = ACTIONS[action]
    try:
        act(
            actor=request.actor,
            node_id=found.id,
            now=now(),
            reason=request.POST.get("reason", "")[:500],
        )
    except Conflict as error:
        messages.error(request, error_text(error))
    else:
        messages.success(request, str(done))
    still_there = Node.objects.filter(id=found.id).exclude(state="Removed").exists()
    return HttpResponseRedirect(
        reverse("pages:node", args=[name]) if still_there else reverse("pages:cluster")
    )


@page
def join(request: PageRequest) -> HttpResponse:
    """Show how a machine joins; on POST make the one-use token for it, shown once."""
    require(request.actor, Verb.NODE_JOIN, None, what="cluster")
    cluster = cluster_queries.load_cluster(request.GET.get("cluster", ""))
    context: dict[str, object] = {
        "cluster": cluster,
        "hours": TOKEN_HOURS,
        "open_tokens": cluster_queries.open_join_tokens(cluster, now=now()),
    }
    if request.method == "POST":
        is_fleet = request.POST.get("fleet", "")
        uses = int(is_fleet) if is_fleet.isdecimal() and 0 < int(is_fleet) <= 1000 else 1  # noqa: PLR2004 -- the largest fleet of one token
        _token, secret = nodes.join_token_create(
            actor=request.actor,
            cluster=cluster,
            now=now(),
            valid_for=timedelta(hours=TOKEN_HOURS),
            uses=uses,
        )
        context |= {"secret": secret, "gateway": settings.TERRACE_GATEWAY_URL, "uses": uses}
        messages.success(request, _("The token is shown once; copy the command now."))
    return render_page(request, "cluster/join.html", context, section=SECTION)
