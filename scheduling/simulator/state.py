"""What becomes of tasks between two cycles of a simulation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from scheduling.engine.after import charge_budgets
from scheduling.engine.types import GangPhase, Snapshot, Task, TaskState


def release(snapshot: Snapshot) -> Snapshot:
    """Return the snapshot once every task that was being stopped is gone and waits again.

    A gang of which nothing is left asks for admission again; disruption budgets allow again what
    these tasks had used of them.
    """
    gone = [
        (next(role for role in job.roles if role.name == task.role), task.key)
        for job in snapshot.jobs
        if snapshot.disruption_budgets
        for task in job.tasks
        if task.state is TaskState.RELEASING
    ]
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
    budgets = charge_budgets(snapshot.disruption_budgets, gone, -1)
    return replace(after, jobs=jobs, disruption_budgets=budgets)


def change_tasks(snapshot: Snapshot, change: Callable[[Task], Task]) -> Snapshot:
    """Return the snapshot with every task changed; jobs without a change stay the same objects."""
    jobs = []
    for job in snapshot.jobs:
        tasks = tuple(change(task) for task in job.tasks)
        is_same = all(a is b for a, b in zip(tasks, job.tasks, strict=True))
        jobs.append(job if is_same else replace(job, tasks=tasks))
    return replace(snapshot, jobs=tuple(jobs), version=snapshot.version + 1)
