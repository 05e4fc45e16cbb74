"""Which action answers which event, and in which order policies are looked at."""

from __future__ import annotations

from dataclasses import replace

import pytest

from scheduling.lifecycle.events import LifecycleAction, PolicyEvent
from scheduling.lifecycle.policies import effective_order, raised_event, resolve
from scheduling.lifecycle.values import Policy, RoleView, TaskChange, TaskCounts, TaskReported
from tests.unit.lifecycle.world import job_of

L, E = LifecycleAction, PolicyEvent
BY_EVENT = Policy(L.RESTART_POD, (E.POD_FAILED,))
BY_CODE = Policy(L.ABORT_JOB, exit_code=137)


def test_a_policy_by_exit_code_is_looked_at_first() -> None:
    """[PodFailed -> RestartPod, 137 -> AbortJob] aborts, unless listed order is asked for."""
    job = job_of(RoleView("w", 1), policies=(BY_EVENT, BY_CODE))
    listed = replace(job, exit_code_first=False)

    ours = resolve(job=job, event=E.POD_FAILED, role="w", exit_code=137).action
    theirs = resolve(job=listed, event=E.POD_FAILED, role="w", exit_code=137).action

    assert (ours, theirs) == (L.ABORT_JOB, L.RESTART_POD)
    assert effective_order(job.policies) == [BY_CODE, BY_EVENT]


@pytest.mark.parametrize(
    ("role_event", "expected"),
    [(E.POD_FAILED, L.RESTART_TASK), (E.POD_EVICTED, L.RESTART_JOB)],
)
def test_a_roles_policy_beats_the_jobs(role_event: PolicyEvent, expected: LifecycleAction) -> None:
    """A hit in the role's list decides; a miss falls through to the job's list."""
    role = RoleView("w", 1, policies=(Policy(L.RESTART_TASK, (role_event,)),))
    job = job_of(role, policies=(Policy(L.RESTART_JOB, (E.POD_FAILED,)),))

    assert resolve(job=job, event=E.POD_FAILED, role="w").action is expected


@pytest.mark.parametrize(
    ("policy", "event", "exit_code", "expected"),
    [
        (Policy(L.ABORT_JOB, (E.ANY,)), E.POD_EVICTED, 0, L.ABORT_JOB),
        (Policy(L.ABORT_JOB, (E.ANY,)), E.POD_RUNNING, 0, L.SYNC_JOB),
        (Policy(L.ABORT_JOB, (E.ANY,)), E.POD_PENDING, 0, L.SYNC_JOB),
        (Policy(L.ABORT_JOB, (E.ANY,), exit_code=3), None, 3, L.ABORT_JOB),
        (Policy(L.ABORT_JOB, (E.ANY,), exit_code=3), None, 0, L.SYNC_JOB),
        (Policy(L.ABORT_JOB, exit_code=3), E.POD_FAILED, 4, L.SYNC_JOB),
        (Policy(L.ABORT_JOB, (E.POD_PENDING,)), E.POD_PENDING, 0, L.SYNC_JOB),
    ],
)
def test_what_a_policy_answers(
    policy: Policy, event: PolicyEvent | None, exit_code: int, expected: LifecycleAction
) -> None:
    """`*` means external events; PodPending without timeout triggers nothing."""
    job = job_of(RoleView("w", 1), policies=(policy,))

    assert resolve(job=job, event=event, exit_code=exit_code).action is expected


def test_an_older_generation_triggers_nothing() -> None:
    """A report from before the last stop of the whole job leads to a sync."""
    job = replace(job_of(RoleView("w", 1), policies=(BY_EVENT,)), generation=2)

    old = resolve(job=job, event=E.POD_FAILED, generation=1).action
    current = resolve(job=job, event=E.POD_FAILED, generation=2).action

    assert (old, current) == (L.SYNC_JOB, L.RESTART_POD)


@pytest.mark.parametrize(
    ("change", "succeeded", "restarts", "expected"),
    [
        (TaskChange.SUCCEEDED, 1, 0, E.OUT_OF_SYNC),
        (TaskChange.SUCCEEDED, 2, 0, E.TASK_COMPLETED),
        (TaskChange.RESTARTED_IN_PLACE, 0, 2, E.OUT_OF_SYNC),
        (TaskChange.RESTARTED_IN_PLACE, 0, 3, E.TASK_FAILED),
        (TaskChange.FAILED, 0, 0, E.POD_FAILED),
        (TaskChange.STOPPED, 0, 0, E.OUT_OF_SYNC),
    ],
)
def test_what_a_change_raises(
    change: TaskChange, succeeded: int, restarts: int, expected: PolicyEvent
) -> None:
    """Events about a role appear only when all its tasks, or all its restarts, are through."""
    role = RoleView("w", 2, counts=TaskCounts(succeeded=succeeded), in_place_restarts=restarts)

    assert raised_event(report=TaskReported(change, "w", 0, 0), role=role) is expected
