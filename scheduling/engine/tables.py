"""The snapshot as structure of arrays: nodes by resource, shapes of tasks, one row a job.

`prepare` reads a snapshot into `Tables`. Rows are kept by the identity of the frozen objects that
they were read from, so a caller who hands over the same `Memo` every cycle pays only for what
changed. Nothing here depends on what a memo holds: the result is the same without one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from scheduling.engine.node_table import NodeTable
from scheduling.engine.queue_layout import Layout, lay_out
from scheduling.engine.rows import HOLDING, JobRow, RoleRow, Signature, has_neighbour_rules
from scheduling.engine.shapes import (
    ONE_POD,
    PODS_DIM,
    QUEUE_RULES,
    Int64,
    Resources,
    Shape,
    ShapeKey,
    shape_key,
)
from scheduling.engine.types import (
    GPU,
    PODS,
    GangPhase,
    Job,
    Node,
    QueueShare,
    Role,
    Snapshot,
    Task,
    TaskState,
)

ToldShares = dict[str, tuple[list[int], list[int], list[int], QueueShare]]
"""Queue -> deserved, allocated and requested, and how they were told."""


class Tables:
    """Everything that a cycle reads, prepared: nodes, shapes, rows and what is held where.

    `used`, `releasing` and `promised` are int64[R, N]; `used` contains `releasing`.
    """

    def __init__(  # noqa: PLR0915 - one line a field
        self,
        resources: Resources,
        nodes: NodeTable,
        layout: Layout,
        *,
        has_queue_rules: bool = False,
    ) -> None:
        """Start with empty nodes and no jobs."""
        self.has_queue_rules = has_queue_rules
        self.resources = resources
        self.nodes = nodes
        width = len(resources.names)
        self.width = width
        self.nothing = [0] * width
        """What a queue holds that has no jobs; never changed."""
        self.layout = layout
        """Where the queues of the last snapshot stand."""
        self.queue_shares: ToldShares = {}
        """What the last cycle told of the queues."""
        self.gpu_dim = resources.index.get(GPU, -1)
        self.used: Int64 = np.zeros((width, nodes.count), dtype=np.int64)
        self.releasing: Int64 = np.zeros((width, nodes.count), dtype=np.int64)
        self.promised: Int64 = np.zeros((width, nodes.count), dtype=np.int64)
        self.shapes: list[Shape] = []
        self.rows: dict[str, JobRow] = {}
        self.groups: dict[Signature, dict[str, JobRow]] = {}
        """Signature -> the runnable jobs with pending tasks that have it."""
        self.blocked: dict[str, JobRow] = {}
        """Jobs with pending tasks that must not run yet."""
        self.ruled: dict[str, JobRow] = {}
        """Jobs with rules about which tasks may share a host or zone."""
        self.shaped: dict[str, JobRow] = {}
        """Jobs with rules about domains of the network, or with sub-groups."""
        self.misphased: dict[str, JobRow] = {}
        """Jobs whose phase is not the one that their tasks stand for."""
        self._sorted_groups: dict[Signature, tuple[list[JobRow], list[str]]] = {}
        """Rows and keys of the groups that were asked for, by age."""
        self.rows_by_node: dict[int, Counter[str]] = {}
        """Node -> keys of the jobs that hold something there."""
        self.queue_allocated: dict[str, list[int]] = {}
        self.queue_requested: dict[str, list[int]] = {}
        self.queue_releasing: dict[str, list[int]] = {}
        self.owners_by_queue: dict[str, Counter[str]] = {}
        self.holders: dict[str, dict[str, JobRow]] = {}
        """Queue -> rows of the jobs that hold something."""
        self.elastic: dict[str, dict[str, JobRow]] = {}
        """Queue -> rows of the jobs that hold more than their minimum."""
        self.by_priority: dict[str, dict[int, dict[str, JobRow]]] = {}
        """Queue -> priority -> rows of the jobs that hold something."""
        self.mixed: dict[str, dict[str, JobRow]] = {}
        """Queue -> rows of the jobs that hold something and whose tasks differ in priority."""
        self.owner_allocated: dict[str, dict[str, list[int]]] = {}
        """Queue -> owner -> what the owner's jobs hold there."""
        self.device_tasks: Counter[int] = Counter()
        """Index of a shape that wants devices -> tasks that hold or wait for them."""
        self.gpu_left: Int64 | None = None
        """Kept by the fragmentation plugin: int64[N, G], each node's GPUs, most left first."""
        self.gpu_stale: set[int] = set()
        """Nodes on which something has changed since `gpu_left` was worked out."""
        self._shape_by_key: dict[ShapeKey, Shape] = {}
        self._shape_by_role: dict[tuple[int, str], tuple[Role, Shape]] = {}
        self._ruled_roles: set[int] = set()
        """Identities of the roles of `_shape_by_role` that have rules about neighbours."""
        self.jobs: tuple[Job, ...] = ()

    def shape_of(self, role: Role, queue: str) -> Shape:
        """Return the shape of a role, making it if it is new."""
        ruled = queue if self.has_queue_rules else ""
        known = self._shape_by_role.get((id(role), ruled))
        if known is not None:
            return known[1]
        key = (ruled, *shape_key(role))
        shape = self._shape_by_key.get(key)
        if shape is None:
            request = self.resources.row(role.request)
            if PODS not in role.request:
                request[PODS_DIM] = ONE_POD
            shape = Shape(
                index=len(self.shapes),
                request=request,
                gpu_milli=request[self.gpu_dim] if self.gpu_dim >= 0 else 0,
                role=role,
                queue=ruled,
            )
            self.shapes.append(shape)
            self._shape_by_key[key] = shape
        self._shape_by_role[id(role), ruled] = (role, shape)
        if has_neighbour_rules(role):
            self._ruled_roles.add(id(role))
        return shape

    def read(self, job: Job) -> JobRow:  # noqa: C901 - one branch a task state, on the hot path
        """Return the row of a job, without adding it."""
        roles = [
            RoleRow(role, self.shape_of(role, job.queue), i) for i, role in enumerate(job.roles)
        ]
        if self._ruled_roles:
            for row in roles:
                row.is_ruled = id(row.role) in self._ruled_roles
        by_name = {role.name: role for role in roles}
        index = self.nodes.index
        for task in job.tasks:
            role = by_name[task.role]
            state = task.state
            if state is TaskState.PENDING or (
                state is TaskState.PIPELINED and role.shape.is_best_effort
            ):
                role.pending.append(task)
                role.latest_not_before = max(role.latest_not_before, task.not_before)
                continue
            if state is TaskState.SUCCEEDED:
                role.done += 1
                continue
            node = index.get(task.node, -1) if task.node is not None else -1
            if state in HOLDING:
                role.held.append((task, node))
            elif state is TaskState.RELEASING:
                role.releasing.append((task, node))
            elif state is TaskState.PIPELINED:
                role.promised.append((task, node))
        for role in roles:
            if len(role.pending) > 1:
                role.pending.sort(key=_by_index)
            if len(role.held) > 1:
                role.held.sort(key=_by_index_of_held)
        return JobRow(job, roles, self.width)

    def add(self, job: Job) -> None:
        """Take a job in."""
        row = self.read(job)
        self.rows[job.key] = row
        if self._ruled_roles and any(role.is_ruled for role in row.roles):
            self.ruled[job.key] = row
        if job.topology is not None or job.sub_groups:
            self.shaped[job.key] = row
        if row.settled_phase is not job.phase:
            self.misphased[job.key] = row
        if row.pending_count or (not job.tasks and job.phase is GangPhase.PENDING):
            if job.is_runnable:
                self.groups.setdefault(row.signature, {})[job.key] = row
                self._sorted_groups.pop(row.signature, None)
            else:
                self.blocked[job.key] = row
        self._account(row, 1)

    def remove(self, job: Job) -> None:
        """Take a job out again."""
        row = self.rows.pop(job.key)
        self.misphased.pop(job.key, None)
        self.ruled.pop(job.key, None)
        self.shaped.pop(job.key, None)
        self.blocked.pop(job.key, None)
        group = self.groups.get(row.signature)
        if group is not None and group.pop(job.key, None) is not None:
            self._sorted_groups.pop(row.signature, None)
            if not group:
                del self.groups[row.signature]
        self._account(row, -1)
        for role in job.roles:
            self._shape_by_role.pop((id(role), job.queue if self.has_queue_rules else ""), None)
            self._ruled_roles.discard(id(role))

    def group(self, signature: Signature) -> list[JobRow]:
        """Return the rows of a group by age, then key."""
        known = self._sorted_groups.get(signature)
        if known is None:
            rows = sorted(self.groups[signature].values(), key=_by_age)
            known = self._sorted_groups[signature] = (rows, [row.job.key for row in rows])
        return known[0]

    def keys_of(self, rows: list[JobRow]) -> list[str]:
        """Return the keys of some rows, which are kept for a whole group."""
        known = self._sorted_groups.get(rows[0].signature) if rows else None
        if known is not None and known[0] is rows:
            return known[1]
        return [row.job.key for row in rows]

    def _account(  # noqa: C901, PLR0912 - one pass over a row, on the hot path
        self, row: JobRow, sign: int
    ) -> None:
        job = row.job
        allocated = self.queue_allocated.get(job.queue)
        if allocated is None:
            allocated = self.queue_allocated[job.queue] = [0] * self.width
            self.queue_requested[job.queue] = [0] * self.width
            self.queue_releasing[job.queue] = [0] * self.width
            self.owners_by_queue[job.queue] = Counter()
        requested = self.queue_requested[job.queue]
        releasing = self.queue_releasing[job.queue]
        for d in range(self.width):
            requested[d] += sign * row.requested[d]
        if row.is_placed:
            for d in range(self.width):
                allocated[d] += sign * row.allocated[d]
                releasing[d] += sign * row.releasing[d]
        owners = self.owners_by_queue[job.queue]
        owners[job.owner] += sign
        if not owners[job.owner]:
            del owners[job.owner]
        if row.held_count:
            self._index_holder(row, is_added=sign > 0)
            by_owner = self.owner_allocated.setdefault(job.queue, {})
            held = by_owner.setdefault(job.owner, [0] * self.width)
            for d in range(self.width):
                held[d] += sign * row.allocated[d]
        for role in row.roles:
            if role.shape.ask is not None and (count := len(role.pending) + len(role.held)):
                self.device_tasks[role.shape.index] += sign * count
                if not self.device_tasks[role.shape.index]:
                    del self.device_tasks[role.shape.index]
        for role in row.roles if row.is_placed else ():
            vector = role.shape.vector * sign
            for _, node in role.held:
                if node >= 0:
                    self.used[:, node] += vector
                    self._note(node, job.key, sign)
            for _, node in role.releasing:
                if node >= 0:
                    self.used[:, node] += vector
                    self.releasing[:, node] += vector
                    self._note(node, job.key, sign)
            for _, node in role.promised:
                if node >= 0:
                    self.promised[:, node] += vector

    def _index_holder(self, row: JobRow, *, is_added: bool) -> None:
        job = row.job
        places = [
            self.holders.setdefault(job.queue, {}),
            self.by_priority.setdefault(job.queue, {}).setdefault(job.priority, {}),
        ]
        if row.is_elastic:
            places.append(self.elastic.setdefault(job.queue, {}))
        if row.has_mixed_tasks:
            places.append(self.mixed.setdefault(job.queue, {}))
        for place in places:
            if is_added:
                place[job.key] = row
            else:
                del place[job.key]
        if not is_added and not self.by_priority[job.queue][job.priority]:
            del self.by_priority[job.queue][job.priority]

    def _note(self, node: int, key: str, sign: int) -> None:
        self.gpu_stale.add(node)
        keys = self.rows_by_node.get(node)
        if keys is None:
            keys = self.rows_by_node[node] = Counter()
        keys[key] += sign
        if not keys[key]:
            del keys[key]


def _by_age(row: JobRow) -> tuple[float, str]:
    return (row.job.created_at, row.job.key)


def _by_index(task: Task) -> tuple[int, str]:
    return (task.index, task.key)


def _by_index_of_held(held: tuple[Task, int]) -> tuple[int, str]:
    return (held[0].index, held[0].key)


@dataclass(slots=True)
class Memo:
    """What a caller keeps from cycle to cycle: nothing in it changes a plan, only its cost."""

    tables: Tables | None = None
    nodes: tuple[Node, ...] = field(default=())


def prepare(snapshot: Snapshot, memo: Memo | None = None) -> Tables:
    """Return the tables of a snapshot, reusing what the memo has of the same objects.

    1. Other nodes, or a resource that was not seen before: read everything. 2. The same jobs
    tuple: nothing to do. 3. Else take out the jobs that are gone and add the new ones, both found
    by identity, which costs O(jobs) of the cheapest kind.
    """
    tables = _kept(snapshot, memo) if memo is not None else None
    if tables is None:
        tables = _read_all(snapshot)
        if memo is not None:
            memo.tables = tables
            memo.nodes = snapshot.nodes
    elif tables.layout.queues != snapshot.queues:
        tables.layout = lay_out(snapshot.queues, tables.resources)
    return tables


def _kept(snapshot: Snapshot, memo: Memo) -> Tables | None:
    """Return the memo's tables with the jobs of a snapshot, None if they must be read anew."""
    tables = memo.tables
    if (
        tables is None
        or tables.has_queue_rules is not _has_queue_rules(snapshot)
        or tables.nodes.device_classes != snapshot.device_classes
        or not (memo.nodes is snapshot.nodes or _are_same(memo.nodes, snapshot.nodes))
    ):
        return None
    is_same = tables.jobs is snapshot.jobs
    return tables if is_same or _update(tables, snapshot) else None


def _ids(jobs: tuple[Job, ...]) -> Int64:
    """Return the identities of the jobs, int64; valid as long as the jobs are kept."""
    return np.fromiter(map(id, jobs), dtype=np.int64, count=len(jobs))


def _has_queue_rules(snapshot: Snapshot) -> bool:
    return any(not QUEUE_RULES.isdisjoint(queue.annotations) for queue in snapshot.queues)


def _are_same(left: tuple[Node, ...], right: tuple[Node, ...]) -> bool:
    return len(left) == len(right) and all(a is b for a, b in zip(left, right, strict=True))


def _update(tables: Tables, snapshot: Snapshot) -> bool:
    """Bring the tables to the snapshot's jobs; False if they must be read again as a whole."""
    known = tables.resources.index
    old_jobs = tables.jobs
    gone, new = _differences(old_jobs, snapshot.jobs)
    new_jobs = [snapshot.jobs[i] for i in new]
    for job in new_jobs:
        for role in job.roles:
            for name in role.request:
                if name not in known:
                    return False
    for i in gone:
        tables.remove(old_jobs[i])
    for job in new_jobs:
        tables.add(job)
    tables.jobs = snapshot.jobs
    return True


BLOCK = 512
"""Jobs that are compared at once: equal slices of tuples cost a tenth of looking at each job."""


def _differences(old: tuple[Job, ...], new: tuple[Job, ...]) -> tuple[Sequence[int], Sequence[int]]:
    """Return the positions of the old jobs that are gone, and of the new ones that were not there.

    A job that is equal to the one in its place counts as the same.
    """
    common = min(len(old), len(new))
    changed: list[int] = []
    for start in range(0, common, BLOCK):
        here = slice(start, min(start + BLOCK, common))
        if old[here] != new[here]:
            changed += [i for i in range(here.start, here.stop) if old[i] is not new[i]]
            if len(changed) > common // 8:  # shifted rather than changed in place
                before, now = _ids(old), _ids(new)
                return (
                    np.flatnonzero(~np.isin(before, now)).tolist(),
                    np.flatnonzero(~np.isin(now, before)).tolist(),
                )
    return [*changed, *range(common, len(old))], [*changed, *range(common, len(new))]


def _read_all(snapshot: Snapshot) -> Tables:
    names: set[str] = set()
    for node in snapshot.nodes:
        names.update(node.allocatable)
    for queue in snapshot.queues:
        names.update(queue.min, queue.max, queue.deserved or ())
    seen: set[int] = set()
    for job in snapshot.jobs:
        for role in job.roles:
            if id(role) not in seen:
                seen.add(id(role))
                names.update(role.request)
        if job.min_resources:
            names.update(job.min_resources)
    resources = Resources(names)
    tables = Tables(
        resources,
        NodeTable(snapshot.nodes, resources, snapshot.device_classes),
        lay_out(snapshot.queues, resources),
        has_queue_rules=_has_queue_rules(snapshot),
    )
    for job in snapshot.jobs:
        tables.add(job)
    tables.jobs = snapshot.jobs
    return tables
