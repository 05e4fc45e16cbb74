"""The packing plugin: keep whole GPUs together, fill nodes that are already in use."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from scheduling.engine.plugin import Plugin
from scheduling.engine.session import Session
from scheduling.engine.shapes import CPU_DIM, MEMORY_DIM, Float64, Shape
from scheduling.engine.types import PluginConfig

GPU_STEP = 1000.0
"""One free GPU counts as much as this; free shares of CPU and memory count at most 10 together."""


class Packing(Plugin):
    """Best fit: the fewest free GPUs first, then the least free CPU and memory.

    score = -(1000 x free GPUs + 5 x free CPU / CPU + 5 x free memory / memory) x `packing.weight`,
    all before the task is placed. A task without GPUs thereby fills nodes that have none, then
    nodes whose GPUs are taken; a task with GPUs takes the node whose remainder is smallest, so
    nodes with all GPUs free stay so for the gangs that need them.
    """

    name = "packing"

    def __init__(self, session: Session, config: PluginConfig) -> None:
        """Score nothing yet: what a node costs is the same for all tasks, and kept."""
        super().__init__(session, config)
        self.weight = -self.number("packing.weight", 1.0)
        self._position = 0
        """How far the log of touched nodes has been followed."""

    @cached_property
    def _scores(self) -> Float64:
        """float64[N]: every node's score as the cycle has left it."""
        session = self.session
        self._position = len(session.touched)
        free, allocatable = session.free, session.tables.nodes.allocatable
        cost: Float64 = free[CPU_DIM] * 5.0 / np.maximum(allocatable[CPU_DIM], 1)
        cost += free[MEMORY_DIM] * 5.0 / np.maximum(allocatable[MEMORY_DIM], 1)
        gpu = session.tables.gpu_dim
        if gpu >= 0:
            cost += free[gpu] * (GPU_STEP / 1000.0)
        return cost * self.weight

    def _score_of(self, node: int) -> float:
        """Return the same for one node, which plain numbers do faster than arrays."""
        free, size = self.session.free, self.session.tables.nodes.allocatable
        cost: float = free.item(CPU_DIM, node) * 5.0 / max(size.item(CPU_DIM, node), 1)
        cost += free.item(MEMORY_DIM, node) * 5.0 / max(size.item(MEMORY_DIM, node), 1)
        gpu = self.session.tables.gpu_dim
        if gpu >= 0:
            cost += free.item(gpu, node) * (GPU_STEP / 1000.0)
        return cost * self.weight

    def node_order(self, shape: Shape, nodes: Any) -> Float64:
        """Return float64 scores of the nodes at `nodes` (a slice or int64 positions)."""
        del shape
        scores, log = self._scores, self.session.touched
        if self._position < len(log):
            for node in set(log[self._position :]):
                scores[node] = self._score_of(node)
            self._position = len(log)
        found: Float64 = scores[nodes]
        return found
