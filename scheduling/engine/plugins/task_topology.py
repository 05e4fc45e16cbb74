"""The task-topology plugin: tasks of roles that talk much are put together, others apart."""

from __future__ import annotations

from itertools import combinations

import numpy as np

from scheduling.engine.journal import Entry, EntryKind
from scheduling.engine.plugin import Plugin
from scheduling.engine.session import Session
from scheduling.engine.shapes import MEMORY_DIM, PODS_DIM, Float64, Int64
from scheduling.engine.types import PluginConfig, Task
from scheduling.engine.views import JobView, RoleView

AFFINITY = "volcano.sh/task-topology-affinity"
ANTI_AFFINITY = "volcano.sh/task-topology-anti-affinity"
TASK_ORDER = "volcano.sh/task-topology-task-order"

MEBIBYTE = 1 << 20
TOP_SCORE = 100.0

Pair = tuple[str, str]


class Bucket:
    """Tasks of one job that belong together."""

    __slots__ = ("bound", "number", "request", "roles", "tasks")

    def __init__(self, number: int, width: int) -> None:
        """Start empty."""
        self.number = number
        self.tasks: dict[str, RoleView] = {}
        """Those not placed yet, by key."""
        self.bound: dict[int, int] = {}
        """Node -> number of its tasks there."""
        self.roles: list[str] = []
        self.request = [0] * width
        """What the tasks not placed yet ask for."""

    @property
    def size(self) -> int:
        """Number of its tasks, placed or not."""
        return len(self.tasks) + sum(self.bound.values())


class Manager:
    """The rules and the buckets of one job."""

    def __init__(self, session: Session, job: JobView) -> None:
        """Read the rules and fill the buckets."""
        self.session = session
        self.job = job
        self.label = {id(role): role_label(role.name) for role in job.roles}
        known = set(self.label.values())
        annotations = job.job.annotations
        self.affinity = _pairs(annotations.get(AFFINITY, ""), known)
        self.anti = _pairs(annotations.get(ANTI_AFFINITY, ""), known)
        order = [x.strip() for x in annotations.get(TASK_ORDER, "").split(",") if x.strip()]
        self.order = {name: i for i, name in enumerate(order)} if set(order) <= known else {}
        self.buckets: list[Bucket] = []
        self.of_task: dict[str, Bucket] = {}
        self.on_node: dict[int, list[str]] = {}
        if self.affinity or self.anti:
            self._fill()
        self.largest = max((b.size for b in self.buckets), default=0)

    def rank(self, role: RoleView) -> tuple[int, int]:
        """Return the sort key of a role: stated order, then how much it matters."""
        label = self.label[id(role)]
        matters = 0
        for weight, pairs, is_self in (
            (4, self.anti, True),
            (3, self.affinity, False),
            (2, self.affinity, True),
            (1, self.anti, False),
        ):
            if any(label in p and (p[0] == p[1]) is is_self for p in pairs):
                matters = max(matters, weight)
        return self.order.get(label, len(self.order)), -matters

    def _fill(self) -> None:
        by_node: dict[int, Bucket] = {}
        for role, task, node in self.session.held_tasks(self.job):
            bucket = by_node.get(node)
            if bucket is None:
                bucket = by_node[node] = self._new()
            self._join(bucket, role, task)
            self._bind(bucket, role, task, node)
        waiting = [(role, task) for role in self.job.roles for task in role.pending]
        waiting.sort(key=lambda x: (self.rank(x[0]), x[1].index, x[1].key))
        for role, task in waiting:
            best: tuple[int, float, Bucket] | None = None
            for bucket in self.buckets:
                value = self.attraction(self.label[id(role)], bucket.roles)
                cost = _cost(bucket.request)
                if best is None or value > best[0] or (value == best[0] and cost < best[1]):
                    best = (value, cost, bucket)
            chosen = best[2] if best is not None and best[0] >= 0 else self._new()
            self._join(chosen, role, task)
        for role in self.job.roles:
            role.pending.sort(
                key=lambda t: (*self.task_rank(role, t), t.index, t.key), reverse=True
            )

    def _new(self) -> Bucket:
        bucket = Bucket(len(self.buckets), self.session.width)
        self.buckets.append(bucket)
        return bucket

    def _join(self, bucket: Bucket, role: RoleView, task: Task) -> None:
        bucket.tasks[task.key] = role
        bucket.roles.append(self.label[id(role)])
        self.of_task[task.key] = bucket
        for d, amount in role.shape.items:
            bucket.request[d] += amount

    def _bind(self, bucket: Bucket, role: RoleView, task: Task, node: int) -> None:
        del bucket.tasks[task.key]
        bucket.bound[node] = bucket.bound.get(node, 0) + 1
        self.on_node.setdefault(node, []).append(self.label[id(role)])
        for d, amount in role.shape.items:
            bucket.request[d] -= amount

    def move(self, entry: Entry, *, is_undone: bool) -> None:
        """Follow a placement or its undoing."""
        bucket = self.of_task.get(entry.task.key)
        if bucket is None:
            return
        if not is_undone:
            self._bind(bucket, entry.role, entry.task, entry.node)
            return
        bucket.tasks[entry.task.key] = entry.role
        bucket.bound[entry.node] -= 1
        self.on_node[entry.node].remove(self.label[id(entry.role)])
        for d, amount in entry.role.shape.items:
            bucket.request[d] += amount

    def attraction(self, label: str, others: list[str]) -> int:
        """Return by how many others a role is drawn, less by how many it is kept away."""
        total = 0
        for other in others:
            pair = _pair(label, other)
            total += (pair in self.affinity) - (pair in self.anti)
        return total

    def task_rank(self, role: RoleView, task: Task) -> tuple[int, int, int, tuple[int, int]]:
        """Return the sort key of a task: larger bucket, older bucket, order in it."""
        bucket = self.of_task.get(task.key)
        if bucket is None:
            return (1, 0, 0, self.rank(role))
        return (0, -bucket.size, bucket.number, self.rank(role))

    def scores(self, role: RoleView) -> Float64 | None:
        """Return float64[N]: how much of the next task's bucket each node can take."""
        bucket = self.of_task.get(role.pending[-1].key) if role.pending else None
        if bucket is None:
            return None
        session = self.session
        room = session.free + session.releasing
        fits = np.all(room >= role.shape.vector[:, None], axis=0)
        scores: Float64 = np.zeros(session.tables.nodes.count)
        for node in np.flatnonzero(fits):
            n = int(node)
            value = bucket.bound.get(n, 0) + len(bucket.tasks)
            value += min(0, self.attraction(self.label[id(role)], self.on_node.get(n, [])))
            scores[n] = value - self._too_many(bucket, role.pending[-1], room[:, n])
        if self.largest:
            scores *= TOP_SCORE / self.largest
        return scores

    def _too_many(self, bucket: Bucket, task: Task, room: Int64) -> int:
        """Return how many other tasks of a bucket must stay out for the rest to fit."""
        left = list(bucket.request)
        dropped = 0
        for key, role in reversed(bucket.tasks.items()):
            if all(amount <= free for amount, free in zip(left, room, strict=True)):
                break
            if key != task.key:
                dropped += 1
                for d, amount in role.shape.items:
                    left[d] -= amount
        return dropped


class TaskTopology(Plugin):
    """Fill buckets of tasks that attract each other; place bucket by bucket, each on few nodes.

    A job's annotations `volcano.sh/task-topology-affinity` and `-anti-affinity` list groups of
    roles (`ps,worker;x`: a group of one is drawn to itself), `-task-order` ranks roles; one that
    names an unknown role is ignored. Argument `task-topology.weight` (1). Scores only, never a
    filter. Source: Volcano pkg/scheduler/plugins/task-topology.
    """

    name = "task-topology"
    order_moves = True

    def __init__(self, session: Session, config: PluginConfig) -> None:
        """Note which jobs have rules."""
        super().__init__(session, config)
        self._managers: dict[str, Manager] = {}
        self._roles: dict[int, Manager] = {}
        for key, row in session.tables.rows.items():
            rules = row.job.annotations
            if row.pending_count and (AFFINITY in rules or ANTI_AFFINITY in rules):
                job = session.view(key)
                if job is not None:
                    manager = self._managers[key] = Manager(session, job)
                    self._roles.update({id(role): manager for role in job.roles})

    def task_order(self, role: RoleView) -> tuple[object, ...]:
        """Put tasks of large buckets first, bucket by bucket."""
        manager = self._roles.get(id(role))
        if manager is None or not role.pending:
            return ()
        return manager.task_rank(role, role.pending[-1])

    def task_node_order(self, job: JobView, role: RoleView) -> Float64 | None:
        """Return float64[N] for a job with rules."""
        manager = self._managers.get(job.key)
        scores = manager.scores(role) if manager is not None else None
        return None if scores is None else scores * self.number("task-topology.weight", 1)

    def on_placed(self, entry: Entry) -> None:
        """Follow a placement."""
        self._move(entry, is_undone=False)

    def on_undone(self, entry: Entry) -> None:
        """Follow the undoing of a placement."""
        self._move(entry, is_undone=True)

    def _move(self, entry: Entry, *, is_undone: bool) -> None:
        manager = self._managers.get(entry.job.key)
        if manager is not None and entry.kind is not EntryKind.EVICT:
            manager.move(entry, is_undone=is_undone)


def role_label(name: str) -> str:
    """Return the name by which rules call a role; parts of a split role share it."""
    return name.partition("#")[0]


def _pair(left: str, right: str) -> Pair:
    return (left, right) if left <= right else (right, left)


def _pairs(text: str, known: set[str]) -> set[Pair]:
    """Return the pairs of roles that a rule names; none if it names an unknown or repeated one."""
    found: set[Pair] = set()
    for group in text.split(";"):
        names = [name.strip() for name in group.split(",") if name.strip()]
        if not set(names) <= known or len(set(names)) != len(names):
            return set()
        if len(names) == 1:
            found.add((names[0], names[0]))
        found.update(_pair(a, b) for a, b in combinations(names, 2))
    return found


def _cost(request: list[int]) -> float:
    """Return a bucket's request as one number: milli-CPU, MiB and the others added up."""
    return sum(
        amount / MEBIBYTE if d == MEMORY_DIM else amount
        for d, amount in enumerate(request)
        if d != PODS_DIM
    )
