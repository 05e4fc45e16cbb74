"""The scheduler as its operators see it: recent cycles, what they cost, whom they leave out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from scheduling.domain.launches import scheduler_scope
from scheduling.domain.snapshot_values import STRIKES
from scheduling.models import Cluster, CycleRecord, Job, Lease
from scheduling.models.job import FINISHED_PHASES

SPAN = timedelta(hours=1)
MOST_CYCLES = 2000
MOST_JOBS = 50


@dataclass(frozen=True, slots=True)
class Cost:
    """What the busy cycles of the last hour took, in milliseconds; None: there were none."""

    cycles: int
    p50_ms: float | None
    p99_ms: float | None
    binds: int
    evictions: int


@dataclass(frozen=True, slots=True)
class SchedulerView:
    """One cluster's scheduler; two lists are the newest first."""

    cluster: Cluster
    lease: Lease | None
    """Held or lapsed; None: none ever ran."""
    is_present: bool
    cost: Cost
    cycles: tuple[CycleRecord, ...]
    """Of the last hour."""
    errors: tuple[CycleRecord, ...]
    left_out: tuple[Job, ...]
    """Jobs that made planning fail so often that they are left out until they are changed."""


def scheduler_view(cluster: Cluster, *, now: datetime) -> SchedulerView:
    """Return what a cluster's scheduler did in the last hour: four queries.

    For who may read the installation's settings; no rights are asked here.
    """
    rows = CycleRecord.objects.filter(cluster=cluster)
    recent = tuple(rows.filter(started_at__gte=now - SPAN).order_by("-number")[:MOST_CYCLES])
    lease = Lease.objects.filter(scope=scheduler_scope(cluster.id)).first()
    left_out = (
        Job.objects.filter(queue__cluster=cluster, quarantine_strikes__gte=STRIKES)
        .exclude(phase__in=FINISHED_PHASES)
        .select_related("queue", "owner")
        .order_by("-created_at")[:MOST_JOBS]
    )
    return SchedulerView(
        cluster=cluster,
        lease=lease,
        is_present=lease is not None and lease.expires_at > now,
        cost=_cost(recent),
        cycles=recent,
        errors=tuple(rows.exclude(error="").order_by("-number")[:10]),
        left_out=tuple(left_out),
    )


def total_ms(cycle: CycleRecord) -> float:
    """Return what a cycle took from snapshot to commit."""
    return cycle.snapshot_ms + cycle.plan_ms + cycle.apply_ms


def _cost(cycles: Sequence[CycleRecord]) -> Cost:
    taken = sorted(total_ms(one) for one in cycles)
    return Cost(
        cycles=len(taken),
        p50_ms=_rank(taken, 0.5),
        p99_ms=_rank(taken, 0.99),
        binds=sum(one.binds for one in cycles),
        evictions=sum(one.evictions for one in cycles),
    )


def _rank(ordered: Sequence[float], share: float) -> float | None:
    return ordered[math.ceil(share * len(ordered)) - 1] if ordered else None
