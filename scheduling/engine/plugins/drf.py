"""The drf plugin: dominant resource fairness among the jobs of a queue."""

from __future__ import annotations

from collections.abc import Sequence

from scheduling.engine.session import Claim, JobView, Plugin, Unit

TOLERANCE = 1e-6


class Drf(Plugin):
    """Order jobs by their dominant share; evict only from jobs that hold the larger one."""

    name = "drf"

    def _share(self, amounts: Sequence[int]) -> float:
        if not any(amounts):
            return 0.0
        total = self.session.total
        return max(
            (a / total[d] if total[d] else 1.0 for d, a in enumerate(amounts) if a), default=0.0
        )

    def job_order(self, job: JobView) -> float:
        """Put the smaller share first."""
        return self._share(job.allocated)

    def preemptable(self, claim: Claim, unit: Unit) -> bool:
        """Allow a task if its job stays at or above the share that the preemptor gets."""
        own = [a + r for a, r in zip(claim.job.allocated, claim.role.shape.request, strict=True)]
        left = list(unit.job.allocated)
        for gone in (unit, *(u for u in claim.removed.units if u.job is unit.job)):
            for d, amount in enumerate(gone.amounts(self.session.width)):
                left[d] -= amount
        mine, theirs = self._share(own), self._share(left)
        return mine < theirs or abs(mine - theirs) <= TOLERANCE
