"""The gang plugin: all of a job's minimum or nothing of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from functools import cached_property

from scheduling.engine.callbacks import Vote
from scheduling.engine.journal import Claim, Unit
from scheduling.engine.plugin import Plugin
from scheduling.engine.reasons import ReasonCode
from scheduling.engine.types import Reason
from scheduling.engine.views import JobView, QueueView


class Gang(Plugin):
    """Readiness of gangs, gangs that lack tasks first, and no eviction below a gang's minimum.

    Argument `gang.wholeGangs` (default false): a gang's minimum may be evicted if the whole gang
    goes at once; other plugins decide which gangs.
    """

    name = "gang"
    votes_alike = True

    def job_valid(self, job: JobView) -> Reason | None:
        """Refuse a job that has fewer tasks than its minimum."""
        if job.row.is_valid:
            return _too_few_parts(job) if job.parts else None
        for role in job.row.roles:
            count = len(role.held) + len(role.pending) + role.done + len(role.promised)
            if count < role.role.min_available:
                return Reason(
                    ReasonCode.NOT_ENOUGH_TASKS,
                    {"min_available": role.role.min_available, "tasks": count, "role": role.name},
                )
        count = job.ready + sum(len(r.row.pending) for r in job.roles)
        return Reason(
            ReasonCode.NOT_ENOUGH_TASKS,
            {"min_available": job.min_available, "tasks": count, "role": ""},
        )

    def job_order(self, job: JobView) -> int:
        """Put gangs that are not complete first."""
        return 1 if job.is_ready() else 0

    def job_ready(self, job: JobView) -> bool:
        """Say whether the gang is complete."""
        return job.is_ready()

    def job_pipelined(self, job: JobView) -> Vote:
        """Permit waiting on promised room if that completes the gang."""
        return Vote.PERMIT if job.is_pipelined() else Vote.REJECT

    def job_starving(self, job: JobView) -> bool:
        """Say whether the gang lacks tasks."""
        return job.is_starving()

    def _may_evict(self, claim: Claim, unit: Unit) -> bool:
        """Allow elastic tasks, and whole gangs where the argument says so."""
        if unit.is_whole:
            return self.flag("gang.wholeGangs", default=False)
        job = unit.job
        if job.ready - claim.removed.by_job.get(job.key, 0) - len(unit.tasks) < job.min_available:
            return False
        for role, _, _ in unit.tasks:
            gone = claim.removed.by_role.get((job.key, role.name), 0)
            if role.ready - gone - 1 < role.needed:
                return False
        return not job.parts or _keeps_its_parts(claim, unit)

    preemptable = _may_evict
    reclaimable = _may_evict

    def preempt_jobs(self, queue: QueueView, priority: int) -> Collection[str] | None:
        """Name the jobs of the queue that hold more than their minimum."""
        del priority
        if self.flag("gang.wholeGangs", default=False):
            return None
        return self.session.tables.elastic.get(queue.name, {}).keys()

    def reclaim_jobs(self, queue: QueueView, priority: int) -> Collection[str] | None:
        """Name the jobs of other queues that hold more than their minimum."""
        del priority
        if self.flag("gang.wholeGangs", default=False):
            return None
        own = self.session.tables.elastic.get(queue.name)
        return self._elastic - own.keys() if own else self._elastic

    @cached_property
    def _elastic(self) -> frozenset[str]:
        """All jobs that hold more than their minimum, as the cycle finds them."""
        return frozenset(key for rows in self.session.tables.elastic.values() for key in rows)


def _keeps_its_parts(claim: Claim, unit: Unit) -> bool:
    """Return whether as many sub-groups stay complete as the job needs."""
    job = unit.job
    going = Counter(role.name for role, _, _ in unit.tasks)
    complete = Counter(
        part.position
        for part in job.parts
        if sum(
            r.ready - going[r.name] - claim.removed.by_role.get((job.key, r.name), 0)
            for r in part.roles
        )
        >= part.size
    )
    return all(
        complete[position] >= policy.min_groups
        for position, policy in enumerate(job.job.sub_groups)
    )


def _too_few_parts(job: JobView) -> Reason | None:
    """Refuse a job that has fewer sub-groups of a policy than it needs."""
    for policy in job.job.sub_groups:
        count = sum(p.policy is policy and p.task_count() >= p.size for p in job.parts)
        if count < policy.min_groups:
            return Reason(
                ReasonCode.NOT_ENOUGH_TASKS,
                {"min_available": policy.min_groups, "tasks": count, "role": policy.name},
            )
    return None
