"""The state that a plan leaves behind."""

from __future__ import annotations

from scheduling.engine.types import GangPhase, TaskState
from scheduling.simulator.state import apply_plan, release
from tests.scenarios import cycle, read


def test_applied_binds_run_and_victims_are_stopped() -> None:
    """Bound tasks run where they were placed, evicted ones release, and then wait again."""
    outcome = cycle("""
        nodes  n1: gpu=4 devices
        queue  q:
        job    q/old: 4 x gpu=1 min=1 running n1*4 phase=Running
        job    q/new: 2 x gpu=1
    """)

    after = apply_plan(outcome.snapshot, outcome.plan)

    states = {t.key: t.state for job in after.jobs for t in job.tasks}
    assert states["q/old-3"] is TaskState.RELEASING
    assert after.reservations == outcome.plan.reservations
    assert after.jobs[1].phase is GangPhase.INQUEUE
    freed = {t.key: (t.state, t.node) for job in release(after).jobs for t in job.tasks}
    assert freed["q/old-3"] == (TaskState.PENDING, None)


def test_jobs_that_did_not_change_stay_the_same_objects() -> None:
    """What no plan touches keeps its identity, by which caches know it."""
    outcome = cycle(
        "nodes n1: gpu=1\nqueue q:\njob q/a: 1 x gpu=1\njob q/b: 1 x gpu=9 phase=Inqueue"
    )

    after = apply_plan(outcome.snapshot, outcome.plan)

    assert after.jobs[1] is outcome.snapshot.jobs[1]


def test_release_without_anything_stopping_changes_nothing() -> None:
    """A snapshot at rest has the same jobs afterwards."""
    snapshot = read("nodes n1: gpu=1\nqueue q:\njob q/a: 1 x gpu=1")

    assert release(snapshot).jobs == snapshot.jobs
