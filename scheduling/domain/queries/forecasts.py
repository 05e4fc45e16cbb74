"""The read side of forecasts: what is foretold of a job, and how often it came true."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from django.db.models import Count, F, Q, QuerySet

from scheduling.models import Job, Queue, StartForecast
from scheduling.models.job import JobPhase
from tenants.domain import access
from tenants.domain.access import Actor

FRESH = timedelta(minutes=15)
"""An older forecast is not shown: the process that makes them is away."""
LEAST_TOLD = 20
"""Of fewer forecasts no share is told."""
LATELY = 500
"""Forecasts by which it is told how often they come true."""


def newest(job: Job, *, now: datetime) -> StartForecast | None:
    """Return the forecast in force of a job that waits, None where there is no fresh one."""
    if job.phase != JobPhase.PENDING:
        return None
    rows = job.forecasts.filter(started_at__isnull=True, made_at__gte=now - FRESH)
    return rows.order_by("-made_at").first()


def last_in_line(actor: Actor, queue_name: str, *, now: datetime) -> StartForecast | None:
    """Return the latest start that is told of the jobs waiting in a queue that the reader sees.

    One that names no time is returned only where none does.
    """
    queues = Queue.objects.visible_to(access.reads(actor, access.Verb.QUEUE_READ))
    fresh = StartForecast.objects.filter(
        job__queue__in=queues.filter(name=queue_name),
        job__phase=JobPhase.PENDING,
        started_at__isnull=True,
        made_at__gte=now - FRESH,
    )
    newest = fresh.order_by("job_id", "-made_at").distinct("job_id").values("id")
    rows = StartForecast.objects.filter(id__in=newest)
    return rows.order_by(F("p50_at").desc(nulls_last=True)).first()


@dataclass(frozen=True, slots=True)
class Calibration:
    """How often jobs started by the foretold time: about half by p50 and nine in ten by p90."""

    count: int
    by_p50: int
    by_p90: int

    @property
    def is_telling(self) -> bool:
        """Whether there are enough of them for a percentage to mean anything."""
        return self.count >= LEAST_TOLD

    @property
    def percent_by_p50(self) -> int:
        """Return the share that came true by the first time; 50 is meant."""
        return round(100 * self.by_p50 / max(self.count, 1))

    @property
    def percent_by_p90(self) -> int:
        """Return the share that came true by the second time; 90 is meant."""
        return round(100 * self.by_p90 / max(self.count, 1))


def calibration(cluster_id: UUID, *, since: datetime, now: datetime) -> Calibration:
    """Count what came true of the forecasts made since then; those without a p90 are left out."""
    return _calibration(_due(now).filter(job__queue__cluster_id=cluster_id, made_at__gte=since))


def lately(actor: Actor, *, cluster_id: UUID, now: datetime) -> Calibration:
    """Count the newest `LATELY` forecasts that are due, of the jobs that the reader may see."""
    jobs = Job.objects.visible_to(access.reads(actor, access.Verb.JOB_READ))
    found = _due(now).filter(job__queue__cluster_id=cluster_id, job__in=jobs)
    newest_first = found.order_by("-made_at", "-id").values("id")
    return _calibration(StartForecast.objects.filter(id__in=newest_first[:LATELY]))


def first_told(job_ids: Collection[UUID]) -> dict[UUID, StartForecast]:
    """Return by job the first forecast that named a time."""
    rows = StartForecast.objects.filter(job_id__in=job_ids, p50_at__isnull=False)
    return {row.job_id: row for row in rows.order_by("job_id", "made_at").distinct("job_id")}


def _due(now: datetime) -> QuerySet[StartForecast]:
    """Return the forecasts whose second time has passed, be it that their jobs wait on.

    Counting whoever has started would count quick starts sooner than late ones.
    """
    is_known = Q(started_at__isnull=False) | Q(job__phase=JobPhase.PENDING)  # not withdrawn
    return StartForecast.objects.filter(is_known, p90_at__lte=now)


def _calibration(rows: QuerySet[StartForecast]) -> Calibration:
    found = rows.aggregate(
        count=Count("id"),
        by_p50=Count("id", filter=Q(started_at__lte=F("p50_at"))),
        by_p90=Count("id", filter=Q(started_at__lte=F("p90_at"))),
    )
    return Calibration(found["count"], found["by_p50"], found["by_p90"])
