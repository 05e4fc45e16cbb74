"""Rules about which pods may share a host or zone: affinity, anti-affinity and spreading."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from scheduling.engine.journal import Entry, EntryKind
from scheduling.engine.session import Session
from scheduling.engine.shapes import Bools, Float64, Int64
from scheduling.engine.types import PodTerm, Requirement, Role, SpreadRule
from scheduling.engine.views import JobView, RoleView

TOP_SCORE = 100.0

ALL_KINDS = frozenset({"affinity", "spread", "ports", "claims"})
"""The rules that a configuration can switch off one by one."""


@dataclass(slots=True)
class Alike:
    """Tasks that have a place and look alike to others: their role, and how many are where."""

    role: Role
    space: str
    nodes: Counter[int]
    promised: dict[str, Counter[int]] = field(default_factory=dict)
    """Job -> how many of them are only promised a place, and where."""

    def without_promises(self, job_key: str) -> Alike:
        """Return those that are there already, and what one job was promised."""
        nodes = Counter(self.nodes)
        for key, promised in self.promised.items():
            if key != job_key:
                nodes.subtract(promised)
        return Alike(self.role, self.space, nodes)

    def positions(self) -> list[int]:
        """Return the nodes where there are some."""
        return [node for node, count in self.nodes.items() if count > 0]


class Neighbours:
    """What the tasks that have a place allow or wish for one that has none yet.

    A rule looks at tasks of its own namespace: the part of a task's key before the slash; keys
    without one are all of one namespace.
    Source: Kubernetes' InterPodAffinity and PodTopologySpread.
    """

    def __init__(self, session: Session, *, counts_evicted: bool = False) -> None:
        """Keep the session; nothing is counted before it is asked.

        With `counts_evicted` the tasks that this cycle evicts count as if they stayed.
        """
        self.session = session
        self._counts_evicted = counts_evicted
        self._found: dict[tuple[object, ...], Alike] | None = None
        self._ending: dict[tuple[object, ...], Alike] | None = None

    def has_rules(self) -> bool:
        """Return whether any role of the snapshot has a rule."""
        return bool(self.session.tables.ruled)

    def book(self, entry: Entry, sign: int) -> None:
        """Count a step of the cycle, or with sign -1 its undoing."""
        is_eviction = entry.kind is EntryKind.EVICT
        if entry.node < 0 or (is_eviction and self._counts_evicted):
            return
        if self._found is not None:
            _add_entry(self._found, entry, -sign if is_eviction else sign)
        if self._ending is not None and is_eviction:
            _add_entry(self._ending, entry, sign)

    def _placed(self) -> Iterable[Alike]:
        """Return all tasks that have a place; counted once, then kept by `book`."""
        if self._found is None:
            self._found = {}
            for row in self.session.tables.rows.values():
                for role in row.roles:
                    for task, node in role.held:
                        is_gone = task.key in self.session.evicted and not self._counts_evicted
                        if node >= 0 and not is_gone:
                            _add(self._found, role.role, _namespace(task.key), node, 1)
            for entry in self.session.journal:
                if entry.kind is not EntryKind.EVICT and entry.node >= 0:
                    _add_entry(self._found, entry, 1)
        return self._found.values()

    def _leaving(self) -> Iterable[Alike]:
        """Return the tasks that are ending, those included that this cycle evicts."""
        if self._ending is None:
            self._ending = {}
            for row in self.session.tables.rows.values():
                for role in row.roles:
                    for task, node in role.releasing:
                        if node >= 0:
                            _add(self._ending, role.role, _namespace(task.key), node, 1)
            for entry in self.session.journal:
                if entry.kind is EntryKind.EVICT and entry.node >= 0:
                    _add_entry(self._ending, entry, 1)
        return self._ending.values()

    def _column(self, key: str) -> Int64:
        return self.session.tables.nodes.label(key)[1]

    def allowed(
        self, job: JobView, role: RoleView, kinds: frozenset[str] = ALL_KINDS
    ) -> Bools | None:
        """Return bool[N]: where the role's next task may go beside the others; None: anywhere.

        Who is promised a place counts as if there, and as if not: it may come, and has not yet.
        """
        if not self.has_rules():
            return None
        own = role.role
        space = _space(job, role)
        mask: Bools = np.ones(self.session.tables.nodes.count, dtype=bool)
        everywhere = self._placed()
        placed = [p for p in everywhere if p.space == space]
        if own.ports and "ports" in kinds:
            users = [p for p in everywhere if set(own.ports) & set(p.role.ports)]
            mask[[node for p in users for node in p.positions()]] = False
        for present in self._with_and_without_promises(job, placed):
            if "affinity" in kinds:
                mask &= self._affinity_allows(own, present)
            for rule in own.spread if "spread" in kinds else ():
                if rule.is_required:
                    mask &= self._spread_allows(rule, role, present)
        if own.device_claims and "claims" in kinds:
            mask &= self._claims_allow(own, placed)
        return mask

    def _with_and_without_promises(
        self, job: JobView, placed: list[Alike]
    ) -> Iterator[list[Alike]]:
        yield placed
        if any(p.promised.keys() - {job.key} for p in placed):
            yield [p.without_promises(job.key) for p in placed]

    def startable(
        self, job: JobView, role: RoleView, kinds: frozenset[str] = ALL_KINDS
    ) -> Bools | None:
        """Return bool[N]: where the role's next task may start beside those that are ending.

        None: anywhere. They count for ports and anti-affinity until they have ended, and for
        nothing else, as in Kubernetes.
        """
        own, space = role.role, _space(job, role)
        if not self.has_rules() or not (ending := list(self._leaving())):
            return None
        mask: Bools = np.ones(self.session.tables.nodes.count, dtype=bool)
        if own.ports and "ports" in kinds:
            users = [other for other in ending if set(own.ports) & set(other.role.ports)]
            mask[[node for other in users for node in other.positions()]] = False
        near = [o for o in ending if o.space == space and o.positions()]
        for other in near if "affinity" in kinds else ():
            for term in (*_objections(other.role, own), *_objections(own, other.role)):
                mask &= ~self._zone(term.topology_key, other.positions())
        return mask

    def _affinity_allows(self, own: Role, placed: list[Alike]) -> Bools:
        """Return bool[N]: where neither the role nor those who are there object."""
        mask: Bools = np.ones(self.session.tables.nodes.count, dtype=bool)
        for other in placed:
            for term in _objections(other.role, own):
                mask &= ~self._zone(term.topology_key, other.positions())
        for term in own.pod_terms:
            if term.is_required:
                mask &= self._term_allows(term, own, placed)
        return mask

    def _zone(self, key: str, nodes: list[int]) -> Bools:
        """Return bool[N]: the nodes that share a zone with some nodes."""
        column = self._column(key)
        zones = {int(column[n]) for n in nodes} - {-1}
        result: Bools = np.isin(column, list(zones))
        return result

    def _term_allows(self, term: PodTerm, own: Role, placed: list[Alike]) -> Bools:
        nodes = [n for p in placed if matches(term.selector, p.role.labels) for n in p.positions()]
        inside = self._zone(term.topology_key, nodes)
        if term.is_anti:
            return ~inside
        if not nodes and matches(term.selector, own.labels):  # the first one finds nobody
            result: Bools = self._column(term.topology_key) >= 0
            return result
        return inside

    def _claims_allow(self, own: Role, placed: list[Alike]) -> Bools:
        """Return bool[N]: the node of those with whom the role shares a claim; or anywhere."""
        mask: Bools = np.ones(self.session.tables.nodes.count, dtype=bool)
        for claim in own.device_claims:
            homes = [n for p in placed if claim in p.role.device_claims for n in p.positions()]
            if homes:
                home: Bools = np.zeros_like(mask)
                home[homes] = True
                mask &= home
        return mask

    def _spread_allows(self, rule: SpreadRule, role: RoleView, placed: list[Alike]) -> Bools:
        column = self._column(rule.topology_key)
        counts = self._counts(rule, column, placed)
        eligible = self.session.shape_nodes(role.shape).mask & (column >= 0)
        zones = np.unique(column[eligible])
        least = min((counts[int(zone)] for zone in zones), default=0)
        own = int(matches(rule.selector, role.role.labels))
        result: Bools = (column >= 0) & (_look_up(counts, column) + own - least <= rule.max_skew)
        return result

    def _counts(self, rule: SpreadRule, column: Int64, placed: list[Alike]) -> Counter[int]:
        counts: Counter[int] = Counter()
        for other in placed:
            if matches(rule.selector, other.role.labels):
                for node, count in other.nodes.items():
                    counts[int(column[node])] += count
        return counts

    def affinity_scores(self, job: JobView, role: RoleView) -> Float64 | None:
        """Return float64[N] from 0 to 100: where the most welcome neighbours are."""
        if not self.has_rules():
            return None
        space = _space(job, role)
        total: Float64 = np.zeros(self.session.tables.nodes.count)
        for other in self._placed():
            if other.space != space:
                continue
            wishes = [(t, other.role.labels) for t in role.role.pod_terms]
            wishes += [(t, role.role.labels) for t in other.role.pod_terms]
            for term, labels in wishes:
                if not term.is_required and matches(term.selector, labels):
                    column = self._column(term.topology_key)
                    counts: Counter[int] = Counter()
                    for node, count in other.nodes.items():
                        counts[int(column[node])] += count
                    del counts[-1]
                    weight = -term.weight if term.is_anti else term.weight
                    total += weight * _look_up(counts, column)
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
        placed = [p for p in self._placed() if p.space == space]
        most = sum(sum(p.nodes.values()) for p in placed) + 1
        cost: Float64 = np.zeros(self.session.tables.nodes.count)
        for rule in rules:
            column = self._column(rule.topology_key)
            counts = self._counts(rule, column, placed)
            cost += np.where(column >= 0, _look_up(counts, column), most)
        highest = float(cost.max())
        return (highest - cost) * (TOP_SCORE / highest) if highest else None


def _add_entry(found: dict[tuple[object, ...], Alike], entry: Entry, sign: int) -> None:
    alike = _add(found, entry.role.role, _namespace(entry.task.key), entry.node, sign)
    if entry.kind is EntryKind.PROMISE:
        alike.promised.setdefault(entry.job.key, Counter())[entry.node] += sign


def _add(
    found: dict[tuple[object, ...], Alike], role: Role, space: str, node: int, sign: int
) -> Alike:
    key = (
        space,
        tuple(sorted(role.labels.items())),
        role.pod_terms,
        role.ports,
        role.device_claims,
    )
    if key not in found:
        found[key] = Alike(role, space, Counter())
    found[key].nodes[node] += sign
    return found[key]


def _objections(role: Role, other: Role) -> list[PodTerm]:
    """Return the rules of a role by which it must not have the other one near."""
    return [
        term
        for term in role.pod_terms
        if term.is_required and term.is_anti and matches(term.selector, other.labels)
    ]


def _look_up(counts: Counter[int], column: Int64) -> Int64:
    """Return int64[N]: the count of each node's zone."""
    table = np.zeros(int(column.max(initial=-1)) + 2, dtype=np.int64)
    for zone, count in counts.items():
        table[zone] = count  # -1, the nodes without a zone, is the last one
    result: Int64 = table[column]
    return result


def matches(selector: tuple[Requirement, ...], labels: Mapping[str, str]) -> bool:
    """Return whether labels meet all requirements of a selector; an empty one meets all."""
    return all(meets(requirement, labels.get(requirement.key)) for requirement in selector)


def meets(requirement: Requirement, value: str | None) -> bool:  # noqa: PLR0911 - one branch an operator
    """Return whether a label's value (None: missing) meets a requirement."""
    operator, values = requirement.operator, requirement.values
    if operator == "In":
        return value in values
    if operator == "NotIn":
        return value not in values
    if operator == "Exists":
        return value is not None
    if operator == "DoesNotExist":
        return value is None
    if value is None or not _is_number(value) or not values or not _is_number(values[0]):
        return False
    if operator == "Gt":
        return int(value) > int(values[0])
    return operator == "Lt" and int(value) < int(values[0])


def _is_number(text: str) -> bool:
    return text.removeprefix("-").isdigit()


def _namespace(key: str) -> str:
    return key.partition("/")[0] if "/" in key else ""


def _space(job: JobView, role: RoleView) -> str:
    return _namespace(role.pending[-1].key if role.pending else job.key)
