"""Promises that stand: made again before anything else, and kept at once where room is free."""

from __future__ import annotations

from collections.abc import Sequence

from scheduling.engine.actions.failures import standing_reason
from scheduling.engine.actions.serving import must_wait_for_holds, place_counted_on
from scheduling.engine.actions.standing import is_welcome
from scheduling.engine.journal import Entry, EntryKind, Statement
from scheduling.engine.reasons import ReasonCode
from scheduling.engine.session import Session
from scheduling.engine.types import GangPhase, Reservation
from scheduling.engine.views import JobView, RoleView

OF_SHARE = frozenset({ReasonCode.QUEUE_SHARE, ReasonCode.MIN_KEPT_FREE})
"""What kept nobody from the room when it was made, and takes it from nobody now."""


def stand_by_promises(session: Session) -> None:
    """Promise again what earlier plans did, each task its node; who finds the room free starts.

    Before any action runs: what was promised changes hands no more, and counts for the shares of
    all who are served after.
    """
    served = []
    owners = {g.first.job.key: g for g in session.groups if g.first.job.key in session.reservations}
    for key, group in sorted(owners.items()):
        own, job = session.reservations[key], group.head
        if not own.places or group.first.job.phase is GangPhase.PENDING:
            continue
        if job is None or standing_reason(session, job) is not None:
            continue
        session.give_up(job.key)
        with session.without_lack(own):
            stands = _promise_again(session, job, own)
        if stands:
            group.take(job)
            served.append((job, group))
        else:
            session.keep(own)
    for job, group in served:
        start_promised(session, job)
        if _is_kept_off(session, job):
            session.withdraw(_promised_to(session, job))
            group.position = 0  # it looks for room anew


def _promise_again(session: Session, job: JobView, own: Reservation) -> bool:
    """Promise every task of a reservation its node again, wholly or not at all."""
    statement = Statement(session)
    waiting = {task.key: (role, task) for role in job.roles for task in role.pending}
    for key, name in own.places.items():
        role, task = waiting.get(key, (None, None))
        node = session.tables.nodes.index.get(name, -1)
        if role is None or task is None or node < 0:
            break
        role.pending.remove(task)
        role.pending.append(task)  # next
        if not _stands(session, job, role, node):
            break
        session.promise(job, role, node)
    else:
        if session.is_job_ready(job) or job.is_pipelined():
            return True
    statement.rollback()
    return False


def _stands(session: Session, job: JobView, role: RoleView, node: int) -> bool:
    """Return whether the role's next task may still be promised a node.

    Who has started there since and is in the way by a rule may be gone when the room is free.
    """
    refusal = session.refusal(job, role)
    return (refusal is None or refusal.code in OF_SHARE) and bool(
        session.future_fits(role.shape)[node]
    )


def _is_kept_off(session: Session, job: JobView) -> bool:
    """Return whether somebody who stays is in the way where the room for a job is free."""
    for entry in _promised_to(session, job):
        session.withdraw([entry])
        is_in = is_welcome(session, job, entry.role, entry.node)
        session.restore([entry])
        if not is_in and _may_start(session, entry):
            return True
    return False


def _promised_to(session: Session, job: JobView) -> list[Entry]:
    """Return what a job was promised in this cycle, in order; as a rule that was done last."""
    count = job.waiting - sum(len(role.row.promised) for role in job.roles)
    found: list[Entry] = []
    for entry in reversed(session.journal):
        if len(found) == count:
            break
        if entry.job is job and entry.kind is EntryKind.PROMISE:
            found.append(entry)
    return found[::-1]


def _starts_jobs(session: Session) -> bool:
    return any(action.name == "allocate" for action in session.config.actions)


def start_promised(session: Session, job: JobView) -> None:
    """Start what a job was promised as far as the room is free: a gang that lacks tasks wholly.

    Only where the configuration starts jobs at all.
    """
    if not _starts_jobs(session):
        return
    entries = _promised_to(session, job)
    if session.is_job_ready(job):
        units = [[entry] for entry in entries]
    else:
        units = [entries] if entries and len(entries) == job.waiting else []
    for unit in units:
        if all(_may_start(session, entry) for entry in unit):
            _try(session, job, unit)


def _may_start(session: Session, promised: Entry) -> bool:
    """Return whether room is free, or kept for who waits for whatever ends."""
    node, shape = promised.node, promised.role.shape
    free = session.free[:, node]
    for reservation in session.reservations.values():
        if reservation.reason == "sla":
            free = free + session.kept[reservation.job][:, node]
    return all(free[d] >= amount for d, amount in shape.items) and not must_wait_for_holds(
        promised.job, shape
    )


def _try(session: Session, job: JobView, entries: list[Entry]) -> None:
    session.withdraw(entries)
    statement = Statement(session)
    with session.without_lack(_room_of(session, entries)):
        stands = all(
            all(session.free[d, entry.node] >= amount for d, amount in entry.role.shape.items)
            and is_welcome(session, job, entry.role, entry.node, at_once=True)
            and session.place(job, entry.role, entry.node)
            for entry in entries
        )
    if stands and session.is_job_ready(job) and place_counted_on(session, job) is None:
        return
    statement.rollback()
    session.restore(entries)


def _room_of(session: Session, entries: Sequence[Entry]) -> Reservation:
    """Return the room that some tasks were promised."""
    nodes, resources = session.tables.nodes.names, session.tables.resources
    rooms = {e.node: 0 * e.role.shape.vector for e in entries}
    for entry in entries:
        rooms[entry.node] = rooms[entry.node] + entry.role.shape.vector
    amounts = {nodes[node]: resources.amounts(room) for node, room in rooms.items()}
    return Reservation(entries[0].job.key, amounts, session.now, "evicted")
