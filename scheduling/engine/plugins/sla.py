"""The sla plugin: a job that has waited past its time goes first."""

from __future__ import annotations

from scheduling.engine.callbacks import Vote
from scheduling.engine.durations import parse_duration
from scheduling.engine.journal import Claim, Unit
from scheduling.engine.plugin import Plugin
from scheduling.engine.views import JobView


class Sla(Plugin):
    """Order by deadline, admit what is overdue, and let it wait on promises.

    Argument `sla-waiting-time` (a duration such as 1h30m): for jobs that state none of their own.
    Argument `sla.overdueOnly` (default false): jobs that are not overdue get no place of their own
    in the order, so that priority decides among them.
    """

    name = "sla"

    def deadline(self, job: JobView) -> float | None:
        """Return when the job's waiting time ends; None if it has none."""
        wait = job.job.sla_waiting_seconds
        if wait is None:
            text = self.arguments.get("sla-waiting-time")
            wait = parse_duration(text) if text else None
        return None if wait is None or wait <= 0 else job.job.created_at + wait

    def job_overdue(self, job: JobView) -> bool:
        """Return whether the job has waited past its time."""
        deadline = self.deadline(job)
        return deadline is not None and deadline <= self.session.now

    def job_order(self, job: JobView) -> float:
        """Put the earlier deadline first, jobs without one last."""
        deadline = self.deadline(job)
        if deadline is None:
            return float("inf")
        if self.flag("sla.overdueOnly", default=False) and deadline > self.session.now:
            return float("inf")
        return deadline

    def preemptable(self, claim: Claim, unit: Unit) -> bool:
        """Spare gangs that come before the claimant: they would only come back before it."""
        return not unit.is_whole or self.job_order(claim.job) <= self.job_order(unit.job)

    def job_enqueueable(self, job: JobView) -> Vote:
        """Admit what is overdue."""
        return Vote.PERMIT if self.job_overdue(job) else Vote.ABSTAIN

    def job_pipelined(self, job: JobView) -> Vote:
        """Let what is overdue keep its places for the cycle."""
        return Vote.PERMIT if self.job_overdue(job) else Vote.ABSTAIN
