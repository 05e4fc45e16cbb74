"""Finds what changed by looking at the rows, for when nobody brings hints."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.db import connection

from scheduling.models import Cluster, Job, Node, Queue, QueueShare

Hint = tuple[str, str]
"""A topic and the kind of what changed in it."""
_DATA_KINDS = ("log", "metrics", "usage")


@dataclass(frozen=True, slots=True)
class Seen:
    """How far the rows were looked at.

    A transaction whose id is below `xid` had ended by then, and its rows were seen.
    """

    xid: int
    shares_at: datetime | None


def begin() -> Seen:
    """Return the mark from which the next look counts."""
    return Seen(_oldest_in_flight(), _newest_share())


def since(seen: Seen, topics: Collection[str]) -> tuple[list[Hint], Seen]:
    """Return hints for those of `topics` whose rows changed, and the mark for the next look.

    Feeds are always hinted at: they ask by their own cursor, which costs the same.
    """
    mark = begin()
    changed = _changed_topics(seen, topics)
    if mark.shares_at != seen.shares_at:
        changed.update(topic for topic in topics if topic.startswith(("queue:", "cluster:")))
    hints = [(topic, "state") for topic in topics if topic in changed]
    hints += [(one, kind) for one in topics if one.startswith("job:") for kind in _DATA_KINDS]
    return hints, mark


def _changed_topics(seen: Seen, topics: Collection[str]) -> set[str]:
    """Return the topics of all rows changed since: at most one statement for each table."""
    found: set[str] = set()
    words = {topic.partition(":")[0] for topic in topics}
    if words & {"jobs", "queue", "user", "tenant"}:
        rows = Job.objects.filter(changed_xid__gte=seen.xid)
        for queue, owner, tenant in rows.values_list(
            "queue_id", "owner_id", "tenant_id"
        ).distinct():
            found |= {f"jobs:{queue}", f"queue:{queue}", f"user:{owner}", f"tenant:{tenant}"}
    if jobs := _ids(topics, "job"):
        rows = Job.objects.filter(id__in=jobs, changed_xid__gte=seen.xid)
        found |= _named("job", rows.values_list("id", flat=True))
    if words & {"node", "cluster"}:
        nodes = Node.objects.filter(changed_xid__gte=seen.xid).values_list("id", "cluster_id")
        for node, cluster in nodes:
            found |= {f"node:{node}", f"cluster:{cluster}"}
        clusters = Cluster.objects.filter(changed_xid__gte=seen.xid)
        found |= _named("cluster", clusters.values_list("id", flat=True))
    if "queue" in words:
        queues = Queue.objects.filter(changed_xid__gte=seen.xid)
        found |= _named("queue", queues.values_list("id", flat=True))
    return found


def _named(word: str, ids: Iterable[UUID]) -> set[str]:
    return {f"{word}:{object_id}" for object_id in ids}


def _ids(topics: Collection[str], word: str) -> list[str]:
    return [topic.partition(":")[2] for topic in topics if topic.startswith(f"{word}:")]


def _newest_share() -> datetime | None:
    newest = QueueShare.objects.order_by("-updated_at")
    return newest.values_list("updated_at", flat=True).first()


def _oldest_in_flight() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint")
        return int(cursor.fetchone()[0])
