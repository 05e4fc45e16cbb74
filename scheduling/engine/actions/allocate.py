"""The allocate action: every queue up to what it deserves, or as far as its plugins allow."""

from __future__ import annotations

from collections.abc import Mapping

from scheduling.engine.actions.serving import admitted, serve
from scheduling.engine.session import Session


def run(session: Session, arguments: Mapping[str, str]) -> None:
    """Place the jobs that wait; with `shares` no queue gets more than it deserves here."""
    del arguments
    serve(session, [job for job in admitted(session) if has_requests(session, job.key)])


def has_requests(session: Session, key: str) -> bool:
    """Return whether a job has a pending task that asks for more than a slot."""
    view = session.jobs[key]
    return any(r.pending and not r.shape.is_best_effort for r in view.roles)
