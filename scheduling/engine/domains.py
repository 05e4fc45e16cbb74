"""The domains of the network, as masks over the nodes, from the closest tier to the cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from scheduling.engine.shapes import Bools, Int64
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
        self.masks: Bools = np.stack([d.mask for d in self.all])
        """bool[domains, N]."""
        self.sizes: Int64 = np.add.reduce(self.masks, axis=1, dtype=np.int64)
        self._closeness: dict[str, NDArray[np.float64]] = {}

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
        holding = np.flatnonzero(self.holding(nodes)).tolist()
        return self.all[min(holding, key=lambda i: (self.all[i].tier, int(self.sizes[i])))]

    def holding(self, nodes: Bools) -> Bools:
        """Return bool[domains]: which hold all of some nodes."""
        found: Bools = np.logical_and.reduce(self.masks[:, np.flatnonzero(nodes)], axis=1)
        return found

    def inside(self, outer: Domain) -> Bools:
        """Return bool[domains]: which lie in a domain and have nodes at all."""
        if outer is self.top:
            return self.sizes > 0
        own = np.add.reduce(self.masks[:, outer.mask], axis=1, dtype=np.int64)
        found: Bools = (self.sizes > 0) & (own == self.sizes)
        return found

    def closeness(self, base: Domain) -> NDArray[np.float64]:
        """Return float64[N]: 1 in the lowest tier around a domain, less each tier further up."""
        known = self._closeness.get(base.name)
        if known is None:
            known = self._closeness[base.name] = np.zeros(self.count)
            low, high = self.min_tier, self.top.tier
            for i in reversed(np.flatnonzero(self.holding(base.mask)).tolist()):
                domain = self.all[i]
                known[domain.mask] = (high - domain.tier) / (high - low) if high > low else 1.0
        return known


def sums_of(domains: Sequence[Domain], amounts: Int64) -> Int64:
    """Return int64[domains, R]: what int64[R, N] adds up to in each domain."""
    sums = np.zeros((len(domains), len(amounts)), dtype=np.int64)
    members = [np.flatnonzero(d.mask) for d in domains]
    filled = [i for i, nodes in enumerate(members) if len(nodes)]
    if filled:
        starts = np.cumsum([0, *(len(members[i]) for i in filled[:-1])])
        nodes = np.concatenate([members[i] for i in filled])
        sums[filled] = np.add.reduceat(amounts[:, nodes], starts, axis=1).T
    return sums


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
