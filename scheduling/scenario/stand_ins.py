"""Plugins made up by the tests that the cases come from."""

from __future__ import annotations

import numpy as np

from scheduling.engine import registry
from scheduling.engine.callbacks import Vote
from scheduling.engine.journal import Claim, Unit
from scheduling.engine.plugin import Plugin
from scheduling.engine.shapes import Bools
from scheduling.engine.types import TaskState
from scheduling.engine.views import JobView, RoleView


class TestRejecter(Plugin):
    """Rejects the admission of one group; made up by the source's tests."""

    name = "test-rejecter"

    def job_enqueueable(self, job: JobView) -> Vote:
        """Reject the named group."""
        is_named = job.job.name == self.arguments["reject_podgroup"]
        return Vote.REJECT if is_named else Vote.PERMIT


class TestPermitAll(Plugin):
    """Allows every victim of a gang eviction; made up by the source's tests."""

    name = "test-permit-all"

    def gang_evictable(self, claim: Claim, unit: Unit) -> bool:
        """Allow it."""
        del claim, unit
        return True


class TestVictimByPriority(Plugin):
    """Withdraws the tasks of one priority; made up by the source's tests."""

    name = "test-victim-by-priority"

    def victims(self) -> list[Unit]:
        """Return the running tasks of that priority."""
        views = [view for key in self.session.tables.rows if (view := self.session.view(key))]
        return [
            Unit(job, (held,))
            for job in views
            for held in self.session.held_tasks(job)
            if held[0].role.priority == int(self.arguments["priority"])
            and held[1].state is TaskState.RUNNING
        ]


class DeviceFitAfterEviction(Plugin):
    """Keeps one pod off every node while another runs; made up by the source's tests."""

    name = "device-fit-after-eviction"

    def task_predicate(self, job: JobView, role: RoleView) -> Bools | None:
        """Return bool[N], None for other pods."""
        del job
        pending = role.pending[-1].key if role.pending else ""
        if pending.rpartition("/")[2] != self.arguments["pod"]:
            return None
        blocker = self.arguments["blocked_while_running"]
        runs = any(
            task.key.rpartition("/")[2] == blocker and task.key not in self.session.evicted
            for row in self.session.tables.rows.values()
            for held in row.roles
            for task, _ in held.held
        )
        return np.full(self.session.tables.nodes.count, not runs)


HELPERS: dict[str, type[Plugin]] = {
    plugin.name: plugin
    for plugin in (DeviceFitAfterEviction, TestPermitAll, TestRejecter, TestVictimByPriority)
}
KNOWN = {**registry.PLUGINS, **HELPERS}
