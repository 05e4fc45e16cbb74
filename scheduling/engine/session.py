"""One cycle's mutable view of the cluster, and Statement: a try that can be undone.

The session applies every placement, promise and eviction at once, so that whatever runs later in
the cycle sees it, and keeps a journal. What is in the journal at the end is the plan.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scheduling.engine.callbacks import CALLBACKS, FLAG_OF, UNGATED, Vote, is_on
from scheduling.engine.cards import Cards
from scheduling.engine.devices import Card, Chooser, Order, choose, fullest_first
from scheduling.engine.groups import Group
from scheduling.engine.journal import Entry, EntryKind, Unit
from scheduling.engine.queue_tree import build_queues
from scheduling.engine.shapes import UNLIMITED, Bools, Int64, Shape
from scheduling.engine.tables import Tables
from scheduling.engine.types import (
    GPU,
    Config,
    GangPhase,
    PluginConfig,
    Reason,
    Reservation,
    ShardMode,
    Snapshot,
    Task,
)
from scheduling.engine.views import JobView, QueueView, RoleView

Float64 = NDArray[np.float64]


MOST_SCORES = 2**24
"""Scores kept in a cycle, of all shapes together: some 150 MB; the others are worked out again."""


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
        return is_on(self.config, flag)

    def number(self, key: str, default: float) -> float:
        """Return a numeric argument; `parse_config` has refused what is no number."""
        return float(self.arguments.get(key, default))

    def flag(self, key: str, *, default: bool) -> bool:
        """Return a boolean argument."""
        value = self.arguments.get(key)
        return default if value is None else value.strip().lower() in ("true", "yes", "1", "on")


Callback = Callable[..., Any]

CALLBACK_NAMES = frozenset(CALLBACKS)


_DEFINED: dict[type[Plugin], tuple[str, ...]] = {}


def _defined(kind: type[Plugin]) -> tuple[str, ...]:
    """Return the callbacks that a class of plugins defines; its instances may have others."""
    found = _DEFINED.get(kind)
    if found is None:
        found = _DEFINED[kind] = tuple(name for name in CALLBACKS if hasattr(kind, name))
    return found


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
        self.jobs: dict[str, JobView] = {}
        self.groups: list[Group] = []
        """The jobs with pending tasks that may run; each in one group only."""
        self.served: dict[str, Group] = {}
        """The group of each job of which something was placed."""
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
        self._cards = Cards(tables)
        self._chooser = Chooser()
        self.device_order: Order = fullest_first
        """Which of the devices with room a part of one is taken from."""
        self.total: list[int] = self._usable_total()
        self.queues: dict[str, QueueView] = build_queues(snapshot, tables)
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
            if bool((column >= UNLIMITED).any()):
                total.append(UNLIMITED)
                continue
            total.append(int(column[on].sum()) + int(self.tables.used[d][~on].sum()))
        return total

    def _read_shard(self) -> None:
        shard = self.snapshot.shard
        if shard is not None:
            self.shard = np.array([n in shard.nodes for n in self.tables.nodes.names], dtype=bool)
            self.shard_is_hard = shard.mode is ShardMode.HARD

    def _keep_reservations(self) -> None:
        """Take the room of live reservations out of `free`."""
        for reservation in self.snapshot.reservations:
            row = self.tables.rows.get(reservation.job)
            if row is None or not row.pending_count or not row.job.is_runnable:
                continue
            if reservation.expires_at <= self.now:
                continue
            self.keep(reservation)

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

    def keep(self, reservation: Reservation) -> None:
        """Keep the room of a reservation free for its job."""
        kept = self._amounts_of(reservation)
        self.touched.extend(int(n) for n in np.flatnonzero(kept.any(axis=0)))
        self.free -= kept
        self.kept[reservation.job] = kept
        self.reservations[reservation.job] = reservation

    def _amounts_of(self, reservation: Reservation) -> Int64:
        """Return the amounts of a reservation, int64[R, N]; nodes that are gone are left out."""
        kept = np.zeros_like(self.free)
        for name, amounts in reservation.amounts_by_node.items():
            node = self.tables.nodes.index.get(name)
            if node is not None:
                kept[:, node] = self.tables.resources.row(amounts)
        return kept

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
            self.keep(replace(reservation, amounts_by_node=amounts_by_node))

    @contextmanager
    def without_lack(self, own: Reservation | None = None) -> Iterator[None]:
        """Leave out of `free` what overdue jobs' reservations still lack, while room is made.

        Who evicts one task for one of its own takes nothing from a job that waits for whatever
        ends; if the lack counted, its evictions would have to fill that too. The room that
        evictions made for the owner of `own` (which has been given up) is its own likewise.
        """
        lack = self._lack(own)
        if lack is None:
            yield
            return
        nodes = [int(n) for n in np.flatnonzero(lack.any(axis=0))]
        self.free += lack
        self.touched.extend(nodes)
        yield
        self.free -= lack
        self.touched.extend(nodes)

    def _lack(self, own: Reservation | None) -> Int64 | None:
        waiting = [self.kept[r.job] for r in self.reservations.values() if r.reason == "sla"]
        if not waiting:
            return None
        missing = np.maximum(self.promised - self.free - self.releasing, 0)
        if own is not None and own.reason == "evicted":
            missing = np.maximum(missing, self._amounts_of(own) - self.free)
        lack: Int64 = np.minimum(missing, sum(waiting))
        return lack if lack.any() else None

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
        tier: dict[str, list[Callback]] = {name: [] for name in CALLBACKS}
        for plugin, config in plugins:
            own = CALLBACK_NAMES & vars(plugin).keys()
            for name in dict.fromkeys((*_defined(type(plugin)), *own)):
                callback = getattr(plugin, name)
                if callback is None:
                    continue
                if name not in UNGATED and not is_on(config, FLAG_OF.get(name, name)):
                    continue
                tier[name].append(callback)
                self.callback_owners[name].append((plugin, callback))
        for name, members in tier.items():
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
        kept = self._shape_nodes
        view = kept.pop(shape.index, None)
        if view is None:
            view = ShapeNodes(shape, self.mask(shape))
            if len(kept) * len(view.mask) >= MOST_SCORES:
                kept.pop(next(iter(kept)))  # what was asked for longest ago
        kept[shape.index] = view
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
        least = view.shape.least
        free = self.free[:, nodes]
        fits = view.mask[nodes] & np.logical_and.reduce(free >= least)
        if self.has_promises:
            future = free + self.releasing[:, nodes] - self.promised[:, nodes]
            fits &= np.logical_and.reduce(future >= least)
        for callback in self.each("node_room"):
            fits &= callback(view.shape, nodes)
        roomy = fits.nonzero()[0]
        if len(roomy) == len(fits):
            return self._ordered(view.shape, nodes, len(fits))
        scores: Float64 = np.full(len(fits), -np.inf)
        if len(roomy):  # only those that fit: in a full cluster few do
            where = roomy if changed is None else changed[roomy]
            scores[roomy] = self._ordered(view.shape, where, len(roomy))
        return scores

    def _ordered(self, shape: Shape, nodes: Any, count: int) -> Float64:
        """Return the sum of the plugins' scores of so many nodes."""
        scores: Float64 = np.zeros(count)
        for callback in self._flat["node_order"]:
            scores += callback(shape, nodes)
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

    def held_tasks(self, job: JobView) -> list[tuple[RoleView, Task, int]]:
        """Return what a job still holds, evictions of this cycle left out."""
        gone = self.evicted
        if len(job.roles) == 1:
            role = job.roles[0]
            return [(role, task, node) for task, node in role.row.held if task.key not in gone]
        return [
            (role, task, node)
            for role in job.roles
            for task, node in role.row.held
            if task.key not in gone
        ]
