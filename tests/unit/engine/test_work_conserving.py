"""Nothing idles that somebody may use: whole clusters at rest, counted again."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from hypothesis import given

from scheduling.engine.after import apply_plan
from scheduling.engine.cycle import DEFAULT_CONFIG, plan
from scheduling.engine.types import (
    Amounts,
    Job,
    QueuePolicy,
    QueueState,
    Role,
    Snapshot,
    TaskState,
)
from scheduling.simulator.state import release
from tests.random_clusters import clusters
from tests.unit.engine.test_properties import examples

HELD = (TaskState.ALLOCATED, TaskState.BOUND, TaskState.RUNNING, TaskState.RELEASING)


class Idle:
    """What nodes and queues have left, reservations taken out."""

    def __init__(self, snapshot: Snapshot) -> None:
        """Count everything that is held."""
        self.queues = {q.name: q for q in snapshot.queues}
        self.nodes = {n.name: Counter(n.allocatable) for n in snapshot.nodes if n.is_schedulable}
        self.room = {q.name: Counter(q.max) for q in snapshot.queues}
        for job in snapshot.jobs:
            roles = {role.name: role for role in job.roles}
            for task in job.tasks:
                if task.state in HELD:
                    self._take(job, roles[task.role].request, str(task.node))
        for reservation in snapshot.reservations:
            for name, amounts in reservation.amounts_by_node.items():
                self.nodes.get(name, Counter()).subtract(amounts)

    def path(self, name: str | None) -> list[str]:
        """Return a queue and those above it."""
        return [name, *self.path(self.queues[name].parent)] if name is not None else []

    def _take(self, job: Job, amounts: Amounts, node: str) -> None:
        self.nodes.get(node, Counter()).subtract(amounts)
        for name in self.path(job.queue):
            self.room[name].subtract({r: a for r, a in amounts.items() if r in self.room[name]})

    def place(self, job: Job, role: Role) -> bool:
        """Take room for one task on the first node that has it; False if none has."""
        amounts = role.request
        for name in self.path(job.queue):
            if self.queues[name].state is not QueueState.OPEN:
                return False
            if any(self.room[name].get(r, a) < a for r, a in amounts.items()):
                return False
        for node, left in self.nodes.items():
            if all(left[r] >= a for r, a in amounts.items()):
                self._take(job, amounts, node)
                return True
        return False


def could_start(snapshot: Snapshot, job: Job) -> bool:
    """Return whether idle room holds one task more, or all that a gang of one role lacks."""
    idle = Idle(snapshot)
    running = Counter(t.role for t in job.tasks if t.state in HELD)
    lacks = {r.name: max(r.min_available - running[r.name], 0) for r in job.roles}
    missing = max(sum(lacks.values()), job.min_available - sum(running.values()))
    waiting = {r.name: r.replicas - running[r.name] for r in job.roles}
    if missing <= 0:
        return any(
            waiting[r.name] and any(r.request.values()) and Idle(snapshot).place(job, r)
            for r in job.roles
        )
    if len(job.roles) > 1 or missing > sum(waiting.values()):
        return False  # which tasks to choose is another question
    return all(idle.place(job, job.roles[0]) for _ in range(missing))


@examples(30)
@given(clusters(has_rules=False))
def test_no_idle_room_for_what_waits(snapshot: Snapshot) -> None:
    """At rest no job can grow, and no gang start, in what is neither held nor reserved.

    But for mins that are kept free, and queues that wait for their heads.
    """
    queues = tuple(replace(q, lend_min=True, policy=QueuePolicy.PRIORITY) for q in snapshot.queues)
    jobs = tuple(replace(job, sla_waiting_seconds=None) for job in snapshot.jobs)
    snapshot = replace(snapshot, queues=queues, jobs=jobs)
    for _ in range(8):
        after = release(apply_plan(snapshot, plan(snapshot, DEFAULT_CONFIG)))
        snapshot = replace(after, now=snapshot.now + 0.01)

    assert [j.key for j in snapshot.jobs if j.is_runnable and could_start(snapshot, j)] == []
