"""The capacity plugin: stated deserved amounts, flat or as a tree, for those who name it."""

from __future__ import annotations

from scheduling.engine.accounts import Admissions, refusal_above
from scheduling.engine.callbacks import Vote
from scheduling.engine.device_classes import PREFIX
from scheduling.engine.journal import Claim, Unit
from scheduling.engine.plugin import Plugin
from scheduling.engine.reasons import ReasonCode
from scheduling.engine.session import Session
from scheduling.engine.shapes import CPU_DIM, MEMORY_DIM, PODS_DIM, UNLIMITED
from scheduling.engine.types import PluginConfig, Reason
from scheduling.engine.views import JobView, QueueView, RoleView

ROOT = "root"


class Capacity(Plugin):
    """Queues up to their real capability; taking back up to what they state as deserved.

    real capability = min(max, capacity of the parent less the others' min). Argument
    `ancestorReclaimLevel` (default 0): how many levels above the queue may justify taking back.
    Flag `hierarchy`: limits hold at every level of the tree.
    Source: Volcano pkg/scheduler/plugins/capacity.
    """

    name = "capacity"
    votes_alike = True

    def __init__(self, session: Session, config: PluginConfig) -> None:
        """Compute real capabilities and deserved amounts."""
        super().__init__(session, config)
        self.admissions = Admissions(session)
        self.level = max(0, int(self.number("ancestorReclaimLevel", 0)))
        self.is_tree = self.has_flag("hierarchy")
        self.real: dict[str, list[int]] = {}
        self.stated: dict[str, set[int]] = {}
        self.deserved: dict[str, list[int]] = {}
        for queue in session.queues.values():
            self.stated[queue.name] = {
                session.tables.resources.index[name] for name in queue.queue.deserved or ()
            }
            self.deserved[queue.name] = session.tables.resources.row(queue.queue.deserved or {})
        if self.is_tree:
            self._lay_out_tree()
        else:
            self._lay_out_flat()
        if self.has_flag("allocatable"):
            for queue in session.queues.values():
                queue.deserved = self.deserved[queue.name]

    def _lay_out_flat(self) -> None:
        session = self.session
        kept = [sum(q.min[d] for q in session.queues.values()) for d in range(session.width)]
        totals = [  # devices may come and go: only a stated limit counts
            UNLIMITED if name.startswith(PREFIX) else total
            for name, total in zip(session.tables.resources.names, session.total, strict=True)
        ]
        for queue in session.queues.values():
            real = [
                min(max(total - k, 0) + own, limit)
                for total, k, own, limit in zip(
                    totals, kept, queue.min, _limits(queue), strict=True
                )
            ]
            self.real[queue.name] = real
            self.deserved[queue.name] = [
                max(min(d, r), m)
                for d, r, m in zip(self.deserved[queue.name], real, queue.min, strict=True)
            ]

    def _lay_out_tree(self) -> None:
        """From the top down: inherit limits that are not stated, keep the siblings' min free."""
        tops = [q for q in self.session.queues.values() if q.parent is None and q.name != ROOT]
        root = self.session.queues.get(ROOT)
        if root is not None:
            own = _limits(root)
            self.real[ROOT] = own
            self._lay_out_children([*root.children, *tops], own, own)
        else:
            unlimited = [UNLIMITED] * self.session.width
            self._lay_out_children(tops, unlimited, unlimited)

    def _lay_out_children(
        self, children: list[QueueView], above: list[int], inherited: list[int]
    ) -> None:
        kept = [sum(c.min[d] for c in children) for d in range(self.session.width)]
        for child in children:
            own = [
                i if o >= UNLIMITED else o for o, i in zip(_limits(child), inherited, strict=True)
            ]
            self.real[child.name] = [
                min(max(a - k, 0) + m, o)
                for a, k, m, o in zip(above, kept, child.min, own, strict=True)
            ]
            self.deserved[child.name] = [
                max(d, m) for d, m in zip(self.deserved[child.name], child.min, strict=True)
            ]
            self._lay_out_children(child.children, self.real[child.name], own)

    def _path(self, queue: QueueView) -> tuple[QueueView, ...]:
        return queue.path if self.is_tree else (queue,)

    # -- orders ---------------------------------------------------------------------------------

    def queue_order(self, queue: QueueView) -> tuple[object, ...]:
        """Put the higher priority first, then, level by level, the smaller share."""
        return (
            -queue.queue.priority,
            *[
                (self._share(level), not any(self.deserved[level.name]))
                for level in self._path(queue)
            ],
        )

    def _share(self, queue: QueueView) -> float:
        shares = [
            allocated / deserved
            for deserved, allocated in zip(self.deserved[queue.name], queue.allocated, strict=True)
            if deserved > 0
        ]
        return max(shares, default=1.0)

    # -- limits ---------------------------------------------------------------------------------

    def allocatable(self, job: JobView, role: RoleView) -> Reason | None:
        """Refuse what would pass a real capability at any level."""
        queue = job.queue
        if not queue.is_open:
            return Reason(
                ReasonCode.QUEUE_CLOSED, {"queue": queue.name, "state": queue.queue.state}
            )
        for level in self._path(queue):
            real = self.real[level.name]
            for d, amount in role.shape.items:
                if d != PODS_DIM and level.allocated[d] + amount > real[d]:
                    return Reason(
                        ReasonCode.QUEUE_MAX,
                        {
                            "queue": level.name,
                            "resource": self.session.tables.resources.names[d],
                            "requested": amount,
                            "allocated": level.allocated[d],
                            "max": real[d],
                        },
                    )
        return None if self.is_tree else refusal_above(self.session, queue, role)

    def job_enqueueable(self, job: JobView) -> Vote:
        """Admit what fits beside what has been let in, at every level."""
        return Vote.PERMIT if self.admission_reason(job) is None else Vote.REJECT

    def admission_reason(self, job: JobView) -> Reason | None:
        """Return why a job is not let in."""
        queue = job.queue
        if not queue.is_open:
            return Reason(
                ReasonCode.QUEUE_CLOSED, {"queue": queue.name, "state": queue.queue.state}
            )
        need = self.admissions.minimum(job.row)
        for level in self._path(queue):
            for d, amount in enumerate(need or ()):
                room = self.real[level.name][d] - self.admissions.expected(level, d)
                if amount and d != PODS_DIM and amount > room:
                    return Reason(
                        ReasonCode.ADMISSION_REFUSED,
                        {
                            "plugin": self.name,
                            "resource": self.session.tables.resources.names[d],
                            "requested": amount,
                            "available": room,
                        },
                    )
        return None

    def job_enqueued(self, job: JobView) -> None:
        """Book a job that was let in."""
        self.admissions.admit(job)

    def job_lapsed(self, job: JobView) -> None:
        """Take a booking back that was not used."""
        self.admissions.lapse(job)

    # -- taking back ----------------------------------------------------------------------------

    def preemptive(self, job: JobView, role: RoleView) -> bool:
        """Allow it for a queue, or an ancestor within the level, below what it deserves."""
        queue = job.queue
        items = [(d, amount) for d, amount in role.shape.items if d != PODS_DIM]
        if not queue.is_open:
            return False
        if any(queue.allocated[d] + amount > self.real[queue.name][d] for d, amount in items):
            return False
        levels = [q for q in reversed(queue.path) if q.name != ROOT][: self.level + 1]
        return any(
            level.allocated[d] + amount <= self.deserved[level.name][d]
            for level in levels
            for d, amount in items
        )

    def gang_evictable(self, claim: Claim, unit: Unit) -> bool:
        """Allow between queues what may be reclaimed; inside one the queue's account is even."""
        return claim.action != "gangreclaim" or self.reclaimable(claim, unit)

    def reclaimable(self, claim: Claim, unit: Unit) -> bool:
        """Allow tasks of queues above what they deserve in a resource that they name."""
        queue = unit.job.queue
        amounts = unit.amounts(self.session.width)
        request = claim.role.shape.request
        if not any(
            a and r for d, (a, r) in enumerate(zip(amounts, request, strict=True)) if d != PODS_DIM
        ):
            return False
        for d, amount in enumerate(amounts):
            held = queue.allocated[d] - claim.removed.of_queue(queue, d)
            if amount and queue.min[d] and held - amount < queue.min[d]:
                return False
        if not any(amount and self.deserved[queue.name][d] for d, amount in enumerate(amounts)):
            return not self._are_equally_poor(claim, queue)
        if not self._is_over(claim, queue):
            return False
        own = [q for q in reversed(claim.job.queue.path) if q.name != ROOT]
        theirs = [q for q in reversed(queue.path) if q.name != ROOT]
        return all(
            self._is_over(claim, theirs[i])
            for i in range(1, self.level + 1)
            if i < len(theirs) and not (i < len(own) and own[i] is theirs[i])
        )

    def _is_over(self, claim: Claim, queue: QueueView) -> bool:
        return any(
            queue.allocated[d] - claim.removed.of_queue(queue, d) > self.deserved[queue.name][d]
            for d in range(self.session.width)
            if self.deserved[queue.name][d] or d in self.stated[queue.name]
        )

    def _are_equally_poor(self, claim: Claim, queue: QueueView) -> bool:
        """Return whether two queues without deserved amounts share an ancestor that counts."""
        if not self.level:
            return False
        own = {q.name for q in claim.job.queue.path[-1 - self.level : -1] if q.name != ROOT}
        theirs = {q.name for q in queue.path[-1 - self.level : -1]}
        items = claim.role.shape.items
        return bool(own & theirs) and not any(
            self.deserved[claim.job.queue.name][d] for d, _ in items
        )

    def victim_order(self, queue: QueueView, claimant: QueueView) -> tuple[object, ...]:
        """Put the claimant's closest relations first, then low priority, then the largest share."""
        shared = sum(a is b for a, b in zip(queue.path, claimant.path, strict=False))
        return (
            -shared if self.is_tree else 0,
            queue.queue.priority,
            *[-self._share(level) for level in self._path(queue)],
        )


def _limits(queue: QueueView) -> list[int]:
    """Return the queue's max; cpu or memory of 0 counts as not stated."""
    row = list(queue.max)
    for d in (CPU_DIM, MEMORY_DIM):
        if row[d] <= 0:
            row[d] = UNLIMITED
    return row
