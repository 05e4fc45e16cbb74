"""What the verifier counts from a snapshot and a plan, in plain dictionaries."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from scheduling.engine.device_classes import devices_of
from scheduling.engine.types import (
    PODS,
    Binding,
    Device,
    Eviction,
    Job,
    Node,
    Plan,
    Queue,
    Requirement,
    Role,
    Snapshot,
    Task,
    TaskState,
)

WHOLE_DEVICE = 1000

SHARING = frozenset(
    f"volcano.sh/{name}"
    for name in (
        "vgpu-number",
        "vgpu-memory",
        "vgpu-memory-percentage",
        "vgpu-cores",
        "gpu-memory",
        "gpu-number",
    )
)
"""Requests that single devices answer."""
ONE_JOB = 1000

LIVE = frozenset({TaskState.BOUND, TaskState.RUNNING})
HOLDS = frozenset({TaskState.ALLOCATED, TaskState.BOUND, TaskState.RUNNING, TaskState.RELEASING})


@dataclass(frozen=True, slots=True)
class Violation:
    """One thing that a plan must not do: a code, the task, job, node or queue, and numbers."""

    code: str
    subject: str
    params: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Place:
    """A task with the job and role that it belongs to."""

    job: Job
    role: Role
    task: Task

    @property
    def request(self) -> dict[str, int]:
        """What the task takes, its slot included."""
        return {PODS: 1000, **self.role.request}


class Facts:
    """What the snapshot says, indexed."""

    def __init__(self, snapshot: Snapshot, plan: Plan) -> None:
        """Index tasks, nodes and queues; sum up what is held before and after."""
        self.snapshot = snapshot
        self.plan = plan
        self.nodes: dict[str, Node] = {n.name: n for n in snapshot.nodes}
        self.queues: dict[str, Queue] = {q.name: q for q in snapshot.queues}
        self.jobs: dict[str, Job] = {j.key: j for j in snapshot.jobs}
        self.places: dict[str, Place] = {}
        """The tasks that the plan names, and those that hold something on a node that it names."""
        self.bound: dict[str, Binding] = {b.task: b for b in plan.binds}
        self.order: dict[str, int] = {b.task: i for i, b in enumerate(plan.binds)}
        """In which order the bound tasks were placed."""
        self.evicted: dict[str, Eviction] = {e.task: e for e in plan.evictions}
        self.held_by_node: dict[str, Counter[str]] = defaultdict(Counter)
        self.held_by_queue: dict[str, Counter[str]] = defaultdict(Counter)
        named = {b.task for b in plan.binds} | {e.task for e in plan.evictions}
        named |= {p.task for p in plan.pipelined}
        nodes = {b.node for b in plan.binds} | {p.node for p in plan.pipelined}
        for reservation in plan.reservations:
            nodes.update(reservation.amounts_by_node)
        for job in snapshot.jobs:
            self._count(job, named, nodes)

    def _count(self, job: Job, named: AbstractSet[str], nodes: AbstractSet[str]) -> None:
        """Add what a job holds; keep its tasks that matter."""
        roles = {role.name: role for role in job.roles}
        held: Counter[str] = Counter()
        for task in job.tasks:
            is_held = task.state in HOLDS
            if is_held:
                held[task.role] += 1
            if task.key in named or (is_held and task.node in nodes):
                place = Place(job, roles[task.role], task)
                self.places[task.key] = place
                if is_held and task.node is not None:
                    self.held_by_node[task.node].update(place.request)
        for name, count in held.items():
            request = {PODS: 1000, **roles[name].request}
            for queue in self.path(job.queue):
                total = self.held_by_queue[queue.name]
                for resource, amount in request.items():
                    total[resource] += amount * count

    def device(self, node: str, name: str) -> Device | None:
        """Return a device of a node, None if there is no such one."""
        found = self.nodes.get(node)
        return next((d for d in found.devices if d.id == name), None) if found else None

    def capacity(self, name: str, resource: str) -> int | None:
        """Return how much of a resource a node has; None: no limit."""
        node = self.nodes[name]
        if resource == PODS and PODS not in node.allocatable:
            return None
        if resource.startswith("deviceclass/"):
            classes = self.snapshot.device_classes
            known = devices_of(resource.removeprefix("deviceclass/"), classes, node.devices)
            return 1000 * len(known) if classes else None
        if resource in SHARING and resource not in node.allocatable:
            return None  # `_devices` looks at the single cards
        return node.allocatable.get(resource, 0)

    def path(self, name: str) -> list[Queue]:
        """Return a queue and its ancestors."""
        path: list[Queue] = []
        queue = self.queues.get(name)
        while queue is not None and queue not in path:
            path.append(queue)
            queue = self.queues.get(queue.parent) if queue.parent is not None else None
        return path


def unfit(role: Role, node: Node) -> str:
    """Return what keeps a role off a node, '' if nothing does."""
    if not node.is_schedulable:
        return "not_schedulable"
    for taint in node.taints:
        if taint.effect == "PreferNoSchedule":
            continue
        if not any(
            t.effect in ("", taint.effect)
            and (t.key == taint.key or (not t.key and t.operator == "Exists"))
            and (t.operator == "Exists" or t.value == taint.value)
            for t in role.tolerations
        ):
            return "taint"
    if any(node.labels.get(k) != v for k, v in role.node_selector.items()):
        return "selector"
    if role.node_affinity and not any(
        all(_is_met(r, node.labels.get(r.key)) for r in term) for term in role.node_affinity
    ):
        return "affinity"
    if role.image and node.runtimes is not None and role.image not in node.runtimes:
        return "runtime"
    return ""


def _is_met(requirement: Requirement, value: str | None) -> bool:  # noqa: PLR0911 - an operator each
    first = requirement.values[0] if requirement.values else ""
    match requirement.operator:
        case "In":
            return value in requirement.values
        case "NotIn":
            return value not in requirement.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt" as operator:
            try:
                left, right = int(value or ""), int(first)
            except ValueError:
                return False
            return left > right if operator == "Gt" else left < right
        case _:
            return False
