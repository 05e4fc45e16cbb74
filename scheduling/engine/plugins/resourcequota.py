"""The resourcequota plugin: let in no more of a namespace than its quotas allow."""

from __future__ import annotations

from scheduling.engine.callbacks import Vote
from scheduling.engine.reasons import ReasonCode
from scheduling.engine.session import Plugin, Session
from scheduling.engine.types import PluginConfig, Reason
from scheduling.engine.views import JobView


class ResourceQuotas(Plugin):
    """Reject a job whose minimum, with what is used and let in, exceeds a quota of its namespace.

    Only resources that the quota names count. Source: Volcano pkg/scheduler/plugins/resourcequota.
    """

    name = "resourcequota"

    def __init__(self, session: Session, config: PluginConfig) -> None:
        """Start with nothing let in."""
        super().__init__(session, config)
        self.let_in: dict[str, dict[str, int]] = {}

    def job_enqueueable(self, job: JobView) -> Vote:
        """Vote by the quotas."""
        return Vote.PERMIT if self.admission_reason(job) is None else Vote.REJECT

    def admission_reason(self, job: JobView) -> Reason | None:
        """Return the quota that a job would exceed."""
        need = job.job.min_resources or {}
        space = namespace(job)
        expected = self.let_in.get(space, {})
        for quota in self.session.snapshot.quotas:
            if quota.namespace != space:
                continue
            for resource, hard in sorted(quota.hard.items()):
                used = quota.used.get(resource, 0) + expected.get(resource, 0)
                asked = need.get(resource, 0)
                if asked and used + asked > hard:
                    return Reason(
                        ReasonCode.QUOTA_EXCEEDED,
                        {
                            "quota": quota.name,
                            "resource": resource,
                            "requested": asked,
                            "used": used,
                            "hard": hard,
                        },
                    )
        return None

    def job_enqueued(self, job: JobView) -> None:
        """Book a job that was let in."""
        booked = self.let_in.setdefault(namespace(job), {})
        for resource, amount in (job.job.min_resources or {}).items():
            booked[resource] = booked.get(resource, 0) + amount


def namespace(job: JobView) -> str:
    """Return the part of a job's key before its first slash."""
    return job.key.partition("/")[0]
