"""One cycle's mutable view of the cluster: jobs, and the steps that place, promise and evict.

The session applies every placement, promise and eviction at once, so that whatever runs later in
the cycle sees it, and keeps a journal. What is in the journal at the end is the plan.
"""

from __future__ import annotations

from collections.abc import Sequence

from scheduling.engine.cards import Cards
from scheduling.engine.devices import Card, Chooser, Order, choose, fullest_first
from scheduling.engine.groups import Group
from scheduling.engine.journal import Entry, EntryKind, Unit
from scheduling.engine.queue_tree import build_queues
from scheduling.engine.scoring import Scoring
from scheduling.engine.shapes import Shape
from scheduling.engine.tables import Tables
from scheduling.engine.types import GPU, Config, GangPhase, Snapshot, Task
from scheduling.engine.views import JobView, QueueView, RoleView


class Session(Scoring):
    """One cycle: the snapshot's state, what has been decided so far, and the plugins' callbacks."""

    def __init__(self, snapshot: Snapshot, config: Config, tables: Tables) -> None:
        """Lay out nodes and queues; plugins are added by `cycle.open_session`."""
        super().__init__(snapshot, tables)
        self.config = config
        self.evicted: set[str] = set()
        """Keys of the tasks evicted in this cycle."""
        self.jobs: dict[str, JobView] = {}
        self.groups: list[Group] = []
        """The jobs with pending tasks that may run; each in one group only."""
        self.aside: list[Group] = []
        """Groups that are left out since only one job is asked about."""
        self.served: dict[str, Group] = {}
        """The group of each job of which something was placed."""
        self.phases: dict[str, GangPhase] = {}
        self.may_borrow = False
        """True while queues may be served above what they deserve (backfill)."""
        self.swap_base: dict[str, list[int]] | None = None
        """What queues held when room began to change hands inside one of them (preempt)."""
        self.has_made_room = False
        """Whether some job got, or was to get, its place at the cost of others."""
        self._cards = Cards(tables)
        self._chooser = Chooser()
        self.device_order: Order = fullest_first
        """Which of the devices with room a part of one is taken from."""
        self.queues: dict[str, QueueView] = build_queues(tables)
        self._build_groups()

    # -- jobs -----------------------------------------------------------------------------------

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

    def held_tasks(self, job: JobView) -> list[tuple[RoleView, Task, int]]:
        """Return what a job still holds, evictions of this cycle left out."""
        held = [(role, task, node) for role in job.roles for task, node in role.row.held]
        gone = self.evicted
        return [h for h in held if h[1].key not in gone] if gone else held

    # -- devices --------------------------------------------------------------------------------

    def pick_devices(self, shape: Shape, node: int) -> tuple[str, ...] | None:
        """Return the devices for one task, () if the node names none, None if none are left.

        Whole devices: the set that is closest to one another. A part of a device: the fullest one
        where it still fits, unless the deviceshare plugin says otherwise.
        """
        devices = self.tables.nodes.nodes[node].devices
        if shape.ask is None or all(d.resource != GPU for d in devices):
            return ()
        cards = list(self.cards(node).values())
        for callback in self._flat["device_filter"]:
            cards = callback(shape, node, cards)
        return choose(cards, shape.ask, self._chooser, order=self.device_order)

    def cards(self, node: int) -> dict[str, Card]:
        """Return device id -> what is left of it, of the healthy devices of a node, in order."""
        return self._cards.of(node)

    def _book_devices(self, entry: Entry, sign: int) -> None:
        if entry.devices:
            self._cards.book(entry.node, entry.devices, entry.role.shape.ask, sign)

    # -- steps ----------------------------------------------------------------------------------

    def place(self, job: JobView, role: RoleView, node: int) -> bool:
        """Place the role's next pending task on a node now; False if no device is left there."""
        devices = self.pick_devices(role.shape, node) if role.shape.ask is not None else ()
        if devices is None:
            return False
        entry = Entry(EntryKind.PLACE, job, role, role.pending[-1], node, devices)
        for callback in self._flat["cpu_set"]:
            cpus: tuple[int, ...] | None = callback(entry)
            if cpus is None:
                return False
            entry.cpus = cpus
        role.pending.pop()
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

    def withdraw(self, entries: Sequence[Entry]) -> None:
        """Take placements of this cycle back: their tasks wait again."""
        gone = {id(entry) for entry in entries}
        for entry in reversed(entries):
            self.undo(entry)
        self.journal[:] = [entry for entry in self.journal if id(entry) not in gone]

    def restore(self, entries: Sequence[Entry]) -> None:
        """Make placements again that were withdrawn."""
        for entry in entries:
            pending = entry.role.pending
            if pending[-1] is entry.task:  # as a rule what was withdrawn last
                pending.pop()
            else:
                pending.remove(entry.task)
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
