"""Promised room that turns out to be free: whoever was promised it starts at once."""

from __future__ import annotations

from scheduling.engine.actions.serving import must_wait_for_holds
from scheduling.engine.journal import Entry, EntryKind, Statement
from scheduling.engine.rows import has_neighbour_rules
from scheduling.engine.session import Session
from scheduling.engine.views import JobView


def start_promised(session: Session, job: JobView) -> None:
    """Start what a job was promised as far as the room is free: a gang that lacks tasks wholly.

    Only where the configuration starts jobs at all.
    """
    if all(action.name != "allocate" for action in session.config.actions):
        return
    entries = [e for e in session.journal if e.job is job and e.kind is EntryKind.PROMISE]
    if session.is_job_ready(job):
        units = [[entry] for entry in entries]
    else:
        units = [entries] if entries and len(entries) == job.waiting else []
    for unit in units:
        if all(_is_free(session, entry) for entry in unit) and not _is_kept_off(session, job):
            _try(session, job, unit)


def _is_free(session: Session, promised: Entry) -> bool:
    shape = promised.role.shape
    return all(
        session.free[d, promised.node] >= amount for d, amount in shape.items
    ) and not must_wait_for_holds(promised.job, shape)


def _is_kept_off(session: Session, job: JobView) -> bool:
    """Return whether somebody who is being evicted may be in the way by more than their room."""
    has_rules = any(has_neighbour_rules(role.role) for role in job.roles)
    return any(
        has_rules or has_neighbour_rules(entry.role.role)
        for entry in session.journal
        if entry.kind is EntryKind.EVICT and entry.beneficiary == job.key
    )


def _try(session: Session, job: JobView, entries: list[Entry]) -> None:
    session.withdraw(entries)
    statement = Statement(session)
    for entry in entries:
        if not _is_free(session, entry) or not session.place(job, entry.role, entry.node):
            break
    else:
        if session.is_job_ready(job):
            return
    statement.rollback()
    session.restore(entries)
