"""The nodeorder plugin: Kubernetes' node scores with weights."""

from __future__ import annotations

from typing import Any

import numpy as np

from scheduling.engine.journal import Entry
from scheduling.engine.neighbours import TOP_SCORE, Neighbours, matches
from scheduling.engine.plugin import Plugin
from scheduling.engine.session import Session
from scheduling.engine.shapes import CPU_DIM, MEMORY_DIM, Float64, Shape
from scheduling.engine.types import PluginConfig
from scheduling.engine.views import JobView, RoleView

LEAST_OF_IMAGES = 23 * 2**20
MOST_OF_AN_IMAGE = 1000 * 2**20
"""Bytes: less is not worth a detour, more counts as so much."""


class NodeOrder(Plugin):
    """Sum of scores from 0 to 100, each times its argument `<score>.weight`.

    leastrequested (1) and mostrequested (0): mean over cpu and memory of the share that is left,
    or taken, with the task. balancedresource (1): 100 x (1 - deviation of the shares of cpu,
    memory and GPU). nodeaffinity, podaffinity, podtopologyspread (2): wishes of the role.
    tainttoleration (3): fewer PreferNoSchedule taints that are not tolerated. imagelocality (1):
    bytes of the role's images that the node caches, each times the share of nodes that do, from
    23 MB (0) to 1 GB an image (100).
    Source: Volcano pkg/scheduler/plugins/nodeorder and kube-scheduler's scores.
    """

    name = "nodeorder"

    def __init__(self, session: Session, config: PluginConfig) -> None:
        """Watch neighbours only where some role has rules about them."""
        super().__init__(session, config)
        self.neighbours = Neighbours(session)
        self.localities: dict[tuple[str, ...], Float64] = {}
        """Images of a role -> float64[N]."""
        has_rules = self.neighbours.has_rules()
        self.on_placed = self._book if has_rules else None
        self.on_undone = self._take_back if has_rules else None

    def _book(self, entry: Entry) -> None:
        self.neighbours.book(entry, 1)

    def _take_back(self, entry: Entry) -> None:
        self.neighbours.book(entry, -1)

    def task_node_order(self, job: JobView, role: RoleView) -> Float64 | None:
        """Return float64[N] by the role's wishes about nodes and neighbours, None without any."""
        parts: list[tuple[str, Float64 | None]] = [("nodeaffinity", self._wishes(role))]
        if self.neighbours.has_rules():
            parts.append(("podaffinity", self.neighbours.affinity_scores(job, role)))
            parts.append(("podtopologyspread", self.neighbours.spread_scores(job, role)))
        found = [s * self.number(f"{name}.weight", 2) for name, s in parts if s is not None]
        total: Float64 | None = sum(found[1:], found[0]) if found else None
        return total

    def _wishes(self, role: RoleView) -> Float64 | None:
        """Return float64[N] from 0 to 100: the weights of the wishes that each node meets."""
        wishes = role.role.preferred_affinity
        if not wishes:
            return None
        scores = np.array(
            [
                sum(weight for weight, selector in wishes if matches(selector, node.labels))
                for node in self.session.tables.nodes.nodes
            ],
            dtype=np.float64,
        )
        highest = float(scores.max()) if len(scores) else 0.0
        return scores * (TOP_SCORE / highest) if highest else None

    def node_order(self, shape: Shape, nodes: Any) -> Float64:
        """Return float64 scores of the nodes at `nodes`."""
        allocatable, free = self.session.tables.nodes.allocatable, self.session.free
        shares: list[Float64] = []
        for d in (CPU_DIM, MEMORY_DIM):
            capacity = np.maximum(allocatable[d][nodes], 1)
            shares.append((allocatable[d][nodes] - free[d][nodes] + shape.request[d]) / capacity)
        fits = (shares[0] <= 1) & (shares[1] <= 1)
        score: Float64 = np.zeros(len(fits))
        least, most = (
            self.number("leastrequested.weight", 1),
            self.number("mostrequested.weight", 0),
        )
        if least:
            part = sum(np.where(s <= 1, np.floor((1 - s) * 100), 0.0) for s in shares)
            score += least * np.floor(part / 2)
        if most:
            part = sum(np.where(s <= 1, np.floor(s * 100), 0.0) for s in shares)
            score += most * np.floor(part / 2)
        balanced = self.number("balancedresource.weight", 1)
        if balanced:
            score += balanced * self._balance(shape, nodes, shares)
        score += self._taints(shape, nodes)
        return score + self._locality(shape)[nodes] if shape.container_images else score

    def _balance(self, shape: Shape, nodes: Any, shares: list[Float64]) -> Float64:
        gpu = self.session.tables.gpu_dim
        columns = [np.minimum(s, 1.0) for s in shares]
        if gpu >= 0 and shape.request[gpu]:
            capacity = self.session.tables.nodes.allocatable[gpu][nodes]
            taken = capacity - self.session.free[gpu][nodes] + shape.request[gpu]
            columns.append(np.minimum(taken / np.maximum(capacity, 1), 1.0))
        deviation = np.std(np.stack(columns), axis=0)
        result: Float64 = np.floor((1 - deviation) * 100)
        return result

    def _locality(self, shape: Shape) -> Float64:
        """Return float64[N] by the images that nodes hold; what few nodes hold counts less."""
        known = self.localities.get(shape.container_images)
        if known is not None:
            return known
        every = self.session.tables.nodes.nodes
        bytes_held: Float64 = np.zeros(len(every))
        for image in shape.container_images:
            sizes = np.array([node.images.get(image, 0) for node in every], dtype=np.float64)
            bytes_held += sizes * (np.count_nonzero(sizes) / max(len(every), 1))
        most = len(shape.container_images) * MOST_OF_AN_IMAGE
        share = np.clip((bytes_held - LEAST_OF_IMAGES) / (most - LEAST_OF_IMAGES), 0, 1)
        scores: Float64 = np.floor(share * TOP_SCORE) * self.number("imagelocality.weight", 1)
        self.localities[shape.container_images] = scores
        return scores

    def _taints(self, shape: Shape, nodes: Any) -> Float64:
        weight = self.number("tainttoleration.weight", 3)
        examples, codes = self.session.tables.nodes.taints()
        counts = np.array(
            [
                sum(
                    taint.effect == "PreferNoSchedule"
                    and not any(
                        t.effect in ("", taint.effect)
                        and t.key in ("", taint.key)
                        and (t.operator == "Exists" or t.value == taint.value)
                        for t in shape.tolerations
                    )
                    for taint in node.taints
                )
                for node in examples
            ],
            dtype=np.float64,
        )
        here = counts[codes]
        highest = float(here.max()) if len(here) else 0.0
        scores = np.full(len(here), 100.0) if not highest else np.floor(100 - here * 100 / highest)
        result: Float64 = weight * scores[nodes]
        return result
