"""Counters kept as deltas, and figures of the outbox for the health page."""

from django.db import connection

FOLD_FROM = 500
"""So many rows of deltas are worth folding."""

_FOLD = """
    WITH gone AS (
        DELETE FROM scheduling_jobcount
        WHERE id IN (SELECT id FROM scheduling_jobcount FOR UPDATE SKIP LOCKED)
        RETURNING queue_id, unit_id, phase, amount
    )
    INSERT INTO scheduling_jobcount (queue_id, unit_id, phase, amount)
    SELECT queue_id, unit_id, phase, sum(amount) FROM gone
    GROUP BY queue_id, unit_id, phase HAVING sum(amount) <> 0
"""


def fold(*, least: int = FOLD_FROM) -> bool:
    """Replace the deltas of job counts by their sums once there are many; tell whether it did.

    Sums are the same before and after: one statement deletes and inserts.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM (SELECT 1 FROM scheduling_jobcount LIMIT %s) AS sampled", [least]
        )
        if cursor.fetchone()[0] < least:
            return False
        cursor.execute(_FOLD)
    return True


def outbox_state() -> dict[str, float | int]:
    """Return how many messages are due, dead, and how old the oldest due one is, in seconds."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FILTER (WHERE NOT is_dead), count(*) FILTER (WHERE is_dead),"
            " coalesce(extract(epoch FROM clock_timestamp()"
            " - min(created_at) FILTER (WHERE NOT is_dead)), 0)"
            " FROM tenants_outboxrow"
        )
        waiting, dead, age = cursor.fetchone()
    return {"waiting": int(waiting), "dead": int(dead), "oldest_seconds": round(float(age), 1)}
