"""Why a job waited at which time: the reasons of the past, each with its end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import Max

from scheduling.domain.queries.redaction import redact_rows
from scheduling.models import Attempt, Job, PastReason
from tenants.models.scoped import Scope

MOST_CHANGES = 1000
"""So many changes of a job's phase are looked at to find where its reasons ended."""


@dataclass(frozen=True, slots=True)
class Wait:
    """A reason and when it stood; without an end it stands still."""

    since: datetime
    until: datetime | None
    code: str
    params: dict[str, Any]  # Any: JSON values

    @property
    def seconds(self) -> float | None:
        """Return how long it stood, None of one that stands still."""
        return None if self.until is None else (self.until - self.since).total_seconds()


def waits_of(
    scope: Scope, job: Job, *, before: datetime | None = None, limit: int = 50
) -> list[Wait]:
    """Return why a job waited, the newest first, as far as it began before a time."""
    rows = job.past_reasons.all()
    if before is not None:
        rows = rows.filter(at__lt=before)
    return with_ends(scope, job, list(rows.order_by("-minute")[:limit]))


def with_ends(scope: Scope, job: Job, rows: Sequence[PastReason]) -> list[Wait]:
    """Return a job's reasons, which are given newest first, as the reader may see them.

    A reason ends with the next one, with the job's next change of phase, or when its last task got
    a place. Five queries at most.
    """
    if not rows:
        return []
    redact_rows(scope, rows, own_queues={job.queue.name})
    newer = job.past_reasons.filter(minute__gt=rows[0].minute).order_by("minute").first()
    followers = [newer, *rows][: len(rows)]
    changes = list(
        job.history.filter(subject="job", at__gt=rows[-1].at)
        .order_by("at")
        .values_list("at", flat=True)[:MOST_CHANGES]
    )
    waits = []
    for row, follower in zip(rows, followers, strict=True):
        ends = [at for at in changes if at > row.at]
        ends += [follower.at] if follower is not None else []
        until = min(ends, default=None) or _all_placed_at(job, row.at)
        waits.append(Wait(row.at, until, row.code, row.params))
    return waits


def _all_placed_at(job: Job, since: datetime) -> datetime | None:
    """Return when the last task of a job that grew got its place, if none waits any more."""
    if job.tasks_pending:
        return None
    bound = Attempt.objects.filter(job=job, bound_at__gt=since)
    last: datetime | None = bound.aggregate(last=Max("bound_at"))["last"]
    return last
