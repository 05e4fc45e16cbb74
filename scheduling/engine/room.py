"""What the nodes have left in one cycle, and the room that reservations keep free."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np

from scheduling.engine.journal import Entry, EntryKind
from scheduling.engine.shapes import UNLIMITED, Bools, Int64
from scheduling.engine.tables import Tables
from scheduling.engine.types import Reservation, ShardMode, Snapshot
from scheduling.engine.views import JobView


class Room:
    """Amounts by resource and node, int64[R, N]; `touched` tells who keeps scores what changed."""

    def __init__(self, snapshot: Snapshot, tables: Tables) -> None:
        """Take over what the tables say, less what live reservations keep."""
        self.snapshot = snapshot
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
        self.reservations: dict[str, Reservation] = {}
        self.kept: dict[str, Int64] = {}
        """Reserved amounts by job, int64[R, N], already taken out of `free`."""
        self._left_out = np.zeros_like(self.free)
        """What of `kept` is in `free` all the same, see `without_lack`."""
        self.focus: Bools | None = None
        """Nodes to which placement is confined: those kept for the job that is being placed."""
        self.shard: Bools | None = None
        """Nodes of the scheduler's shard, if it has one."""
        self.shard_is_hard = False
        self._read_shard()
        self.total: list[int] = self._usable_total()
        self._keep_reservations()

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
        self._left_out += lack
        self.touched.extend(nodes)
        yield
        self.free -= lack
        self._left_out -= lack
        self.touched.extend(nodes)

    def _lack(self, own: Reservation | None) -> Int64 | None:
        waiting = [self.kept[r.job] for r in self.reservations.values() if r.reason == "sla"]
        if not waiting:
            return None
        missing = np.maximum(self.promised - self.free - self.releasing, 0)
        if own is not None and own.reason == "evicted":
            beside = np.maximum(self.promised - self.releasing, 0)
            missing = np.maximum(missing, self._amounts_of(own) + beside - self.free)
        lack: Int64 = np.minimum(missing, sum(waiting) - self._left_out)
        return lack if lack.any() else None

    def nodes_of(self, reservation: Reservation) -> Bools:
        """Return bool[N]: the nodes of a reservation."""
        mask: Bools = np.zeros(self.tables.nodes.count, dtype=bool)
        for name in reservation.amounts_by_node:
            node = self.tables.nodes.index.get(name)
            if node is not None:
                mask[node] = True
        return mask

    def future_free(self, node: int) -> list[int]:
        """Return what will be free on a node: free, and releasing less promised."""
        column = self.free[:, node] + self.releasing[:, node] - self.promised[:, node]
        return [int(x) for x in column]
