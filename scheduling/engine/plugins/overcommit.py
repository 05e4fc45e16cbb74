"""The overcommit plugin: let in no more than the cluster can soon run."""

from __future__ import annotations

from scheduling.engine.callbacks import Vote
from scheduling.engine.plugin import Plugin
from scheduling.engine.reasons import ReasonCode
from scheduling.engine.session import Session
from scheduling.engine.shapes import PODS_DIM
from scheduling.engine.types import GangPhase, PluginConfig, Reason
from scheduling.engine.views import JobView


class Overcommit(Plugin):
    """Admit while the minimums of what was let in fit into total x factor - used.

    Argument `overcommit-factor` (default 1.2; below 1 means the default).
    Source: Volcano pkg/scheduler/plugins/overcommit.
    """

    name = "overcommit"

    def __init__(self, session: Session, config: PluginConfig) -> None:
        """Sum up what is idle and what has been let in."""
        super().__init__(session, config)
        factor = self.number("overcommit-factor", 1.2)
        factor = 1.2 if factor < 1 else factor
        used = session.tables.used.sum(axis=1)
        self.idle = [total * factor - int(u) for total, u in zip(session.total, used, strict=True)]
        self.inqueue = [0] * session.width
        for row in session.tables.rows.values():
            stated = row.job.min_resources
            if stated is None:
                continue
            need = session.tables.resources.row(stated)
            if row.job.phase is GangPhase.INQUEUE:
                self._add(need)
            elif row.job.phase is GangPhase.RUNNING and row.held_count >= row.min_available:
                self._add([max(n - a, 0) for n, a in zip(need, row.allocated, strict=True)])

    def _add(self, need: list[int]) -> None:
        for d, amount in enumerate(need):
            self.inqueue[d] += amount

    def job_enqueueable(self, job: JobView) -> Vote:
        """Vote by what fits."""
        return Vote.PERMIT if self.admission_reason(job) is None else Vote.REJECT

    def admission_reason(self, job: JobView) -> Reason | None:
        """Return the resource of which too much has been let in."""
        stated = job.job.min_resources
        if stated is None:
            return None
        for d, amount in enumerate(self.session.tables.resources.row(stated)):
            if amount and d != PODS_DIM and self.inqueue[d] + amount > self.idle[d]:
                return Reason(
                    ReasonCode.ADMISSION_REFUSED,
                    {
                        "plugin": self.name,
                        "resource": self.session.tables.resources.names[d],
                        "requested": amount,
                        "available": int(self.idle[d] - self.inqueue[d]),
                    },
                )
        return None

    def job_lapsed(self, job: JobView) -> None:
        """Take a booking back that was not used."""
        if job.job.min_resources is not None:
            need = self.session.tables.resources.row(job.job.min_resources)
            self._add([-amount for amount in need])

    def job_enqueued(self, job: JobView) -> None:
        """Book a job that was let in."""
        if job.job.min_resources is not None:
            self._add(self.session.tables.resources.row(job.job.min_resources))
