"""The read side of forecasts: what is foretold of a job, and how often it came true."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from django.db.models import Count, F, Q

from scheduling.models import Job, StartForecast
from scheduling.models.job import JobPhase

FRESH = timedelta(minutes=15)
"""An older forecast is not shown: the process that makes them is away."""


def newest(job: Job, *, now: datetime) -> StartForecast | None:
    """Return the forecast in force of a job that waits, None where there is no fresh one."""
    if job.phase != JobPhase.PENDING:
        return None
    rows = job.forecasts.filter(started_at__isnull=True, made_at__gte=now - FRESH)
    return rows.order_by("-made_at").first()


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
