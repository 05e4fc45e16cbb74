"""The priority plugin: higher priority first, and only lower priorities are evicted."""

from __future__ import annotations

from collections.abc import Collection

from scheduling.engine.journal import Claim, Unit
from scheduling.engine.plugin import Plugin
from scheduling.engine.views import JobView, QueueView, RoleView


class Priority(Plugin):
    """Order by priority of job and task.

    Argument `priority.elasticForAll` (default false): an elastic task may be evicted for a gang of
    any priority that lacks its minimum; whole gangs still only for a higher priority.
    """

    name = "priority"
    votes_alike = True

    def job_order(self, job: JobView) -> int:
        """Put the higher priority first."""
        return -job.job.priority

    def task_order(self, role: RoleView) -> int:
        """Put tasks of the higher priority first."""
        return -role.role.priority

    def job_starving(self, job: JobView) -> bool:
        """Say whether the job wants to grow."""
        return job.pending_count > 0

    def preemptable(self, claim: Claim, unit: Unit) -> bool:
        """Allow lower priorities only; of the same job, tasks of lower priority."""
        if unit.job is claim.job:
            return all(r.role.priority < claim.role.role.priority for r, _, _ in unit.tasks)
        if not unit.is_whole and self.flag("priority.elasticForAll", default=False):
            return True
        return unit.job.job.priority < claim.job.job.priority

    def gang_evictable(self, claim: Claim, unit: Unit) -> bool:
        """Allow lower priorities only; between queues priorities do not count."""
        return claim.action != "gangpreempt" or unit.job.job.priority < claim.job.job.priority

    def preempt_jobs(self, queue: QueueView, priority: int) -> Collection[str] | None:
        """Name the jobs of a lower priority, and what may be evicted for all."""
        tables = self.session.tables
        names: set[str] = set(tables.mixed.get(queue.name, {}))
        for level, rows in tables.by_priority.get(queue.name, {}).items():
            if level < priority:
                names.update(rows)
        if self.flag("priority.elasticForAll", default=False):
            names.update(tables.elastic.get(queue.name, {}))
        return names

    def preempt_queues(self, priority: int) -> Collection[str]:
        """Name the queues that hold a lower priority, and what may be evicted for all."""
        tables = self.session.tables
        names = {
            queue
            for queue, levels in tables.by_priority.items()
            if min(levels, default=priority) < priority
        }
        names.update(queue for queue, rows in tables.mixed.items() if rows)
        if self.flag("priority.elasticForAll", default=False):
            names.update(queue for queue, rows in tables.elastic.items() if rows)
        return names
