"""Jobs that make planning fail: found by halving, counted, and set aside after three strikes."""

from collections.abc import Callable
from datetime import datetime
from uuid import UUID

from django.db import transaction

from scheduling.domain.snapshot import STRIKES
from scheduling.engine.types import Job
from scheduling.models import Job as JobRow

Jobs = tuple[Job, ...]


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
