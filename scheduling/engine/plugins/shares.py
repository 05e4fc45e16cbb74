"""The shares plugin, Terrace's own: recursive water-filling over min, max and weight."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from operator import add, gt

from scheduling.engine.callbacks import Vote
from scheduling.engine.fairness.water_filling import fill_tree
from scheduling.engine.journal import Claim, Unit
from scheduling.engine.plugin import Plugin
from scheduling.engine.reasons import ReasonCode
from scheduling.engine.session import Session
from scheduling.engine.shapes import PODS_DIM, UNLIMITED
from scheduling.engine.tables import Tables
from scheduling.engine.types import Amounts, PluginConfig, Reason
from scheduling.engine.views import JobView, QueueView, RoleView

INFINITE = float("inf")


class Shares(Plugin):
    """What each queue deserves at every level, and who may borrow, lend and take back.

    `deserved` is computed once a cycle from min, max, weight and demand. Allocate serves queues up
    to it, lowest share first; backfill lends what is left; reclaim takes back for a queue that
    stays within what it deserves, from subtrees that are above theirs.
    """

    name = "shares"
    votes_alike = True

    def __init__(self, session: Session, config: PluginConfig) -> None:
        """Compute what every queue deserves."""
        super().__init__(session, config)
        places = session.tables.layout.places
        ordered = [session.queues[place.queue.name] for place in places]
        for queue, deserved in zip(ordered, self._divide(ordered), strict=True):
            queue.deserved = deserved
            queue.deserved[PODS_DIM] = UNLIMITED
        self.has_kept_min = any(not q.queue.lend_min and any(q.min) for q in ordered)
        self.tops = [q for q in ordered if q.parent is None]
        self.contested = self._contested()
        self._over_at, self._over_now = -1, list[QueueView]()
        self._side_of: Claim | None = None
        self._side_at = -1
        self._sides: dict[str, tuple[Sequence[QueueView], Sequence[int]]] = {}
        """Queue -> its side against the claim that was judged last, while nothing has moved."""

    def _divide(self, ordered: Sequence[QueueView]) -> list[list[int]]:
        """Return what each of the queues deserves, in arrays where they are many."""
        layout, total = self.session.tables.layout, self.session.total
        demands = [_demand(queue, self.session.tables) for queue in ordered]
        forest = layout.forest.asking(demands) if layout.forest is not None else None
        return fill_tree(layout.claimants(demands), total) if forest is None else forest.fill(total)

    def _contested(self) -> dict[str, tuple[int, ...]]:
        """Return, for the children of each parent ('' at the top), the resources that are short."""
        result: dict[str, tuple[int, ...]] = {}
        groups = [("", self.tops)]
        counted = [d for d in range(self.session.width) if d != PODS_DIM]
        while groups:
            name, members = groups.pop()
            short: set[int] = set()
            for q in members:
                requested, most, deserved = q.requested, q.max, q.deserved
                if not (any(map(gt, requested, deserved)) or any(q.releasing)):
                    continue
                for d in counted:
                    if requested[d] + q.releasing[d] > deserved[d] < most[d]:
                        short.add(d)
            result[name] = tuple(d for d in counted if d in short)
            groups.extend((q.name, q.children) for q in members if q.children)
        return result

    # -- orders ---------------------------------------------------------------------------------

    def queue_order(self, queue: QueueView) -> tuple[tuple[int, float, str], ...]:
        """Put the higher priority first, then the lower share, level by level from the top."""
        return tuple(
            [(q.rank, q.share if q.share >= 0.0 else share_of(q), q.name) for q in queue.path]
        )

    def victim_order(self, queue: QueueView, claimant: QueueView) -> float:
        """Put the queue furthest above what it deserves first."""
        del claimant
        return -max(share_of(q) for q in queue.path)

    # -- limits ---------------------------------------------------------------------------------

    def job_enqueueable(self, job: JobView) -> Vote:
        """Reject what can never fit under a max; anything else may wait inside."""
        if not job.queue.is_open:
            return Vote.REJECT
        return Vote.PERMIT if self.admission_reason(job) is None else Vote.REJECT

    def admission_reason(self, job: JobView) -> Reason | None:
        """Name the max under which the gang can never fit; None where it may wait inside."""
        need = _gang_request(job, self.session)
        for queue in job.queue.path:
            for d, amount in enumerate(need):
                if amount > queue.max[d]:
                    most = queue.max[d]
                    return self._limit(ReasonCode.QUEUE_MAX, queue, d, amount, most, "max")
        return None

    def allocatable(self, job: JobView, role: RoleView) -> Reason | None:
        """Refuse what would pass a max, a min that is kept free, or the share unless borrowing."""
        reason = self._over(job.queue, role.shape.items)
        if reason is None and self.has_kept_min:
            reason = self._kept_min(job.queue, role)
        return reason

    def gang_allocatable(self, job: JobView, need: Sequence[int]) -> Reason | None:
        """Refuse a gang that would pass a limit as a whole."""
        return self._over(job.queue, [(d, amount) for d, amount in enumerate(need) if amount])

    def _over(self, queue: QueueView, items: Sequence[tuple[int, int]]) -> Reason | None:
        for level in queue.path:
            allocated, most = level.allocated, level.max
            for d, amount in items:
                if allocated[d] + amount > most[d]:
                    return self._limit(ReasonCode.QUEUE_MAX, level, d, amount, most[d], "max")
        if self.session.may_borrow:
            return None
        base = self.session.swap_base or {}
        for level in queue.path:
            allocated, most = level.allocated, level.deserved
            before = base.get(level.name, most)
            for d, amount in items:
                if allocated[d] + amount > most[d] and allocated[d] + amount > before[d]:
                    limit = max(most[d], before[d])
                    return self._limit(ReasonCode.QUEUE_SHARE, level, d, amount, limit, "deserved")
        return None

    def _limit(
        self, code: ReasonCode, queue: QueueView, d: int, amount: int, most: int, name: str
    ) -> Reason:
        return Reason(
            code,
            {
                "queue": queue.name,
                "resource": self.session.tables.resources.names[d],
                "requested": amount,
                "allocated": queue.allocated[d],
                name: most,
            },
        )

    def _kept_min(self, queue: QueueView, role: RoleView) -> Reason | None:
        """Refuse what would eat into the min of queues that do not lend theirs."""
        for d, amount in role.shape.items:
            total = self.session.total[d]
            before = sum(_kept(q, d, queue, 0) for q in self.tops)
            after = sum(_kept(q, d, queue, amount) for q in self.tops)
            kept = before - sum(q.allocated[d] for q in self.tops)
            if kept and after > total and after > before:  # else it is room that is wanting
                return Reason(
                    ReasonCode.MIN_KEPT_FREE,
                    {
                        "queue": queue.name,
                        "resource": self.session.tables.resources.names[d],
                        "requested": amount,
                        "available": max(total - before, 0),
                        "kept": kept,
                    },
                )
        return None

    # -- taking back ----------------------------------------------------------------------------

    def preemptive(self, job: JobView, role: RoleView) -> bool:
        """Allow taking back for a queue that stays within what it deserves.

        The levels above are asked in `reclaimable`, as far as they are not shared with the victim.
        """
        queue = job.queue
        return queue.is_open and _stays_within(queue, role)

    def gang_evictable(self, claim: Claim, unit: Unit) -> bool:
        """Allow between queues what may be reclaimed; inside one the queue's account is even."""
        return claim.action != "gangreclaim" or self.reclaimable(claim, unit)

    def reclaimable(self, claim: Claim, unit: Unit) -> bool:
        """Allow what brings the queues closer to what they deserve, tested after the removal.

        At the level where the two queues' paths part, the victim's side and every level below it
        must be above what it deserves in each contested resource that both ask for, and must not
        fall further below it than the reclaimer gains. No queue falls below its min. Of a queue
        that is not reclaimable only elastic tasks are taken.
        """
        victim_queue = unit.job.queue
        if victim_queue is claim.job.queue:
            return False
        if not victim_queue.queue.reclaimable and unit.is_whole:
            return False
        now = len(self.session.touched)
        if self._side_of is not claim or self._side_at != now:
            self._side_of, self._side_at, self._sides = claim, now, {}
        side = self._sides.get(victim_queue.name)
        if side is None:
            side = self._sides[victim_queue.name] = self._side(claim, victim_queue)
        levels, asked = side
        amounts = unit.amounts(self.session.width)
        relevant = [d for d in asked if amounts[d]]
        if not relevant:
            return False
        for level in levels:
            if not (
                _is_over(level, claim, amounts, relevant) and _keeps_min(level, claim, amounts)
            ):
                return False
        return True

    def _side(
        self, claim: Claim, victim_queue: QueueView
    ) -> tuple[Sequence[QueueView], Sequence[int]]:
        """Return the levels of the victim's side, and the contested resources that are asked for.

        None of either where the claimant's side may not take anything there.
        """
        own_queue = claim.job.queue
        parting = _parting(victim_queue, own_queue)
        if parting >= min(len(victim_queue.path), len(own_queue.path)) or not all(
            _stays_within(level, claim.role) for level in own_queue.path[parting:]
        ):
            return (), ()
        parent = victim_queue.path[parting].parent
        contested = self.contested[parent.name if parent is not None else ""]
        request = claim.role.shape.request
        return victim_queue.path[parting:], [d for d in contested if request[d]]

    def reclaim_jobs(self, queue: QueueView, priority: int) -> Collection[str] | None:
        """Name the jobs of queues that are above what they deserve where the paths part."""
        del priority
        names: set[str] = set()
        for other in self._over_share():
            if other is queue:
                continue
            side = next(
                (v for v, own in zip(other.path, queue.path, strict=False) if v is not own), None
            )
            if side is None:
                continue
            contested = self.contested[side.parent.name if side.parent is not None else ""]
            if any(
                level.allocated[d] > level.deserved[d] for d in contested for level in (side, other)
            ):
                names.update(self.session.tables.holders[other.name])
        return names

    def reclaim_queues(self, priority: int) -> Collection[str]:
        """Name the queues that are above what they deserve at some level."""
        del priority
        return [queue.name for queue in self._over_share()]

    def _over_share(self) -> list[QueueView]:
        """Return the queues that hold something and are, at some level, above what they deserve."""
        now = len(self.session.touched)
        if self._over_at != now:
            queues, holders = self.session.queues, self.session.tables.holders
            above = {n for n, q in queues.items() if any(map(gt, q.allocated, q.deserved))}
            holding = [queues[n] for n, rows in holders.items() if rows and n in queues and above]
            self._over_at = now
            self._over_now = [q for q in holding if any(level.name in above for level in q.path)]
        return self._over_now


def _parting(left: QueueView, right: QueueView) -> int:
    """Return at how many levels from the top two queues' paths are the same."""
    same = 0
    for a, b in zip(left.path, right.path, strict=False):
        if a is not b:
            break
        same += 1
    return same


def _is_over(
    level: QueueView, claim: Claim, amounts: Sequence[int], relevant: Sequence[int]
) -> bool:
    """Return whether a queue is above its share, and the removal brings it closer to it.

    It may fall below by less than the claimant gains: that makes the sum of distances smaller.
    """
    for d in relevant:
        over = level.allocated[d] - claim.removed.of_queue(level, d) - level.deserved[d]
        if over <= 0 or amounts[d] >= claim.role.shape.request[d] + 2 * over:
            return False
    return True


def _keeps_min(level: QueueView, claim: Claim, amounts: Sequence[int]) -> bool:
    """Return whether a queue has its min after the removal, even if mins exceed the cluster."""
    for d, least in enumerate(level.min):
        if least and (amount := amounts[d]):
            left = level.allocated[d] - claim.removed.of_queue(level, d) - amount
            if left < least:
                return False
    return True


def _stays_within(queue: QueueView, role: RoleView) -> bool:
    """Return whether the queue, given one task more, holds no more than it deserves."""
    return all(queue.allocated[d] + amount <= queue.deserved[d] for d, amount in role.shape.items)


def share_of(queue: QueueView) -> float:
    """Return allocated / deserved of the resource where it is largest; slots do not count."""
    share = queue.share
    if share >= 0.0:
        return share
    share = 0.0
    for d, (allocated, deserved) in enumerate(zip(queue.allocated, queue.deserved, strict=True)):
        if allocated and d != PODS_DIM:
            share = max(share, allocated / deserved if deserved else INFINITE)
    queue.share = share
    return share


def _demand(queue: QueueView, tables: Tables) -> Sequence[int]:
    """Return what the queue itself holds and, if it is open, waits for.

    What is ending counts still: as a rule it was evicted and will ask again. Shares that swayed
    while it ends would give away what was taken back.
    """
    if not queue.is_open or queue.children:
        return tables.queue_allocated.get(queue.name, tables.nothing)
    if not any(queue.releasing):
        return queue.requested
    return [*map(add, queue.requested, queue.releasing)]


def _gang_request(job: JobView, session: Session) -> list[int]:
    """Return the request of the job's minimum, as stated or summed up."""
    if job.job.min_resources is not None:
        return session.tables.resources.row(job.job.min_resources)
    total = [0] * session.width
    left = job.min_available
    takes = []
    for role in job.roles:
        count = min(role.needed, role.role.replicas)
        takes.append((role, count))
        left -= count
    for role, count in takes:
        extra = min(max(left, 0), max(role.role.replicas - count, 0))
        left -= extra
        for d, amount in role.shape.items:
            total[d] += amount * (count + extra)
    return total


def _kept(queue: QueueView, d: int, grown: QueueView, amount: int) -> int:
    """Return what a subtree holds and keeps free, if `grown` held `amount` more."""
    held = queue.allocated[d] + (amount if queue in grown.path else 0)
    below = sum(_kept(child, d, grown, amount) for child in queue.children)
    kept = max(held, below)
    return kept if queue.queue.lend_min else max(kept, queue.min[d])


def amounts_of(queue: QueueView, plugin: Plugin) -> Amounts:
    """Return what a queue deserves by name."""
    return plugin.session.tables.resources.limits(queue.deserved)
