"""The data-locality plugin: tasks go where the data that they read is cached."""

from __future__ import annotations

from typing import Any

import numpy as np

from scheduling.engine.plugin import Plugin
from scheduling.engine.session import Session
from scheduling.engine.shapes import Bools, Float64, Shape
from scheduling.engine.types import PluginConfig

TOP_SCORE = 100.0


class DataLocality(Plugin):
    """Prefer, or demand, nodes that hold a cache of the data sets that a role names.

    Score: share of the role's data sets that the node holds x 100 x `data-locality.weight` (10).
    Argument `data-locality.required` (false): only nodes that hold all of them, as long as any
    node does.
    """

    name = "data-locality"

    def __init__(self, session: Session, config: PluginConfig) -> None:
        """Act only where some role names data sets."""
        super().__init__(session, config)
        if not any(shape.data_sets for shape in session.tables.shapes):
            self.predicate = self.node_order = None
        else:
            is_required = self.flag("data-locality.required", default=False)
            self.predicate = self._predicate if is_required else None
            self.node_order = self._node_order
        self._known: dict[int, Float64] = {}

    def _shares(self, shape: Shape) -> Float64:
        """Return float64[N]: the share of the data sets that each node holds."""
        known = self._known.get(shape.index)
        if known is None:
            wanted = set(shape.data_sets)
            known = np.array(
                [
                    len(wanted & node.data_sets) / max(len(wanted), 1)
                    for node in self.session.tables.nodes.nodes
                ],
                dtype=np.float64,
            )
            self._known[shape.index] = known
        return known

    def _predicate(self, shape: Shape) -> Bools:
        holds: Bools = self._shares(shape) >= 1.0
        return holds if shape.data_sets and holds.any() else np.ones(len(holds), dtype=bool)

    def _node_order(self, shape: Shape, nodes: Any) -> Float64:
        weight = TOP_SCORE * self.number("data-locality.weight", 10)
        result: Float64 = self._shares(shape)[nodes] * weight
        return result
