"""The conformance plugin: what the cluster itself needs is never evicted."""

from __future__ import annotations

from scheduling.engine.journal import Claim, Unit
from scheduling.engine.plugin import Plugin

CRITICAL_PRIORITY = 2_000_000_000
"""Kubernetes' system-cluster-critical; system-node-critical lies above it."""

SYSTEM_NAMESPACE = "kube-system/"


class Conformance(Plugin):
    """Spare critical priorities and the system's namespace."""

    name = "conformance"
    votes_alike = True

    def _may_evict(self, claim: Claim, unit: Unit) -> bool:
        del claim
        for role, task, _ in unit.tasks:
            if role.role.priority >= CRITICAL_PRIORITY or task.key.startswith(SYSTEM_NAMESPACE):
                return False
        return True

    preemptable = _may_evict
    reclaimable = _may_evict
    gang_evictable = _may_evict
