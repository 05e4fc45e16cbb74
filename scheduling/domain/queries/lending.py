"""Who among the queues below one parent borrows and who lends, and what waits in which order.

A queue's *even share* is what it would get of its parent's amount if all its siblings were busy:
min first, then by weight up to max. Who holds more borrows; who holds less lends what is held by
others. Amounts only: whose jobs they are is another question.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from scheduling.domain.queries.queues import QueueRow
from scheduling.domain.queries.redaction import redact_rows
from scheduling.engine.fairness.water_filling import fill
from scheduling.models import Job
from scheduling.models.job import JobPhase
from scheduling.models.queue import QueuePolicy
from tenants.domain import access
from tenants.domain.access import Actor, Verb

ORDERS = {
    QueuePolicy.PRIORITY: ("-priority", "created_at", "id"),
    QueuePolicy.FIFO: ("created_at", "id"),
    QueuePolicy.FAIR: ("-priority", "created_at", "id"),
    QueuePolicy.SLA: ("-priority", "created_at", "id"),
}


@dataclass(frozen=True, slots=True)
class Balance:
    """What one queue holds against its even share."""

    queue_id: UUID
    queue: str
    even: int
    allocated: int

    @property
    def borrowed(self) -> int:
        """How much it holds of others' share."""
        return max(0, self.allocated - self.even)

    @property
    def lent(self) -> int:
        """How much of its share it does not hold."""
        return max(0, self.even - self.allocated)


def balances(siblings: Sequence[QueueRow], total: int, resource: str) -> list[Balance]:
    """Divide `total` of a resource as if all were busy, and hold it against what each has."""
    amounts = fill(
        total=total,
        floors=[row.min.get(resource, 0) for row in siblings],
        ceilings=[min(row.max.get(resource, total), total) for row in siblings],
        weights=[row.weight or 1 for row in siblings],
    )
    return [
        Balance(row.id, row.name, even, (row.allocated or {}).get(resource, 0))
        for row, even in zip(siblings, amounts, strict=True)
    ]


def waiting_in_order(actor: Actor, queue: QueueRow, *, limit: int) -> list[Job]:
    """Return the jobs of one leaf that wait, those first that are served first.

    `fair` and `sla` move jobs by use and by deadline besides; their base order is shown.
    """
    rows = Job.objects.visible_to(access.reads(actor, Verb.JOB_READ)).filter(
        queue=queue.id, phase=JobPhase.PENDING
    )
    found = list(
        rows.select_related("queue", "owner")
        .defer("spec", "queue__annotations")
        .order_by(*ORDERS[QueuePolicy(queue.policy)])[:limit]
    )
    redact_rows(actor, found, own_queues={queue.name})
    return found
