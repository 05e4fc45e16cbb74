"""From rows to the frozen views that `scheduling.lifecycle.step` takes."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from scheduling.lifecycle.events import LifecycleAction, PolicyEvent
from scheduling.lifecycle.states import FINISHED_PHASES, JobPhase, TaskState
from scheduling.lifecycle.step import action_scope, task_scope
from scheduling.lifecycle.values import (
    WHOLE_JOB,
    DelayedAction,
    JobView,
    Policy,
    RoleView,
    TaskCounts,
    TaskView,
)
from scheduling.models import DelayedAction as DelayedRow
from scheduling.models import Job, Role, Task

COUNTERS: Mapping[str, str] = {
    TaskState.PENDING: "tasks_pending",
    TaskState.BOUND: "tasks_starting",
    TaskState.STARTING: "tasks_starting",
    TaskState.RUNNING: "tasks_running",
    TaskState.STOPPING: "tasks_stopping",
    TaskState.SUCCEEDED: "tasks_succeeded",
    TaskState.FAILED: "tasks_failed",
}
"""Task state -> the counter of its role and job; a cancelled task is counted nowhere."""

COUNTER_NAMES = tuple(dict.fromkeys(COUNTERS.values()))


def job_view(job: Job, roles: Sequence[Role], delayed: Iterable[DelayedRow] = ()) -> JobView:
    """Return what the lifecycle needs to know of a job as its rows stand now."""
    spec_roles = {part["name"]: part for part in job.spec["roles"]}
    by_id = {role.id: role for role in roles}
    view = JobView(
        phase=JobPhase(job.phase),
        roles=tuple(_role_view(role, spec_roles[role.name]) for role in roles),
        min_available=job.min_available,
        min_success=job.min_success,
        max_retry=job.max_retry,
        policies=_policies(job.spec),
        policy_restarts=job.retry_count,
        user_restarts=job.user_restarts,
        platform_restarts=job.platform_restarts,
        generation=job.generation,
        wish=LifecycleAction(job.wish) if job.wish else None,
    )
    armed = tuple(delayed_view(row, view, by_id) for row in delayed)
    return replace(view, delayed=armed) if armed else view


def _role_view(role: Role, spec: Mapping[str, Any]) -> RoleView:
    depends_on = spec.get("depends_on") or {}
    partition = spec.get("partition_policy") or {}
    return RoleView(
        name=role.name,
        replicas=role.replicas,
        min_available=role.min_available,
        max_retry=spec.get("max_retry", 3),
        policies=_policies(spec),
        partition_size=partition.get("partition_size", 0),
        depends_on=tuple(depends_on.get("names", ())),
        depends_on_any=depends_on.get("iteration") == "any",
        counts=task_counts(role),
    )


def task_counts(role: Role) -> TaskCounts:
    """Return a role's counters as its row has them now."""
    return TaskCounts(
        pending=role.tasks_pending,
        launching=role.tasks_starting,
        running=role.tasks_running,
        ready=role.tasks_running,
        stopping=role.tasks_stopping,
        succeeded=role.tasks_succeeded,
        failed=role.tasks_failed,
    )


def _policies(part: Mapping[str, Any]) -> tuple[Policy, ...]:
    return tuple(
        Policy(
            action=LifecycleAction(one["action"]),
            events=tuple(PolicyEvent(event) for event in one.get("events", ())),
            exit_code=one.get("exit_code"),
            timeout_seconds=one.get("timeout_seconds"),
        )
        for one in part.get("policies", ())
    )


def delayed_view(row: DelayedRow, view: JobView, roles: Mapping[int, Role]) -> DelayedAction:
    """Return a delayed action as the lifecycle knows it; its scope follows from action and task."""
    origin = WHOLE_JOB
    if row.task is not None:
        role = view.role(roles[row.task.role_id].name)
        assert role is not None  # noqa: S101 -- a task has a role
        origin = task_scope(role, row.task.index)
    action = LifecycleAction(row.action)
    return DelayedAction(
        action, action_scope(action, origin) or WHOLE_JOB, origin, PolicyEvent(row.event)
    )


def has_policies(view: JobView) -> bool:
    """Whether any policy could answer an event of the job."""
    return bool(view.policies) or any(role.policies for role in view.roles)


def task_view(task: Task, role: Role, job: Job) -> TaskView:
    """Return what the lifecycle needs to know of a task."""
    is_leaving = task.index >= role.replicas or JobPhase(job.phase) in FINISHED_PHASES
    return TaskView(TaskState(task.state), is_leaving)
