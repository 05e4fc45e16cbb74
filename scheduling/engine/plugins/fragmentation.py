"""The fragmentation plugin: place where the least of the GPUs becomes useless to typical tasks."""

from __future__ import annotations

import heapq
from collections import Counter
from functools import cached_property
from typing import Any

import numpy as np

from scheduling.engine.devices import WHOLE
from scheduling.engine.plugin import Plugin
from scheduling.engine.session import Session
from scheduling.engine.shapes import CPU_DIM, MEMORY_DIM, Bools, Float64, GpuAsk, Int64, Shape
from scheduling.engine.types import PluginConfig


class Fragmentation(Plugin):
    """Fragmentation gradient descent, and a look at what CPU and memory leave of the GPUs.

    A typical task m cannot use a node's free GPU share if it cannot run there at all, or, GPU by
    GPU, where less than it needs is left. F(node) is the expected useless share over the typical
    tasks: the `fragmentation.shapes` (32) most frequent GPU shapes of the snapshot, running and
    waiting. Stranded(node) is the GPU share for which CPU or memory runs out when the typical
    tasks fill the node in their mean proportion; it counts `fragmentation.stranded` (2) times,
    because F sees such a shortage only when the next task does not fit any more.
    score = -(change of F + 2 x change of Stranded) x `fragmentation.weight` (100), in GPUs; what
    scores alike is left to the plugins beside it (`packing`).
    Source of F: Weng et al., Beware of Fragmentation, USENIX ATC 2023.
    """

    name = "fragmentation"

    def __init__(self, session: Session, config: PluginConfig) -> None:
        """Read the arguments; what is typical is worked out when it is asked for."""
        super().__init__(session, config)
        self.weight = self.number("fragmentation.weight", 100)
        self._position = 0
        """How far the log of touched nodes has been followed."""
        self.has_parts = any(
            (ask := session.tables.shapes[index].ask) is not None and not ask.is_whole
            for index in session.tables.device_tasks
        )
        """Whether some task holds or wants a part of a GPU: then each GPU is looked at."""

    @cached_property
    def typical(self) -> Typical | None:
        """What typical tasks ask for; None where none of them asks for GPUs."""
        tables = self.session.tables
        counts: Counter[GpuAsk] = Counter()
        shapes: dict[GpuAsk, Shape] = {}
        for index, count in tables.device_tasks.items():
            shape = tables.shapes[index]
            if shape.gpu_milli:
                counts[shape.gpu_ask] += count
                shapes[shape.gpu_ask] = shape
        most = int(self.number("fragmentation.shapes", 32))
        asks = heapq.nsmallest(most, counts, key=lambda ask: (-counts[ask], ask))
        if not asks:
            return None
        masks = [
            self.session.mask(shapes[ask]) if ask[3] or ask[4] else None  # limits of its own
            for ask in asks
        ]
        return Typical(
            [(ask, counts[ask], mask) for ask, mask in zip(asks, masks, strict=True)],
            stranded=self.number("fragmentation.stranded", 2),
        )

    @cached_property
    def _left(self) -> Int64:
        """int64[N, G]: thousandths that are left of each GPU, as the cycle finds them."""
        tables = self.session.tables
        known = tables.gpu_left
        if known is None:
            widest = int(tables.nodes.allocatable[tables.gpu_dim].max(initial=0)) // WHOLE
            below = WHOLE * np.arange(max(widest, 1))
            free = self.session.free[tables.gpu_dim][:, np.newaxis]
            known = tables.gpu_left = np.clip(free - below, 0, WHOLE)
            tables.gpu_stale = {i for i, node in enumerate(tables.nodes.nodes) if node.devices}
            tables.gpu_stale.update(self.session.touched)
        own = set(self.session.touched)  # what this cycle changed already is not the snapshot's
        for node in tables.gpu_stale - own:
            known[node] = self._row(node, known.shape[1])
        tables.gpu_stale &= own
        return known.copy()

    def _follow(self) -> None:
        """Look again at the nodes that were touched: at their GPUs, and what these are worth."""
        left, usable, worth = self._left, self._usable, self._worth
        log = self.session.touched
        changed = sorted({node for node in log[self._position :] if node >= 0})
        self._position = len(log)
        for node in changed:
            left[node] = self._row(node, left.shape[1])
        if changed and self.typical is not None:
            nodes: Int64 = np.array(changed, dtype=np.int64)
            usable[:, nodes] = _usable(left[nodes], self.typical.steps)
            worth[nodes] = self._worth_of(usable[:, nodes], nodes)

    @cached_property
    def _usable(self) -> Int64:
        """int64[steps, N]: thousandths on those GPUs of a node that have at least a step left."""
        return _usable(self._left, self.typical.steps if self.typical is not None else [])

    @cached_property
    def _worth(self) -> Float64:
        """float64[N]: what the nodes are worth as they are."""
        return self._worth_of(self._usable, slice(None))

    def _worth_of(self, usable: Int64, nodes: Any, shape: Shape | None = None) -> Float64:
        """Return float64: the worth of nodes with such GPUs, once a task of a shape is there."""
        if self.typical is None:
            return np.zeros(usable.shape[1])
        free = self.session.free
        taken = (
            (0, 0, 0)
            if shape is None
            else (shape.request[CPU_DIM], shape.request[MEMORY_DIM], shape.gpu_milli)
        )
        return self.typical.worth(
            cpu=free[CPU_DIM][nodes] - taken[0],
            memory=free[MEMORY_DIM][nodes] - taken[1],
            total=self._left[nodes].sum(axis=1) - taken[2],
            usable=usable,
            nodes=nodes,
        )

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
        free = session.free
        gpu = session.tables.gpu_dim
        cpu = free[CPU_DIM][nodes]
        typical = self.typical if gpu >= 0 else None
        if typical is None:
            return np.zeros(len(cpu))
        if self.has_parts:
            self._follow()
            after = _without(self._usable[:, nodes], self._left[nodes], shape, typical.steps)
            change: Float64 = self._worth_of(after, nodes, shape) - self._worth[nodes]
            change *= self.weight / WHOLE
            return change
        memory = free[MEMORY_DIM][nodes]
        now = np.maximum(free[gpu][nodes], 0)
        total = np.concatenate((now, np.maximum(now - shape.gpu_milli, 0)))
        worth = typical.worth(
            cpu=np.concatenate((cpu, cpu - shape.request[CPU_DIM])),
            memory=np.concatenate((memory, memory - shape.request[MEMORY_DIM])),
            total=total,
            usable=total[np.newaxis, :],
            nodes=nodes,
        )
        result: Float64 = (worth[len(cpu) :] - worth[: len(cpu)]) * (self.weight / WHOLE)
        return result


class Typical:
    """The typical tasks, laid out so that one look-up tells how many could run on a node."""

    def __init__(self, asks: list[tuple[GpuAsk, int, Bools | None]], *, stranded: float) -> None:
        """Sum up the tasks' weights below each pair of amounts of CPU and memory."""
        self.stranded = stranded
        all_tasks = sum(count for _, count, _ in asks)
        gpus = sum(ask[0] * count for ask, count, _ in asks)
        cpu = sum(ask[1] * count for ask, count, _ in asks)
        memory = sum(ask[2] * count for ask, count, _ in asks)
        self.gpus_by_cpu = gpus / cpu if cpu else None
        """Thousandths of GPUs for which a milli-CPU lasts; None: they need none."""
        self.gpus_by_memory = gpus / memory if memory else None
        self.cpus: Int64 = np.array(sorted({ask[1] for ask, _, _ in asks}), dtype=np.int64)
        self.memories: Int64 = np.array(sorted({ask[2] for ask, _, _ in asks}), dtype=np.int64)
        groups: dict[tuple[object, ...], int] = {}
        masks: list[Bools | None] = []
        needs: list[int] = []
        for ask, _, mask in asks:
            if groups.setdefault((ask[0], *ask[3:]), len(groups)) == len(needs):
                needs.append(ask[0])
                masks.append(mask)
        self.needs: Int64 = np.array(needs, dtype=np.int64)[:, np.newaxis]
        each = [min(need, WHOLE) for need in needs]
        self.steps = sorted(set(each))
        """What must be left of a GPU: only whole ones, or parts of these sizes too."""
        self.step_of: Int64 = np.array([self.steps.index(e) for e in each], dtype=np.int64)
        limited = [i for i, mask in enumerate(masks) if mask is not None]
        self.limited: Int64 = np.array(limited, dtype=np.int64)
        """The groups whose tasks may not run everywhere, and where they may: bool[limited, N]."""
        self.allowed: Bools | None = (
            np.stack([mask for mask in masks if mask is not None]) if limited else None
        )
        shares: Float64 = np.zeros((len(needs), len(self.cpus) + 1, len(self.memories) + 1))
        for ask, count, _ in asks:
            at = int(self.cpus.searchsorted(ask[1])) + 1
            by = int(self.memories.searchsorted(ask[2])) + 1
            shares[groups[ask[0], *ask[3:]], at, by] += count / all_tasks
        shares = shares.cumsum(axis=1).cumsum(axis=2)
        self.shares: Float64 = shares.reshape(len(needs), -1)
        """float64[groups, (cpus + 1) x (memories + 1)]: how many fit into so much."""

    def worth(
        self, *, cpu: Int64, memory: Int64, total: Int64, usable: Int64, nodes: Any
    ) -> Float64:
        """Return float64: thousandths of GPUs that tasks can use, less what gets stranded.

        All arrays are of the nodes at `nodes`, or of them twice: as they are, and with a task.
        `usable` is int64[steps, n]: what lies on GPUs of which at least so much is left.
        """
        place = self.cpus.searchsorted(cpu, "right") * (len(self.memories) + 1)
        place += self.memories.searchsorted(memory, "right")
        shares = self.shares.take(place, axis=1)
        found = usable[self.step_of] if len(usable) > 1 else usable
        gain = shares * (found * (found >= self.needs))
        if self.allowed is not None:
            here = self.allowed[:, nodes]
            times = len(total) // max(here.shape[1], 1)
            gain[self.limited] *= here if times == 1 else np.concatenate((here, here), axis=1)
        result: Float64 = np.add.reduce(gain, axis=0)
        if self.stranded:
            lasting: Float64 = total.astype(np.float64)
            if self.gpus_by_cpu is not None:
                lasting = np.minimum(lasting, cpu * self.gpus_by_cpu)
            if self.gpus_by_memory is not None:
                lasting = np.minimum(lasting, memory * self.gpus_by_memory)
            result -= self.stranded * (total - lasting)
        return result


def _usable(left: Int64, steps: list[int]) -> Int64:
    """Return int64[steps, n]: thousandths on GPUs of which at least a step is left."""
    by_gpu = np.ascontiguousarray(left.T)  # few GPUs, many nodes: add up whole rows
    rows = [np.add.reduce(by_gpu * (by_gpu >= step)) for step in steps]
    return np.stack(rows) if rows else np.zeros((0, len(left)), dtype=np.int64)


def _without(usable: Int64, left: Int64, shape: Shape, steps: list[int]) -> Int64:
    """Return int64[steps, n] once a task has its GPUs: whole ones, or a part of the fullest."""
    needs = shape.gpu_milli
    if not needs:
        return usable
    if needs >= WHOLE:
        return np.maximum(usable - needs, 0)
    chosen = np.where(left >= needs, left, WHOLE).min(axis=1)
    rest = chosen - needs
    least: Int64 = np.array(steps, dtype=np.int64)[:, np.newaxis]
    result: Int64 = usable - chosen * (chosen >= least) + rest * (rest >= least)
    return result
