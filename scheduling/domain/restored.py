"""What a database restored from a backup must be told before anything may act on it.

Its rows are of the past: attempts that it believes to run may have ended and been followed by
others that it never heard of, and agents have seen higher epochs than it remembers. The caller has
made sure that nobody works on it and has waited `nodes.silence_limit()`: every task on a node with
an agent has ended by then, since no lease was renewed.

1. Every loop's epoch jumps above all that any agent may have seen.
2. Every live attempt on a node with an agent is Lost, and its commands are dropped: the scheduler
   decides anew, with new attempts. What nodes still report of the old ones changes nothing.
3. Rows marked with transaction ids of the old server are marked with one of the new server, whose
   ids begin low; else every refresh would read all of them, for as long as it takes to catch up.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from django.db import connection, transaction

from scheduling.domain import nodes
from scheduling.domain.launches import scheduler_scope
from scheduling.models import Cluster, Lease, Node
from scheduling.models.node import NodeState
from tenants.domain import audit
from tenants.domain.access import SYSTEM
from tenants.domain.audit import Subject

LOOPS = ("relay", "reconcile")
MARKED = ("scheduling_cluster", "scheduling_queue", "scheduling_node", "scheduling_job")

# The clock's seconds: a later restore of the same backup must not repeat the epochs of the first
# one's days, and nobody takes a lease once a second.
JUMP = """
    INSERT INTO scheduling_lease AS l (scope, holder, epoch, expires_at, acquired_at, detail)
    SELECT scope, '', floor(extract(epoch FROM clock_timestamp()))::bigint,
        clock_timestamp(), clock_timestamp(), '{}'
    FROM unnest(%s::text[]) AS scope
    ON CONFLICT (scope) DO UPDATE
    SET holder = '', epoch = greatest(l.epoch + 1, excluded.epoch),
        expires_at = excluded.expires_at, detail = '{}'
"""


@dataclass(frozen=True, slots=True)
class Restored:
    """What was changed, for the person who restores."""

    attempts_lost: int
    nodes_forgotten: int


def begin_anew(*, taken_at: datetime, now: datetime, rejoining: str = "") -> Restored:
    """Make a restored database fit to be acted on; in one transaction, safe to repeat.

    Args:
        taken_at: When the backup was taken, for the audit trail.
        now: The database's time.
        rejoining: A node whose machine has lost its credential and will join anew under its name;
            empty for none.
    """
    with transaction.atomic():
        _jump()
        why = f"restored from the backup of {taken_at.isoformat(timespec='seconds')}"
        lost = nodes.give_up_all(now=now, why=why)
        forgotten = 0
        for node in Node.objects.filter(name=rejoining).exclude(state=NodeState.REMOVED):
            nodes.remove(actor=SYSTEM, node_id=node.id, now=now, reason=why)
            forgotten += 1
        _mark()
        audit.record(
            actor=SYSTEM,
            action="installation.restore",
            subject=Subject("installation", "", "installation"),
            before=None,
            after={"backup_of": taken_at, "attempts_lost": lost},
            unit=None,
            now=now,
        )
    return Restored(attempts_lost=lost, nodes_forgotten=forgotten)


def _jump() -> None:
    scopes = {scheduler_scope(one) for one in Cluster.objects.values_list("id", flat=True)}
    scopes |= {*LOOPS, *Lease.objects.values_list("scope", flat=True)}
    with connection.cursor() as cursor:
        cursor.execute(JUMP, [sorted(scopes)])


def _mark() -> None:
    """Touch the rows whose mark lies in the future; the tables' trigger does the rest."""
    with connection.cursor() as cursor:
        for table in MARKED:
            cursor.execute(
                f"UPDATE {table} SET changed_xid = 0"  # noqa: S608 - a constant name
                " WHERE changed_xid > pg_current_xact_id()::text::bigint"
            )
