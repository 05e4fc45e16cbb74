"""The packing plugin: keep whole GPUs together, fill nodes that are already in use."""

from __future__ import annotations

from typing import Any

import numpy as np

from scheduling.engine.session import Float64, Plugin
from scheduling.engine.tables import CPU_DIM, MEMORY_DIM, Shape

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

    def node_order(self, shape: Shape, nodes: Any) -> Float64:
        """Return float64 scores of the nodes at `nodes` (a slice or int64 positions)."""
        del shape
        session = self.session
        free, allocatable = session.free, session.tables.nodes.allocatable
        cost: Float64 = free[CPU_DIM][nodes] * 5.0 / np.maximum(allocatable[CPU_DIM][nodes], 1)
        cost += free[MEMORY_DIM][nodes] * 5.0 / np.maximum(allocatable[MEMORY_DIM][nodes], 1)
        gpu = session.tables.gpu_dim
        if gpu >= 0:
            cost += free[gpu][nodes] * (GPU_STEP / 1000.0)
        return cost * -self.number("packing.weight", 1.0)
