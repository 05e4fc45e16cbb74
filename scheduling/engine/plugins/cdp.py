"""The cdp plugin: a task that has just started is left alone for a while."""

from __future__ import annotations

from scheduling.engine.durations import parse_duration
from scheduling.engine.journal import Claim, Unit
from scheduling.engine.plugin import Plugin

COOLDOWN = "volcano.sh/cooldown-time"


class Cooldown(Plugin):
    """Spare tasks younger than their role's annotation `volcano.sh/cooldown-time` says.

    A text that is no duration protects nobody. Source: Volcano pkg/scheduler/plugins/cdp.
    """

    name = "cdp"
    votes_alike = True

    def _may_evict(self, claim: Claim, unit: Unit) -> bool:
        del claim
        now = self.session.now
        for role, task, _ in unit.tasks:
            text = role.role.annotations.get(COOLDOWN)
            seconds = parse_duration(text) if text else None
            if seconds is None:
                continue
            if task.started_at is not None and now - task.started_at < seconds:
                return False
        return True

    preemptable = _may_evict
    reclaimable = _may_evict
    gang_evictable = _may_evict
