"""The usage plugin: keep tasks off nodes that are busy, whatever was requested there."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from scheduling.engine.durations import parse_duration
from scheduling.engine.journal import Entry, EntryKind
from scheduling.engine.plugin import Plugin
from scheduling.engine.session import Session
from scheduling.engine.shapes import CPU_DIM, MEMORY_DIM, Bools, Float64, Shape
from scheduling.engine.types import (
    CPU,
    CPU_PERCENT,
    MEASURED_AT,
    MEMORY,
    MEMORY_PERCENT,
    STALE_SECONDS,
    Node,
    PluginConfig,
    TaskState,
)

ESTIMATOR: dict[str, float] = {
    "request_ratio": 0.7,
    "burst_ratio": 0.0,
    "risk_threshold": 0.6,
    "risk_factor": 1.2,
    "be_cpu": 250.0,
    "be_mem": 200.0 * 2**20,
}


class Usage(Plugin):
    """Filter by thresholds and score by the measured share of CPU and memory that is idle.

    score = (w_cpu x (1 - cpu) + w_mem x (1 - memory)) / (w_cpu + w_mem) x 100 x usage.weight.
    Arguments `usage.weight` (5), `cpu.weight`, `memory.weight` (1), `thresholds` {cpu, mem} (80). A
    node without a fresh measurement passes and scores 0. To the measured load comes, for scores,
    what tasks will use that are too young (`metrics.interval`, 30 s) to have been measured: request
    x `request_ratio` (0.7), and x `risk_factor` (1.2) on nodes at `risk_threshold` (0.6) or above,
    at most the limit; best-effort tasks `be_cpu` (250m) and `be_mem` (200 MiB); argument
    `estimator`, JSON. Source: Volcano pkg/scheduler/plugins/usage.
    """

    name = "usage"

    def __init__(self, session: Session, config: PluginConfig) -> None:
        """Read the nodes' measurements, float64[N]; NaN where there is none."""
        super().__init__(session, config)
        nodes = session.tables.nodes.nodes
        self.cpu = np.array([self._percent(n, CPU_PERCENT) for n in nodes], dtype=np.float64)
        self.memory = np.array([self._percent(n, MEMORY_PERCENT) for n in nodes], dtype=np.float64)
        stated = json.loads(self.arguments.get("estimator", "null")) or {}
        self.estimator = {**ESTIMATOR, **{k: v for k, v in stated.items() if k in ESTIMATOR}}
        self.interval = parse_duration(self.arguments.get("metrics.interval", "30s")) or 0.0
        self.young = np.zeros((2, len(nodes)))
        """Requests that are not measured yet, float64[2, N]: cpu and memory as estimated."""
        self.on_placed = self.on_undone = None
        if np.isfinite(self.cpu).any():
            self.on_placed, self.on_undone = self._book, self._take_back
            self._count_young()

    def _count_young(self) -> None:
        for row in self.session.tables.rows.values():
            for role in row.roles:
                for task, node in role.held:
                    is_young = task.state is TaskState.BOUND or (
                        task.started_at is not None
                        and self.session.now - task.started_at < self.interval
                    )
                    if node >= 0 and is_young:
                        self._add(role.shape, node, 1)

    def _book(self, entry: Entry) -> None:
        if entry.kind is not EntryKind.EVICT and entry.node >= 0:
            self._add(entry.role.shape, entry.node, 1)

    def _take_back(self, entry: Entry) -> None:
        if entry.kind is not EntryKind.EVICT and entry.node >= 0:
            self._add(entry.role.shape, entry.node, -1)

    def _add(self, shape: Shape, node: int, sign: int) -> None:
        """Count what a task will use, as long as nobody has measured it."""
        ratio, burst = self.estimator["request_ratio"], self.estimator["burst_ratio"]
        least = (self.estimator["be_cpu"], self.estimator["be_mem"])
        for row, (d, name) in enumerate(((CPU_DIM, CPU), (MEMORY_DIM, MEMORY))):
            request, limit = shape.request[d], shape.limits.get(name, 0)
            use = request * ratio + max(limit - request, 0) * burst
            if shape.is_best_effort:
                use = least[row]
            self.young[row, node] += sign * (min(use, limit) if limit else use)

    def _load(self, row: int, measured: Float64, nodes: Any) -> Float64:
        """Return float64 percent: what is measured and what is still to come."""
        capacity = np.maximum(
            self.session.tables.nodes.allocatable[(CPU_DIM, MEMORY_DIM)[row]][nodes], 1
        )
        coming = self.young[row][nodes] / capacity * 100
        is_risky = measured[nodes] + coming >= self.estimator["risk_threshold"] * 100
        coming = np.where(is_risky, coming * self.estimator["risk_factor"], coming)
        result: Float64 = np.clip(measured[nodes] + coming, 0, 100)
        return result

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
        cpu, memory = self._load(0, self.cpu, nodes), self._load(1, self.memory, nodes)
        idle = cpu_weight * (100 - cpu) + memory_weight * (100 - memory)
        scores: Float64 = np.nan_to_num(idle / max(cpu_weight + memory_weight, 1e-9), nan=0.0)
        return scores * self.number("usage.weight", 5)
