"""Holds: what an attempt keeps of a node until it has certainly ended; usage is their sum."""

from collections.abc import Collection, Mapping
from datetime import datetime
from uuid import UUID

from django.db import connection
from django.db.models import Sum

from scheduling.models import DeviceHold, Hold, Queue, QueueClosure
from scheduling.spec.job_spec import GPU_RESOURCE

COLUMNS = {"cpu": "cpu_milli", "memory": "memory_bytes", GPU_RESOURCE: "gpu_milli"}
"""Resource -> its column; every other resource lies in `extended`."""
POD = 1000
"""What each hold keeps of `pods`."""


def release(attempt_ids: Collection[UUID], *, now: datetime) -> int:
    """Free what these attempts hold; return how many holds were live."""
    if not attempt_ids:
        return 0
    live = Hold.objects.filter(attempt_id__in=attempt_ids, released_at__isnull=True)
    ids = list(live.values_list("id", flat=True))
    DeviceHold.objects.filter(hold_id__in=ids, released_at__isnull=True).update(released_at=now)
    return Hold.objects.filter(id__in=ids, released_at__isnull=True).update(released_at=now)


def extended_of(request: Mapping[str, int]) -> dict[str, int]:
    """Return what of a request has no column of its own."""
    return {
        name: amount
        for name, amount in request.items()
        if name not in COLUMNS and name != "pods" and amount
    }


NODE_USAGE = """
WITH live AS (
    SELECT node_id, cpu_milli, memory_bytes, gpu_milli, extended FROM scheduling_hold
    WHERE node_id = ANY(%(nodes)s) AND released_at IS NULL
)
SELECT node_id, %(cpu)s, sum(cpu_milli) FROM live GROUP BY node_id
UNION ALL SELECT node_id, %(memory)s, sum(memory_bytes) FROM live GROUP BY node_id
UNION ALL SELECT node_id, %(gpu)s, sum(gpu_milli) FROM live GROUP BY node_id
UNION ALL SELECT node_id, 'pods', count(*) * %(pod)s FROM live GROUP BY node_id
UNION ALL SELECT node_id, more.key, sum(more.value::bigint)
FROM live, jsonb_each_text(extended) AS more GROUP BY node_id, more.key
"""


def usage_of_nodes(node_ids: Collection[UUID]) -> dict[UUID, dict[str, int]]:
    """Return what is held on each of the nodes now, by resource, pods included."""
    usage: dict[UUID, dict[str, int]] = {node_id: {} for node_id in node_ids}
    if not usage:
        return usage
    cpu, memory, gpu = COLUMNS
    with connection.cursor() as cursor:
        cursor.execute(
            NODE_USAGE,
            {"nodes": list(usage), "cpu": cpu, "memory": memory, "gpu": gpu, "pod": POD},
        )
        for node_id, resource, amount in cursor.fetchall():
            usage[node_id][resource] = int(amount)
    return usage


def usage_of_queue(queue: Queue) -> dict[str, int]:
    """Return what a queue and all below it hold now: the sum over the live holds."""
    below = QueueClosure.objects.filter(ancestor=queue).values("descendant_id")
    live = Hold.objects.filter(queue_id__in=below, released_at__isnull=True)
    totals = live.aggregate(**{f"sum_{c}": Sum(c) for c in COLUMNS.values()})
    usage = {resource: totals[f"sum_{column}"] or 0 for resource, column in COLUMNS.items()}
    usage["pods"] = live.count() * POD
    for extended in live.exclude(extended={}).values_list("extended", flat=True):
        for name, amount in extended.items():
            usage[name] = usage.get(name, 0) + amount
    return usage
