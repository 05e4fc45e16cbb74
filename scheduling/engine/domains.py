"""The domains of the network, as masks over the nodes, from the closest tier to the cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from scheduling.engine.tables import Bools, Int64
from scheduling.engine.types import HyperNode, TopologyMode, TopologyRule

CLUSTER_TOP = "<cluster-top>"
"""The domain above all others: every node, one tier higher than the highest."""

DEFAULT_TIER = 1
"""The highest tier of a hard rule that states none."""


@dataclass(frozen=True, slots=True, eq=False)
class Domain:
    """A domain with bool[N] of its nodes."""

    name: str
    tier: int
    mask: Bools

    def within(self, focus: Bools | None) -> Bools:
        """Return bool[N]: its nodes that are in focus."""
        return self.mask if focus is None else self.mask & focus


class Domains:
    """All domains by tier and name, the cluster last."""

    def __init__(self, hypernodes: Sequence[HyperNode], index: Mapping[str, int]) -> None:
        """Add up what each domain holds, the domains below it included."""
        by_name = {h.name: h for h in hypernodes}
        self.count = len(index)
        self.tier_names = {h.tier_name: h.tier for h in hypernodes if h.tier_name}
        found = []
        for hypernode in sorted(hypernodes, key=lambda h: (h.tier, h.name)):
            mask: Bools = np.zeros(self.count, dtype=bool)
            mask[[index[n] for n in sorted(_nodes(hypernode, by_name)) if n in index]] = True
            found.append(Domain(hypernode.name, hypernode.tier, mask))
        top = max((d.tier for d in found), default=0) + 1
        self.top = Domain(CLUSTER_TOP, top, np.ones(self.count, dtype=bool))
        self.all: list[Domain] = [*found, self.top]
        self.min_tier = self.all[0].tier
        self.by_name = {d.name: d for d in self.all}
        self.leaf = self._leaves()

    def _leaves(self) -> Int64:
        """Return int64[N]: the position of the lowest domain that holds each node."""
        leaf = np.full(self.count, len(self.all) - 1, dtype=np.int64)
        for position in reversed(range(len(self.all))):
            leaf[self.all[position].mask] = position
        return leaf

    def highest_tier(self, rule: TopologyRule | None) -> int:
        """Return the highest tier that a rule allows; the cluster's if it sets no limit."""
        if rule is None or rule.mode is TopologyMode.SOFT:
            return self.top.tier
        if rule.highest_tier_name:
            return self.tier_names.get(rule.highest_tier_name, self.top.tier)
        return rule.highest_tier if rule.highest_tier is not None else DEFAULT_TIER

    def lowest_common(self, nodes: Bools) -> Domain:
        """Return the lowest domain that holds all of some nodes, the smallest of its tier."""
        holding = [d for d in self.all if not (nodes & ~d.mask).any()]
        return min(holding, key=lambda d: (d.tier, int(d.mask.sum())))


def _nodes(hypernode: HyperNode, by_name: Mapping[str, HyperNode]) -> set[str]:
    """Return the nodes of a domain and of all below it; a circle is walked once."""
    nodes: set[str] = set()
    seen = {hypernode.name}
    left = [hypernode]
    while left:
        current = left.pop()
        nodes |= current.nodes
        for name in current.members:
            if name in by_name and name not in seen:
                seen.add(name)
                left.append(by_name[name])
    return nodes
