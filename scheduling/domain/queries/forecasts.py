"""The read side of forecasts: what is foretold of a job, and how often it came true."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from django.db.models import Count, F, Q

from scheduling.models import Job, StartForecast
from scheduling.models.job import JobPhase

FRESH = timedelta(minutes=15)
"""An older forecast is not shown: the process that makes them is away."""


def newest(job: Job, *, now: datetime | None = None) -> StartForecast | None:
    """Return the forecast in force of a job that waits, None where there is none."""
    if job.phase != JobPhase.PENDING:
        return None
    return newest_of([job.id], now=now).get(job.id)


def newest_of(
    job_ids: Collection[UUID], *, now: datetime | None = None
) -> dict[UUID, StartForecast]:
    """Return the forecasts in force by job, in one query; with `now` only fresh ones."""
    rows = StartForecast.objects.filter(job_id__in=job_ids, started_at__isnull=True)
    if now is not None:
        rows = rows.filter(made_at__gte=now - FRESH)
    return {row.job_id: row for row in rows.order_by("job_id", "-made_at").distinct("job_id")}


@dataclass(frozen=True, slots=True)
class Calibration:
    """How often jobs started by the foretold time: about half by p50 and nine in ten by p90."""

    count: int
    by_p50: int
    by_p90: int


def calibration(cluster_id: UUID, *, since: datetime) -> Calibration:
    """Count what came true of the forecasts made since then; those without a p90 are left out."""
    rows = StartForecast.objects.filter(
        job__queue__cluster_id=cluster_id,
        made_at__gte=since,
        started_at__isnull=False,
        p90_at__isnull=False,
    )
    found = rows.aggregate(
        count=Count("id"),
        by_p50=Count("id", filter=Q(started_at__lte=F("p50_at"))),
        by_p90=Count("id", filter=Q(started_at__lte=F("p90_at"))),
    )
    return Calibration(found["count"], found["by_p50"], found["by_p90"])
