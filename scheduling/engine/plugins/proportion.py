"""The proportion plugin: Volcano's flat sharing by weight, for configurations that name it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from scheduling.engine.accounts import Admissions, refusal_above
from scheduling.engine.callbacks import Vote
from scheduling.engine.journal import Claim, Unit
from scheduling.engine.plugin import Plugin
from scheduling.engine.reasons import ReasonCode
from scheduling.engine.session import Session
from scheduling.engine.shapes import CPU_DIM, MEMORY_DIM, PODS_DIM, UNLIMITED
from scheduling.engine.types import PluginConfig, Reason
from scheduling.engine.views import JobView, QueueView, RoleView

Row = NDArray[np.float64]

EPSILON = 0.1
"""Volcano's tolerance: a tenth of a milli-core, byte or milli-unit."""


class Proportion(Plugin):
    """Deserved by weighted rounds between min and min(max, demand); min is kept free.

    Source: Volcano pkg/scheduler/plugins/proportion.
    """

    name = "proportion"
    votes_alike = True

    def __init__(self, session: Session, config: PluginConfig) -> None:
        """Compute what the queues that have jobs deserve."""
        super().__init__(session, config)
        self.admissions = Admissions(session)
        self.queues = [
            q for q in session.queues.values() if q.name in session.tables.queue_allocated
        ]
        total = np.array(session.total, dtype=np.float64)
        mins = {q.name: np.array(q.min, dtype=np.float64) for q in session.queues.values()}
        kept = sum(mins.values(), start=np.zeros_like(total))
        self.real: dict[str, Row] = {}
        for queue in self.queues:
            real = np.maximum(total - kept, 0) + mins[queue.name]
            self.real[queue.name] = np.minimum(real, _ceiling(queue))
        self._fill(total, mins)

    def _fill(self, total: Row, mins: Mapping[str, Row]) -> None:
        """Deal out `total` in rounds until every queue has what it asks or nothing changes."""
        deserved = {q.name: np.zeros_like(total) for q in self.queues}
        request = {q.name: np.array(q.requested, dtype=np.float64) for q in self.queues}
        met: set[str] = set()
        remaining = total.copy()
        while True:
            weight = sum(q.queue.weight for q in self.queues if q.name not in met)
            if weight == 0:
                break
            change = np.zeros_like(total)
            for queue in self.queues:
                name = queue.name
                if name in met:
                    continue
                old = deserved[name]
                new = old + remaining * queue.queue.weight / weight
                new = np.minimum(np.minimum(new, self.real[name]), request[name])
                new = np.maximum(new, mins[name])
                deserved[name] = new
                if np.all(request[name] <= new + EPSILON) or np.allclose(new, old, atol=EPSILON):
                    met.add(name)
                change += new - old
            left = np.maximum(remaining - change, 0)
            if np.all(left < EPSILON) or np.allclose(left, remaining, atol=EPSILON):
                break
            remaining = left
        for queue in self.queues:
            queue.deserved = [int(x) for x in np.floor(deserved[queue.name] + EPSILON)]

    def queue_order(self, queue: QueueView) -> tuple[int, float]:
        """Put the higher priority first, then the smaller share."""
        return -queue.queue.priority, _share(queue)

    def victim_order(self, queue: QueueView, claimant: QueueView) -> tuple[int, float]:
        """Put the lowest priority first, then the largest share."""
        del claimant
        return queue.queue.priority, -_share(queue)

    def overused(self, queue: QueueView) -> bool:
        """Say whether the queue holds all that it deserves in every resource."""
        return all(
            deserved <= allocated + EPSILON
            for deserved, allocated in zip(queue.deserved, queue.allocated, strict=True)
        )

    def allocatable(self, job: JobView, role: RoleView) -> Reason | None:
        """Refuse what would lift the queue above what it deserves."""
        queue = job.queue
        if not queue.is_open:
            return Reason(
                ReasonCode.QUEUE_CLOSED, {"queue": queue.name, "state": queue.queue.state}
            )
        for d, amount in role.shape.items:
            if d != PODS_DIM and queue.allocated[d] + amount > queue.deserved[d]:
                return Reason(
                    ReasonCode.QUEUE_SHARE,
                    {
                        "queue": queue.name,
                        "resource": self.session.tables.resources.names[d],
                        "requested": amount,
                        "allocated": queue.allocated[d],
                        "deserved": queue.deserved[d],
                    },
                )
        return refusal_above(self.session, queue, role)

    def preemptive(self, job: JobView, role: RoleView) -> bool:
        """Let a queue take back as long as it stays within what it deserves."""
        return self.allocatable(job, role) is None

    def reclaimable(self, claim: Claim, unit: Unit) -> bool:
        """Allow tasks of queues that hold more than they deserve of some resource."""
        queue = unit.job.queue
        return any(
            queue.allocated[d] - claim.removed.of_queue(queue, d) > queue.deserved[d] + EPSILON
            for d in range(self.session.width)
        )

    def job_enqueueable(self, job: JobView) -> Vote:
        """Admit what fits beside what has been let in, up to the real capability."""
        return Vote.PERMIT if self.admission_reason(job) is None else Vote.REJECT

    def admission_reason(self, job: JobView) -> Reason | None:
        """Return why a job is not let in."""
        queue = job.queue
        if not queue.is_open:
            return Reason(
                ReasonCode.QUEUE_CLOSED, {"queue": queue.name, "state": queue.queue.state}
            )
        need = self.admissions.minimum(job.row)
        for d, amount in enumerate(need or ()):
            room = self.real[queue.name][d] - self.admissions.expected(queue, d)
            if amount and d != PODS_DIM and amount > room:
                return Reason(
                    ReasonCode.ADMISSION_REFUSED,
                    {
                        "plugin": self.name,
                        "resource": self.session.tables.resources.names[d],
                        "requested": amount,
                        "available": int(room),
                    },
                )
        return None

    def job_enqueued(self, job: JobView) -> None:
        """Book a job that was let in."""
        self.admissions.admit(job)

    def job_lapsed(self, job: JobView) -> None:
        """Take a booking back that was not used."""
        self.admissions.lapse(job)


def _ceiling(queue: QueueView) -> Row:
    """Return the queue's max; what is not stated, and cpu or memory of 0, is unlimited."""
    row = np.array(queue.max, dtype=np.float64)
    for d in (CPU_DIM, MEMORY_DIM):
        if row[d] <= 0:
            row[d] = UNLIMITED
    return row


def _share(queue: QueueView) -> float:
    share = 0.0
    for deserved, allocated in zip(queue.deserved, queue.allocated, strict=True):
        if deserved > EPSILON:
            share = max(share, allocated / deserved)
    return share
