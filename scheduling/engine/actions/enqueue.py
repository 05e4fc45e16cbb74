"""The enqueue action: which waiting jobs are let in, queue by queue."""

from __future__ import annotations

from collections.abc import Mapping

from scheduling.engine.actions.serving import Lines, waiting_jobs
from scheduling.engine.reasons import ReasonCode
from scheduling.engine.session import JobView, Session, Vote
from scheduling.engine.types import GangPhase, Reason


def run(session: Session, arguments: Mapping[str, str]) -> None:
    """Ask the plugins for every job in phase Pending; a refusal does not hold up the next one."""
    del arguments
    lines = Lines(session, [job for job in waiting_jobs(session) if not job.is_admitted])
    while (queue := lines.next_queue()) is not None:
        job = lines.next_job(queue)
        if job is None:
            continue
        if session.vote("job_enqueueable", job):
            for callback in session.each("job_enqueued"):
                callback(job)
            job.is_admitted = True
            session.phases[job.key] = GangPhase.INQUEUE
        else:
            session.reasons[job.key] = refusal(session, job)
        lines.return_queue(queue)


def refusal(session: Session, job: JobView) -> Reason:
    """Say which plugin refused, with its numbers where it gives them."""
    for plugin, callback in session.callback_owners["job_enqueueable"]:
        if callback(job) is not Vote.REJECT:
            continue
        explain = getattr(plugin, "admission_reason", None)
        reason: Reason | None = explain(job) if explain is not None else None
        return reason or Reason(
            ReasonCode.ADMISSION_REFUSED,
            {"plugin": plugin.name, "resource": "", "requested": 0, "available": 0},
        )
    return Reason(ReasonCode.NOT_CONSIDERED)
