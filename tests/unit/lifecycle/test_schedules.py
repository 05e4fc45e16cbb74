"""When a schedule starts jobs, and which it keeps."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from scheduling.lifecycle.cron import parse
from scheduling.lifecycle.schedules import (
    Concurrency,
    ScheduledJob,
    ScheduleView,
    by_age,
    job_name,
    next_look,
    step_schedule,
    surplus_jobs,
)
from scheduling.lifecycle.states import JobPhase

BEGIN = datetime(2025, 3, 11, 10, tzinfo=UTC)
EVERY_FIVE = ScheduleView("cron", parse("*/5 * * * *"), BEGIN)
OLD = job_name("cron", BEGIN)
NEW = job_name("cron", BEGIN + timedelta(minutes=5))


def later(minutes: float) -> datetime:
    """Return a time after the schedule was made."""
    return BEGIN + timedelta(minutes=minutes)


def test_a_slot_starts_one_job_named_after_it() -> None:
    """A second look in the same slot starts nothing."""
    first = step_schedule(EVERY_FIVE, now=later(5), jobs=[])
    job = ScheduledJob(first.start, JobPhase.RUNNING)
    second = step_schedule(first.schedule, now=later(6), jobs=[job])

    assert (first.start, first.schedule.active, second.start) == (NEW, (NEW,), "")
    assert first.look_again_at == later(10)


def test_of_several_missed_slots_only_the_latest_starts() -> None:
    """Three were missed; one job starts."""
    step = step_schedule(EVERY_FIVE, now=later(17), jobs=[])

    assert (step.start, step.slot) == (job_name("cron", later(15)), later(15))


def test_more_than_a_hundred_missed_slots_are_pointed_out() -> None:
    """The latest starts all the same."""
    step = step_schedule(EVERY_FIVE, now=later(600), jobs=[])

    assert (step.has_missed_many, step.slot) == (True, later(600))


@pytest.mark.parametrize(
    ("concurrency", "start", "stop", "is_skipped"),
    [
        (Concurrency.ALLOW, NEW, (), False),
        (Concurrency.FORBID, "", (), True),
        (Concurrency.REPLACE, NEW, (OLD,), False),
    ],
)
def test_what_happens_while_an_earlier_job_runs(
    concurrency: Concurrency, start: str, stop: tuple[str, ...], is_skipped: bool
) -> None:
    """Both run, the new one waits, or the old one gives way."""
    schedule = replace(EVERY_FIVE, concurrency=concurrency, active=(OLD,), last_scheduled_at=BEGIN)

    step = step_schedule(schedule, now=later(5), jobs=[ScheduledJob(OLD, JobPhase.RUNNING)])

    assert (step.start, step.stop, step.is_skipped) == (start, stop, is_skipped)


def test_too_late_is_too_late() -> None:
    """A slot older than the starting deadline is not made up for."""
    schedule = replace(EVERY_FIVE, starting_deadline_seconds=60)

    assert step_schedule(schedule, now=later(7), jobs=[]).start == ""
    assert step_schedule(schedule, now=later(5.5), jobs=[]).start == NEW


def test_a_suspended_schedule_only_looks_after_its_jobs() -> None:
    """The success is noted, nothing is started."""
    schedule = replace(EVERY_FIVE, is_suspended=True, active=(OLD,))
    done = ScheduledJob(OLD, JobPhase.COMPLETED, BEGIN, later(1))

    step = step_schedule(schedule, now=later(5), jobs=[done])

    assert (step.start, step.schedule.active) == ("", ())
    assert step.schedule.last_succeeded_at == later(1)


def test_a_schedule_that_never_comes_says_so() -> None:
    """Nothing is started, now or later."""
    never = replace(EVERY_FIVE, cron=parse("0 0 31 2 *"))

    step = step_schedule(never, now=later(5), jobs=[])

    assert (step.never_comes, step.start, next_look(never, later(5))) == (True, "", None)


def test_active_jobs_that_are_gone_are_forgotten() -> None:
    """One that is still there without being listed stays."""
    schedule = replace(EVERY_FIVE, active=("gone", "hidden"), concurrency=Concurrency.FORBID)

    step = step_schedule(schedule, now=later(1), jobs=[], known=["hidden"])

    assert step.schedule.active == ("hidden",)


def test_the_oldest_finished_jobs_go_first() -> None:
    """Successes and others are counted apart; what was terminated is trimmed too."""
    schedule = replace(EVERY_FIVE, keep_successful=1, keep_failed=1)
    jobs = [
        ScheduledJob("c2", JobPhase.COMPLETED, later(2)),
        ScheduledJob("c1", JobPhase.COMPLETED, later(1)),
        ScheduledJob("f1", JobPhase.FAILED, later(1)),
        ScheduledJob("t2", JobPhase.TERMINATED, later(2)),
        ScheduledJob("r1", JobPhase.RUNNING, later(1)),
    ]

    assert surplus_jobs(schedule, jobs) == ("c1", "f1")
    assert surplus_jobs(EVERY_FIVE, jobs) == ()


def test_jobs_without_a_time_come_last() -> None:
    """Then the name decides."""
    jobs = [
        ScheduledJob("b", JobPhase.RUNNING),
        ScheduledJob("a", JobPhase.RUNNING),
        ScheduledJob("z", JobPhase.RUNNING, BEGIN),
    ]

    assert [job.name for job in by_age(jobs)] == ["z", "a", "b"]


def test_a_slot_whose_job_is_active_starts_no_second_one() -> None:
    """The start was recorded, the time of it not yet."""
    schedule = replace(EVERY_FIVE, active=(NEW,))

    step = step_schedule(schedule, now=later(5), jobs=[ScheduledJob(NEW, JobPhase.RUNNING)])

    assert step.start == ""
