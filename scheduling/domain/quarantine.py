"""Jobs that make planning fail: found by halving, counted, and set aside after three strikes."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from uuid import UUID

from django.db import transaction

from scheduling.domain.snapshot_values import STRIKES
from scheduling.engine import cycle
from scheduling.engine.types import Config, Job, Plan, Snapshot
from scheduling.models import Job as JobRow

Jobs = tuple[Job, ...]


@dataclass(frozen=True, slots=True)
class Sound:
    """A plan that could be made, and of which snapshot: without the job that made planning fail."""

    snapshot: Snapshot
    plan: Plan
    poison: Job | None = None
    error: Exception | None = None


def plan(snapshot: Snapshot, config: Config, *, memo: cycle.Memo | None = None) -> Sound:
    """Plan, and where a job makes that fail, without it.

    Cost: O(log n) plans where one fails.

    Raises:
        Exception: what planning raises where no single job is to blame.
    """
    try:
        return Sound(snapshot, cycle.plan(snapshot, config, memo=memo))
    except Exception as error:
        poison = find(snapshot.jobs, lambda jobs: _is_sound(replace(snapshot, jobs=jobs), config))
        if poison is None:
            raise
        rest = replace(snapshot, jobs=tuple(job for job in snapshot.jobs if job is not poison))
        return Sound(rest, cycle.plan(rest, config), poison, error)


def _is_sound(snapshot: Snapshot, config: Config) -> bool:
    try:
        cycle.plan(snapshot, config)
    except Exception:  # noqa: BLE001 -- any failure of planning is what is looked for
        return False
    return True


def find(jobs: Jobs, is_sound: Callable[[Jobs], bool]) -> Job | None:
    """Return one job without which planning would get further; None if it is no single job.

    1. Without any waiting job, planning must work, else no job is to blame. 2. Halve the waiting
    jobs and go on with a half that fails, beside all jobs that run: O(log n) plans.
    """
    waiting = tuple(job for job in jobs if not _holds_anything(job))
    running = tuple(job for job in jobs if _holds_anything(job))
    if not is_sound(running):
        return _among(running, (), is_sound)
    return _among(waiting, running, is_sound)


def _among(suspects: Jobs, others: Jobs, is_sound: Callable[[Jobs], bool]) -> Job | None:
    while len(suspects) > 1:
        half = suspects[: len(suspects) // 2]
        rest = suspects[len(suspects) // 2 :]
        if not is_sound((*others, *half)):
            suspects = half
        elif not is_sound((*others, *rest)):
            suspects = rest
        else:
            return None  # only both together fail
    return suspects[0] if suspects and not is_sound((*others, *suspects)) else None


def _holds_anything(job: Job) -> bool:
    return any(task.node is not None for task in job.tasks)


def strike_unreadable(unreadable: Mapping[UUID, str], *, now: datetime) -> None:
    """Count the jobs that cannot be read, until they are set aside."""
    for job_id in JobRow.objects.filter(
        id__in=unreadable, quarantine_strikes__lt=STRIKES
    ).values_list("id", flat=True):
        strike(job_id=job_id, error=unreadable[job_id], now=now)


def strike(*, job_id: UUID, error: str, now: datetime) -> None:
    """Count a failure of planning against a job, and show it as the reason why it waits."""
    with transaction.atomic():
        row = JobRow.objects.select_for_update(no_key=True).filter(id=job_id)
        strikes = row.values_list("quarantine_strikes", flat=True).first()
        if strikes is None:
            return  # deleted meanwhile: it can do no more harm
        row.update(
            quarantine_strikes=strikes + 1,
            reason_code="quarantined",
            reason_params={"error": error[:300], "strikes": strikes + 1, "most": STRIKES},
            reason_at=now,
        )
