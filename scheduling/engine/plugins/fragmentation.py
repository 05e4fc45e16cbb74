"""The fragmentation plugin: place where the least of the GPUs becomes useless to typical tasks."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from scheduling.engine.devices import WHOLE
from scheduling.engine.journal import Entry
from scheduling.engine.session import Float64, Plugin, Session
from scheduling.engine.tables import CPU_DIM, MEMORY_DIM, Int64, Shape
from scheduling.engine.types import PluginConfig


class Fragmentation(Plugin):
    """Fragmentation gradient descent.

    A typical task m cannot use a node's free GPU share if it cannot run there at all, or, GPU by
    GPU, where less than it needs is left. F(node) is the expected useless share over the typical
    tasks: the `fragmentation.shapes` (16) most frequent ones of the snapshot, running and
    waiting. score = -(F after - F before) x `fragmentation.weight` (100), in GPUs; ties are broken
    by the fewest free GPUs, which keeps whole nodes free.
    Source: Weng et al., Beware of Fragmentation, USENIX ATC 2023.
    """

    name = "fragmentation"

    def __init__(self, session: Session, config: PluginConfig) -> None:
        """Find the typical tasks; the GPUs' free parts are laid out when they are asked for."""
        super().__init__(session, config)
        self.weight = self.number("fragmentation.weight", 100)
        self._left: Int64 | None = None
        self._stale: set[int] = set()
        counts: Counter[int] = Counter()
        shapes: dict[int, Shape] = {}
        for row in session.tables.rows.values():
            for role in row.roles:
                counts[role.shape.index] += len(role.pending) + len(role.held)
                shapes[role.shape.index] = role.shape
        most = sorted(counts, key=lambda i: (-counts[i], shapes[i].request, i))
        chosen = [i for i in most[: int(self.number("fragmentation.shapes", 16))] if counts[i]]
        total = sum(counts[i] for i in chosen)
        self.typical = [(shapes[i], counts[i] / total) for i in chosen]

    def on_placed(self, entry: Entry) -> None:
        """Look at the node again."""
        self._stale.add(entry.node)

    def on_undone(self, entry: Entry) -> None:
        """Look at the node again."""
        self._stale.add(entry.node)

    def left(self) -> Int64:
        """Return int64[N, G]: thousandths that are left of each GPU, most first."""
        session = self.session
        gpu = session.tables.gpu_dim
        if self._left is None:
            widest = int(session.tables.nodes.allocatable[gpu].max(initial=0)) // WHOLE
            self._left = np.zeros((session.tables.nodes.count, max(widest, 1)), dtype=np.int64)
            self._stale = set(range(session.tables.nodes.count))
        for node in self._stale:
            if node >= 0:
                row = self._row(node, self._left.shape[1])
                self._left[node] = row
        self._stale = set()
        return self._left

    def _row(self, node: int, width: int) -> list[int]:
        cards = self.session.cards(node)
        if cards:
            parts = sorted((min(c.memory, c.compute) for c in cards.values()), reverse=True)
        else:
            free = max(int(self.session.free[self.session.tables.gpu_dim][node]), 0)
            parts = [WHOLE] * (free // WHOLE) + ([free % WHOLE] if free % WHOLE else [])
        return (parts + [0] * width)[:width]

    def node_order(self, shape: Shape, nodes: Any) -> Float64:
        """Return float64 scores of the nodes at `nodes`."""
        session = self.session
        if session.tables.gpu_dim < 0 or not self.typical:
            return np.zeros(len(session.free[CPU_DIM][nodes]))
        left = self.left()[nodes]
        cpu, memory = session.free[CPU_DIM][nodes], session.free[MEMORY_DIM][nodes]
        before = self._useless(left, cpu, memory)
        after_left = _taken(left, shape.gpu_milli)
        after = self._useless(
            after_left, cpu - shape.request[CPU_DIM], memory - shape.request[MEMORY_DIM]
        )
        tie = left.sum(axis=1) / (WHOLE * 1000.0 * max(left.shape[1], 1))
        result: Float64 = (before - after) / WHOLE * self.weight - tie
        return result

    def _useless(self, left: Int64, cpu: Int64, memory: Int64) -> Float64:
        """Return float64: the expected thousandths of GPUs that typical tasks cannot use."""
        total = left.sum(axis=1).astype(np.float64)
        found: Float64 = np.zeros(len(left))
        for shape, weight in self.typical:
            needs = shape.gpu_milli
            if not needs:
                found += weight * total
                continue
            each = min(needs, WHOLE)
            usable = left >= each
            runs = (cpu >= shape.request[CPU_DIM]) & (memory >= shape.request[MEMORY_DIM])
            runs &= usable.sum(axis=1) >= max(needs // WHOLE, 1)
            small = np.where(usable, 0, left).sum(axis=1)
            found += weight * np.where(runs, small, total)
        return found


def _taken(left: Int64, needs: int) -> Int64:
    """Return int64[n, G] once a task has its GPUs: whole ones, or a part of the fullest."""
    after = left.copy()
    if not needs:
        return after
    if needs >= WHOLE:
        count = min(needs // WHOLE, left.shape[1])
        after[:, :count] -= WHOLE  # most first: the whole ones come first
        return np.maximum(after, 0)
    fits = left >= needs
    last = fits.sum(axis=1) - 1  # most first: the last that fits is the fullest
    rows = np.flatnonzero(last >= 0)
    after[rows, last[rows]] -= needs
    return after
