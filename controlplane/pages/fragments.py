"""The parts of pages that live updates render alone: a template and a loader for each name.

A loader gets the actor, the id of the topic's object and the region's argument, reads with the
actor's rights and returns the template's context. It raises `NotFound` where there is nothing to
see. Pages render the same templates with the same loaders, so a live page equals a fresh one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from controlplane.charts import metrics as metric_charts
from controlplane.charts import slot_groups
from controlplane.charts import slots as slot_chart
from controlplane.charts import timeline as timeline_chart
from controlplane.charts import usage as usage_charts
from controlplane.charts.slot_groups import Colouring
from controlplane.pages import queue_detail
from controlplane.pages.job_logs import Choice, log_tail
from controlplane.pages.node_detail import node_context
from controlplane.pages.notifications import unread
from controlplane.pages.queue_rows import View, chart_context, rows_context
from controlplane.pages.status_line import status_line
from scheduling.domain.queries import cluster as cluster_queries
from scheduling.domain.queries import forecasts
from scheduling.domain.queries import jobs as job_queries
from scheduling.domain.queries.cluster import ClusterMap
from scheduling.domain.queries.waits import waits_of
from scheduling.models import Cluster, Job, Node
from scheduling.models.job import JobPhase
from scheduling.models.node import NodeState
from tenants.domain import personal
from tenants.domain.access import Actor, Verb, logs_verb, may, reads, rights_on
from tenants.domain.errors import NotFound

Context = dict[str, object]
OVERVIEW = "overview"
"""The argument of a part that stands on the overview of a job, where an empty part is left out."""


@dataclass(frozen=True, slots=True)
class Fragment:
    """One live part of a page."""

    template: str
    load: Callable[[Actor, str, str], Context]
    kinds: frozenset[str] = field(default_factory=frozenset)
    """Kinds of hints that concern it; none: every change of state."""
    is_personal: bool = False
    """Whether two readers with the same rights may see different things (what they own)."""


def _now() -> datetime:
    return datetime.now(UTC)


def job_row(actor: Actor, job_id: str, argument: str) -> Context:
    """Load one row of a list of jobs; the argument `check` adds the box that chooses it."""
    job = job_queries.load_job(actor, job_id)
    return {"job": job, "now": _now(), "has_check": argument == "check"}


def job_header(actor: Actor, job_id: str, _argument: str) -> Context:
    """Load what stands above the tabs of a job."""
    return job_header_of(actor, job_queries.load_job(actor, job_id))


def job_header_of(actor: Actor, job: Job) -> Context:
    """Return the header's context for a job at hand."""
    failure = job_queries.first_failure(job) if job.phase == JobPhase.FAILED else None
    forecast = forecasts.newest(job, now=_now())
    rights = rights_on(actor, job.unit_id, owner_id=job.owner_id)
    return {
        "job": job,
        "status": status_line(job, forecast, failure),
        "forecast": forecast,
        "failure": failure,
        "now": _now(),
        "may_control": Verb.JOB_CONTROL in rights,
        "may_read_logs": logs_verb(are_logs_shared=job.queue.are_logs_shared) in rights,
    }


def job_facts(actor: Actor, job_id: str, _argument: str) -> Context:
    """Load what a job is and what one may do next."""
    return {"job": job_queries.load_job(actor, job_id)}


def job_tasks(actor: Actor, job_id: str, _argument: str) -> Context:
    """Load the tasks of a job by role."""
    job = job_queries.load_job(actor, job_id)
    return {"job": job, "roles": job_queries.tasks_by_role(actor, job)}


def job_history(actor: Actor, job_id: str, argument: str) -> Context:
    """Load the newest rows of a job's history; the argument says how many."""
    job = job_queries.load_job(actor, job_id)
    limit = int(argument) if argument.isdecimal() and int(argument) <= 500 else 100  # noqa: PLR2004 -- a page
    rows = job_queries.history_of(actor, job, limit=limit + 1)
    return {
        "job": job,
        "history": rows[:limit],
        "more": rows[limit - 1].seq if len(rows) > limit else 0,
    }


def job_timeline(actor: Actor, job_id: str, _argument: str) -> Context:
    """Load the attempts of a job as bars over time."""
    return job_timeline_of(actor, job_queries.load_job(actor, job_id))


def job_timeline_of(actor: Actor, job: Job) -> Context:
    """Return the same for a job at hand."""
    attempts = job_queries.attempts_of(job)
    waits = waits_of(actor, job)
    chart = timeline_chart.chart(job, attempts, waits, _now())
    return {"job": job, "attempts": attempts, "waits": waits, "chart": chart}


def job_metrics(actor: Actor, job_id: str, argument: str) -> Context:
    """Load what the tasks reported of themselves; the overview says nothing where that is none."""
    return job_metrics_of(job_queries.load_job(actor, job_id), argument)


def job_metrics_of(job: Job, argument: str) -> Context:
    """Return the same for a job at hand."""
    return {
        "job": job,
        "charts": metric_charts.charts(job_queries.metric_series(job)),
        "is_overview": argument == OVERVIEW,
    }


def job_usage(actor: Actor, job_id: str, _argument: str) -> Context:
    """Load the measured use of a job's tasks."""
    return job_usage_of(job_queries.load_job(actor, job_id))


def job_usage_of(job: Job) -> Context:
    """Return the same for a job at hand."""
    return {"job": job, "charts": usage_charts.charts(job_queries.usage_series(job))}


def job_log(actor: Actor, job_id: str, _argument: str) -> Context:
    """Load the tail of the log that most wants reading; it appears when the first task starts."""
    return log_tail(actor, job_queries.load_job(actor, job_id), Choice())


def my_jobs(actor: Actor, user_id: str, _argument: str) -> Context:
    """Load the viewer's own live and lately ended jobs."""
    if str(actor.user_id) != user_id:
        raise NotFound("user")
    return my_jobs_of(actor)


def my_jobs_of(actor: Actor) -> Context:
    """Return what `My work` shows of the actor's own jobs: two queries."""
    mine = job_queries.own_jobs(actor)
    return {
        "mine": mine,
        "now": _now(),
        "may_submit": _anywhere(actor, Verb.JOB_CREATE),
        "may_build": _anywhere(actor, Verb.ORG_ADMIN),
    }


def _anywhere(actor: Actor, verb: Verb) -> bool:
    """Tell whether the actor may do something in any unit; no query."""
    scope = reads(actor, verb)
    return scope.sees_everything or bool(scope.readable_units)


def my_bell(actor: Actor, user_id: str, _argument: str) -> Context:
    """Load how much the viewer has not read."""
    if str(actor.user_id) != user_id:
        raise NotFound("user")
    return {"unread": unread(actor, personal.notification_choice(actor))}


def _cluster(cluster_id: str) -> Cluster:
    cluster = Cluster.objects.filter(id=cluster_id).first()
    if cluster is None:
        raise NotFound("cluster")
    return cluster


def cluster_map(actor: Actor, cluster_id: str, argument: str) -> Context:
    """Load a page of the map of a cluster; the argument: its colouring, the node before it."""
    colour, _bar, after = argument.rpartition("|")
    found = cluster_queries.cluster_map(actor, _cluster(cluster_id), now=_now(), after=after)
    return map_context(found, slot_groups.colouring(colour))


def map_context(found: ClusterMap, colour: Colouring) -> Context:
    """Return what `cluster/_map.html` draws."""
    groups = None if colour == Colouring.USE else slot_groups.grouped(found.loads, colour)
    return {
        "map": found,
        "chart": slot_chart.chart(found, groups=groups),
        "groups": groups,
        "colour": colour,
        "colours": slot_groups.NAMES.items(),
    }


def queue_rows(actor: Actor, cluster_id: str, argument: str) -> Context:
    """Load the rows of a cluster's tree of queues; the argument says which and of what."""
    return rows_context(actor, _cluster(cluster_id).id, View.of_argument(argument))


def queue_chart(actor: Actor, cluster_id: str, argument: str) -> Context:
    """Load the chart below the tree of queues; the argument is the rows'."""
    return chart_context(actor, _cluster(cluster_id).id, View.of_argument(argument))


def node_body(actor: Actor, node_id: str, _argument: str) -> Context:
    """Load what the page of a node shows below its name."""
    nodes = Node.objects.select_related("cluster").exclude(state=NodeState.REMOVED)
    node = nodes.filter(id=node_id).first()
    if node is None or not may(actor, Verb.NODE_READ, None):
        raise NotFound("node")
    return node_context(actor, node, now=_now())


def queue_share(actor: Actor, queue_id: str, _argument: str) -> Context:
    """Load what a queue has and deserves, and those below it."""
    return queue_detail.share_context(*queue_detail.of_id(actor, queue_id))


def queue_jobs(actor: Actor, queue_id: str, _argument: str) -> Context:
    """Load what waits in a queue and what runs."""
    _, found = queue_detail.of_id(actor, queue_id)
    return queue_detail.jobs_context(actor, found)


def queue_facts(actor: Actor, queue_id: str, _argument: str) -> Context:
    """Load what a queue is set to."""
    _, found = queue_detail.of_id(actor, queue_id)
    return {"queue": found.row}


FRAGMENTS: dict[str, Fragment] = {
    "job_row": Fragment("jobs/_row_job.html", job_row),
    "job_header": Fragment("jobs/_header.html", job_header, is_personal=True),
    "job_facts": Fragment("jobs/_facts.html", job_facts),
    "job_tasks": Fragment("jobs/_tasks.html", job_tasks),
    "job_history": Fragment("jobs/_history.html", job_history),
    "job_log": Fragment("jobs/_log_card.html", job_log, is_personal=True),
    "job_timeline": Fragment("jobs/_timeline.html", job_timeline),
    "job_metrics": Fragment("jobs/_metrics.html", job_metrics, kinds=frozenset({"metrics"})),
    "job_usage": Fragment("jobs/_usage.html", job_usage, kinds=frozenset({"usage"})),
    "my_bell": Fragment("notifications/_bell.html", my_bell, is_personal=True),
    "my_jobs": Fragment("home/_jobs.html", my_jobs, is_personal=True),
    "queue_rows": Fragment("queues/_rows.html", queue_rows),
    "queue_chart": Fragment("queues/_chart.html", queue_chart),
    "queue_share": Fragment("queues/_share.html", queue_share),
    "queue_jobs": Fragment("queues/_jobs.html", queue_jobs),
    "queue_facts": Fragment("queues/_facts.html", queue_facts),
    "cluster_map": Fragment("cluster/_map.html", cluster_map),
    "node_body": Fragment("cluster/_node.html", node_body, kinds=frozenset({"state", "usage"})),
}
