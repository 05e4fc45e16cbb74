"""The usage plugin: keep tasks off nodes that are busy, whatever was requested there."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from scheduling.engine.session import Float64, Plugin, Session
from scheduling.engine.tables import Bools, Shape
from scheduling.engine.types import (
    CPU_PERCENT,
    MEASURED_AT,
    MEMORY_PERCENT,
    STALE_SECONDS,
    Node,
    PluginConfig,
)


class Usage(Plugin):
    """Filter by thresholds and score by the measured share of CPU and memory that is idle.

    score = (w_cpu x (1 - cpu) + w_mem x (1 - memory)) / (w_cpu + w_mem) x 100 x usage.weight.
    Arguments `usage.weight` (5), `cpu.weight`, `memory.weight` (1), `thresholds` {cpu, mem} (80). A
    node without a fresh measurement passes and scores 0.
    Source: Volcano pkg/scheduler/plugins/usage, without its estimate of load not yet measured.
    """

    name = "usage"

    def __init__(self, session: Session, config: PluginConfig) -> None:
        """Read the nodes' measurements, float64[N]; NaN where there is none."""
        super().__init__(session, config)
        nodes = session.tables.nodes.nodes
        self.cpu = np.array([self._percent(n, CPU_PERCENT) for n in nodes], dtype=np.float64)
        self.memory = np.array([self._percent(n, MEMORY_PERCENT) for n in nodes], dtype=np.float64)

    def _percent(self, node: Node, key: str) -> float:
        text, at = node.annotations.get(key), node.annotations.get(MEASURED_AT)
        if text is None or at is None or self.session.now - float(at) > STALE_SECONDS:
            return float("nan")
        return float(text)

    def predicate(self, shape: Shape) -> Bools:
        """Return bool[N]."""
        del shape
        limits = json.loads(self.arguments.get("thresholds", "{}"))
        is_busy = (self.cpu > float(limits.get("cpu", 80))) | (
            self.memory > float(limits.get("mem", 80))
        )
        result: Bools = ~is_busy
        return result

    def node_order(self, shape: Shape, nodes: Any) -> Float64:
        """Return float64 scores of the nodes at `nodes`."""
        del shape
        cpu_weight, memory_weight = self.number("cpu.weight", 1), self.number("memory.weight", 1)
        idle = cpu_weight * (100 - self.cpu[nodes]) + memory_weight * (100 - self.memory[nodes])
        scores: Float64 = np.nan_to_num(idle / max(cpu_weight + memory_weight, 1e-9), nan=0.0)
        return scores * self.number("usage.weight", 5)
