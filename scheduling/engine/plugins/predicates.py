"""The predicates plugin: which nodes a task may run on at all, room not considered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from scheduling.engine.journal import Entry, EntryKind
from scheduling.engine.neighbours import Neighbours, meets
from scheduling.engine.plugin import Plugin
from scheduling.engine.session import Session
from scheduling.engine.shapes import Bools, Shape
from scheduling.engine.types import Node, PluginConfig, Requirement, Taint, Toleration
from scheduling.engine.views import JobView, RoleView
from scheduling.engine.volumes import Volumes

BLOCKING = frozenset({"NoSchedule", "NoExecute"})

MOST_JUDGED = 500
"""How many different asks of nodes are kept judged."""


class Predicates(Plugin):
    """Cordons, taints, selectors, required affinity, runtimes, neighbours, ports, volumes, claims.

    Arguments `predicate.<rule>Enable` (default true) with <rule> one of `NodeAffinity`,
    `TaintToleration`, `PodAffinity`, `PodTopologySpread`, `NodePorts`, `VolumeBinding`,
    `DynamicResourceAllocation`. Without the flag `preemptable` nobody is evicted for a rule about
    neighbours: those who are evicted count as if they stayed.
    Source: Volcano pkg/scheduler/plugins/predicates, kube-scheduler's filters.
    """

    name = "predicates"

    def __init__(self, session: Session, config: PluginConfig) -> None:
        """Watch neighbours and volumes only where some role has rules about them."""
        super().__init__(session, config)
        self.neighbours = Neighbours(session, counts_evicted=not self.has_flag("preemptable"))
        self.volumes = Volumes(session)
        switches = (
            ("affinity", "PodAffinity"),
            ("spread", "PodTopologySpread"),
            ("ports", "NodePorts"),
            ("claims", "DynamicResourceAllocation"),
        )
        self.kinds = frozenset(
            kind for kind, name in switches if self.flag(f"predicate.{name}Enable", default=True)
        )
        self._flags = (
            self.flag("predicate.TaintTolerationEnable", default=True),
            self.flag("predicate.NodeAffinityEnable", default=True),
        )
        self.has_volumes = self.flag("predicate.VolumeBindingEnable", default=True) and any(
            role.role.volume_claims for row in session.tables.ruled.values() for role in row.roles
        )
        has_rules = self.neighbours.has_rules()
        self.task_predicate = self._task_predicate if has_rules else None
        self.start_predicate = self._start_predicate if has_rules else None
        self.on_placed = self._book if has_rules else None
        self.on_undone = self._take_back if has_rules else None

    def _task_predicate(self, job: JobView, role: RoleView) -> Bools | None:
        """Return bool[N]: where the role's next task may go beside what has its place there."""
        mask = self.neighbours.allowed(job, role, self.kinds)
        if self.has_volumes and role.role.volume_claims:
            reached = self.volumes.allowed(role.role.volume_claims)
            mask = reached if mask is None else mask & reached
        return mask

    def _start_predicate(self, job: JobView, role: RoleView) -> Bools | None:
        """Return bool[N]: where the role's next task need not wait for somebody to end."""
        return self.neighbours.startable(job, role, self.kinds)

    def _book(self, entry: Entry) -> None:
        self.neighbours.book(entry, 1)
        if self.has_volumes and entry.kind is not EntryKind.EVICT:
            self.volumes.take(entry)

    def _take_back(self, entry: Entry) -> None:
        self.neighbours.book(entry, -1)
        if self.has_volumes and entry.kind is not EntryKind.EVICT:
            self.volumes.put_back(entry)

    def predicate(self, shape: Shape) -> Bools:
        """Return bool[N], not to be changed."""
        return self._judge(shape)[0]

    def histogram(self, shape: Shape) -> dict[str, int]:
        """Count nodes by the first filter that they fail."""
        return dict(self._judge(shape)[1])

    def _judge(self, shape: Shape) -> tuple[Bools, Mapping[str, int]]:
        """Return (which nodes pass all filters bool[N], how many fail which first).

        Both depend on nodes and task only, and are kept from cycle to cycle while nodes stay.
        """
        nodes = self.session.tables.nodes
        says = (self._flags, shape.selector, shape.affinity, shape.tolerations, shape.image)
        known = nodes.judged.get(says)
        if known is None:
            left: Bools = np.ones(nodes.count, dtype=bool)
            counts: dict[str, int] = {}
            for name, passes in self._filters(shape):
                failed = int(np.count_nonzero(left & ~passes))
                if failed:
                    counts[name] = failed
                left &= passes
            left.flags.writeable = False
            if len(nodes.judged) >= MOST_JUDGED:
                nodes.judged.clear()
            known = nodes.judged[says] = (left, counts)
        return known

    def _filters(self, shape: Shape) -> Sequence[tuple[str, Bools]]:
        nodes = self.session.tables.nodes
        heeds_taints, heeds_affinity = self._flags
        filters = [("not_schedulable", nodes.is_schedulable)]
        if heeds_taints:
            filters.append(("taint", self._tolerated(shape.tolerations)))
        if heeds_affinity:
            if shape.selector:
                filters.append(("selector", self._selected(shape.selector)))
            if shape.affinity:
                filters.append(("affinity", self._affine(shape.affinity)))
        if shape.image:
            filters.append(("runtime", self._serving(shape.image)))
        return filters

    def _tolerated(self, tolerations: Sequence[Toleration]) -> Bools:
        examples, codes = self.session.tables.nodes.taints()
        allowed = np.array([tolerates(tolerations, n.taints) for n in examples], dtype=bool)
        result: Bools = allowed[codes] if len(examples) else np.ones(0, dtype=bool)
        return result

    def _selected(self, selector: Sequence[tuple[str, str]]) -> Bools:
        nodes = self.session.tables.nodes
        mask: Bools = np.ones(nodes.count, dtype=bool)
        for key, value in selector:
            codes, column = nodes.label(key)
            mask &= column == codes.get(value, -2)
        return mask

    def _affine(self, terms: Sequence[Sequence[Requirement]]) -> Bools:
        nodes = self.session.tables.nodes
        mask: Bools = np.zeros(nodes.count, dtype=bool)
        for term in terms:
            matches: Bools = np.ones(nodes.count, dtype=bool)
            for requirement in term:
                codes, column = nodes.label(requirement.key)
                allowed = np.array(
                    [*[meets(requirement, v) for v in codes], meets(requirement, None)], dtype=bool
                )
                matches &= allowed[column]
            mask |= matches
        return mask

    def _serving(self, image: str) -> Bools:
        distinct, codes = self.session.tables.nodes.runtimes()
        allowed = np.array([r is None or image in r for r in distinct], dtype=bool)
        result: Bools = allowed[codes] if len(distinct) else np.ones(0, dtype=bool)
        return result


def tolerates(tolerations: Sequence[Toleration], taints: Sequence[Taint]) -> bool:
    """Return whether every blocking taint is tolerated."""
    return all(
        any(_matches(toleration, taint) for toleration in tolerations)
        for taint in taints
        if taint.effect in BLOCKING
    )


def _matches(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == "Exists":
        return True
    return bool(toleration.key) and toleration.value == taint.value


def labels_of(node: Node) -> Mapping[str, str]:
    """Return the labels of a node."""
    return node.labels
