"""Rules about which pods may share a host or zone: affinity, anti-affinity and spreading."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

import numpy as np

from scheduling.engine.journal import EntryKind
from scheduling.engine.session import Float64, Session
from scheduling.engine.tables import Bools, Int64
from scheduling.engine.types import PodTerm, Requirement, Role, SpreadRule
from scheduling.engine.views import JobView, RoleView

TOP_SCORE = 100.0

Placed = tuple[Role, str, int]
"""Role, namespace and node of a task that has a place."""


class Neighbours:
    """What the tasks that have a place allow or wish for one that has none yet.

    A rule looks at tasks of its own namespace, the part of a task's key before the slash.
    Source: Kubernetes' InterPodAffinity and PodTopologySpread.
    """

    def __init__(self, session: Session) -> None:
        """Keep the session; nothing is counted before it is asked."""
        self.session = session

    def has_rules(self) -> bool:
        """Return whether any role of the snapshot has a rule."""
        return bool(self.session.tables.ruled)

    def _placed(self) -> Iterator[Placed]:
        gone = self.session.evicted
        for row in self.session.tables.rows.values():
            for role in row.roles:
                for task, node in role.held:
                    if node >= 0 and task.key not in gone:
                        yield role.role, _namespace(task.key), node
        for entry in self.session.journal:
            if entry.kind is not EntryKind.EVICT:
                yield entry.role.role, _namespace(entry.task.key), entry.node

    def _column(self, key: str) -> Int64:
        return self.session.tables.nodes.label(key)[1]

    def allowed(self, job: JobView, role: RoleView) -> Bools | None:
        """Return bool[N]: where the role's next task may go beside the others; None: anywhere."""
        if not self.has_rules():
            return None
        own = role.role
        space = _space(job, role)
        mask: Bools = np.ones(self.session.tables.nodes.count, dtype=bool)
        placed = [p for p in self._placed() if p[1] == space]
        for other, _, node in placed:
            mask &= self._is_left_alone(other, own, node)
        for term in own.pod_terms:
            if term.is_required:
                mask &= self._term_allows(term, own, placed)
        for rule in own.spread:
            if rule.is_required:
                mask &= self._spread_allows(rule, role, placed)
        return mask

    def _is_left_alone(self, other: Role, own: Role, node: int) -> Bools:
        """Return bool[N]: nodes out of reach of a task that wants no such neighbour."""
        mask: Bools = np.ones(self.session.tables.nodes.count, dtype=bool)
        for term in other.pod_terms:
            if term.is_required and term.is_anti and matches(term.selector, own.labels):
                column = self._column(term.topology_key)
                mask &= (column != column[node]) | (column[node] < 0)
        return mask

    def _term_allows(self, term: PodTerm, own: Role, placed: list[Placed]) -> Bools:
        column = self._column(term.topology_key)
        nodes = [node for role, _, node in placed if matches(term.selector, role.labels)]
        inside: Bools = np.isin(column, [column[n] for n in nodes]) & (column >= 0)
        if term.is_anti:
            return ~inside
        if not nodes and matches(term.selector, own.labels):  # the first one finds nobody
            return column >= 0
        return inside

    def _spread_allows(self, rule: SpreadRule, role: RoleView, placed: list[Placed]) -> Bools:
        column = self._column(rule.topology_key)
        counts = self._counts(rule, column, placed)
        eligible = self.session.shape_nodes(role.shape).mask & (column >= 0)
        zones = {int(c) for c in column[eligible]}
        least = min((counts[zone] for zone in zones), default=0)
        own = int(matches(rule.selector, role.role.labels))
        here = np.array([counts[int(c)] for c in column])
        result: Bools = (column >= 0) & (here + own - least <= rule.max_skew)
        return result

    def _counts(self, rule: SpreadRule, column: Int64, placed: list[Placed]) -> Counter[int]:
        return Counter(
            int(column[node]) for role, _, node in placed if matches(rule.selector, role.labels)
        )

    def affinity_scores(self, job: JobView, role: RoleView) -> Float64 | None:
        """Return float64[N] from 0 to 100: where the most welcome neighbours are."""
        if not self.has_rules():
            return None
        space = _space(job, role)
        total: Float64 = np.zeros(self.session.tables.nodes.count)
        for other, its_space, node in self._placed():
            if its_space != space:
                continue
            wishes = [(t, other.labels) for t in role.role.pod_terms]
            wishes += [(t, role.role.labels) for t in other.pod_terms]
            for term, labels in wishes:
                if not term.is_required and matches(term.selector, labels):
                    column = self._column(term.topology_key)
                    here = (column == column[node]) & (column >= 0)
                    total[here] += -term.weight if term.is_anti else term.weight
        if not total.any():
            return None
        low, high = float(total.min()), float(total.max())
        return (total - low) * (TOP_SCORE / (high - low)) if high > low else None

    def spread_scores(self, job: JobView, role: RoleView) -> Float64 | None:
        """Return float64[N] from 0 to 100: where the fewest like tasks are."""
        rules = [rule for rule in role.role.spread if not rule.is_required]
        if not rules:
            return None
        space = _space(job, role)
        placed = [p for p in self._placed() if p[1] == space]
        cost: Float64 = np.zeros(self.session.tables.nodes.count)
        for rule in rules:
            column = self._column(rule.topology_key)
            counts = self._counts(rule, column, placed)
            cost += np.array([counts[int(c)] if c >= 0 else len(placed) + 1 for c in column])
        highest = float(cost.max())
        return (highest - cost) * (TOP_SCORE / highest) if highest else None


def matches(selector: tuple[Requirement, ...], labels: Mapping[str, str]) -> bool:
    """Return whether labels meet all requirements of a selector; an empty one meets all."""
    return all(_meets(requirement, labels.get(requirement.key)) for requirement in selector)


def _meets(requirement: Requirement, value: str | None) -> bool:
    operator = requirement.operator
    if operator == "In":
        return value in requirement.values
    if operator == "NotIn":
        return value not in requirement.values
    return (value is not None) is (operator == "Exists")


def _namespace(key: str) -> str:
    return key.partition("/")[0]


def _space(job: JobView, role: RoleView) -> str:
    return _namespace(role.pending[-1].key if role.pending else job.key)
