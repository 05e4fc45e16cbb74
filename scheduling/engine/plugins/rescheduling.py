"""The rescheduling plugin: move tasks off nodes that are busy while others idle."""

from __future__ import annotations

import json
from collections import Counter

import numpy as np

from scheduling.engine.journal import Unit
from scheduling.engine.plugin import Plugin
from scheduling.engine.session import Session
from scheduling.engine.shapes import CPU_DIM, MEMORY_DIM, Float64
from scheduling.engine.types import (
    CPU_PERCENT,
    MEASURED_AT,
    MEMORY_PERCENT,
    STALE_SECONDS,
    PluginConfig,
    TaskState,
)

DIMS = (CPU_DIM, MEMORY_DIM)
STRATEGY = "lowNodeUtilization"
FULL_PERCENT = 100.0


class Rescheduling(Plugin):
    """Withdraw tasks from nodes above the target while nodes below the thresholds have room.

    Argument `strategies`, JSON: a list with `{"name": "lowNodeUtilization", "params":
    {"thresholds": {"cpu": 20, "memory": 20}, "targetThresholds": {"cpu": 50, "memory": 50}}}`;
    what is not stated is 100 percent. The busiest node first; of a node the lowest priority first.
    Source: Volcano pkg/scheduler/plugins/rescheduling, where tasks that must not be evicted and
    gangs' minimums are not spared, as they are here.
    """

    name = "rescheduling"

    def __init__(self, session: Session, config: PluginConfig) -> None:
        """Read the strategy and the measured load, float64[2, N]; NaN where there is none."""
        super().__init__(session, config)
        strategies = json.loads(self.arguments.get("strategies", "[]"))
        found = next((s for s in strategies if s.get("name") == STRATEGY), None)
        params = found.get("params", {}) if found is not None else {}
        self.low = _percents(params.get("thresholds", {}))
        self.target = _percents(params.get("targetThresholds", {}))
        nodes = session.tables.nodes.nodes
        self.load: Float64 = np.full((2, len(nodes)), np.nan)
        for i, node in enumerate(nodes):
            at = node.annotations.get(MEASURED_AT)
            if at is not None and session.now - float(at) <= STALE_SECONDS:
                for row, key in enumerate((CPU_PERCENT, MEMORY_PERCENT)):
                    self.load[row, i] = float(node.annotations.get(key, "nan"))

    def victims(self) -> list[Unit]:
        """Return the tasks to withdraw."""
        session = self.session
        nodes = session.tables.nodes
        allocatable = nodes.allocatable[list(DIMS)]
        is_low = (self.load < self.low[:, None]).all(axis=0) & nodes.is_schedulable
        is_high = (self.load > self.target[:, None]).any(axis=0)
        spare = (self.target[:, None] - self.load) / FULL_PERCENT * allocatable
        room = spare[:, is_low].sum(axis=1)
        found: list[Unit] = []
        taken: Counter[str] = Counter()
        busiest = sorted(np.flatnonzero(is_high), key=lambda n: (-self.load[:, n].sum(), n))
        for node in busiest if is_low.any() else ():
            over = -spare[:, node]
            for unit in self._tasks_on(int(node)):
                role = unit.tasks[0][0]
                if not (over > 0).any() or (room <= 0).any():
                    break
                key = f"{unit.job.key} {role.name}"
                if unit.job.ready - taken[unit.job.key] <= unit.job.min_available:
                    continue
                if role.ready - taken[key] <= role.needed:
                    continue
                taken.update((unit.job.key, key))
                request = role.shape.vector[list(DIMS)]
                over = over - request
                room = room - request
                found.append(unit)
        return found

    def _tasks_on(self, node: int) -> list[Unit]:
        """Return the running tasks of a node that may be evicted, lowest priority first."""
        session = self.session
        views = [session.view(key) for key in session.tables.rows_by_node.get(node, ())]
        units = [
            Unit(job, (held,))
            for job in views
            if job is not None
            for held in session.held_tasks(job)
            if held[2] == node and held[0].role.preemptable and held[1].state is TaskState.RUNNING
        ]
        units.sort(key=lambda u: (u.tasks[0][0].role.priority, u.tasks[0][1].key))
        return units


def _percents(data: dict[str, float]) -> Float64:
    """Return thresholds of cpu and memory, float64[2]."""
    memory = data.get("memory", data.get("mem", FULL_PERCENT))
    return np.array([data.get("cpu", FULL_PERCENT), memory], dtype=np.float64)
