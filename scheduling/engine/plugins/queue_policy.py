"""The queue_policy plugin: each queue serves its jobs in the order that it was told."""

from __future__ import annotations

from scheduling.engine.journal import Claim, Unit
from scheduling.engine.plugin import Plugin
from scheduling.engine.types import QueuePolicy
from scheduling.engine.views import JobView


class QueuePolicies(Plugin):
    """FIFO queues go by age before anything else; SLA queues by deadline; others abstain.

    Belongs into the first tier. A fair queue is the `fair_users` plugin's part, which then comes
    before priority: this plugin gives all of its jobs the same place.
    """

    name = "queue_policy"

    def job_order(self, job: JobView) -> float:
        """Return age, deadline or nothing."""
        policy = job.queue.queue.policy
        if policy is QueuePolicy.FIFO:
            return job.job.created_at
        if policy is QueuePolicy.SLA:
            wait = job.job.sla_waiting_seconds
            return job.job.created_at + wait if wait is not None else float("inf")
        return 0.0

    def preemptable(self, claim: Claim, unit: Unit) -> bool:
        """Spare gangs that come before the claimant: they would only come back before it."""
        return not unit.is_whole or self.job_order(claim.job) <= self.job_order(unit.job)
