"""The backfill action: what is left goes to queues above their share and to best-effort tasks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from scheduling.engine.actions.failures import Failure, reason_of
from scheduling.engine.actions.lines import Lines
from scheduling.engine.actions.reserve import lift, put_back
from scheduling.engine.actions.serving import admitted, is_head, place_job, roles_in_order, serve
from scheduling.engine.actions.topology import candidate_domains
from scheduling.engine.domains import Domain
from scheduling.engine.groups import Group
from scheduling.engine.journal import Statement
from scheduling.engine.reasons import ReasonCode
from scheduling.engine.session import Session
from scheduling.engine.views import JobView, RoleView

SHARE_CODES = frozenset({ReasonCode.QUEUE_SHARE, ReasonCode.BEHIND_HEAD})


def run(session: Session, arguments: Mapping[str, str]) -> None:
    """Lend what no queue is entitled to, then place best-effort tasks."""
    del arguments
    session.may_borrow = True
    waiting = [
        (g, job)
        for g in admitted(session)
        if (job := g.head) and (_may_borrow(g) or is_head(job, g.reason))
    ]
    serve(session, [g for g, job in waiting if not session.is_job_ready(job)], may_grow=False)
    growing = [g for g in admitted(session) if (job := g.head) and session.is_job_ready(job)]
    serve(session, [g for g in growing if _may_borrow(g) or g.reason is None], may_grow=True)
    _use_kept_room(session)
    _place_best_effort(session)
    session.may_borrow = False


def _may_borrow(group: Group) -> bool:
    """Return whether only its queue's share kept a job waiting: others have been tried already."""
    return group.reason is not None and group.reason.code in SHARE_CODES


def _use_kept_room(session: Session) -> None:
    """Let jobs that end in time use room that is kept for a job that cannot start before."""
    if not any(r.starts_at is not None for r in session.reservations.values()):
        return
    lines = Lines(
        session,
        [
            g
            for g in admitted(session)
            if g.first.job.time_limit_seconds is not None and g.first.job.key not in session.kept
        ],
    )
    while (queue := lines.next_queue()) is not None:
        while (found := lines.next_job(queue)) is not None:
            job, group = found
            limit = job.job.time_limit_seconds or 0.0
            lifted = lift(session, until=session.now + limit)
            is_placed = bool(lifted) and place_job(session, job) is None
            if is_placed:
                own = group.take(job)
                if own is not group:
                    lines.push(group)
                if own is not None and session.is_job_ready(job):
                    lines.push(own)
            put_back(session, lifted)


def best_effort_order(session: Session) -> list[tuple[JobView, Group]]:
    """Return the jobs with best-effort tasks, queue by queue and job by job in order."""
    alone = [
        Group(session, [row])
        for group in admitted(session)
        if any(r.shape.is_best_effort and r.pending for r in group.first.roles)
        for row in group.left()
    ]
    lines = Lines(session, alone)
    ordered: list[tuple[JobView, Group]] = []
    while (queue := lines.next_queue()) is not None:
        while (found := lines.next_job(queue)) is not None:
            ordered.append(found)
    return ordered


def _best_place(session: Session, job: JobView, role: RoleView) -> int:
    """Return the best node for a best-effort task by all rules of its job, or -1."""
    extra = session.starting_scores(job, role, session.task_scores(job, role))
    if not job.is_shaped:
        return session.best_node(role.shape, extra=extra)
    outer = session.focus
    node = -1
    for domain in _domains_of(session, job, role):
        session.focus = domain.within(outer)
        node = session.best_node(role.shape, extra=extra)
        if node >= 0:
            break
    session.focus = outer
    return node


def _domains_of(session: Session, job: JobView, role: RoleView) -> Iterator[Domain]:
    """Yield the domains where tasks of a role may be: those of its sub-group, if it has one."""
    part = next((part for part in job.parts if role in part.roles), None)
    for domain in candidate_domains(session, job):
        if part is None:
            yield domain
        else:
            yield from candidate_domains(session, job, part=part, within=domain)


def _place_best_effort(session: Session) -> None:
    groups = (
        {row.job.key: group for group in admitted(session) for row in group.left()}
        if any(shape.is_best_effort for shape in session.tables.shapes)
        else {}
    )
    for job, _ in best_effort_order(session) if groups else ():
        group = groups[job.key]
        statement = Statement(session)
        for role in roles_in_order(session, job):
            if not role.shape.is_best_effort:
                continue
            while role.pending:
                refusal = session.refusal(job, role)
                node = _best_place(session, job, role) if refusal is None else -1
                if node < 0 or not session.place(job, role, node):
                    group.reason = reason_of(session, job, Failure(role, refusal), 0)
                    break
        if job.missing() > 0 and session.each("job_ready"):
            statement.rollback()  # a gang starts whole or not at all
            continue
        if group.head is job:
            group.take(job)
