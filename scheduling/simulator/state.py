"""Apply a plan to a snapshot: the state that the cluster would be in afterwards."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from scheduling.engine.types import Binding, GangPhase, Job, Plan, Snapshot, Task, TaskState


def apply_plan(snapshot: Snapshot, plan: Plan) -> Snapshot:
    """Return the snapshot with the plan carried out: binds run, victims are being stopped."""
    bound = {b.task: b for b in plan.binds}
    started = {b.job for b in plan.binds}
    evicted = {e.task for e in plan.evictions}

    def change(job: Job) -> Job:
        tasks = tuple(_after(task, bound, evicted, snapshot.now) for task in job.tasks)
        is_same = all(a is b for a, b in zip(tasks, job.tasks, strict=True))
        phase = GangPhase.RUNNING if job.key in started else plan.phases.get(job.key)
        if is_same and phase in (None, job.phase) and phase is not GangPhase.INQUEUE:
            return job
        return replace(
            job,
            tasks=job.tasks if is_same else tasks,
            phase=phase or job.phase,
            admitted_at=snapshot.now if phase is GangPhase.INQUEUE else job.admitted_at,
        )

    return replace(
        snapshot,
        jobs=tuple(change(job) for job in snapshot.jobs),
        reservations=plan.reservations,
        version=snapshot.version + 1,
    )


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


def release(snapshot: Snapshot) -> Snapshot:
    """Return the snapshot once every task that was being stopped is gone and waits again.

    A gang of which nothing is left asks for admission again.
    """
    after = change_tasks(
        snapshot,
        lambda task: (
            replace(task, state=TaskState.PENDING, node=None, devices=(), cpus=(), started_at=None)
            if task.state is TaskState.RELEASING
            else task
        ),
    )
    jobs = tuple(
        replace(new, phase=GangPhase.PENDING)
        if new is not old and all(task.state is TaskState.PENDING for task in new.tasks)
        else new
        for old, new in zip(snapshot.jobs, after.jobs, strict=True)
    )
    return replace(after, jobs=jobs)


def change_tasks(snapshot: Snapshot, change: Callable[[Task], Task]) -> Snapshot:
    """Return the snapshot with every task changed; jobs without a change stay the same objects."""
    jobs = []
    for job in snapshot.jobs:
        tasks = tuple(change(task) for task in job.tasks)
        is_same = all(a is b for a, b in zip(tasks, job.tasks, strict=True))
        jobs.append(job if is_same else replace(job, tasks=tasks))
    return replace(snapshot, jobs=tuple(jobs), version=snapshot.version + 1)
