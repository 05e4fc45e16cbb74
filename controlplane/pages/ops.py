"""Operations: what needs somebody first, then allocation, waits and evictions with their rows."""

from __future__ import annotations

from datetime import timedelta

from django.contrib import messages
from django.http import HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext
from django.views.decorators.http import require_POST

from controlplane.charts import allocation as allocation_charts
from controlplane.charts import slots as slot_chart
from controlplane.pages.frame import PageRequest, now, page, render_page
from controlplane.units import milli
from scheduling.domain import attention_marks
from scheduling.domain.queries import cluster as cluster_queries
from scheduling.domain.queries import forecasts, operations
from scheduling.domain.queries.operations import GPU, Attention, Kind
from scheduling.domain.wording import sentence
from scheduling.models import Cluster
from tenants.domain.access import Verb, may
from tenants.domain.errors import Invalid

SECTION = "pages:ops"
SPANS = {
    "1h": timedelta(hours=1),
    "6h": timedelta(hours=6),
    "24h": timedelta(hours=24),
    "7d": timedelta(days=7),
}
WORDS: dict[Kind, tuple[str, object]] = {
    Kind.LOOP_ABSENT: ("failed", gettext_lazy("Nobody runs it: start a worker for the loops.")),
    Kind.NODE_SILENT: (
        "failed",
        gettext_lazy("The node is silent; its tasks are tried elsewhere."),
    ),
    Kind.DEVICE_SICK: (
        "failed",
        gettext_lazy("A GPU of it is sick or gone; nothing starts on it."),
    ),
    Kind.JOB_STUCK: ("unknown", gettext_lazy("It stays in a phase that should have passed.")),
    Kind.JOB_NOT_STARTING: ("pending", gettext_lazy("A task was placed and does not start.")),
    Kind.JOB_NOT_STOPPING: ("terminating", gettext_lazy("A task was told to stop and does not.")),
    Kind.JOB_SET_ASIDE: ("held", gettext_lazy("Planning failed because of it; it is set aside.")),
    Kind.JOB_UNSEEN: ("queued", gettext_lazy("No cycle has looked at it.")),
    Kind.DEADLINE: ("pending", gettext_lazy("The time that it may wait is over, or nearly so.")),
    Kind.CHANGE_REFUSED: ("failed", gettext_lazy("A planned change was refused; see why.")),
    Kind.CHANGE_TO_REVIEW: ("pending", gettext_lazy("A change of queues waits for your approval.")),
}
LINKS = {
    Kind.LOOP_ABSENT: "pages:health",
    Kind.LETTERS_DEAD: "pages:health",
    Kind.NODE_SILENT: "pages:node",
    Kind.DEVICE_SICK: "pages:node",
    Kind.QUEUE_STARVED: "pages:queue",
    Kind.CHANGE_REFUSED: "pages:change",
    Kind.CHANGE_TO_REVIEW: "pages:change",
    Kind.JOB_UNSEEN: "pages:job_why",
    Kind.DEADLINE: "pages:job_why",
}
"""Where a kind leads; all others to their job."""


@page
def overview(request: PageRequest) -> HttpResponse:
    """Show what needs attention; figures and charts come after it."""
    cluster = cluster_queries.first_cluster()
    context = {
        "cluster": cluster,
        "lines": attention_lines(request),
        "looked_at": now(),
        "span": _span(request, cluster),
        "spans": list(SPANS),
    }
    if request.htmx:
        return render(request, "ops/_attention.html", context)
    return render_page(request, "ops/overview.html", context, section=SECTION)


def attention_lines(request: PageRequest) -> list[dict[str, object]]:
    """Return what wants somebody as glyph, words and link; what nobody looks after first."""
    sees_health = may(request.actor, Verb.SETTINGS_READ, None)
    found = [(one, one.line) for one in attention_marks.listed(request.actor, now=now())]
    return [
        {
            "state": _words(line)[0],
            "text": _words(line)[1],
            "name": line.name,
            "since": line.since,
            "url": _link(line, sees_health=sees_health),
            "kind": str(line.kind),
            "subject": line.id,
            "mark": one.mark,
            "may_mark": one.may_mark,
        }
        for one, line in found
    ]


@page
@require_POST
def look_after(request: PageRequest) -> HttpResponse:
    """Take a line of the list, give it to somebody, or give it back."""
    key = (request.POST.get("kind", ""), request.POST.get("subject", ""))
    if request.POST.get("action") == "give_back":
        attention_marks.give_back(actor=request.actor, key=key, now=now())
        return HttpResponseRedirect(reverse(SECTION))
    name = request.POST.get("assignee", "").strip() or request.user.username
    try:
        attention_marks.assign(actor=request.actor, key=key, username=name, now=now())
    except Invalid as error:
        for problem in error.problems:
            messages.error(request, sentence(problem.code, problem.params))
    return HttpResponseRedirect(reverse(SECTION))


def _words(one: Attention) -> tuple[str, str]:
    if one.kind == Kind.LETTERS_DEAD:
        text = ngettext(
            "%(n)d message could not be delivered and was given up.",
            "%(n)d messages could not be delivered and were given up.",
            one.amount,
        )
        return "failed", text % {"n": one.amount}
    if one.kind == Kind.QUEUE_STARVED:
        text = _("It deserves %(gpus)s GPUs more than it holds, and jobs of it wait.")
        return "pending", text % {"gpus": milli(one.amount)}
    if one.kind == Kind.GPU_IDLE:
        text = _("It holds %(gpus)s GPUs and does not use them.")
        return "held", text % {"gpus": milli(one.amount)}
    state, words = WORDS[one.kind]
    return state, str(words)


def _link(one: Attention, *, sees_health: bool) -> str:
    target = LINKS.get(one.kind, "pages:job")
    if target == "pages:health":
        return reverse(target) if sees_health else ""
    return reverse(target, args=[one.id])


def _span(request: PageRequest, cluster: Cluster | None) -> str:
    """Return what is asked for; else six hours, or one of a cluster that is younger than that."""
    wanted = request.GET.get("span", "")
    if wanted in SPANS:
        return wanted
    is_young = cluster is not None and now() - cluster.created_at < SPANS["6h"]
    return "1h" if is_young else "6h"


@page
def figures(request: PageRequest) -> HttpResponse:
    """Show the tiles and what the queues held over time."""
    cluster = cluster_queries.load_cluster(request.GET.get("cluster", ""))
    clock = now()
    queues = operations.stacked_queues(request.actor, cluster)
    span = _span(request, cluster)
    found = operations.allocation(cluster, queues, now=clock, span=SPANS[span])
    if not any(found.capacity.values):
        found = operations.allocation(cluster, queues, now=clock, span=SPANS[span], resource="cpu")
    context = {
        "cluster": cluster,
        "figures": operations.figures(request.actor, cluster, now=clock),
        "chart": allocation_charts.stacked(found),
        "span": span,
        "spans": list(SPANS),
        "gpu": GPU,
    }
    return _part(request, "ops/_figures.html", _("Figures"), context)


@page
def small_map(request: PageRequest) -> HttpResponse:
    """Show the nodes and their GPUs, small."""
    cluster = cluster_queries.load_cluster(request.GET.get("cluster", ""))
    found = cluster_queries.cluster_map(request.actor, cluster, now=now())
    context = {"map": found, "chart": slot_chart.chart(found, is_small=True)}
    return _part(request, "ops/_map.html", _("GPUs by node"), context)


def _part(
    request: PageRequest, template: str, title: str, context: dict[str, object]
) -> HttpResponse:
    """Render a part of the page: alone for scripts, inside the frame without them."""
    if request.htmx:
        return render(request, template, context)
    full = {**context, "part": template, "title": title}
    return render_page(request, "ops/part.html", full, section=SECTION)


@page
def evictions(request: PageRequest) -> HttpResponse:
    """List the tasks that lost their place in the last hour."""
    rows = list(operations.evicted(request.actor, now=now())[:200])
    return render_page(request, "ops/evictions.html", {"rows": rows}, section=SECTION)


@page
def starts(request: PageRequest) -> HttpResponse:
    """List the jobs that started in the last hour, those that waited longest first."""
    clock = now()
    cluster = cluster_queries.load_cluster(request.GET.get("cluster", ""))
    jobs = operations.started(request.actor, now=clock)
    told = forecasts.first_told([job.id for job in jobs])
    context = {
        "rows": [(job, told.get(job.id)) for job in jobs],
        "calibration": forecasts.lately(request.actor, cluster_id=cluster.id, now=clock),
    }
    return render_page(request, "ops/starts.html", context, section=SECTION)
