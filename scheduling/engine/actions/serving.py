"""Serve queues in order of share, jobs in order, gangs whole and elastic tasks one by one."""

from __future__ import annotations

from collections.abc import Iterable

from scheduling.engine.actions.failures import (
    Failure,
    Misses,
    missing_request,
    over_share,
    reason_of,
    standing_reason,
)
from scheduling.engine.actions.lines import Lines
from scheduling.engine.actions.topology import place_in_domains
from scheduling.engine.groups import Group
from scheduling.engine.journal import Statement
from scheduling.engine.reasons import WALLS, ReasonCode
from scheduling.engine.session import Session
from scheduling.engine.shapes import Shape
from scheduling.engine.types import GangPhase, QueuePolicy, Reason, Reservation
from scheduling.engine.views import JobView, RoleView


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


def serve(  # noqa: C901 - the loop that the docstring tells, on the hot path
    session: Session,
    groups: Iterable[Group],
    *,
    may_grow: bool,
) -> None:
    """Place what fits of the groups' jobs, in order.

    1. The first queue gives its first job. 2. The job gets its gang's missing tasks, wholly or
    not at all, or, if the gang is complete, one elastic task. 3. The next job of its group gets
    into line; the job itself too, if tasks are left and `may_grow`; then the queue.
    """
    lines = Lines(session, groups)
    misses = Misses()
    while (queue := lines.next_queue()) is not None:
        if session.is_overused(queue):
            for left in lines.rest(queue):
                if left.reason is None:
                    left.reason = over_share(session, queue)
            continue
        found = lines.next_job(queue)
        if found is None:
            continue
        job, group = found
        reason = serve_job(session, job, misses)
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
    return reason_of(session, job, _decisive(list(failed.values())), placed)


def _decisive(failures: list[Failure]) -> Failure:
    """Return the failure that says what would help: a task that only its queue's share keeps out.

    Unless the last one is of a task without which the gang cannot start.
    """
    last = failures[-1]
    if last.role.ready + last.role.waiting < last.role.needed:
        return last
    by_share = (f for f in failures if f.refusal and f.refusal.code is ReasonCode.QUEUE_SHARE)
    return next(by_share, last)


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
        now = session.starting_scores(job, role, extra)
        nominated = session.nominated_node(role, extra=now)
        if nominated >= 0 and session.place(job, role, nominated):
            return None
        while (node := session.best_node(shape, extra=now)) >= 0:
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
