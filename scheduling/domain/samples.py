"""The short time series behind the Operations and queue pages, and how long they are kept.

The reconcile loop takes them. A queue's row is written only when its amounts changed: a value holds
until the next row, so that ten thousand idle queues cost nothing.
"""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta
from uuid import UUID

from django.db import connection
from django.db.models import Sum

from scheduling.models import Cluster, ClusterSample, Hold, JobCount, Node
from scheduling.models.job import JobPhase
from scheduling.models.node import NodeState

EVERY = timedelta(seconds=30)
FINE = timedelta(hours=24)
"""How long every sample is kept; of older ones the last of each ten minutes."""
KEPT = timedelta(days=30)
GPU = "nvidia.com/gpu"
WAITING = frozenset({JobPhase.PENDING})
RUNNING = frozenset({JobPhase.RUNNING, JobPhase.RESTARTING, JobPhase.COMPLETING})

_QUEUES = """
    INSERT INTO scheduling_queuesample (queue_id, at, deserved, allocated, requested)
    SELECT s.queue_id, %(now)s, s.deserved, s.allocated, s.requested
    FROM scheduling_queueshare s
    LEFT JOIN LATERAL (
        SELECT deserved, allocated, requested FROM scheduling_queuesample q
        WHERE q.queue_id = s.queue_id ORDER BY q.at DESC LIMIT 1
    ) last ON true
    WHERE last IS NULL OR (last.deserved, last.allocated, last.requested)
        IS DISTINCT FROM (s.deserved, s.allocated, s.requested)
"""
# The last of each bucket stays, since a value holds until the next row; so does the newest of all.
_THIN = """
    DELETE FROM scheduling_{table} old USING (
        SELECT id, row_number() OVER (
            PARTITION BY {owner}_id, date_bin('10 minutes', at, '2000-01-01') ORDER BY at DESC
        ) AS place
        FROM scheduling_{table} WHERE at < %(before)s AND at >= %(since)s
    ) numbered
    WHERE old.id = numbered.id AND numbered.place > 1
"""
_DROP = """
    DELETE FROM scheduling_{table} old WHERE at < %(before)s AND EXISTS (
        SELECT 1 FROM scheduling_{table} newer
        WHERE newer.{owner}_id = old.{owner}_id AND newer.at > old.at
    )
"""
_TABLES = (("queuesample", "queue"), ("clustersample", "cluster"))


def take(*, now: datetime) -> bool:
    """Write a sample of every cluster and of each queue that changed; False if it is too early.

    Five queries and one statement for all queues. A loop that took over samples no earlier than
    its predecessor would have.
    """
    if ClusterSample.objects.filter(at__gt=now - EVERY * 0.9, at__lte=now).exists():
        return False
    held = _held()
    counts = _counts()
    ClusterSample.objects.bulk_create(
        ClusterSample(
            cluster_id=cluster_id,
            at=now,
            capacity=capacity,
            allocated=held.get(cluster_id, {}),
            waiting=counts[cluster_id, "waiting"],
            running=counts[cluster_id, "running"],
        )
        for cluster_id, capacity in _capacities().items()
    )
    with connection.cursor() as cursor:
        cursor.execute(_QUEUES, {"now": now})
    return True


def thin(*, now: datetime) -> None:
    """Make what is older than a day coarser, and delete what is older than a month."""
    values = {"before": now - FINE, "since": now - FINE - timedelta(days=2)}
    with connection.cursor() as cursor:
        for table, owner in _TABLES:
            cursor.execute(_THIN.format(table=table, owner=owner), values)
            cursor.execute(_DROP.format(table=table, owner=owner), {"before": now - KEPT})


def _capacities() -> dict[UUID, Counter[str]]:
    """Sum what the nodes can give on which tasks may be placed."""
    sums = {one: Counter[str]() for one in Cluster.objects.values_list("id", flat=True)}
    ready = Node.objects.filter(state=NodeState.READY, is_cordoned=False, is_draining=False)
    for cluster_id, amounts in ready.values_list("cluster_id", "allocatable"):
        sums[cluster_id].update(amounts)
    return sums


def _held() -> dict[UUID, dict[str, int]]:
    rows = (
        Hold.objects.filter(released_at__isnull=True)
        .values("node__cluster")
        .annotate(cpu=Sum("cpu_milli"), memory=Sum("memory_bytes"), gpu=Sum("gpu_milli"))
        .order_by("node__cluster")
    )
    return {
        row["node__cluster"]: {"cpu": row["cpu"], "memory": row["memory"], GPU: row["gpu"]}
        for row in rows
    }


def _counts() -> Counter[tuple[UUID, str]]:
    """Count waiting and running jobs by cluster, from sums that a trigger keeps."""
    counts: Counter[tuple[UUID, str]] = Counter()
    rows = (
        JobCount.objects.filter(phase__in=[*WAITING, *RUNNING])
        .values_list("queue__cluster_id", "phase")
        .annotate(jobs=Sum("amount"))
    )
    for cluster_id, phase, jobs in rows:
        counts[cluster_id, "waiting" if phase in WAITING else "running"] += jobs
    return counts
