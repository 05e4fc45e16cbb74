"""What the page of one queue shows, whole or as live parts of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from uuid import UUID

from controlplane.charts import bullets as bullet_charts
from controlplane.forms.queues import RESOURCES
from scheduling.domain.queries import cluster as cluster_queries
from scheduling.domain.queries import lending
from scheduling.domain.queries import queues as queue_queries
from scheduling.domain.queries.jobs import JobFilter, list_jobs
from scheduling.domain.queries.queues import QueueDetail, QueueRow
from scheduling.models import Cluster, Job, Queue
from tenants.domain.access import Actor, Verb, reads
from tenants.domain.errors import NotFound

SHOWN_JOBS = 20
Context = dict[str, object]


def named(actor: Actor, cluster: Cluster, name: str) -> QueueDetail:
    """Return a queue by name with those below it.

    Raises:
        NotFound: there is none that the actor sees.
    """
    return queue_queries.detail_named(actor, cluster.id, name, most=queue_queries.AT_ONCE)


def of_id(actor: Actor, queue_id: str) -> tuple[Cluster, QueueDetail]:
    """Return a queue by its id, as live regions name it, with its cluster.

    Raises:
        NotFound: there is none that the actor sees.
    """
    queues = Queue.objects.visible_to(reads(actor, Verb.QUEUE_READ))
    queue = queues.select_related("cluster").filter(id=UUID(queue_id)).first()
    if queue is None:
        raise NotFound("queue")
    return queue.cluster, named(actor, queue.cluster, queue.name)


def share_context(cluster: Cluster, found: QueueDetail) -> Context:
    """Return what a queue has and deserves, and those below it."""
    row = found.row
    total = capacity(cluster)
    bullets = bullet_charts.bullets(
        minimum=row.min,
        deserved=row.deserved or {},
        allocated=row.allocated or {},
        maximum=row.max,
        capacity=total,
    )
    return {
        "queue": row,
        "children": found.children,
        "bullets": bullets,
        "resource": main_resource(total),
    }


def main_resource(total: Mapping[str, int]) -> str:
    """Return the resource by which shares are compared first: GPUs where there are any."""
    return RESOURCES[0] if total.get(RESOURCES[0]) else "cpu"


def jobs_context(actor: Actor, found: QueueDetail) -> Context:
    """Return what waits in a queue and what runs."""
    running = list_jobs(actor, JobFilter(tab="running", queue=found.row.name), limit=SHOWN_JOBS)
    return {
        "queue": found.row,
        "waiting": _waiting(actor, found.row),
        "running": running.jobs,
        "now": datetime.now(UTC),
    }


def _waiting(actor: Actor, queue: QueueRow) -> Sequence[Job]:
    """Return a leaf's waiting jobs in their order, of a group the newest of all below it."""
    if queue.is_leaf:
        return lending.waiting_in_order(actor, queue, limit=SHOWN_JOBS)
    where = JobFilter(tab="waiting", queue=queue.name)
    return list_jobs(actor, where, limit=SHOWN_JOBS).jobs


def capacity(cluster: Cluster) -> dict[str, int]:
    """Return what all ready nodes of the cluster have together."""
    total: dict[str, int] = {}
    for amounts in cluster_queries.allocatable(cluster):
        for name, amount in amounts.items():
            total[name] = total.get(name, 0) + amount
    return total
