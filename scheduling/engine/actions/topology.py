"""Place jobs that have a topology rule or sub-groups: domain by domain, the closest first."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from scheduling.engine.domains import Domain, Domains, sums_of
from scheduling.engine.journal import Statement
from scheduling.engine.reasons import FOR_WANT_OF_ROOM, ReasonCode
from scheduling.engine.session import Session
from scheduling.engine.types import Reason
from scheduling.engine.views import JobView, Part, RoleView

PlaceJob = Callable[[Session, JobView], Reason | None]
PlaceTask = Callable[[Session, JobView, RoleView], object | None]


def candidate_domains(
    session: Session,
    job: JobView,
    *,
    part: Part | None = None,
    within: Domain | None = None,
) -> Sequence[Domain]:
    """Return the domains to try for a job or one of its sub-groups, in order.

    Without the plugin of the topology no rule binds.
    """
    callbacks = session.each("hyper_node_gradient")
    if not callbacks:
        return [within or Domains((), session.tables.nodes.index).top]
    rule = job.job.topology
    if part is not None:
        rule = part.policy.topology if part.policy is not None else None
    domains: Sequence[Domain] = callbacks[0](
        part.roles if part is not None else job.roles, rule, within
    )
    return domains


def place_in_domains(
    session: Session, job: JobView, place: PlaceJob, place_task: PlaceTask
) -> Reason | None:
    """Place the gang, or one more step of a complete one, in the first domain where it can start.

    If it can start in none, it waits on promised room in the first that will have enough.
    """
    outer = session.focus
    reason = Reason(ReasonCode.TOPOLOGY, {"tier": _highest(job), "role": ""})
    domains = _with_room(session, job, candidate_domains(session, job))
    waits = [False, True] if session.has_releasing or session.has_promises else [False]
    for may_wait in waits:
        for domain in domains:
            session.focus = domain.within(outer)
            statement = Statement(session)
            if job.parts:
                failure = place_parts(session, job, domain, place_task)
            else:
                failure = place(session, job)
            session.focus = outer
            if failure is None and (may_wait or session.is_job_ready(job)):
                return None
            statement.rollback()
            if failure is not None and (len(domains) == 1 or failure.code not in FOR_WANT_OF_ROOM):
                reason = failure
    return reason


def _highest(job: JobView) -> int | str:
    rule = job.job.topology
    if rule is None:
        return ""
    return rule.highest_tier_name or (rule.highest_tier if rule.highest_tier is not None else "")


def _with_room(session: Session, job: JobView, domains: Sequence[Domain]) -> list[Domain]:
    """Return the domains that have, or will have, what a job of one role lacks, or one task."""
    room = sums_of(domains, np.maximum(session.free + session.releasing, 0))
    count = max(1, job.missing()) if len(job.roles) == 1 else 1
    asks = [role.shape.items for role in job.roles if role.pending]
    return [
        domain
        for domain, sums in zip(domains, room.tolist(), strict=True)
        if any(all(sums[d] >= amount * count for d, amount in items) for items in asks)
    ]


def place_parts(
    session: Session, job: JobView, domain: Domain, place_task: PlaceTask
) -> Reason | None:
    """Place sub-groups until the job is complete: in their order, else the largest first."""
    for largest_first in (False, True):
        statement = Statement(session)
        if _place_in_order(session, job, domain, place_task, largest_first=largest_first):
            return None
        statement.rollback()
    return Reason(ReasonCode.TOPOLOGY, {"tier": _highest(job), "role": ""})


def _place_in_order(
    session: Session,
    job: JobView,
    domain: Domain,
    place_task: PlaceTask,
    *,
    largest_first: bool,
) -> bool:
    before = job.placed
    failed: set[int] = set()
    while True:
        left = [p for p in job.parts if id(p) not in failed and any(r.pending for r in p.roles)]
        if not left:
            break
        needed = {id(p) for p in _needed(job)}
        part = min(
            left, key=lambda p: (id(p) not in needed, *_rank(p, largest_first=largest_first))
        )
        if not _place_part(session, job, part, domain, place_task):
            failed.add(id(part))
        elif session.is_job_ready(job):
            return True
    return job.placed > before and session.is_job_pipelined(job)


def _needed(job: JobView) -> list[Part]:
    """Return the sub-groups with which every policy would have its minimum."""
    found = []
    for policy in job.job.sub_groups:
        parts = [p for p in job.parts if p.policy is policy]
        short = [p for p in parts if not p.has_size(with_waiting=True)]
        found += short[: max(0, policy.min_groups - (len(parts) - len(short)))]
    return found


def _rank(part: Part, *, largest_first: bool) -> tuple[bool, int, int, int, tuple[str, ...]]:
    is_complete = part.has_size(with_waiting=True)
    size = -part.task_count() if largest_first else 0
    priority = -max((r.role.priority for r in part.roles), default=0)
    return (is_complete, size, priority, part.position, part.values)


def _place_part(
    session: Session, job: JobView, part: Part, within: Domain, place_task: PlaceTask
) -> bool:
    """Complete a sub-group, or place one more task of a complete one, in its closest domain."""
    outer = session.focus
    for domain in candidate_domains(session, job, part=part, within=within):
        session.focus = domain.within(outer)
        statement = Statement(session)
        stands = _fill(session, job, part, place_task)
        session.focus = outer
        if stands:
            return True
        statement.rollback()
    return False


def _fill(session: Session, job: JobView, part: Part, place_task: PlaceTask) -> bool:
    was_complete = part.has_size(with_waiting=True)
    before = job.placed
    for role in sorted(part.roles, key=lambda r: (-r.role.priority, r.row.position)):
        while role.pending and not role.shape.is_best_effort:
            if place_task(session, job, role) is not None:
                break
            if was_complete or part.has_size(with_waiting=True):
                return True
    return job.placed > before and part.has_size(with_waiting=True)
