"""The allocate action: every queue up to what it deserves, or as far as its plugins allow."""

from __future__ import annotations

from collections.abc import Mapping

from scheduling.engine.actions.serving import admit_without_asking, admitted, serve
from scheduling.engine.groups import Group
from scheduling.engine.reasons import ReasonCode
from scheduling.engine.session import Session
from scheduling.engine.views import JobView


def run(session: Session, arguments: Mapping[str, str]) -> None:
    """Place the jobs that wait; with `shares` no queue gets more than it deserves here.

    Argument `elastic` (default true): gangs that are complete grow task by task. Terrace's default
    leaves that to the elastic action, which runs after preempt and reclaim, so that no task is
    started in the room that a gang then has to be given by evictions.
    """
    admit_without_asking(session)
    may_grow = arguments.get("elastic", "true").lower() != "false"
    groups = [
        group
        for group in admitted(session)
        if (job := group.head) is not None
        and not is_reserved(group)
        and has_requests(job)
        and (may_grow if session.is_job_ready(job) else not has_its_promises(job))
    ]
    serve(session, groups, may_grow=may_grow)


def is_reserved(group: Group) -> bool:
    """Return whether the reserve action has tried the job in this cycle and kept room for it."""
    return group.reason is not None and group.reason.code is ReasonCode.RESERVED


def has_requests(job: JobView) -> bool:
    """Return whether a job has a pending task that asks for more than a slot."""
    return any(r.pending and not r.shape.is_best_effort for r in job.roles)


def has_its_promises(job: JobView) -> bool:
    """Return whether a gang only waits for room that it was promised earlier in the cycle."""
    return job.placed > 0 and job.is_pipelined()
