"""The nodegroup plugin: which groups of nodes a queue may, should or must not use."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from scheduling.engine.journal import Entry, EntryKind
from scheduling.engine.plugin import Plugin
from scheduling.engine.session import Session
from scheduling.engine.shapes import QUEUE_AFFINITY, QUEUE_GROUP_LIMITS, Bools, Float64, Shape
from scheduling.engine.types import PluginConfig
from scheduling.engine.views import QueueView

GROUP_LABEL = "volcano.sh/nodegroup-name"

Rules = Mapping[str, Mapping[str, list[str]]]


class NodeGroup(Plugin):
    """Filter and score by the label `volcano.sh/nodegroup-name` and the queue's rules.

    Required groups and preferred ones are allowed, required anti-groups are not, preferred
    anti-groups are allowed with score -1. Scores: required 100, preferred 50. Arguments: `strict`
    (default true: a queue without rules may not use nodes outside all groups either),
    `enablePreferredOrder` (default false: the n-th preferred group gets less). Flag `hierarchy`: a
    queue without rules has those of its nearest ancestor. A queue's limits by group count what
    it holds there. Source: Volcano pkg/scheduler/plugins/nodegroup.
    """

    name = "nodegroup"

    def __init__(self, session: Session, config: PluginConfig) -> None:
        """Read groups and limits."""
        super().__init__(session, config)
        codes, self.column = session.tables.nodes.label(GROUP_LABEL)
        self.groups = list(codes)
        self.limits: dict[str, dict[str, dict[str, int]] | None] = {}
        self.held: dict[tuple[str, int], list[int]] = {}
        for queue in session.queues.values():
            text = queue.queue.annotations.get(QUEUE_GROUP_LIMITS)
            if text is not None:
                self.limits[queue.name] = _read_limits(text)
        if self.limits:
            for row in session.tables.rows.values():
                for role in row.roles if row.job.queue in self.limits else ():
                    for _, node in role.held:
                        if node < 0:
                            continue
                        self._book(row.job.queue, node, role.shape, 1)

    def rules(self, queue: QueueView) -> Rules:
        """Return the rules of a queue, or of its nearest ancestor that has some."""
        path = reversed(queue.path) if self.has_flag("hierarchy") else (queue,)
        for level in path:
            text = level.queue.annotations.get(QUEUE_AFFINITY)
            if text:
                rules: Rules = json.loads(text)
                return rules
        return {}

    def predicate(self, shape: Shape) -> Bools:
        """Return bool[N]: nodes of groups that the queue may use."""
        queue = self.session.queues.get(shape.queue)
        rules = self.rules(queue) if queue is not None else {}
        likes, dislikes = rules.get("affinity", {}), rules.get("anti_affinity", {})
        allowed = {*likes.get("required", ()), *likes.get("preferred", ())}
        allowed -= set(dislikes.get("required", ()))
        allowed |= set(dislikes.get("preferred", ()))
        is_strict = self.flag("strict", default=True)
        outside = not is_strict and not any(any(kind.values()) for kind in rules.values())
        by_group = np.array([*[g in allowed for g in self.groups], outside], dtype=bool)
        result: Bools = by_group[self.column]
        return result

    def node_room(self, shape: Shape, nodes: Any) -> Bools:
        """Return bool: nodes of groups where the queue is below its limit."""
        column = self.column[nodes]
        if shape.queue not in self.limits:
            return np.ones(len(column), dtype=bool)
        limits = self.limits[shape.queue]
        if limits is None:  # unreadable: nothing may be placed
            return np.zeros(len(column), dtype=bool)
        index = self.session.tables.resources.index
        fits = [True] * (len(self.groups) + 1)
        for position, group in enumerate(self.groups):
            held = self.held.get((shape.queue, position))
            for name, limit in limits.get(group, {}).items():
                d = index.get(name)
                if d is None or not shape.request[d]:
                    continue
                if (held[d] if held is not None else 0) + shape.request[d] > limit:
                    fits[position] = False
        result: Bools = np.array(fits, dtype=bool)[column]
        return result

    def node_order(self, shape: Shape, nodes: Any) -> Float64:
        """Return float64 scores of the nodes at `nodes`."""
        queue = self.session.queues.get(shape.queue)
        rules = self.rules(queue) if queue is not None else {}
        likes, dislikes = rules.get("affinity", {}), rules.get("anti_affinity", {})
        preferred = list(likes.get("preferred", ()))
        is_ordered = self.flag("enablePreferredOrder", default=False)
        scores = []
        for group in self.groups:
            score = 100.0 if group in likes.get("required", ()) else 0.0
            if group in preferred:
                rank = preferred.index(group) if is_ordered else 0
                score += 50.0 * (len(preferred) - rank) / len(preferred)
            if group in dislikes.get("preferred", ()):
                score = -1.0
            scores.append(score)
        result: Float64 = np.array([*scores, 0.0])[self.column[nodes]]
        return result

    def on_placed(self, entry: Entry) -> None:
        """Book a step against the queue's limits."""
        self._move(entry, -1 if entry.kind is EntryKind.EVICT else 1)

    def on_undone(self, entry: Entry) -> None:
        """Reverse a step."""
        self._move(entry, 1 if entry.kind is EntryKind.EVICT else -1)

    def _move(self, entry: Entry, sign: int) -> None:
        queue = entry.job.queue.name
        if queue in self.limits and entry.node >= 0:
            self._book(queue, entry.node, entry.role.shape, sign)
            here = self.column == self.column[entry.node]
            self.session.touched.extend(int(n) for n in np.flatnonzero(here))

    def _book(self, queue: str, node: int, shape: Shape, sign: int) -> None:
        group = int(self.column[node])
        held = self.held.setdefault((queue, group), [0] * self.session.width)
        for d, amount in shape.items:
            held[d] += sign * amount


def _read_limits(text: str) -> dict[str, dict[str, int]] | None:
    """Return the limits by group in the engine's units, None if the text cannot be read."""
    try:
        data = json.loads(text)
    except ValueError:
        return None
    if not isinstance(data, dict):
        return None
    return {
        group: {name: int(value) for name, value in limit.items()}
        for group, limit in data.items()
        if isinstance(limit, dict)
    }
