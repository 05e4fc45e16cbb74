"""Why a job was not placed: the reason in numbers, and what need not be tried again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from scheduling.engine.reasons import WALLS, ReasonCode
from scheduling.engine.rows import has_neighbour_rules
from scheduling.engine.session import Session
from scheduling.engine.shapes import Bools, Shape
from scheduling.engine.types import Reason
from scheduling.engine.views import JobView, QueueView, RoleView


@dataclass(frozen=True, slots=True)
class Failure:
    """What stopped a gang: the role, and the queue's refusal or None where no node had room."""

    role: RoleView
    refusal: Reason | None


class Misses:
    """What has failed in this pass: room only shrinks, so the same ask fails again.

    Remembered by shape and number of tasks for want of nodes, and by queue besides for want of
    share; jobs of several roles and owners of reservations are always tried.
    """

    __slots__ = ("_by_queue", "_by_shape")

    def __init__(self) -> None:
        """Start with none."""
        self._by_shape: dict[tuple[int, int], Reason] = {}
        self._by_queue: dict[tuple[str, int, int], Reason] = {}

    def recall(self, job: JobView) -> Reason | None:
        """Return the reason why an equal ask has failed."""
        ask = _ask(job) if self._by_shape or self._by_queue else None
        if ask is None:
            return None
        reason = self._by_shape.get(ask) or self._by_queue.get((job.queue.name, *ask))
        return reason if reason is None else _told_of(reason, job)

    def note(self, job: JobView, reason: Reason) -> None:
        """Remember a failure."""
        ask = _ask(job)
        if ask is None or reason.code in WALLS:
            return
        if reason.code in (ReasonCode.NODES_UNFIT, ReasonCode.GANG_INCOMPLETE):
            self._by_shape[ask] = reason
        else:
            self._by_queue[(job.queue.name, *ask)] = reason


def _told_of(reason: Reason, job: JobView) -> Reason:
    """Return a reason that was told of an equal ask with what is the job's own in it."""
    params = reason.params
    if "role" not in params:
        return reason
    own = {"role": job.roles[0].name, "min_available": job.min_available, "running": job.ready}
    changed = {name: own[name] for name in own if params.get(name, own[name]) != own[name]}
    return Reason(reason.code, {**params, **changed}) if changed else reason


def _ask(job: JobView) -> tuple[int, int] | None:
    """Return (shape, tasks needed at once) of a job of one role that has nothing promised."""
    if len(job.roles) != 1 or job.waiting or job.is_shaped:
        return None
    role = job.roles[0]
    if has_neighbour_rules(role.role):
        return None
    return role.shape.index, max(1, job.missing())


def standing_reason(session: Session, job: JobView) -> Reason | None:
    """Return why a job is out of the question in this cycle, None if it may be served."""
    queue = job.queue
    if queue.children:
        return Reason(
            ReasonCode.QUEUE_NOT_LEAF, {"queue": queue.name, "children": len(queue.children)}
        )
    if not queue.is_open:
        shut = next((q for q in queue.path if q.queue.state != "Open"), queue)
        return Reason(ReasonCode.QUEUE_CLOSED, {"queue": shut.name, "state": shut.queue.state})
    for callback in session.each("job_valid"):
        reason: Reason | None = callback(job)
        if reason is not None:
            return reason
    if not job.pending_count:
        times = [t.not_before for role in job.row.roles for t in role.pending]
        until = min(times, default=session.now)
        return Reason(ReasonCode.BACK_OFF, {"until": until, "tasks": job.row.pending_count})
    return None


def over_share(session: Session, queue: QueueView) -> Reason:
    """Return the reason of all that wait in a queue that is beyond its due."""
    resources = session.tables.resources
    return Reason(
        ReasonCode.QUEUE_SHARE,
        {
            "queue": queue.name,
            "resource": "",
            "requested": 0,
            "allocated": resources.amounts(queue.allocated),
            "deserved": resources.amounts(queue.deserved),
        },
    )


def reason_of(session: Session, job: JobView, failure: Failure, placed: int) -> Reason:
    """Put a failure into numbers; the attempt has been rolled back."""
    role = failure.role
    if failure.refusal is not None:
        return _for_whole_gang(session, job, failure.refusal)
    histogram = node_histogram(session, role.shape)
    nodes = session.tables.nodes.count
    request = session.tables.resources.amounts(role.shape.request)
    if session.kept and _fits_without_reservations(session, role.shape):
        return Reason(
            ReasonCode.ROOM_RESERVED,
            {"jobs": sorted(session.kept), "nodes": nodes, "request": request},
        )
    if job.missing() > 1 or placed:
        return Reason(
            ReasonCode.GANG_INCOMPLETE,
            {
                "placeable": placed,
                "running": job.ready,
                "min_available": job.min_available,
                "role": role.name,
                "nodes": nodes,
                "request": request,
                "histogram": histogram,
            },
        )
    return Reason(
        ReasonCode.NODES_UNFIT,
        {"role": role.name, "nodes": nodes, "request": request, "histogram": histogram},
    )


def _for_whole_gang(session: Session, job: JobView, refusal: Reason) -> Reason:
    """Say what the gang as a whole asks of the limit that refused one of its tasks."""
    if refusal.code in WALLS:  # asked anew: what it had placed of itself is taken back by now
        return session.gang_refusal(job, missing_request(session, job)) or refusal
    resource = refusal.params.get("resource")
    queue = session.queues.get(str(refusal.params.get("queue")))
    if queue is None or not isinstance(resource, str) or not resource:
        return refusal
    d = session.tables.resources.index[resource]
    params = dict(refusal.params)
    params["requested"] = missing_request(session, job)[d]
    params["allocated"] = queue.allocated[d]
    return Reason(refusal.code, params)


def missing_request(session: Session, job: JobView) -> list[int]:
    """Return what the tasks that the gang still lacks ask for in all; one task if it lacks none."""
    total = [0] * session.width
    left = max(1, job.missing())
    takes: list[tuple[RoleView, int]] = []
    for role in job.roles:
        count = min(max(role.needed - role.ready - role.waiting, 0), len(role.pending))
        takes.append((role, count))
        left -= count
    for role, count in takes:
        extra = min(max(left, 0), len(role.pending) - count)
        left -= extra
        for d, amount in role.shape.items:
            total[d] += amount * (count + extra)
    return total


def _fits_without_reservations(session: Session, shape: Shape) -> bool:
    fits = session.shape_nodes(shape).mask.copy()
    for d, amount in shape.items:
        free = session.free[d].copy()
        for kept in session.kept.values():
            free += kept[d]
        fits &= free >= amount
    return bool(fits.any())


def node_histogram(session: Session, shape: Shape) -> dict[str, int]:
    """Count the nodes by what keeps the shape off them: predicates first, then each resource.

    What an idle node would not have either is told from what the node lacks now.
    """
    left = session.mask(shape)
    counts: dict[str, int] = {}
    for plugin, _ in session.callback_owners["predicate"]:
        counter: Callable[[Shape], dict[str, int]] | None = getattr(plugin, "histogram", None)
        if counter is not None:
            for name, count in counter(shape).items():
                counts[name] = counts.get(name, 0) + count
    counts |= _lacking(session, shape, left)
    if shape.ask is not None:
        fits = left.copy()
        for d, amount in shape.items:
            fits &= session.free[d] >= amount
        lacking = sum(session.pick_devices(shape, int(n)) is None for n in np.flatnonzero(fits))
        if lacking:
            counts["devices"] = lacking
    return counts


def _lacking(session: Session, shape: Shape, left: Bools) -> dict[str, int]:
    """Count those of the nodes `left` (bool[N]) that are too small or too full, by resource."""
    counts: dict[str, int] = {}
    for d, amount in shape.items:
        name = session.tables.resources.names[d]
        is_small = left & (session.tables.nodes.allocatable[d] < amount)
        is_full = left & ~is_small & (session.free[d] < amount)
        for cause, nodes in ((f"Exceeds {name}", is_small), (f"Insufficient {name}", is_full)):
            if count := int(np.count_nonzero(nodes)):
                counts[cause] = count
    return counts
