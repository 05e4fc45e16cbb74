"""The pdb plugin: no more evictions at once than the disruption budgets allow."""

from __future__ import annotations

from collections.abc import Iterable

from scheduling.engine.journal import Claim, EntryKind, Unit
from scheduling.engine.plugin import Plugin
from scheduling.engine.session import Session
from scheduling.engine.types import PluginConfig


class DisruptionBudgets(Plugin):
    """Count the evictions of this cycle and those at hand against every budget that matches.

    Source: Volcano pkg/scheduler/plugins/pdb; there the shuffle action takes the tasks that a
    budget spares, here it spares them.
    """

    name = "pdb"

    def __init__(self, session: Session, config: PluginConfig) -> None:
        """Veto only where there are budgets."""
        super().__init__(session, config)
        veto = self._may_evict if session.snapshot.disruption_budgets else None
        self.preemptable = self.reclaimable = self.gang_evictable = veto

    def _may_evict(self, claim: Claim, unit: Unit) -> bool:
        return self._stays_within(unit, (u for u in claim.removed.units if u is not unit))

    def revocable(self, unit: Unit) -> bool:
        """Say whether the budgets let a unit be withdrawn."""
        return self._stays_within(unit, ())

    def _stays_within(self, unit: Unit, others: Iterable[Unit]) -> bool:
        budgets = self.session.snapshot.disruption_budgets
        touched = [b for b in budgets if any(b.covers(r.role, t.key) for r, t, _ in unit.tasks)]
        if not touched:
            return True
        gone = [(role, task) for u in (unit, *others) for role, task, _ in u.tasks]
        gone += [(e.role, e.task) for e in self.session.journal if e.kind is EntryKind.EVICT]
        distinct = {task.key: (role, task) for role, task in gone}
        return all(
            sum(budget.covers(role.role, task.key) for role, task in distinct.values())
            <= budget.disruptions_allowed
            for budget in touched
        )
