"""The resource-strategy-fit plugin: fill or spread by resource, and spare scarce devices."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from scheduling.engine.plugin import Plugin
from scheduling.engine.session import Session
from scheduling.engine.shapes import CPU_DIM, MEMORY_DIM, PODS_DIM, Bools, Float64, Shape
from scheduling.engine.types import PluginConfig

Rule = tuple[str, float]
"""MostAllocated or LeastAllocated, and its weight."""

SCORING_TYPE = "volcano.sh/resource-strategy-scoring-type"
SCORING_WEIGHT = "volcano.sh/resource-strategy-weight"

DEFAULT_RESOURCES: dict[str, dict[str, Any]] = {
    "cpu": {"type": "LeastAllocated", "weight": 1},
    "memory": {"type": "LeastAllocated", "weight": 1},
}


class ResourceStrategyFit(Plugin):
    """Weighted mean over the requested resources of the share that is taken, or left, x 100.

    Arguments: `resourceStrategyFitWeight` (10), `resources` {name or prefix*: {type, weight}}
    (default: cpu and memory, LeastAllocated), and `sra` {enable, resources, weight,
    resourceWeight}: 100 x weight x (1 - weights of the listed resources that the node has / all);
    0 where the node lacks a resource that is asked for. `proportional` {enable, resources,
    resourceProportion {"<resource>.cpu", "<resource>.memory"}}: tasks that ask for none of the
    resources leave so many cores and GB idle for each idle unit of them. A role's annotations
    `volcano.sh/resource-strategy-scoring-type` and `-weight` (JSON) go before the arguments.
    Source: Volcano pkg/scheduler/plugins/resource-strategy-fit.
    """

    name = "resource-strategy-fit"

    def __init__(self, session: Session, config: PluginConfig) -> None:
        """Find the rule of each resource: by its name, else by the longest prefix."""
        super().__init__(session, config)
        stated = json.loads(self.arguments.get("resources", "null")) or DEFAULT_RESOURCES
        self.rules: dict[int, Rule] = {}
        for d, name in enumerate(session.tables.resources.names):
            rule = stated.get(name) or _by_prefix(stated, name)
            if rule is not None and d != PODS_DIM:
                self.rules[d] = (str(rule["type"]), float(rule.get("weight", 1)))
        self.sra = json.loads(self.arguments.get("sra", "null")) or {}
        proportional = json.loads(self.arguments.get("proportional", "null")) or {}
        self.rates = self._rates(proportional) if proportional.get("enable") else {}
        self.node_room = self._node_room if self.rates else None

    def _rates(self, stated: Mapping[str, Any]) -> dict[int, tuple[float, float]]:
        """Return resource -> cpu and memory to leave idle for each thousandth of it."""
        index = self.session.tables.resources.index
        rates: Mapping[str, float] = stated.get("resourceProportion", {})
        names = [n.strip() for n in str(stated.get("resources", "")).split(",")]
        return {
            index[n]: (float(rates.get(f"{n}.cpu", 0)), float(rates.get(f"{n}.memory", 0)) * 1e6)
            for n in names
            if n in index
        }

    def _node_room(self, shape: Shape, nodes: Any) -> Bools:
        """Return bool: nodes where enough stays idle for the scarce resources."""
        free = self.session.free
        fits: Bools = np.ones(len(free[CPU_DIM][nodes]), dtype=bool)
        if any(shape.request[d] for d in self.rates):
            return fits
        for d, (cpu, memory) in self.rates.items():
            idle = np.maximum(free[d][nodes], 0)
            fits &= free[CPU_DIM][nodes] - shape.request[CPU_DIM] >= idle * cpu
            fits &= free[MEMORY_DIM][nodes] - shape.request[MEMORY_DIM] >= idle * memory
        return fits

    def _rules_for(self, shape: Shape) -> dict[int, Rule]:
        """Return the rules of the role's own annotations, or the configured ones."""
        kind = shape.annotations.get(SCORING_TYPE, "")
        if kind not in ("MostAllocated", "LeastAllocated"):
            return self.rules
        weights = _read_weights(shape.annotations.get(SCORING_WEIGHT, "{}"))
        if weights is None:
            return self.rules
        if not weights:
            return {d: (kind, weight) for d, (_, weight) in self.rules.items()}
        index = self.session.tables.resources.index
        return {index[name]: (kind, w) for name, w in weights.items() if name in index}

    def node_order(self, shape: Shape, nodes: Any) -> Float64:
        """Return float64 scores of the nodes at `nodes`."""
        score = self._fit(shape, nodes) * self.number("resourceStrategyFitWeight", 10)
        if self.sra.get("enable"):
            score = score + self._spare(shape, nodes) * float(self.sra.get("weight", 1))
        return score

    def _fit(self, shape: Shape, nodes: Any) -> Float64:
        allocatable, free = self.session.tables.nodes.allocatable, self.session.free
        total: Float64 = np.zeros(len(allocatable[0][nodes]))
        weights = 0.0
        rules = self._rules_for(shape)
        for d, amount in shape.items:
            if d not in rules:
                continue
            kind, weight = rules[d]
            weights += weight
            capacity = allocatable[d][nodes]
            taken = (capacity - free[d][nodes] + amount) / np.maximum(capacity, 1)
            part = taken if kind == "MostAllocated" else 1 - taken
            total += np.where((capacity > 0) & (taken <= 1), part * weight, 0.0)
        return total / weights * 100 if weights else total

    def _spare(self, shape: Shape, nodes: Any) -> Float64:
        allocatable = self.session.tables.nodes.allocatable
        index = self.session.tables.resources.index
        stated: Mapping[str, float] = self.sra.get("resourceWeight", {})
        names = [n.strip() for n in str(self.sra.get("resources", "")).split(",") if n.strip()]
        weights = {n: float(stated.get(n, 1)) for n in names}
        score: Float64 = np.full(len(allocatable[0][nodes]), 100.0)
        for name, weight in weights.items():
            if name in index:
                has = allocatable[index[name]][nodes] > 0
                score -= np.where(has, 100.0 * weight / sum(weights.values()), 0.0)
        for d, _ in shape.items:
            if d != PODS_DIM:
                score = np.where(allocatable[d][nodes] > 0, score, 0.0)
        return score


def _read_weights(text: str) -> dict[str, float] | None:
    """Return the weights that a role states, None where they cannot be read."""
    try:
        weights = json.loads(text)
    except ValueError:
        return None
    if not isinstance(weights, dict):
        return None
    numbers = {name: w for name, w in weights.items() if isinstance(w, int | float) and w >= 0}
    return numbers if len(numbers) == len(weights) else None


def _by_prefix(stated: Mapping[str, Any], name: str) -> Any:
    """Return the rule of the longest `prefix*` of a name; `*` alone counts for nothing."""
    found = [k for k in stated if k.endswith("*") and len(k) > 1 and name.startswith(k[:-1])]
    return stated[max(found, key=len)] if found else None
