"""Which nodes a task may run on in one cycle, and which of them is best."""

from __future__ import annotations

from typing import Any

import numpy as np

from scheduling.engine.opinions import Opinions
from scheduling.engine.room import Room
from scheduling.engine.shapes import Bools, Float64, Int64, Shape
from scheduling.engine.tables import Tables
from scheduling.engine.types import Snapshot
from scheduling.engine.views import JobView, RoleView

MOST_SCORES = 2**24
"""Scores kept in a cycle, of all shapes together: some 150 MB; the others are worked out again."""


class ShapeNodes:
    """The feasible nodes of one shape and their scores, kept up to date by the touched log."""

    __slots__ = ("mask", "position", "scores", "shape")

    def __init__(self, shape: Shape, mask: Bools) -> None:
        """Start out of date."""
        self.shape = shape
        self.mask = mask
        self.scores: Float64 | None = None
        self.position = 0


class Scoring(Opinions, Room):
    """The nodes as the plugins score them; scores are kept by shape and renewed where touched."""

    def __init__(self, snapshot: Snapshot, tables: Tables) -> None:
        """Start with nothing scored."""
        Opinions.__init__(self)
        Room.__init__(self, snapshot, tables)
        self._shape_nodes: dict[int, ShapeNodes] = {}

    def mask(self, shape: Shape) -> Bools:
        """Return bool[N]: nodes that pass every predicate, room not considered."""
        mask: Bools = np.ones(self.tables.nodes.count, dtype=bool)
        if self.shard is not None and self.shard_is_hard:
            mask &= self.shard
        for callback in self.each("predicate"):
            mask &= callback(shape)
        return mask

    def shape_nodes(self, shape: Shape) -> ShapeNodes:
        """Return the feasible nodes of a shape with scores that are up to date."""
        kept = self._shape_nodes
        view = kept.pop(shape.index, None)
        if view is None:
            view = ShapeNodes(shape, self.mask(shape))
            if len(kept) * len(view.mask) >= MOST_SCORES:
                kept.pop(next(iter(kept)))  # what was asked for longest ago
        kept[shape.index] = view
        log = self.touched
        end = len(log)
        if view.scores is None:
            view.scores = self._score(view, None)
        elif view.position < end:
            if end - view.position == 1:
                changed: Int64 = np.array(log[view.position :], dtype=np.int64)
            else:
                changed = np.array(list(set(log[view.position : end])), dtype=np.int64)
            view.scores[changed] = self._score(view, changed)
        view.position = end
        return view

    def _score(self, view: ShapeNodes, changed: Int64 | None) -> Float64:
        """Return scores float64 of the nodes at `changed` (None: all); -inf where it cannot run."""
        nodes: Any = slice(None) if changed is None else changed
        least = view.shape.least
        free = self.free[:, nodes]
        fits = view.mask[nodes] & np.logical_and.reduce(free >= least)
        if self.has_promises:
            future = free + self.releasing[:, nodes] - self.promised[:, nodes]
            fits &= np.logical_and.reduce(future >= least)
        for callback in self.each("node_room"):
            fits &= callback(view.shape, nodes)
        roomy = fits.nonzero()[0]
        if len(roomy) == len(fits):
            return self._ordered(view.shape, nodes, len(fits))
        scores: Float64 = np.full(len(fits), -np.inf)
        if len(roomy):  # only those that fit: in a full cluster few do
            where = roomy if changed is None else changed[roomy]
            scores[roomy] = self._ordered(view.shape, where, len(roomy))
        return scores

    def _ordered(self, shape: Shape, nodes: Any, count: int) -> Float64:
        """Return the sum of the plugins' scores of so many nodes."""
        scores: Float64 = np.zeros(count)
        for callback in self._flat["node_order"]:
            scores += callback(shape, nodes)
        return scores

    def best_node(self, shape: Shape, *, extra: Float64 | None = None) -> int:
        """Return the feasible node with the highest score, -1 if there is none.

        `extra` is float64[N], added to the scores of the shape.
        """
        if not self.tables.nodes.count:
            return -1
        scores = self.shape_nodes(shape).scores
        if scores is None:
            return -1
        if extra is not None:
            scores = scores + extra
        if self.focus is not None:
            scores = np.where(self.focus, scores, -np.inf)
        return self.pick(scores)

    def nominated_node(self, role: RoleView, *, extra: Float64 | None) -> int:
        """Return the node that the role's next task is nominated to, if it fits there; or -1."""
        name = role.pending[-1].nominated_node
        node = self.tables.nodes.index.get(name, -1) if name else -1
        if node < 0 or (self.focus is not None and not self.focus[node]):
            return -1
        if extra is not None and extra[node] == -np.inf:
            return -1
        scores = self.shape_nodes(role.shape).scores
        return node if scores is not None and scores[node] > -np.inf else -1

    def pick(self, scores: Float64) -> int:
        """Return the node with the highest score above -inf, those of the shard first; or -1."""
        if self.shard is not None:
            inside = np.where(self.shard, scores, -np.inf)
            best = int(inside.argmax())
            if inside[best] > -np.inf:
                return best
        best = int(scores.argmax())
        return best if scores[best] > -np.inf else -1

    def task_scores(self, job: JobView, role: RoleView) -> Float64 | None:
        """Return what the role's next task adds to its shape's scores, float64[N], or None.

        -inf where a plugin keeps that task off.
        """
        total: Float64 | None = None
        for predicate in self._flat["task_predicate"]:
            allowed: Bools | None = predicate(job, role)
            if allowed is not None:
                hurdle: Float64 = np.where(allowed, 0.0, -np.inf)
                total = hurdle if total is None else total + hurdle
        for callback in self._flat["task_node_order"]:
            scores: Float64 | None = callback(job, role)
            if scores is not None:
                total = scores if total is None else total + scores
        return total

    def starting_scores(
        self, job: JobView, role: RoleView, extra: Float64 | None
    ) -> Float64 | None:
        """Return `task_scores` with -inf besides where the task must wait for others to end."""
        for predicate in self._flat["start_predicate"]:
            allowed: Bools | None = predicate(job, role)
            if allowed is not None:
                hurdle: Float64 = np.where(allowed, 0.0, -np.inf)
                extra = hurdle if extra is None else extra + hurdle
        return extra

    def exclude(self, shape: Shape, node: int) -> None:
        """Take a node out for a shape until something changes there."""
        scores = self.shape_nodes(shape).scores
        if scores is not None:
            scores[node] = -np.inf

    def future_fits(self, shape: Shape) -> Bools:
        """Return bool[N]: nodes where the shape fits once everything releasing has gone."""
        fits = self.shape_nodes(shape).mask.copy()
        if self.focus is not None:
            fits &= self.focus
        for d, amount in shape.items:
            fits &= self.free[d] + self.releasing[d] - self.promised[d] >= amount
        for callback in self.each("node_room"):
            fits &= callback(shape, slice(None))
        return fits

    def best_future_node(self, shape: Shape, *, extra: Float64 | None = None) -> int:
        """Return the best node where the shape fits once what is releasing has gone, or -1."""
        if not self.has_releasing:
            return -1
        fits = self.future_fits(shape)
        if not fits.any():
            return -1
        scores: Float64 = np.where(fits, 0.0, -np.inf)
        for callback in self.each("node_order"):
            scores += callback(shape, slice(None))
        return self.pick(scores if extra is None else scores + extra)
