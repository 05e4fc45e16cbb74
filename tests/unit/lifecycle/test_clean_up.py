"""When finished jobs are removed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from scheduling.lifecycle.clean_up import check, expires_at
from scheduling.lifecycle.states import JobPhase

END = datetime(2025, 1, 1, tzinfo=UTC)


def test_a_delay_of_zero_removes_at_once() -> None:
    """TTL 0 is due in the moment of the end."""
    result = check(phase=JobPhase.COMPLETED, finished_at=END, ttl_seconds=0, now=END)

    assert result.is_due


def test_a_job_is_kept_for_its_delay() -> None:
    """Before that, the time to look again is the time of removal."""
    result = check(phase=JobPhase.FAILED, finished_at=END, ttl_seconds=60, now=END)

    assert (result.is_due, result.look_again_at) == (False, END + timedelta(seconds=60))


def test_aborted_jobs_never_expire() -> None:
    """Parked is not finished."""
    assert expires_at(phase=JobPhase.ABORTED, finished_at=END, ttl_seconds=0) is None


def test_failures_are_kept_longer_than_successes() -> None:
    """Without a delay of its own the result of a job decides."""
    kept = {
        phase: expires_at(phase=phase, finished_at=END, ttl_seconds=None)
        for phase in (JobPhase.COMPLETED, JobPhase.FAILED)
    }

    assert kept == {
        JobPhase.COMPLETED: END + timedelta(days=30),
        JobPhase.FAILED: END + timedelta(days=90),
    }


def test_a_job_being_removed_is_left_alone() -> None:
    """Nobody removes a job twice."""
    result = check(
        phase=JobPhase.COMPLETED, finished_at=END, ttl_seconds=0, now=END, is_being_removed=True
    )

    assert not result.is_due
