"""What queues have let in: what admitted jobs still need, and what jobs hold beyond it."""

from __future__ import annotations

from scheduling.engine.reasons import ReasonCode
from scheduling.engine.rows import JobRow
from scheduling.engine.session import Session
from scheduling.engine.shapes import PODS_DIM
from scheduling.engine.types import GangPhase, Reason
from scheduling.engine.views import JobView, QueueView, RoleView

Amounts = list[int]


class Admissions:
    """By queue: what admitted jobs still need for their minimum, and what jobs hold above it.

    Source: Volcano pkg/scheduler/plugins/{proportion,capacity}; amounts of a queue contain those of
    the queues below it.
    """

    def __init__(self, session: Session) -> None:
        """Sum up the jobs of the snapshot."""
        self.session = session
        self.inqueue: dict[str, Amounts] = {}
        self.elastic: dict[str, Amounts] = {}
        for row in session.tables.rows.values():
            queue = session.queues.get(row.job.queue)
            need = self.minimum(row)
            if queue is None or need is None:
                continue
            is_admitted = row.job.phase is GangPhase.INQUEUE or (
                row.job.phase is GangPhase.RUNNING and row.held_count >= row.min_available
            )
            rest = [max(n - a, 0) for n, a in zip(need, row.allocated, strict=True)]
            above = [max(a - n, 0) for n, a in zip(need, row.allocated, strict=True)]
            for level in queue.path:
                if is_admitted:
                    _add(self.inqueue, level, rest, session.width)
                _add(self.elastic, level, above, session.width)

    def minimum(self, row: JobRow) -> Amounts | None:
        """Return what the job states as its minimum, None if it states none."""
        stated = row.job.min_resources
        return None if stated is None else self.session.tables.resources.row(stated)

    def admit(self, job: JobView) -> None:
        """Book a job that has just been let in."""
        need = self.minimum(job.row)
        if need is not None:
            for level in job.queue.path:
                _add(self.inqueue, level, need, self.session.width)

    def lapse(self, job: JobView) -> None:
        """Take back what is booked for a job whose admission has lapsed."""
        need = self.minimum(job.row)
        if need is not None:
            rest = [-max(n - a, 0) for n, a in zip(need, job.row.allocated, strict=True)]
            for level in job.queue.path:
                _add(self.inqueue, level, rest, self.session.width)

    def expected(self, queue: QueueView, d: int) -> int:
        """Return what the queue will hold once what was let in runs at its minimum."""
        waiting = self.inqueue.get(queue.name)
        above = self.elastic.get(queue.name)
        return (
            queue.allocated[d]
            + (waiting[d] if waiting is not None else 0)
            - (above[d] if above is not None else 0)
        )


def _add(totals: dict[str, Amounts], queue: QueueView, amounts: Amounts, width: int) -> None:
    total = totals.setdefault(queue.name, [0] * width)
    for d, amount in enumerate(amounts):
        if d != PODS_DIM:
            total[d] += amount


def refusal_above(session: Session, queue: QueueView, role: RoleView) -> Reason | None:
    """Name the ancestor whose max one task more would pass: a wall for flat sharing too."""
    for level in queue.path[:-1]:
        for d, amount in role.shape.items:
            if level.allocated[d] + amount > level.max[d]:
                return Reason(
                    ReasonCode.QUEUE_MAX,
                    {
                        "queue": level.name,
                        "resource": session.tables.resources.names[d],
                        "requested": amount,
                        "allocated": level.allocated[d],
                        "max": level.max[d],
                    },
                )
    return None
