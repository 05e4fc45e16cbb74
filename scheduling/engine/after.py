"""The state that a plan leaves: the snapshot with everything carried out at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace

from scheduling.engine.types import (
    Binding,
    DisruptionBudget,
    GangPhase,
    Job,
    Plan,
    Quota,
    Role,
    Snapshot,
    Task,
    TaskState,
)


def apply_plan(snapshot: Snapshot, plan: Plan) -> Snapshot:
    """Return the snapshot with the plan carried out: binds run, victims are being stopped.

    Jobs that the plan leaves alone stay the same objects.
    """
    bound = {b.task: b for b in plan.binds}
    started = {b.job for b in plan.binds}
    evicted = {e.task for e in plan.evictions}
    touched = {*started, *(e.job for e in plan.evictions), *plan.phases}

    def change(job: Job) -> Job:
        tasks = tuple(_after(task, bound, evicted, snapshot.now) for task in job.tasks)
        phase = _started(job, tasks) if job.key in started else plan.phases.get(job.key)
        return replace(
            job,
            tasks=tasks,
            phase=phase or job.phase,
            admitted_at=snapshot.now if phase is GangPhase.INQUEUE else job.admitted_at,
        )

    return replace(
        snapshot,
        jobs=tuple(change(job) if job.key in touched else job for job in snapshot.jobs),
        reservations=plan.reservations,
        disruption_budgets=charge_budgets(snapshot.disruption_budgets, _evicted(snapshot, plan), 1)
        if snapshot.disruption_budgets
        else (),
        quotas=_used_of_quotas(snapshot, plan),
        version=snapshot.version + 1,
    )


STARTED = frozenset(
    {
        TaskState.ALLOCATED,
        TaskState.BOUND,
        TaskState.RUNNING,
        TaskState.RELEASING,
        TaskState.SUCCEEDED,
    }
)


def _started(job: Job, tasks: tuple[Task, ...]) -> GangPhase:
    """Return the phase of a job that runs; `UNKNOWN` while best-effort tasks of its gang lack."""
    needed = max(job.min_available, sum(role.min_available for role in job.roles))
    is_whole = sum(task.state in STARTED for task in tasks) >= needed
    return GangPhase.RUNNING if is_whole else GangPhase.UNKNOWN


def _after(task: Task, bound: dict[str, Binding], evicted: set[str], now: float) -> Task:
    binding = bound.get(task.key)
    if binding is not None:
        return replace(
            task,
            state=TaskState.RUNNING,
            node=binding.node,
            devices=binding.devices,
            cpus=binding.cpus,
            started_at=now,
        )
    if task.key in evicted:
        return replace(task, state=TaskState.RELEASING)
    return task


def charge_budgets(
    budgets: tuple[DisruptionBudget, ...], tasks: Iterable[tuple[Role, str]], sign: int
) -> tuple[DisruptionBudget, ...]:
    """Return disruption budgets less one for each task (role, key) that they cover.

    With sign -1 more by one, once the tasks are back.
    """
    used = Counter(b.name for role, key in tasks for b in budgets if b.covers(role, key))
    return tuple(
        replace(b, disruptions_allowed=b.disruptions_allowed - sign * used[b.name])
        if used[b.name]
        else b
        for b in budgets
    )


def _evicted(snapshot: Snapshot, plan: Plan) -> Iterator[tuple[Role, str]]:
    """Yield role and key of each task that a plan evicts."""
    keys = {e.task for e in plan.evictions}
    jobs = {e.job for e in plan.evictions}
    for job in snapshot.jobs:
        if job.key in jobs:
            roles = {role.name: role for role in job.roles}
            for task in job.tasks:
                if task.key in keys:
                    yield roles[task.role], task.key


def _used_of_quotas(snapshot: Snapshot, plan: Plan) -> tuple[Quota, ...]:
    """Return the quotas of namespaces with what the jobs that were let in have used of them."""
    if all(quota.queues is not None for quota in snapshot.quotas):
        return snapshot.quotas
    used: dict[str, Counter[str]] = {}
    for job in snapshot.jobs:
        if plan.phases.get(job.key) is GangPhase.INQUEUE and job.min_resources:
            used.setdefault(job.key.partition("/")[0], Counter()).update(job.min_resources)
    return tuple(
        replace(quota, used=Counter(quota.used) + used[quota.namespace])
        if quota.queues is None and quota.namespace in used
        else quota
        for quota in snapshot.quotas
    )
