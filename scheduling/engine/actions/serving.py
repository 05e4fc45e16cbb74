"""Serve queues in order of share, jobs in order, gangs whole and elastic tasks one by one."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from scheduling.engine.actions.topology import place_in_domains
from scheduling.engine.groups import Group
from scheduling.engine.journal import Statement
from scheduling.engine.reasons import WALLS, ReasonCode
from scheduling.engine.rows import has_neighbour_rules
from scheduling.engine.session import Session
from scheduling.engine.shapes import Bools, Shape
from scheduling.engine.types import GangPhase, QueuePolicy, Reason, Reservation
from scheduling.engine.views import JobView, QueueView, RoleView

Key = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class Failure:
    """What stopped a gang: the role, and the queue's refusal or None where no node had room."""

    role: RoleView
    refusal: Reason | None


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


def waiting_groups(session: Session) -> list[Group]:
    """Return the groups of jobs that may be served, recording why the others may not."""
    for group in session.groups:
        if group.is_out or group.reason is not None or group.position:
            continue
        job = group.head
        if job is None:
            group.reason = Reason(ReasonCode.QUEUE_MISSING, {"queue": group.first.job.queue})
        else:
            group.reason = standing_reason(session, job)
        group.is_out = group.reason is not None
    return [g for g in session.groups if not g.is_out and g.position < len(g.rows)]


def roles_in_order(session: Session, job: JobView) -> list[RoleView]:
    """Return the job's roles in the order in which their tasks are placed."""
    if len(job.roles) == 1:
        return job.roles
    callbacks = session.each("task_order")
    return sorted(
        job.roles, key=lambda r: (*[c(r) for c in callbacks], -r.role.priority, r.row.position)
    )


class Lines:
    """The jobs waiting in each queue, and the queues, both as heaps.

    A key is taken when an element is pushed and again when it is popped: shares only grow while
    jobs are served, so an element whose key has become worse goes back and the next one is tried.
    """

    def __init__(self, session: Session, groups: Iterable[Group]) -> None:
        """Sort the groups into the lines of their queues by their first jobs."""
        self.session = session
        self._lines: dict[str, list[Place]] = {}
        queues: dict[str, QueueView] = {}
        for group in groups:
            job = group.head
            if job is not None:
                queues[job.queue.name] = job.queue
                line = self._lines.setdefault(job.queue.name, [])
                line.append((session.job_key(job), job, group))
        for line in self._lines.values():
            line.sort(key=_key_of)
        self._queues = sorted(
            ((session.queue_key(q), q) for q in queues.values()), key=_queue_key_of
        )
        self._has_moving_order = session.has_moving_order("job_order")

    def next_queue(self) -> QueueView | None:
        """Take out the queue that comes first."""
        heap = self._queues
        while heap:
            key, queue = heapq.heappop(heap)
            if heap:
                now = self.session.queue_key(queue)
                if now > heap[0][0] and now != key:
                    heapq.heappush(heap, (now, queue))
                    continue
            return queue
        return None

    def next_job(self, queue: QueueView) -> tuple[JobView, Group] | None:
        """Take out the job that comes first in a queue, with its group."""
        heap = self._lines[queue.name]
        while heap:
            key, job, group = heapq.heappop(heap)
            if self._has_moving_order and heap:
                now = self.session.job_key(job)
                if now != key and now > heap[0][0]:
                    heapq.heappush(heap, (now, job, group))
                    continue
            return job, group
        return None

    def return_queue(self, queue: QueueView) -> None:
        """Put a queue back, if a job waits in it."""
        if self._lines[queue.name]:
            heapq.heappush(self._queues, (self.session.queue_key(queue), queue))

    def push(self, group: Group) -> None:
        """Put a group into line by its first job, if it has one left."""
        job = group.head
        if job is not None:
            key = self.session.job_key(job)
            heapq.heappush(self._lines[job.queue.name], (key, job, group))

    def rest(self, queue: QueueView) -> list[Group]:
        """Take out all groups that still wait in a queue."""
        heap = self._lines[queue.name]
        groups = [group for _, _, group in heap]
        heap.clear()
        return groups


Place = tuple[Key, JobView, Group]


def _key_of(element: Place) -> Key:
    return element[0]


def _queue_key_of(element: tuple[Key, QueueView]) -> Key:
    return element[0]


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
        ask = _ask(job)
        if ask is None:
            return None
        return self._by_shape.get(ask) or self._by_queue.get((job.queue.name, *ask))

    def note(self, job: JobView, reason: Reason) -> None:
        """Remember a failure."""
        ask = _ask(job)
        if ask is None or reason.code in WALLS:
            return
        if reason.code in (ReasonCode.NODES_UNFIT, ReasonCode.GANG_INCOMPLETE):
            self._by_shape[ask] = reason
        else:
            self._by_queue[(job.queue.name, *ask)] = reason


def _ask(job: JobView) -> tuple[int, int] | None:
    """Return (shape, tasks needed at once) of a job of one role that has nothing promised."""
    if len(job.roles) != 1 or job.waiting or job.is_shaped:
        return None
    role = job.roles[0]
    if has_neighbour_rules(role.role):
        return None
    return role.shape.index, max(1, job.missing())


def serve(  # noqa: C901 - the loop that the docstring tells, on the hot path
    session: Session,
    groups: Iterable[Group],
    *,
    may_grow: bool,
    last_resort: Callable[[JobView], bool] | None = None,
) -> None:
    """Place what fits of the groups' jobs, in order.

    1. The first queue gives its first job. 2. The job gets its gang's missing tasks, wholly or
    not at all, or, if the gang is complete, one elastic task. 3. The next job of its group gets
    into line; the job itself too, if tasks are left and `may_grow`; then the queue.
    A job that cannot be placed is handed to `last_resort`, which says whether it could help.
    """
    lines = Lines(session, groups)
    misses = Misses()
    while (queue := lines.next_queue()) is not None:
        if session.is_overused(queue):
            for left in lines.rest(queue):
                if left.reason is None:
                    left.reason = _over_share(session, queue)
            continue
        found = lines.next_job(queue)
        if found is None:
            continue
        job, group = found
        reason = serve_job(session, job, misses)
        if reason is not None and last_resort is not None and last_resort(job):
            reason = None
        if reason is None:
            own = group.take(job)
            if own is not group:
                lines.push(group)
            if own is not None and may_grow and session.is_job_ready(job):
                lines.push(own)
        else:
            group.reason = reason
            if is_head(job, reason):
                behind = Reason(ReasonCode.BEHIND_HEAD, {"queue": queue.name, "job": job.key})
                for left in lines.rest(queue):
                    left.reason = behind
        lines.return_queue(queue)


def is_head(job: JobView, reason: Reason | None) -> bool:
    """Return whether the job's queue is a FIFO one that waits for it.

    Not for growth, nor for what can never fit, nor for a quota that others need not share.
    """
    if job.queue.queue.policy is not QueuePolicy.FIFO or reason is None:
        return False
    requested, most = reason.params.get("requested"), reason.params.get("max")
    can_never = isinstance(requested, int) and isinstance(most, int) and requested > most
    return not job.is_ready() and not can_never and reason.code not in WALLS


def serve_job(session: Session, job: JobView, misses: Misses) -> Reason | None:
    """Place a gang or one elastic task; return why not, None if something was placed."""
    owns_room = job.key in session.kept
    if not owns_room:
        known = misses.recall(job)
        if known is not None:
            return known
    own = session.give_up(job.key)
    if own is not None:
        reason = _place_in_own_room(session, job, own)
        if reason is not None:
            reason = place_job(session, job)
    else:
        reason = place_job(session, job)
    if own is not None:
        session.keep_rest(own, job)
    elif reason is not None:
        misses.note(job, reason)
    return reason


def _place_in_own_room(session: Session, job: JobView, own: Reservation) -> Reason | None:
    """Place a job where room is kept for it.

    Room that evictions made stays its own though the queue is above its share by now: it changed
    hands inside the queue. Were the job refused, it would evict again, and its first room would
    go back to those who were evicted. Room that an overdue job has waited for likewise.
    """
    borrowed = session.may_borrow
    session.may_borrow = True
    session.focus = session.nodes_of(own)
    with session.without_lack(own):
        reason = place_job(session, job)
    session.focus = None
    session.may_borrow = borrowed
    return reason


def place_job(session: Session, job: JobView) -> Reason | None:
    """Place the job's missing tasks, wholly or not at all, or one elastic task.

    Of a job with a topology rule or sub-groups in the closest domain that has room.
    """
    if job.is_shaped:
        return place_in_domains(session, job, place_roles, place_task)
    return place_roles(session, job)


def place_roles(session: Session, job: JobView) -> Reason | None:
    """Place the job's missing tasks, wholly or not at all, or one elastic task.

    Roles in their order; if the gang finds no room so, the largest requests first, since the small
    tasks fit into what the large ones leave and not the other way round.
    """
    reason = _place_in_order(session, job, roles_in_order(session, job))
    if reason is not None and reason.code is ReasonCode.GANG_INCOMPLETE and len(job.roles) > 1:
        by_size = sorted(job.roles, key=lambda r: (-r.shape.gpu_milli, -max(r.shape.request[:2])))
        if by_size != job.roles and _place_in_order(session, job, by_size) is None:
            return None
    return reason


def _place_in_order(session: Session, job: JobView, roles: list[RoleView]) -> Reason | None:  # noqa: C901 - one attempt, told in order
    """Place as `place_roles` says, in the order of the roles.

    A gang that is complete only with room that is still being freed keeps it as a promise.
    Returns None if something stands, else why nothing could.
    """
    statement = Statement(session)
    failed: dict[str, Failure] = {}
    before = job.placed
    was_ready = session.is_job_ready(job)
    is_ready = False
    if not was_ready and job.missing() > 1 and _has_one_way(job):
        refusal = session.gang_refusal(job, missing_request(session, job))
        if refusal is not None:
            return refusal
    is_moving = len(roles) > 1 and session.has_moving_order("task_order")
    while True:
        if is_moving:
            roles = roles_in_order(session, job)
        role = next_role(roles, failed)
        if role is None:
            break
        failure = place_task(session, job, role)
        if failure is None:
            is_ready = was_ready or session.is_job_ready(job)
            if is_ready or (job.waiting and not job.is_starving()):
                break
            continue
        failed[role.name] = failure
        if role.ready + role.waiting < role.needed:
            break
    if is_ready and job.placed > before:
        failure = place_counted_on(session, job)
        if failure is None:
            statement.commit()
            return None
        failed[failure.role.name] = failure
    elif job.placed > before and session.is_job_pipelined(job):
        statement.commit()
        return None
    placed = job.placed - before
    statement.rollback()
    if not failed:
        return Reason(ReasonCode.NOT_CONSIDERED)
    return reason_of(session, job, next(reversed(failed.values())), placed)


def place_counted_on(session: Session, job: JobView) -> Failure | None:
    """Place the best-effort tasks without which a gang is not whole; return what stood in the way.

    Where nothing would place them later in the cycle the gang starts without.
    """
    if not job.counts_on_best_effort() or not session.each("job_ready"):
        return None
    if all(action.name != "backfill" for action in session.config.actions):
        return None
    while job.counts_on_best_effort():
        role = next(
            (
                r
                for r in sorted(job.roles, key=lambda r: r.ready + r.waiting >= r.needed)
                if r.pending and r.shape.is_best_effort
            ),
            None,
        )
        failure = place_task(session, job, role) if role is not None else None
        if failure is not None or role is None:
            return failure
    return None


def _has_one_way(job: JobView) -> bool:
    """Return whether only one choice of tasks completes the gang."""
    return len(job.roles) == 1 or job.missing() >= job.pending_count


def next_role(
    roles: list[RoleView], failed: dict[str, Failure], *, with_best_effort: bool = False
) -> RoleView | None:
    """Return the role of the next task: first roles below their minimum, then all in order."""
    first = None
    for role in roles:
        if not role.pending or role.name in failed:
            continue
        if role.shape.is_best_effort and not with_best_effort:
            continue
        if role.ready + role.waiting < role.needed:
            return role
        if first is None:
            first = role
    return first


def place_task(session: Session, job: JobView, role: RoleView) -> Failure | None:
    """Place or promise the role's next task; return what stood in the way."""
    refusal = session.refusal(job, role)
    if refusal is not None:
        return Failure(role, refusal)
    shape = role.shape
    extra = session.task_scores(job, role)
    if not must_wait_for_holds(job, shape):
        nominated = session.nominated_node(role, extra=extra)
        if nominated >= 0 and session.place(job, role, nominated):
            return None
        while (node := session.best_node(shape, extra=extra)) >= 0:
            if session.place(job, role, node):
                return None
            session.exclude(shape, node)
    node = session.best_future_node(shape, extra=extra)
    if node >= 0:
        session.promise(job, role, node)
        return None
    return Failure(role, None)


def must_wait_for_holds(job: JobView, shape: Shape) -> bool:
    """Return whether a max is free only once tasks that are ending have let go of their holds."""
    for queue in job.queue.path:
        for d, amount in shape.items:
            releasing = queue.releasing[d]
            if releasing and queue.allocated[d] + releasing + amount > queue.max[d]:
                return True
    return False


def _over_share(session: Session, queue: QueueView) -> Reason:
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


def admit_without_asking(session: Session) -> None:
    """Let every waiting job in: for configurations without an enqueue action."""
    if any(action.name == "enqueue" for action in session.config.actions):
        return
    for group in waiting_groups(session):
        if group.first.job.phase is GangPhase.PENDING:
            for row in group.rows:
                session.phases[row.job.key] = GangPhase.INQUEUE


def admitted(session: Session) -> list[Group]:
    """Return the waiting groups that admission has let in, in this cycle or before."""
    return [
        group
        for group in waiting_groups(session)
        if session.phases.get(group.first.job.key, group.first.job.phase) is not GangPhase.PENDING
    ]
