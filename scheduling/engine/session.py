"""One cycle's mutable view of the cluster, and Statement: a try that can be undone.

The session applies every placement, promise and eviction at once, so that whatever runs later in
the cycle sees it, and keeps a journal. What is in the journal at the end is the plan.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scheduling.engine.tables import (
    PODS_DIM,
    UNLIMITED,
    Bools,
    Int64,
    JobRow,
    RoleRow,
    Shape,
    Tables,
)
from scheduling.engine.types import (
    GPU,
    Config,
    Device,
    GangPhase,
    PluginConfig,
    Queue,
    QueueState,
    Reason,
    Reservation,
    ShardMode,
    Snapshot,
    SubGroupPolicy,
    Task,
    TaskState,
)

Float64 = NDArray[np.float64]

WHOLE_DEVICE = 1000
"""Milli-units of one device."""


class Vote(Enum):
    """A plugin's answer where votes are combined tier by tier."""

    REJECT = -1
    ABSTAIN = 0
    PERMIT = 1


class QueueView:
    """A queue in this cycle; amounts are lists in the order of the resources."""

    __slots__ = (
        "allocated",
        "children",
        "deserved",
        "inqueue",
        "is_open",
        "max",
        "min",
        "name",
        "own_requested",
        "parent",
        "path",
        "position",
        "queue",
        "rank",
        "releasing",
        "requested",
        "share",
    )

    def __init__(self, queue: Queue, *, position: int, tables: Tables) -> None:
        """Start with nothing allocated."""
        resources = tables.resources
        width = tables.width
        self.queue = queue
        self.name = queue.name
        self.position = position
        self.parent: QueueView | None = None
        self.children: list[QueueView] = []
        self.path: tuple[QueueView, ...] = ()
        """From the top of the tree down to this queue, itself included."""
        self.min = resources.row(queue.min)
        self.max = resources.row(queue.max, missing=UNLIMITED)
        self.allocated = [0] * width
        self.releasing = [0] * width
        self.requested = [0] * width
        self.own_requested = [0] * width
        self.inqueue = [0] * width
        self.deserved = [0] * width
        self.is_open = queue.state is QueueState.OPEN
        self.rank = -queue.priority
        self.share = -1.0
        """Where a plugin keeps the queue's share; -1 once something has changed."""


class RoleView:
    """One role of a job in this cycle."""

    __slots__ = ("name", "needed", "pending", "ready", "role", "row", "shape", "waiting")

    def __init__(self, row: RoleRow, *, now: float) -> None:
        """Take over what the row says; tasks in back-off stay out."""
        self.row = row
        self.role = row.role
        self.name = row.name
        self.shape = row.shape
        self.needed = row.role.min_available
        pending = row.pending
        if row.latest_not_before > now:
            pending = [t for t in pending if t.not_before <= now]
        self.pending: list[Task] = pending[::-1]
        """Next task last, so that taking one is a pop."""
        self.ready = len(row.held) + row.done
        self.waiting = len(row.promised)


class Part:
    """The roles of a job that form one sub-group; those that no policy matches form one too."""

    __slots__ = ("policy", "position", "roles", "size", "values")

    def __init__(
        self, policy: SubGroupPolicy | None, position: int, values: tuple[str, ...]
    ) -> None:
        """Start without roles; `position` is the policy's."""
        self.policy = policy
        self.position = position
        self.values = values
        self.roles: list[RoleView] = []
        self.size = policy.size if policy is not None else 1

    @property
    def name(self) -> str:
        """Its policy and label values."""
        return "-".join([self.policy.name if self.policy is not None else "", *self.values])

    def has_size(self, *, with_waiting: bool) -> bool:
        """Return whether it is complete, promises counted or not."""
        have = sum(r.ready + (r.waiting if with_waiting else 0) for r in self.roles)
        return have >= self.size

    def task_count(self) -> int:
        """Return how many tasks it has, placed or not."""
        return sum(r.ready + r.waiting + len(r.pending) for r in self.roles)


def parts_of(policies: Sequence[SubGroupPolicy], roles: Sequence[RoleView]) -> list[Part]:
    """Split roles into sub-groups: a role belongs to the first policy all whose keys it has."""
    found: dict[tuple[int, tuple[str, ...]], Part] = {}
    for role in roles:
        labels = role.role.labels
        place: tuple[int, tuple[str, ...]] = (len(policies), ())
        for position, policy in enumerate(policies):
            values = tuple(labels.get(key, "") for key in policy.match_label_keys)
            if values and all(values):
                place = (position, values)
                break
        if place not in found:
            chosen = policies[place[0]] if place[0] < len(policies) else None
            found[place] = Part(chosen, *place)
        found[place].roles.append(role)
    return [found[place] for place in sorted(found)]


class JobView:
    """One job in this cycle."""

    __slots__ = (
        "allocated",
        "best_effort",
        "is_shaped",
        "job",
        "key",
        "min_available",
        "parts",
        "placed",
        "queue",
        "ready",
        "roles",
        "row",
        "waiting",
    )

    def __init__(self, row: JobRow, *, queue: QueueView, now: float) -> None:
        """Take over what the row says."""
        self.row = row
        self.job = row.job
        self.key = row.job.key
        self.queue = queue
        self.min_available = row.min_available
        self.roles = [RoleView(r, now=now) for r in row.roles]
        self.allocated = list(row.allocated)
        self.ready = sum(r.ready for r in self.roles)
        self.waiting = sum(r.waiting for r in self.roles)
        self.best_effort = sum(len(r.pending) for r in self.roles if r.shape.is_best_effort)
        self.placed = 0
        """Placements and promises made in this cycle."""
        self.parts = parts_of(row.job.sub_groups, self.roles) if row.job.sub_groups else []
        self.is_shaped = bool(self.parts) or row.job.topology is not None
        """Whether it has a topology rule or sub-groups."""

    @property
    def pending_count(self) -> int:
        """Number of tasks that could be placed now."""
        return sum(len(r.pending) for r in self.roles)

    def missing(self) -> int:
        """Return how many tasks the gang still lacks, promises counted as there."""
        return self._lacking(with_waiting=True)

    def _lacking(self, *, with_waiting: bool) -> int:
        have = self.ready + (self.waiting if with_waiting else 0)
        if len(self.roles) == 1:
            needed = self.roles[0].needed
            return max(needed, self.min_available) - have
        short = 0
        for role in self.roles:
            role_have = role.ready + (role.waiting if with_waiting else 0)
            if role_have < role.needed:
                short += role.needed - role_have
        return max(short, self.min_available - have)

    def is_ready(self) -> bool:
        """Return whether the gang has its minimum without promises."""
        return self._lacking(with_waiting=False) <= self.best_effort and (
            not self.parts or self._has_parts(with_waiting=False)
        )

    def is_pipelined(self) -> bool:
        """Return whether the gang has its minimum if all promises come true."""
        return self._lacking(with_waiting=True) <= self.best_effort and (
            not self.parts or self._has_parts(with_waiting=True)
        )

    def _has_parts(self, *, with_waiting: bool) -> bool:
        """Return whether every policy has as many complete sub-groups as it needs."""
        return all(
            sum(p.policy is policy and p.has_size(with_waiting=with_waiting) for p in self.parts)
            >= policy.min_groups
            for policy in self.job.sub_groups
            if policy.min_groups
        )

    def is_starving(self) -> bool:
        """Return whether the gang lacks tasks, pending best-effort ones not counted."""
        return self._lacking(with_waiting=True) > 0


class Group:
    """Waiting jobs that fare alike: only the first one that has not been served needs a view."""

    __slots__ = ("is_out", "position", "reason", "rows", "session")

    def __init__(self, session: Session, rows: list[JobRow], reason: Reason | None = None) -> None:
        """Start at the first."""
        self.session = session
        self.rows = rows
        self.position = 0
        self.reason = reason
        """Why the jobs that are left wait."""
        self.is_out = False
        """True for the rest of the cycle where the reason is one that no action can mend."""

    @property
    def first(self) -> JobRow:
        """The row of the first job."""
        return self.rows[min(self.position, len(self.rows) - 1)]

    @property
    def head(self) -> JobView | None:
        """The first job that has not been served, None if there is none or it has no queue."""
        if self.position >= len(self.rows):
            return None
        return self.session.view(self.rows[self.position].job.key)

    def left(self) -> list[JobRow]:
        """Return the rows of the jobs that have not been served."""
        return self.rows[self.position :] if self.position else self.rows

    def take(self, job: JobView) -> Group | None:
        """Note that the head was served; return the group in which it goes on, None if nowhere."""
        self.reason = None
        if len(self.rows) == 1:
            if job.pending_count:
                return self
            self.position = 1
            return None
        alone = self.split()
        return alone if job.pending_count else None

    def split(self) -> Group:
        """Take the head out of the group and return it as one of its own."""
        if len(self.rows) == 1:
            return self
        alone = Group(self.session, [self.rows[self.position]])
        self.position += 1
        self.session.groups.append(alone)
        if not self.session.jobs[alone.rows[0].job.key].pending_count:
            alone.position = 1
        return alone


class EntryKind(Enum):
    """What a journal entry did."""

    PLACE = "place"
    PROMISE = "promise"
    EVICT = "evict"


@dataclass(slots=True)
class Entry:
    """One applied step, with what is needed to undo it."""

    kind: EntryKind
    job: JobView
    role: RoleView
    task: Task
    node: int
    devices: tuple[str, ...] = ()
    action: str = ""
    beneficiary: str | None = None
    is_elastic: bool = False


class Unit:
    """What is evicted together: one elastic task, or all that a gang holds."""

    __slots__ = ("_amounts", "is_whole", "job", "tasks")

    def __init__(
        self,
        job: JobView,
        tasks: tuple[tuple[RoleView, Task, int], ...],
        *,
        is_whole: bool = False,
    ) -> None:
        """Keep role, task and node position of each task."""
        self.job = job
        self.tasks = tasks
        self.is_whole = is_whole
        self._amounts: list[int] | None = None

    def amounts(self, width: int) -> list[int]:
        """Return the sum of the tasks' requests; not to be changed."""
        if self._amounts is not None:
            return self._amounts
        if len(self.tasks) == 1:
            self._amounts = self.tasks[0][0].shape.request
            return self._amounts
        total = [0] * width
        for role, _, _ in self.tasks:
            for d, amount in role.shape.items:
                total[d] += amount
        self._amounts = total
        return total


class Removed:
    """Units that a search has set aside but not yet evicted, summed for the vetoes."""

    __slots__ = ("by_job", "by_queue", "by_role", "tasks", "units", "width")

    def __init__(self, width: int) -> None:
        """Start with none."""
        self.width = width
        self.units: list[Unit] = []
        self.tasks: set[str] = set()
        self.by_job: dict[str, int] = {}
        self.by_role: dict[tuple[str, str], int] = {}
        self.by_queue: dict[str, list[int]] = {}

    def add(self, unit: Unit) -> None:
        """Set a unit aside."""
        self._count(unit, 1)
        self.units.append(unit)
        self.tasks.update(task.key for _, task, _ in unit.tasks)

    def drop(self, unit: Unit) -> None:
        """Put a unit back."""
        self._count(unit, -1)
        self.units.remove(unit)
        self.tasks.difference_update(task.key for _, task, _ in unit.tasks)

    def _count(self, unit: Unit, sign: int) -> None:
        key = unit.job.key
        self.by_job[key] = self.by_job.get(key, 0) + sign * len(unit.tasks)
        for role, _, _ in unit.tasks:
            self.by_role[key, role.name] = self.by_role.get((key, role.name), 0) + sign
        amounts = unit.amounts(self.width)
        for queue in unit.job.queue.path:
            total = self.by_queue.setdefault(queue.name, [0] * self.width)
            for d, amount in enumerate(amounts):
                total[d] += sign * amount

    def of_queue(self, queue: QueueView, dim: int) -> int:
        """Return how much of a resource the units set aside free in a queue."""
        total = self.by_queue.get(queue.name)
        return total[dim] if total is not None else 0


@dataclass(frozen=True, slots=True)
class Claim:
    """Who wants to evict: the action, the job, and the shape of the task it wants to place."""

    action: str
    job: JobView
    role: RoleView
    removed: Removed


class ShapeNodes:
    """The feasible nodes of one shape and their scores, kept up to date by the touched log."""

    __slots__ = ("mask", "position", "scores", "shape")

    def __init__(self, shape: Shape, mask: Bools) -> None:
        """Start out of date."""
        self.shape = shape
        self.mask = mask
        self.scores: Float64 | None = None
        self.position = 0


class Plugin:
    """Base of the plugins. A plugin acts by defining any of the callbacks named in `CALLBACKS`."""

    name = ""

    def __init__(self, session: Session, config: PluginConfig) -> None:
        """Keep the session, the configuration and its arguments."""
        self.session = session
        self.config = config
        self.arguments: Mapping[str, str] = config.arguments

    def has_flag(self, flag: str) -> bool:
        """Return whether a flag is set for this plugin."""
        return _is_on(self.config, flag)

    def number(self, key: str, default: float) -> float:
        """Return a numeric argument; `parse_config` has refused what is no number."""
        return float(self.arguments.get(key, default))

    def flag(self, key: str, *, default: bool) -> bool:
        """Return a boolean argument."""
        value = self.arguments.get(key)
        return default if value is None else value.strip().lower() in ("true", "yes", "1", "on")


CALLBACKS = (
    "queue_order",
    "job_order",
    "task_order",
    "victim_order",
    "job_valid",
    "job_ready",
    "job_pipelined",
    "job_starving",
    "job_overdue",
    "job_enqueueable",
    "job_enqueued",
    "predicate",
    "node_room",
    "node_order",
    "task_node_order",
    "task_predicate",
    "hyper_node_gradient",
    "hyper_node_order",
    "allocatable",
    "gang_allocatable",
    "overused",
    "preemptive",
    "preemptable",
    "reclaimable",
    "preempt_jobs",
    "reclaim_jobs",
    "gang_evictable",
    "victims",
    "revocable",
    "on_placed",
    "on_undone",
)
"""Callbacks by name; `README.md` of this package says what each is asked."""

FLAG_OF = {
    "job_enqueueable": "job_enqueued",
    "gang_allocatable": "allocatable",
    "node_room": "predicate",
    "task_node_order": "node_order",
    "task_predicate": "predicate",
    "victims": "victim",
    "revocable": "victim",
    "victim_order": "queue_order",
    "job_overdue": "job_order",
    "preempt_jobs": "preemptable",
    "reclaim_jobs": "reclaimable",
}
"""Callbacks that are switched by a flag of another name."""

UNGATED = frozenset({"job_valid", "gang_evictable", "on_placed", "on_undone"})
"""Callbacks that no flag switches off."""

Callback = Callable[..., Any]


class Session:
    """One cycle: the snapshot's state, what has been decided so far, and the plugins' callbacks."""

    def __init__(  # noqa: PLR0915 - one line a field
        self, snapshot: Snapshot, config: Config, tables: Tables
    ) -> None:
        """Lay out nodes and queues; plugins are added by `cycle.open_session`."""
        self.snapshot = snapshot
        self.config = config
        self.tables = tables
        self.now = snapshot.now
        self.width = tables.width
        self.free: Int64 = tables.nodes.allocatable - tables.used
        """What may be placed on at once: allocatable less used less kept for reservations."""
        self.releasing: Int64 = tables.releasing.copy()
        self.promised: Int64 = tables.promised.copy()
        self.has_promises = bool(self.promised.any())
        self.has_releasing = bool(self.releasing.any())
        self.touched: list[int] = []
        self.journal: list[Entry] = []
        self.evicted: set[str] = set()
        """Keys of the tasks evicted in this cycle."""
        self.queues: dict[str, QueueView] = {}
        self.jobs: dict[str, JobView] = {}
        self.groups: list[Group] = []
        """The jobs with pending tasks that may run."""
        self.phases: dict[str, GangPhase] = {}
        self.reservations: dict[str, Reservation] = {}
        self.kept: dict[str, Int64] = {}
        """Reserved amounts by job, int64[R, N], already taken out of `free`."""
        self.focus: Bools | None = None
        """Nodes to which placement is confined: those kept for the job that is being placed."""
        self.shard: Bools | None = None
        """Nodes of the scheduler's shard, if it has one."""
        self.shard_is_hard = False
        self._read_shard()
        self.may_borrow = False
        """True while queues may be served above what they deserve (backfill)."""
        self.swap_base: dict[str, list[int]] | None = None
        """What queues held when room began to change hands inside one of them (preempt)."""
        self.callbacks: dict[str, list[list[Callback]]] = {name: [] for name in CALLBACKS}
        self.callback_owners: dict[str, list[tuple[Plugin, Callback]]] = {
            name: [] for name in CALLBACKS
        }
        self._flat: dict[str, list[Callback]] = {name: [] for name in CALLBACKS}
        self._shape_nodes: dict[int, ShapeNodes] = {}
        self._device_free: dict[int, dict[str, int]] = {}
        self.total: list[int] = self._usable_total()
        self._build_queues()
        self._keep_reservations()
        self._build_groups()

    # -- layout ---------------------------------------------------------------------------------

    def _usable_total(self) -> list[int]:
        """Sum what schedulable nodes have and what is held on the others."""
        nodes = self.tables.nodes
        on = nodes.is_schedulable
        total = []
        for d in range(self.width):
            column = nodes.allocatable[d]
            if d == PODS_DIM and bool((column >= UNLIMITED).any()):
                total.append(UNLIMITED)
                continue
            total.append(int(column[on].sum()) + int(self.tables.used[d][~on].sum()))
        return total

    def _read_shard(self) -> None:
        shard = self.snapshot.shard
        if shard is not None:
            self.shard = np.array([n in shard.nodes for n in self.tables.nodes.names], dtype=bool)
            self.shard_is_hard = shard.mode is ShardMode.HARD

    def _build_queues(self) -> None:  # noqa: C901 - steps of one layout
        """Build the tree; a queue in a circle of parents is put at the top, closed."""
        ordered = sorted(self.snapshot.queues, key=lambda q: q.name)
        views = {
            q.name: QueueView(q, position=i, tables=self.tables) for i, q in enumerate(ordered)
        }
        for view in views.values():
            parent = views.get(view.queue.parent) if view.queue.parent is not None else None
            seen = {view.name}
            ancestor = parent
            while ancestor is not None and ancestor.name not in seen:
                seen.add(ancestor.name)
                above = ancestor.queue.parent
                ancestor = views.get(above) if above is not None else None
            if ancestor is not None:
                view.is_open = False
                continue
            view.parent = parent
            if parent is not None:
                parent.children.append(view)
        for view in views.values():
            path = [view]
            while path[-1].parent is not None:
                path.append(path[-1].parent)
            view.path = tuple(reversed(path))
        for view in views.values():
            view.is_open = all(v.queue.state is QueueState.OPEN for v in view.path) and (
                view.is_open
            )
        tables = self.tables
        for name, view in views.items():
            allocated = tables.queue_allocated.get(name)
            if allocated is None:
                continue
            requested, releasing = tables.queue_requested[name], tables.queue_releasing[name]
            view.own_requested = list(requested)
            for level in view.path:
                for d in range(self.width):
                    level.allocated[d] += allocated[d]
                    level.requested[d] += requested[d]
                    level.releasing[d] += releasing[d]
        self.queues = views

    def _keep_reservations(self) -> None:
        """Take the room of live reservations out of `free`."""
        index = self.tables.nodes.index
        for reservation in self.snapshot.reservations:
            row = self.tables.rows.get(reservation.job)
            if row is None or not row.pending_count or not row.job.is_runnable:
                continue
            if reservation.expires_at <= self.now:
                continue
            self.keep(reservation, index=index)

    def _build_groups(self) -> None:
        """Take the groups over from the tables; owners of reservations stand for themselves."""
        tables = self.tables
        owners = {tables.rows[key].signature for key in self.kept}
        for signature in tables.groups:
            rows = tables.group(signature)
            if signature in owners:
                alone = [row for row in rows if row.job.key in self.kept]
                rows = [row for row in rows if row.job.key not in self.kept]
                self.groups.extend(Group(self, [row]) for row in alone)
            if rows:
                self.groups.append(Group(self, rows))

    def keep(self, reservation: Reservation, *, index: Mapping[str, int]) -> None:
        """Keep the room of a reservation free for its job."""
        kept = np.zeros_like(self.free)
        for name, amounts in reservation.amounts_by_node.items():
            node = index.get(name)
            if node is None:
                continue
            kept[:, node] = self.tables.resources.row(amounts)
            self.touched.append(node)
        self.free -= kept
        self.kept[reservation.job] = kept
        self.reservations[reservation.job] = reservation

    def give_up(self, job: str) -> Reservation | None:
        """Return the room of a job's reservation to `free`."""
        kept = self.kept.pop(job, None)
        if kept is None:
            return None
        self.free += kept
        self.touched.extend(int(n) for n in np.flatnonzero(kept.any(axis=0)))
        return self.reservations.pop(job)

    def keep_rest(self, reservation: Reservation, job: JobView) -> None:
        """Keep what of a reservation the job has not used, as long as tasks of it wait."""
        if not job.pending_count:
            return
        rest = {name: dict(amounts) for name, amounts in reservation.amounts_by_node.items()}
        for entry in self.journal:
            if entry.job is not job or entry.kind is EntryKind.EVICT:
                continue
            left = rest.get(self.tables.nodes.names[entry.node], {})
            for d, amount in entry.role.shape.items:
                name = self.tables.resources.names[d]
                if name in left:
                    left[name] -= amount
        amounts_by_node = {
            name: kept
            for name, amounts in rest.items()
            if (kept := {k: v for k, v in amounts.items() if v > 0})
        }
        if amounts_by_node:
            self.keep(
                replace(reservation, amounts_by_node=amounts_by_node),
                index=self.tables.nodes.index,
            )

    def nodes_of(self, reservation: Reservation) -> Bools:
        """Return bool[N]: the nodes of a reservation."""
        mask: Bools = np.zeros(self.tables.nodes.count, dtype=bool)
        for name in reservation.amounts_by_node:
            node = self.tables.nodes.index.get(name)
            if node is not None:
                mask[node] = True
        return mask

    # -- plugins --------------------------------------------------------------------------------

    def add_tier(self, plugins: Sequence[tuple[Plugin, PluginConfig]]) -> None:
        """Register the callbacks of one tier of plugins, as far as their flags allow."""
        for name in CALLBACKS:
            flag = FLAG_OF.get(name, name)
            members: list[Callback] = []
            for plugin, config in plugins:
                callback = getattr(plugin, name, None)
                if callback is None:
                    continue
                if name not in UNGATED and not _is_on(config, flag):
                    continue
                members.append(callback)
                self.callback_owners[name].append((plugin, callback))
            self.callbacks[name].append(members)
            self._flat[name].extend(members)

    def each(self, name: str) -> list[Callback]:
        """Return all callbacks of one name, tier by tier, in order."""
        return self._flat[name]

    def has_moving_order(self, name: str) -> bool:
        """Return whether an order changes while tasks are placed."""
        return any(getattr(p, "order_moves", False) for p, _ in self.callback_owners[name])

    def vote(self, name: str, *arguments: object) -> bool:
        """Combine votes: a reject anywhere is no; a tier with a permit ends the vote with yes."""
        for tier in self.callbacks[name]:
            has_permit = False
            for callback in tier:
                answer = callback(*arguments)
                if answer is Vote.REJECT:
                    return False
                has_permit = has_permit or answer is Vote.PERMIT
            if has_permit:
                return True
        return True

    def is_job_ready(self, job: JobView) -> bool:
        """Return whether all plugins call the job's gang complete."""
        for callback in self._flat["job_ready"]:  # noqa: SIM110 - cheaper than a generator
            if not callback(job):
                return False
        return True

    def is_job_pipelined(self, job: JobView) -> bool:
        """Return the vote on whether promises complete the job's gang."""
        return self.vote("job_pipelined", job)

    def is_job_starving(self, job: JobView) -> bool:
        """Return what the first tier with an opinion says about the job's need."""
        for tier in self.callbacks["job_starving"]:
            if tier:
                return all(callback(job) for callback in tier)
        return False

    def refusal(self, job: JobView, role: RoleView) -> Reason | None:
        """Return why the queue may not take one more task of the role, None if it may."""
        for callback in self.each("allocatable"):
            reason: Reason | None = callback(job, role)
            if reason is not None:
                return reason
        return None

    def gang_refusal(self, job: JobView, need: list[int]) -> Reason | None:
        """Return why the queue may not take all that the gang lacks, None if it may."""
        for callback in self.each("gang_allocatable"):
            reason: Reason | None = callback(job, need)
            if reason is not None:
                return reason
        return None

    def is_overused(self, queue: QueueView) -> bool:
        """Return whether any plugin calls the queue overused."""
        return any(callback(queue) for callback in self.each("overused"))

    def queue_key(self, queue: QueueView) -> tuple[object, ...]:
        """Return the sort key of a queue: the plugins' opinions, then age, then name."""
        return (
            *[callback(queue) for callback in self.each("queue_order")],
            queue.queue.created_at,
            queue.name,
        )

    def job_key(self, job: JobView) -> tuple[object, ...]:
        """Return the sort key of a job in its queue: opinions, age, name."""
        return (
            *[callback(job) for callback in self.each("job_order")],
            job.job.created_at,
            job.key,
        )

    # -- jobs -----------------------------------------------------------------------------------

    def view(self, key: str) -> JobView | None:
        """Return the view of a job, None if its queue does not exist."""
        known = self.jobs.get(key)
        if known is None:
            row = self.tables.rows[key]
            queue = self.queues.get(row.job.queue)
            if queue is None:
                return None
            known = self.jobs[key] = JobView(row, queue=queue, now=self.now)
        return known

    # -- nodes ----------------------------------------------------------------------------------

    def mask(self, shape: Shape) -> Bools:
        """Return bool[N]: nodes that pass every predicate, room not considered."""
        mask: Bools = np.ones(self.tables.nodes.count, dtype=bool)
        if self.shard is not None and self.shard_is_hard:
            mask &= self.shard
        for callback in self.each("predicate"):
            mask &= callback(shape)
        return mask

    def shape_nodes(self, shape: Shape) -> ShapeNodes:
        """Return the feasible nodes of a shape with scores that are up to date."""
        view = self._shape_nodes.get(shape.index)
        if view is None:
            view = self._shape_nodes[shape.index] = ShapeNodes(shape, self.mask(shape))
        log = self.touched
        end = len(log)
        if view.scores is None:
            view.scores = self._score(view, None)
        elif view.position < end:
            if end - view.position == 1:
                changed: Int64 = np.array(log[view.position :], dtype=np.int64)
            else:
                changed = np.array(list(set(log[view.position : end])), dtype=np.int64)
            view.scores[changed] = self._score(view, changed)
        view.position = end
        return view

    def _score(self, view: ShapeNodes, changed: Int64 | None) -> Float64:
        """Return scores float64 of the nodes at `changed` (None: all); -inf where it cannot run."""
        nodes: Any = slice(None) if changed is None else changed
        fits = view.mask[nodes].copy() if changed is None else view.mask[changed]
        for d, amount in view.shape.items:
            fits &= self.free[d][nodes] >= amount
        if self.has_promises:
            for d, amount in view.shape.items:
                future = self.free[d][nodes] + self.releasing[d][nodes] - self.promised[d][nodes]
                fits &= future >= amount
        for callback in self.each("node_room"):
            fits &= callback(view.shape, nodes)
        scores: Float64 = np.where(fits, 0.0, -np.inf)
        for callback in self.each("node_order"):
            scores += callback(view.shape, nodes)
        return scores

    def best_node(self, shape: Shape, *, extra: Float64 | None = None) -> int:
        """Return the feasible node with the highest score, -1 if there is none.

        `extra` is float64[N], added to the scores of the shape.
        """
        if not self.tables.nodes.count:
            return -1
        scores = self.shape_nodes(shape).scores
        if scores is None:
            return -1
        if extra is not None:
            scores = scores + extra
        if self.focus is not None:
            scores = np.where(self.focus, scores, -np.inf)
        return self.pick(scores)

    def nominated_node(self, role: RoleView, *, extra: Float64 | None) -> int:
        """Return the node that the role's next task is nominated to, if it fits there; or -1."""
        name = role.pending[-1].nominated_node
        node = self.tables.nodes.index.get(name, -1) if name else -1
        if node < 0 or (self.focus is not None and not self.focus[node]):
            return -1
        if extra is not None and extra[node] == -np.inf:
            return -1
        scores = self.shape_nodes(role.shape).scores
        return node if scores is not None and scores[node] > -np.inf else -1

    def pick(self, scores: Float64) -> int:
        """Return the node with the highest score above -inf, those of the shard first; or -1."""
        if self.shard is not None:
            inside = np.where(self.shard, scores, -np.inf)
            best = int(inside.argmax())
            if inside[best] > -np.inf:
                return best
        best = int(scores.argmax())
        return best if scores[best] > -np.inf else -1

    def task_scores(self, job: JobView, role: RoleView) -> Float64 | None:
        """Return what the role's next task adds to its shape's scores, float64[N], or None.

        -inf where a plugin keeps that task off.
        """
        total: Float64 | None = None
        for predicate in self._flat["task_predicate"]:
            allowed: Bools | None = predicate(job, role)
            if allowed is not None:
                hurdle: Float64 = np.where(allowed, 0.0, -np.inf)
                total = hurdle if total is None else total + hurdle
        for callback in self._flat["task_node_order"]:
            scores: Float64 | None = callback(job, role)
            if scores is not None:
                total = scores if total is None else total + scores
        return total

    def exclude(self, shape: Shape, node: int) -> None:
        """Take a node out for a shape until something changes there."""
        scores = self.shape_nodes(shape).scores
        if scores is not None:
            scores[node] = -np.inf

    def future_fits(self, shape: Shape) -> Bools:
        """Return bool[N]: nodes where the shape fits once everything releasing has gone."""
        fits = self.shape_nodes(shape).mask.copy()
        if self.focus is not None:
            fits &= self.focus
        for d, amount in shape.items:
            fits &= self.free[d] + self.releasing[d] - self.promised[d] >= amount
        for callback in self.each("node_room"):
            fits &= callback(shape, slice(None))
        return fits

    def best_future_node(self, shape: Shape, *, extra: Float64 | None = None) -> int:
        """Return the best node where the shape fits once what is releasing has gone, or -1."""
        if not self.has_releasing:
            return -1
        fits = self.future_fits(shape)
        if not fits.any():
            return -1
        scores: Float64 = np.where(fits, 0.0, -np.inf)
        for callback in self.each("node_order"):
            scores += callback(shape, slice(None))
        return self.pick(scores if extra is None else scores + extra)

    def future_free(self, node: int) -> list[int]:
        """Return what will be free on a node: free, and releasing less promised."""
        column = self.free[:, node] + self.releasing[:, node] - self.promised[:, node]
        return [int(x) for x in column]

    # -- devices --------------------------------------------------------------------------------

    def devices_free(self, node: int) -> dict[str, int]:
        """Return device id -> milli-units that are free, of the healthy devices of a node."""
        free = self._device_free.get(node)
        if free is None:
            table = self.tables
            free = {d.id: WHOLE_DEVICE for d in table.nodes.nodes[node].devices if d.is_healthy}
            for key in table.rows_by_node.get(node, ()):
                for role in table.rows[key].roles:
                    for task, at in (*role.held, *role.releasing):
                        if at == node and task.devices:
                            share = -(-role.shape.gpu_milli // len(task.devices))
                            for device in task.devices:
                                if device in free:
                                    free[device] -= share
            self._device_free[node] = free
        return free

    def pick_devices(self, shape: Shape, node: int) -> tuple[str, ...] | None:
        """Return the devices for one task, () if the node names none, None if none are left.

        Whole devices: the first NUMA node (fewest free devices first) that has enough, else the
        lowest indices. A part of a device: the fullest one where it still fits.
        """
        devices = self.tables.nodes.nodes[node].devices
        if not devices or not shape.gpu_milli:
            return ()
        free = self.devices_free(node)
        by_id = {d.id: d for d in devices}
        if shape.gpu_milli < WHOLE_DEVICE:
            parts = [
                (left, by_id[i].index, i) for i, left in free.items() if left >= shape.gpu_milli
            ]
            return (min(parts)[2],) if parts else None
        count = shape.gpu_milli // WHOLE_DEVICE
        whole = [
            by_id[i]
            for i, left in free.items()
            if left == WHOLE_DEVICE and by_id[i].resource == GPU
        ]
        if len(whole) < count:
            return None
        groups: dict[int, list[Device]] = {}
        for device in whole:
            groups.setdefault(device.numa_node, []).append(device)
        roomy = [g for g in groups.values() if len(g) >= count]
        chosen = min(roomy, key=lambda g: (len(g), g[0].index)) if roomy else whole
        chosen = sorted(chosen, key=lambda d: (d.index, d.id))[:count]
        return tuple(d.id for d in chosen)

    def _book_devices(self, entry: Entry, sign: int) -> None:
        if not entry.devices:
            return
        free = self.devices_free(entry.node)
        share = -(-entry.role.shape.gpu_milli // len(entry.devices))
        for device in entry.devices:
            free[device] -= sign * share

    # -- steps ----------------------------------------------------------------------------------

    def place(self, job: JobView, role: RoleView, node: int) -> bool:
        """Place the role's next pending task on a node now; False if no device is left there."""
        devices = self.pick_devices(role.shape, node) if role.shape.gpu_milli else ()
        if devices is None:
            return False
        entry = Entry(EntryKind.PLACE, job, role, role.pending.pop(), node, devices)
        self.apply(entry)
        self.journal.append(entry)
        return True

    def promise(self, job: JobView, role: RoleView, node: int) -> None:
        """Promise the role's next pending task room that is still being freed."""
        entry = Entry(EntryKind.PROMISE, job, role, role.pending.pop(), node)
        self.apply(entry)
        self.journal.append(entry)

    def evict(self, unit: Unit, *, action: str, beneficiary: str | None) -> None:
        """Make everything in a unit release its place."""
        for role, task, node in unit.tasks:
            entry = Entry(
                EntryKind.EVICT,
                unit.job,
                role,
                task,
                node,
                action=action,
                beneficiary=beneficiary,
                is_elastic=not unit.is_whole,
            )
            self.apply(entry)
            self.journal.append(entry)

    def undo(self, entry: Entry) -> None:
        """Reverse one step; the journal is the caller's."""
        job, role, node = entry.job, entry.role, entry.node
        shape = role.shape
        if entry.kind is EntryKind.PLACE:
            self.free[:, node] += shape.vector
            role.ready -= 1
            job.ready -= 1
            self._book_devices(entry, -1)
            self._undo_pending(entry)
            self._account(job, shape, -1)
        elif entry.kind is EntryKind.PROMISE:
            self.promised[:, node] -= shape.vector
            role.waiting -= 1
            job.waiting -= 1
            self._undo_pending(entry)
            self._account(job, shape, -1)
        else:
            self.evicted.discard(entry.task.key)
            if node >= 0:
                self.releasing[:, node] -= shape.vector
            role.ready += 1
            job.ready += 1
            self._account(job, shape, 1)
            for queue in job.queue.path:
                for d, amount in shape.items:
                    queue.releasing[d] -= amount
        if node >= 0:
            self.touched.append(node)
        for callback in self.each("on_undone"):
            callback(entry)

    def _undo_pending(self, entry: Entry) -> None:
        entry.role.pending.append(entry.task)
        entry.job.placed -= 1
        if entry.role.shape.is_best_effort:
            entry.job.best_effort += 1

    def apply(self, entry: Entry) -> None:  # noqa: C901 - the counterpart of undo, on the hot path
        """Take one step; the journal is the caller's."""
        job, role, node = entry.job, entry.role, entry.node
        shape = role.shape
        if entry.kind is EntryKind.EVICT:
            self.evicted.add(entry.task.key)
            if node >= 0:
                self.releasing[:, node] += shape.vector
            self.has_releasing = True
            role.ready -= 1
            job.ready -= 1
            self._account(job, shape, -1)
            for queue in job.queue.path:
                for d, amount in shape.items:
                    queue.releasing[d] += amount
        else:
            if entry.kind is EntryKind.PLACE:
                self.free[:, node] -= shape.vector
                role.ready += 1
                job.ready += 1
                if entry.devices:
                    self._book_devices(entry, 1)
            else:
                self.promised[:, node] += shape.vector
                self.has_promises = True
                role.waiting += 1
                job.waiting += 1
            job.placed += 1
            if shape.is_best_effort:
                job.best_effort -= 1
            self._account(job, shape, 1)
        if node >= 0:
            self.touched.append(node)
        for callback in self.each("on_placed"):
            callback(entry)

    def _account(self, job: JobView, shape: Shape, sign: int) -> None:
        allocated = job.allocated
        path = job.queue.path
        for d, amount in shape.items:
            change = sign * amount
            allocated[d] += change
            for queue in path:
                queue.allocated[d] += change
                queue.share = -1.0

    def held_tasks(self, job: JobView) -> list[tuple[RoleView, Task, int]]:
        """Return what a job still holds, evictions of this cycle left out."""
        gone = self.evicted
        return [
            (role, task, node)
            for role in job.roles
            for task, node in role.row.held
            if task.key not in gone
        ]


def _is_on(config: PluginConfig, flag: str) -> bool:
    if flag in config.disabled:
        return False
    return config.enabled is None or flag in config.enabled


class Statement:
    """A series of steps that stands or falls together."""

    __slots__ = ("_start", "session")

    def __init__(self, session: Session) -> None:
        """Remember where the journal stands."""
        self.session = session
        self._start = len(session.journal)

    def checkpoint(self) -> int:
        """Return a point to which `rollback` can return."""
        return len(self.session.journal)

    def rollback(self, to: int | None = None) -> None:
        """Undo all steps since the start, or since a checkpoint."""
        journal = self.session.journal
        end = self._start if to is None else to
        while len(journal) > end:
            self.session.undo(journal.pop())

    def commit(self) -> list[Entry]:
        """Let the steps stand and return them."""
        return self.session.journal[self._start :]


def is_live(task: Task) -> bool:
    """Return whether a task holds room that an eviction would free."""
    return task.state in (TaskState.BOUND, TaskState.RUNNING)
