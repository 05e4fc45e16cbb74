"""The network-topology-aware plugin: a gang's tasks under one switch, or as close as can be."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from scheduling.engine.domains import Domain, Domains
from scheduling.engine.journal import Entry, EntryKind
from scheduling.engine.plugin import Plugin
from scheduling.engine.session import Session
from scheduling.engine.shapes import CPU_DIM, MEMORY_DIM, Bools, Float64
from scheduling.engine.types import PluginConfig, TopologyRule
from scheduling.engine.views import JobView, RoleView

TOP_SCORE = 100.0


class NetworkTopology(Plugin):
    """Name the domains that a rule allows, closest first; prefer full ones and those in use.

    Arguments: `weight` (1); `hypernode.binpack.cpu`, `.memory` (1), `.resources` (names) and
    `.resources.<name>` (1); `hypernode.binpack.normal-pod.enable` (true) and `.fading` (0.8) for
    jobs without a rule: how much less each tier up counts.
    Source: Volcano pkg/scheduler/plugins/network-topology-aware. There a soft job is placed node
    by node; here the closest domain with room for the gang is tried first.
    """

    name = "network-topology-aware"

    def __init__(self, session: Session, config: PluginConfig) -> None:
        """Lay the domains out and read the weights."""
        super().__init__(session, config)
        index = session.tables.nodes.index
        self.domains = Domains(session.snapshot.hypernodes, index)
        names = session.tables.resources.index
        self.weights = {
            CPU_DIM: self._weight("hypernode.binpack.cpu"),
            MEMORY_DIM: self._weight("hypernode.binpack.memory"),
        }
        for name in self.arguments.get("hypernode.binpack.resources", "").split(","):
            if name.strip() in names:
                self.weights[names[name.strip()]] = self._weight(
                    f"hypernode.binpack.resources.{name.strip()}"
                )
        is_normal = self.flag("hypernode.binpack.normal-pod.enable", default=True)
        has_rules = bool(session.tables.shaped)
        has_scores = has_rules or (is_normal and bool(session.snapshot.hypernodes))
        self.on_placed = self._follow if has_rules else None
        self.on_undone = self._take_back if has_rules else None
        self.task_node_order = self._scores if has_scores else None
        self._placed: dict[int, Counter[int]] = {}
        """Role -> node -> tasks placed or promised there in this cycle, less those evicted."""

    def _weight(self, key: str) -> float:
        value = self.number(key, 1)
        return value if value >= 0 else 1.0

    # -- where tasks are ------------------------------------------------------------------------

    def counts(self, roles: Sequence[RoleView]) -> Counter[int]:
        """Return node -> number of the roles' tasks there, promises counted."""
        found: Counter[int] = Counter()
        for role in roles:
            for _, node in (*role.row.held, *role.row.promised):
                if node >= 0:
                    found[node] += 1
            for node, count in self._placed.get(id(role), {}).items():
                found[node] += count
        return +found

    def _follow(self, entry: Entry) -> None:
        self._count(entry, 1)

    def _take_back(self, entry: Entry) -> None:
        self._count(entry, -1)

    def _count(self, entry: Entry, sign: int) -> None:
        if entry.node >= 0:
            by_node = self._placed.setdefault(id(entry.role), Counter())
            by_node[entry.node] += -sign if entry.kind is EntryKind.EVICT else sign

    def _mask(self, nodes: Counter[int]) -> Bools:
        mask: Bools = np.zeros(self.domains.count, dtype=bool)
        mask[list(nodes)] = True
        return mask

    # -- domains --------------------------------------------------------------------------------

    def hyper_node_gradient(
        self, roles: Sequence[RoleView], rule: TopologyRule | None, within: Domain | None
    ) -> list[Domain]:
        """Return the domains that may take the roles' tasks: by tier, then by score.

        A domain must lie in `within` and hold all of the tasks that have a place already.
        """
        domains = self.domains
        outer = within or domains.top
        if rule is None:
            return [outer]
        highest = domains.highest_tier(rule)
        held = self._mask(self.counts(roles))
        fitting = domains.holding(held) & domains.inside(outer)
        allowed = [
            d for i in np.flatnonzero(fitting).tolist() if (d := domains.all[i]).tier <= highest
        ]
        scores = self.hyper_node_order(roles, allowed)
        order = sorted(range(len(allowed)), key=lambda i: (allowed[i].tier, -scores[i], i))
        return [allowed[i] for i in order]

    def hyper_node_order(self, roles: Sequence[RoleView], domains: Sequence[Domain]) -> list[float]:
        """Score domains by how full they are with all of the roles' tasks that wait."""
        width = self.session.width
        request = [0] * width
        total = 0
        for role in roles:
            total += len(role.pending) + role.ready + role.waiting
            for d, amount in role.shape.items:
                request[d] += amount * len(role.pending)
        counts = self.counts(roles)
        scores = [self._fullness(domain.mask, request) for domain in domains]
        best = max(scores, default=0.0)
        if sum(score == best for score in scores) > 1 and total:
            for i, domain in enumerate(domains):
                if scores[i] == best:
                    scores[i] += sum(c for n, c in counts.items() if domain.mask[n]) / total
        weight = self.number("weight", 1)
        return [score * TOP_SCORE * weight for score in scores]

    def _fullness(self, mask: Bools, request: Sequence[int]) -> float:
        """Return the weighted share in use with the request; 0 if it does not fit."""
        session = self.session
        total = weights = 0.0
        for d, amount in enumerate(request):
            weight = self.weights.get(d, 0.0)
            if not amount or not weight:
                continue
            capacity = int(session.tables.nodes.allocatable[d][mask].sum())
            filled = capacity - int(session.free[d][mask].sum()) + amount
            if filled > capacity:
                return 0.0
            weights += weight
            total += weight * filled / capacity
        return total / weights if weights else 0.0

    # -- nodes ----------------------------------------------------------------------------------

    def _scores(self, job: JobView, role: RoleView) -> Float64 | None:
        """Return float64[N]: nodes close to the job's other tasks, or in domains that fill up."""
        if not job.is_shaped:
            return self._normal_scores(role)
        part = next((p for p in job.parts if role in p.roles), None)
        roles = part.roles if part is not None else job.roles
        counts = self.counts(roles)
        held = self._mask(counts)
        noted = self.domains.by_name.get(job.job.domain)
        if noted is not None and noted is not self.domains.top:
            held = held | noted.mask
        if not held.any():
            return None
        base = self.domains.lowest_common(held)
        scores = self.domains.closeness(base).copy()
        self._favour_used(scores, counts, roles)
        result: Float64 = scores * (TOP_SCORE * self.number("weight", 1))
        return result

    def _favour_used(
        self, scores: Float64, counts: Counter[int], roles: Sequence[RoleView]
    ) -> None:
        """Among the best nodes add the share of the tasks in each one's lowest domain."""
        total = sum(len(r.pending) + r.ready + r.waiting for r in roles)
        best = scores == scores.max()
        leaf = self.domains.leaf
        if not total or (leaf[best] == leaf[best][0]).all():
            return
        share = np.zeros(len(self.domains.all))
        for node, count in counts.items():
            share[leaf[node]] += count / total
        scores[best] += share[leaf[best]]

    def _normal_scores(self, role: RoleView) -> Float64 | None:
        if not self.flag("hypernode.binpack.normal-pod.enable", default=True):
            return None
        fading = self.number("hypernode.binpack.normal-pod.fading", 0.8)
        low, high = self.domains.min_tier, self.domains.top.tier
        total: Float64 = np.zeros(self.domains.count)
        weights = 0.0
        for tier in range(low, high + 1):
            factor = fading ** (tier - low)
            weights += factor
            if not factor:
                continue
            here: Float64 = np.ones(self.domains.count)
            for domain in self.domains.all:
                if domain.tier == tier:
                    here[domain.mask] = self._fullness(domain.mask, role.shape.request)
            total += factor * here
        result: Float64 = total / weights * (TOP_SCORE * self.number("weight", 1))
        return result
