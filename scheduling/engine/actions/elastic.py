"""The elastic action: complete gangs grow, one task at a time, in order of share."""

from __future__ import annotations

from collections.abc import Mapping

from scheduling.engine.actions.allocate import has_requests
from scheduling.engine.actions.reclaim import Reclaim
from scheduling.engine.actions.serving import admitted, serve
from scheduling.engine.groups import Group
from scheduling.engine.session import Session


def run(session: Session, arguments: Mapping[str, str]) -> None:
    """Deal out tasks beyond the minimum; the order is taken anew after each.

    Argument `takeBack` (default false): where there is no room left, a queue below what it
    deserves takes back elastic tasks from queues above theirs.
    """
    serve(session, _growing(session), may_grow=True)
    if arguments.get("takeBack", "false").lower() == "true":
        growing = _growing(session)
        if growing:
            Reclaim(session).serve(growing, count=1)


def _growing(session: Session) -> list[Group]:
    return [
        group
        for group in admitted(session)
        if (job := group.head) is not None and has_requests(job) and session.is_job_ready(job)
    ]
