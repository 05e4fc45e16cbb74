"""Jobs that ran for as long as they may: they are terminated, with that as the reason."""

from datetime import datetime
from uuid import UUID

from django.db import connection

from scheduling.domain.transitions import Batch
from scheduling.lifecycle.states import JobPhase
from scheduling.lifecycle.values import TimeLimitReached


def overdue(now: datetime, *, limit: int) -> list[UUID]:
    """Return running jobs whose time limit is over since their first start."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT id FROM scheduling_job"
            " WHERE phase = %s AND spec ->> 'time_limit_seconds' IS NOT NULL"
            " AND started_at + (spec ->> 'time_limit_seconds')::float * interval '1 second' <= %s"
            " ORDER BY started_at LIMIT %s",
            [str(JobPhase.RUNNING), now, limit],
        )
        return [row[0] for row in cursor.fetchall()]


def end_job(*, job_id: UUID, now: datetime) -> None:
    """End one job in the current transaction; one that has ended meanwhile stays as it is."""
    batch = Batch(now=now, actor_label="time limit")
    for work in batch.lock([job_id]):
        work.tell(TimeLimitReached())
    batch.flush()
