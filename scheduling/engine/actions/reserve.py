"""The reserve action: a job past its waiting time goes first, or keeps room that becomes free."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from scheduling.engine.actions.allocate import has_its_promises
from scheduling.engine.actions.failures import Misses
from scheduling.engine.actions.lines import Lines
from scheduling.engine.actions.serving import (
    admitted,
    next_role,
    place_job,
    roles_in_order,
    serve_job,
)
from scheduling.engine.actions.topology import candidate_domains
from scheduling.engine.groups import Group
from scheduling.engine.journal import Statement
from scheduling.engine.reasons import FOR_WANT_OF_ROOM, ReasonCode
from scheduling.engine.session import Session
from scheduling.engine.shapes import PODS_DIM, Int64
from scheduling.engine.types import Reason, Reservation
from scheduling.engine.views import JobView, RoleView

CANDIDATES = 64
"""Nodes that are looked at closely for one task: those that lack least."""


def run(session: Session, arguments: Mapping[str, str]) -> None:  # noqa: C901 - one attempt, told in order
    """Start the overdue jobs, the longest overdue first; keep room for those that do not fit.

    A job above its queue's share is left to backfill if it fits, since whoever is entitled to the
    room would take it back in the next cycle; if it does not fit room is kept for it all the same,
    and it starts there. Never above a max. Arguments: `maxPerQueue`
    (default 1) reservations at a time, and `expireSeconds` (default 3600), after which one is
    made anew, perhaps elsewhere. Nothing is kept for what could not even fit an empty cluster.
    """
    overdue = [group for group in admitted(session) if _is_overdue(session, group)]
    if not overdue:
        return
    budget = int(arguments.get("maxPerQueue", "1"))
    seconds = float(arguments.get("expireSeconds", "3600"))
    used = Counter(
        session.tables.rows[key].job.queue
        for key, reservation in session.reservations.items()
        if reservation.reason == "sla"
    )
    misses = Misses()
    lines = Lines(session, overdue)
    while (queue := lines.next_queue()) is not None:
        while (found := lines.next_job(queue)) is not None:
            job, group = found
            reason = serve_job(session, job, misses)
            if reason is None:
                if group.take(job) is not group and _is_overdue(session, group):
                    lines.push(group)
                continue
            if reason.code is ReasonCode.QUEUE_SHARE:
                reason = obstacle_beyond_share(session, job) or reason
            group.reason = reason
            kept = session.reservations.get(job.key)
            may_keep = reason.code in FOR_WANT_OF_ROOM and not job.parts
            if kept is None and may_keep and used[queue.name] < budget:
                kept = _plan_in_domains(session, job, expires_at=session.now + seconds)
                if kept is not None:
                    used[queue.name] += 1
                    session.keep(kept)
            if kept is not None and kept.reason == "sla":
                group.split().reason = _waits(session, job, kept)


def obstacle_beyond_share(session: Session, job: JobView) -> Reason | None:
    """Return what would keep a job out if its queue's share did not; nothing of it stays."""
    statement = Statement(session)
    session.may_borrow = True
    reason = place_job(session, job)
    session.may_borrow = False
    statement.rollback()
    return reason


def _is_overdue(session: Session, group: Group) -> bool:
    job = group.head
    return (
        job is not None
        and any(callback(job) for callback in session.each("job_overdue"))
        and not session.is_job_ready(job)
        and not has_its_promises(job)
    )


def _waits(session: Session, job: JobView, kept: Reservation) -> Reason:
    """Say for which room the job waits, and how much of it is still taken."""
    nodes = session.tables.nodes
    missing: Counter[str] = Counter()
    for name in kept.amounts_by_node:
        node = nodes.index.get(name)
        if node is None:
            continue
        for d, left in enumerate(session.free[:, node]):
            if left < 0 and session.kept[job.key][d, node]:
                missing[session.tables.resources.names[d]] -= int(left)
    return Reason(
        ReasonCode.RESERVED,
        {
            "nodes": sorted(kept.amounts_by_node),
            "missing": dict(missing),
            "starts_at": kept.starts_at,
        },
    )


def _plan_in_domains(session: Session, job: JobView, *, expires_at: float) -> Reservation | None:
    """Choose nodes as `_plan_room` does; of a job with a topology rule in one domain.

    The domain where the job can start soonest, where that is not known the closest.
    """
    if not job.is_shaped:
        return _plan_room(session, job, expires_at=expires_at)
    found = []
    outer = session.focus
    for domain in candidate_domains(session, job):
        session.focus = domain.within(outer)
        found.append(_plan_room(session, job, expires_at=expires_at))
    session.focus = outer
    plans = [kept for kept in found if kept is not None]
    return min(plans, key=lambda r: np.inf if r.starts_at is None else r.starts_at, default=None)


def _plan_room(session: Session, job: JobView, *, expires_at: float) -> Reservation | None:
    """Choose nodes for the tasks that the gang lacks, where they can start soonest.

    Task by task: among the nodes that could hold it if what runs there ended, the one that is
    free soonest by its tasks' time limits; where limits are unknown, the one that lacks least.
    """
    chosen = np.zeros_like(session.free)
    starts_at: float | None = session.now
    taken: dict[str, int] = {}
    roles = roles_in_order(session, job)
    for _ in range(job.missing()):
        role = _next(roles, taken)
        found = None if role is None else _soonest(session, role, chosen)
        if role is None or found is None:
            return None
        node, at = found
        chosen[:, node] += role.shape.vector
        taken[role.name] = taken.get(role.name, 0) + 1
        starts_at = None if at is None or starts_at is None else max(starts_at, at)
    names = session.tables.nodes.names
    amounts = {
        names[n]: session.tables.resources.amounts(chosen[:, n])
        for n in np.flatnonzero(chosen.any(axis=0))
    }
    return Reservation(job.key, amounts, expires_at, "sla", starts_at)


def _next(roles: list[RoleView], taken: Mapping[str, int]) -> RoleView | None:
    """Return the role of the next task, those already planned for left out."""
    exhausted = {r.name: None for r in roles if taken.get(r.name, 0) >= len(r.pending)}
    for role in roles:
        have = role.ready + role.waiting + taken.get(role.name, 0)
        if have < role.needed and role.name not in exhausted:
            return role
    return next_role([r for r in roles if r.name not in exhausted], {})


def _soonest(session: Session, role: RoleView, chosen: Int64) -> tuple[int, float | None] | None:
    """Return (node, time from which it has room, None if unknown), None if no node ever has."""
    shape = role.shape
    table = session.tables.nodes
    others = sum(session.kept.values(), start=np.zeros_like(chosen)) + chosen
    could = session.mask(shape)
    if session.focus is not None:
        could &= session.focus
    missing = np.zeros(table.count, dtype=np.float64)
    for d, amount in shape.items:
        could &= table.allocatable[d] - others[d] >= amount
        if d != PODS_DIM:
            short = np.maximum(amount - (session.free[d] - chosen[d]), 0)
            missing += short / amount
    if not could.any():
        return None
    missing[~could] = np.inf
    order = np.argsort(missing, kind="stable")[:CANDIDATES]
    best: tuple[float, float, int] | None = None
    for node in order:
        if not could[node]:
            break
        at = _free_at(session, role, int(node), chosen)
        entry = (at, float(missing[node]), int(node))
        best = entry if best is None else min(best, entry)
    if best is None:
        return None
    return best[2], None if best[0] == np.inf else best[0]


def _free_at(session: Session, role: RoleView, node: int, chosen: Int64) -> float:
    """Return when a node has room by the time limits of what runs there; inf if unknown."""
    free = session.free[:, node] + session.releasing[:, node] - chosen[:, node]
    items = role.shape.items
    if all(free[d] >= amount for d, amount in items):
        return session.now
    ends: list[tuple[float, Int64]] = []
    tables = session.tables
    for key in tables.rows_by_node.get(node, ()):
        row = tables.rows[key]
        limit = row.job.time_limit_seconds
        for role_row in row.roles:
            for task, at in role_row.held:
                if at == node:
                    start = task.started_at if task.started_at is not None else session.now
                    end = start + limit if limit is not None else np.inf
                    ends.append((max(end, session.now), role_row.shape.vector))
    for end, vector in sorted(ends, key=lambda e: e[0]):
        free = free + vector
        if all(free[d] >= amount for d, amount in items):
            return float(end)
    return float(np.inf)


def lift(session: Session, *, until: float) -> list[Reservation]:
    """Give up the SLA reservations whose jobs cannot start before `until`; return them."""
    names = [
        key
        for key, reservation in session.reservations.items()
        if reservation.reason == "sla"
        and reservation.starts_at is not None
        and reservation.starts_at >= until
    ]
    return [r for key in names if (r := session.give_up(key)) is not None]


def put_back(session: Session, reservations: list[Reservation]) -> None:
    """Keep room again that `lift` gave up."""
    for reservation in reservations:
        session.keep(replace(reservation))
