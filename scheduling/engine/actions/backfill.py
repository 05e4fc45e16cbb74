"""The backfill action: what is left goes to queues above their share and to best-effort tasks."""

from __future__ import annotations

from collections.abc import Mapping

from scheduling.engine.actions.reserve import lift, put_back
from scheduling.engine.actions.serving import (
    Failure,
    Lines,
    admitted,
    place_job,
    reason_of,
    serve,
)
from scheduling.engine.reasons import ReasonCode
from scheduling.engine.session import JobView, Session

SHARE_CODES = frozenset({ReasonCode.QUEUE_SHARE, ReasonCode.BEHIND_HEAD})


def run(session: Session, arguments: Mapping[str, str]) -> None:
    """Lend what no queue is entitled to, then place best-effort tasks."""
    del arguments
    session.may_borrow = True
    serve(session, [job for job in admitted(session) if _may_borrow(session, job)], may_grow=True)
    _use_kept_room(session)
    _place_best_effort(session)
    session.may_borrow = False


def _use_kept_room(session: Session) -> None:
    """Let jobs that end in time use room that is kept for a job that cannot start before."""
    if not any(r.starts_at is not None for r in session.reservations.values()):
        return
    waiting = [job for job in admitted(session) if job.job.time_limit_seconds is not None]
    for job in sorted(waiting, key=session.job_key):
        limit = job.job.time_limit_seconds
        if limit is None or job.key in session.kept:
            continue
        lifted = lift(session, until=session.now + limit)
        if lifted and place_job(session, job) is None:
            session.reasons.pop(job.key, None)
        put_back(session, lifted)


def _may_borrow(session: Session, job: JobView) -> bool:
    """Return whether only its queue's share kept a job waiting: others have been tried already."""
    reason = session.reasons.get(job.key)
    return reason is not None and reason.code in SHARE_CODES


def best_effort_order(session: Session) -> list[JobView]:
    """Return the jobs with best-effort tasks, queue by queue and job by job in order."""
    jobs = [
        job
        for job in admitted(session)
        if any(r.pending and r.shape.is_best_effort for r in job.roles)
    ]
    lines = Lines(session, jobs)
    ordered: list[JobView] = []
    while (queue := lines.next_queue()) is not None:
        while (job := lines.next_job(queue)) is not None:
            ordered.append(job)
    return ordered


def _place_best_effort(session: Session) -> None:
    for job in best_effort_order(session):
        for role in job.roles:
            if not role.shape.is_best_effort:
                continue
            while role.pending:
                node = session.best_node(role.shape)
                if node < 0 or not session.place(job, role, node):
                    session.reasons[job.key] = reason_of(session, job, Failure(role, None), 0)
                    break
