"""What the page of one node shows, whole or as a live part of it."""

from __future__ import annotations

from datetime import datetime, timedelta

from controlplane.charts import node_usage as node_charts
from scheduling.domain.queries import cluster as cluster_queries
from scheduling.models import Node
from tenants.domain.access import Actor, Verb, may

USAGE_SPAN = timedelta(hours=1)


def node_context(actor: Actor, node: Node, *, now: datetime) -> dict[str, object]:
    """Return what runs on a node, what was measured, and its facts."""
    attempts, others = cluster_queries.live_attempts(actor, node)
    usage = cluster_queries.node_usage(node, since=now - USAGE_SPAN)
    load = cluster_queries.node_loads(actor, [node], now=now)[0]
    names = {slot.device.uuid: f"GPU {slot.device.index}" for slot in load.slots}
    return {
        "load": load,
        "attempts": attempts,
        "others": others,
        "charts": node_charts.charts(usage, names),
        "may_see_labels": may(actor, Verb.NODE_LABELS, None),
    }
