"""The wallboard: capacity, queues and the map on a screen that people pass, without controls."""

from __future__ import annotations

from django.http import HttpResponse
from django.shortcuts import render

from controlplane.charts.bullets import bullet
from controlplane.pages.frame import PageRequest, now, page, render_page
from controlplane.pages.queue_detail import main_resource
from scheduling.domain.queries import cluster as cluster_queries
from scheduling.domain.queries import operations

SECTION = "pages:ops"
SHOWN_QUEUES = 8
"""So many bars are still read from across a hall."""


@page
def board(request: PageRequest) -> HttpResponse:
    """Show the frame of the board; its parts are asked for by scripts, again and again."""
    cluster = cluster_queries.load_cluster(request.GET.get("cluster", ""))
    return render_page(request, "wall/board.html", {"cluster": cluster}, section=SECTION)


@page
def numbers(request: PageRequest) -> HttpResponse:
    """Show how much is in use, what waits, each queue's bar and the next promise to keep."""
    cluster = cluster_queries.load_cluster(request.GET.get("cluster", ""))
    moment = now()
    figures = operations.figures(request.actor, cluster, now=moment)
    resource = main_resource(figures.capacity)
    queues = operations.stacked_queues(request.actor, cluster, most=SHOWN_QUEUES)
    due = operations.deadlines(request.actor, moment)
    context = {
        "cluster": cluster,
        "figures": figures,
        "resource": resource,
        "held": figures.allocated.get(resource, 0),
        "capacity": figures.capacity.get(resource, 0),
        "bars": [
            (
                name,
                bullet(
                    resource,
                    minimum=0,
                    deserved=deserved.get(resource, 0),
                    allocated=allocated.get(resource, 0),
                    maximum=None,
                ),
            )
            for name, allocated, deserved in operations.shares_now(queues)
        ],
        "due": due[0] if due else None,
        "at": moment,
    }
    if request.htmx:
        return render(request, "wall/_numbers.html", context)
    full = {**context, "part": "wall/_numbers.html", "title": cluster.name}
    return render_page(request, "ops/part.html", full, section=SECTION)
