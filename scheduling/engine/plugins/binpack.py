"""The binpack plugin: prefer the node that the task fills most, in the resources named."""

from __future__ import annotations

from typing import Any

import numpy as np

from scheduling.engine.plugin import Plugin
from scheduling.engine.session import Session
from scheduling.engine.shapes import CPU_DIM, MEMORY_DIM, Float64, Shape
from scheduling.engine.types import PluginConfig


class Binpack(Plugin):
    """score = sum of w x (used + request) / allocatable / sum of w x 100 x binpack.weight.

    Arguments `binpack.weight`, `binpack.cpu`, `binpack.memory` (default 1), `binpack.resources` (a
    list of names) and `binpack.resources.<name>`. A node that would overflow scores 0.
    Source: Volcano pkg/scheduler/plugins/binpack.
    """

    name = "binpack"

    def __init__(self, session: Session, config: PluginConfig) -> None:
        """Read the weights; negative ones count as 1."""
        super().__init__(session, config)
        names = session.tables.resources.index
        self.weight = self._weight("binpack.weight")
        self.weights = {
            CPU_DIM: self._weight("binpack.cpu"),
            MEMORY_DIM: self._weight("binpack.memory"),
        }
        for name in self.arguments.get("binpack.resources", "").split(","):
            if name.strip() in names:
                self.weights[names[name.strip()]] = self._weight(
                    f"binpack.resources.{name.strip()}"
                )

    def _weight(self, key: str) -> float:
        value = self.number(key, 1)
        return value if value >= 0 else 1.0

    def node_order(self, shape: Shape, nodes: Any) -> Float64:
        """Return float64 scores of the nodes at `nodes`."""
        allocatable = self.session.tables.nodes.allocatable
        free = self.session.free
        total: Float64 = np.zeros(len(allocatable[0][nodes]))
        overflow = np.zeros(len(total), dtype=bool)
        weights = 0.0
        for d, amount in shape.items:
            weight = self.weights.get(d, 0.0)
            if not weight:
                continue
            weights += weight
            capacity = allocatable[d][nodes]
            filled = capacity - free[d][nodes] + amount
            overflow |= (filled > capacity) & (capacity > 0)
            total += np.where(capacity > 0, weight * filled / np.maximum(capacity, 1), 0.0)
        if not weights:
            return total
        return np.where(overflow, 0.0, total / weights * 100.0 * self.weight)
