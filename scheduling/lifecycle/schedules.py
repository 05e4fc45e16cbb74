"""When a schedule starts jobs: the latest missed slot, what may run beside what, and what is kept.

Source: Volcano `pkg/controllers/cronjob`, after Kubernetes' CronJob controller.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta, tzinfo
from enum import StrEnum

from scheduling.lifecycle.cron import Cron, count_slots, latest_slot, next_slot
from scheduling.lifecycle.states import FINISHED_PHASES, JobPhase

MANY_MISSED = 100
"""With more missed slots than this, people are told; the latest is started all the same."""


class Concurrency(StrEnum):
    """What happens when a slot comes while the job of an earlier one still runs."""

    ALLOW = "Allow"
    FORBID = "Forbid"
    REPLACE = "Replace"


@dataclass(frozen=True, slots=True)
class ScheduleView:
    """What the rules need to know of a schedule."""

    name: str
    cron: Cron
    created_at: datetime
    zone: tzinfo = UTC
    concurrency: Concurrency = Concurrency.ALLOW
    is_suspended: bool = False
    starting_deadline_seconds: float | None = None
    keep_successful: int | None = None
    keep_failed: int | None = None
    last_scheduled_at: datetime | None = None
    last_succeeded_at: datetime | None = None
    active: tuple[str, ...] = ()
    """Names of the jobs that it started and that have not been seen to finish."""


@dataclass(frozen=True, slots=True)
class ScheduledJob:
    """A job that a schedule started. `changed_at` is when it reached its phase."""

    name: str
    phase: JobPhase
    created_at: datetime | None = None
    changed_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Missed:
    """The slots since the last start: since when, the latest, and how many (101 at most)."""

    counted_from: datetime
    latest: datetime | None
    count: int


@dataclass(frozen=True, slots=True)
class ScheduleStep:
    """What becomes of a schedule at one instant."""

    schedule: ScheduleView
    start: str = ""
    """Name of the job to start; empty: none."""
    slot: datetime | None = None
    stop: tuple[str, ...] = ()
    """Active jobs that are replaced."""
    remove: tuple[str, ...] = ()
    """Finished jobs beyond what is kept."""
    look_again_at: datetime | None = None
    is_skipped: bool = False
    """A slot came, but an earlier job still runs and two are forbidden."""
    never_comes: bool = False
    has_missed_many: bool = False


def job_name(schedule: str, slot: datetime) -> str:
    """Return the name of a slot's job: the same slot twice is the same job."""
    return f"{schedule}-{int(slot.timestamp()) // 60}"


def missed_slots(schedule: ScheduleView, now: datetime, *, uses_deadline: bool) -> Missed | None:
    """Return the slots since the last start; None: the schedule never comes."""
    since = schedule.created_at
    if schedule.last_scheduled_at is not None:
        since = schedule.last_scheduled_at
    deadline = schedule.starting_deadline_seconds
    if uses_deadline and deadline is not None:
        since = max(since, now - timedelta(seconds=deadline))
    if next_slot(schedule.cron, since, schedule.zone) is None:
        return None
    latest = latest_slot(schedule.cron, since, now, schedule.zone)
    most = MANY_MISSED + 1
    count = count_slots(schedule.cron, since, now, schedule.zone, most=most) if latest else 0
    return Missed(since, latest, count)


def next_look(schedule: ScheduleView, now: datetime) -> datetime | None:
    """Return the next slot after the latest one; None: there is none."""
    missed = missed_slots(schedule, now, uses_deadline=False)
    if missed is None:
        return next_slot(schedule.cron, now, schedule.zone)
    return next_slot(schedule.cron, missed.latest or missed.counted_from, schedule.zone)


def step_schedule(
    schedule: ScheduleView,
    *,
    now: datetime,
    jobs: Sequence[ScheduledJob],
    known: Iterable[str] = (),
) -> ScheduleStep:
    """Decide about a schedule at one instant. `known`: jobs that are there without being listed.

    1. Forget active jobs that finished or are gone; note the latest success.
    2. Find finished jobs beyond what is kept, the oldest first.
    3. Unless suspended: start the latest missed slot, once, as `concurrency` allows.
    """
    seen = _look_at_jobs(schedule, jobs, frozenset(known))
    done = ScheduleStep(seen, remove=surplus_jobs(schedule, jobs))
    if schedule.is_suspended:
        return done
    missed = missed_slots(schedule, now, uses_deadline=True)
    if missed is None:
        return replace(done, never_comes=True)
    done = replace(
        done,
        look_again_at=next_look(seen, now),
        has_missed_many=missed.count > MANY_MISSED,
    )
    slot = missed.latest
    if slot is None:
        return done
    name = job_name(schedule.name, slot)
    if name in seen.active or seen.last_scheduled_at == slot:
        return done
    if seen.active and schedule.concurrency is Concurrency.FORBID:
        return replace(done, is_skipped=True)
    stop = seen.active if schedule.concurrency is Concurrency.REPLACE else ()
    kept = tuple(one for one in seen.active if one not in stop)
    after = replace(seen, active=(*kept, name), last_scheduled_at=slot)
    done = replace(done, schedule=after, start=name, slot=slot, stop=stop)
    return replace(done, look_again_at=next_look(after, now))


def _look_at_jobs(
    schedule: ScheduleView, jobs: Sequence[ScheduledJob], known: frozenset[str]
) -> ScheduleView:
    listed = {job.name: job for job in jobs}
    active = tuple(
        name
        for name in schedule.active
        if (name in listed and listed[name].phase not in FINISHED_PHASES)
        or (name not in listed and name in known)
    )
    succeeded_at = schedule.last_succeeded_at
    for job in jobs:
        ended = job.changed_at if job.phase is JobPhase.COMPLETED else None
        if ended is not None and (succeeded_at is None or succeeded_at < ended):
            succeeded_at = ended
    return replace(schedule, active=active, last_succeeded_at=succeeded_at)


def surplus_jobs(schedule: ScheduleView, jobs: Iterable[ScheduledJob]) -> tuple[str, ...]:
    """Return the finished jobs beyond what is kept. What was terminated counts as failed (ours)."""
    finished = [job for job in by_age(jobs) if job.phase in FINISHED_PHASES]
    succeeded = [job.name for job in finished if job.phase is JobPhase.COMPLETED]
    failed = [job.name for job in finished if job.phase is not JobPhase.COMPLETED]
    surplus: list[str] = []
    for names, keep in ((succeeded, schedule.keep_successful), (failed, schedule.keep_failed)):
        if keep is not None:
            surplus += names[: max(len(names) - keep, 0)]
    return tuple(surplus)


def by_age(jobs: Iterable[ScheduledJob]) -> list[ScheduledJob]:
    """Return jobs, the oldest first; those without a time last, then by name."""
    return sorted(jobs, key=lambda job: (job.created_at is None, job.created_at or _ZERO, job.name))


_ZERO = datetime.min.replace(tzinfo=UTC)
