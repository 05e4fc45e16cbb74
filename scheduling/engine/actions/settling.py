"""What is done once all actions have run: needless evictions are spared, ready promises start."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from scheduling.engine.actions.promises import start_promised
from scheduling.engine.actions.standing import is_granted, still_stands
from scheduling.engine.journal import Entry, EntryKind
from scheduling.engine.session import Session
from scheduling.engine.views import JobView


def settle(session: Session) -> None:
    """Bring what several searches decided one after the other into line.

    1. Spare every victim that a later search's victims made needless. 2. Start whoever was
    promised room that is free already.
    """
    if all(entry.kind is EntryKind.PLACE for entry in session.journal):
        return
    with session.without_lack():
        _spare(session)
    for job in _promised(session):
        start_promised(session, job)


def _promised(session: Session) -> list[JobView]:
    """Return the jobs that were promised room in this cycle, in order."""
    found = [e.job for e in session.journal if e.kind is EntryKind.PROMISE]
    return list({job.key: job for job in found}.values())


def _spare(session: Session) -> None:
    kept_out: set[int] = set()
    for entries in _doubtful(session):
        for entry in entries:
            session.undo(entry)
        if still_stands(session, entries, _served_beside(session, entries)) and all(
            is_granted(session, job) for job in _left_without(session, entries, kept_out)
        ):
            kept_out.update(id(entry) for entry in entries)
        else:
            for entry in entries:
                session.apply(entry)
    if kept_out:
        session.journal[:] = [e for e in session.journal if id(e) not in kept_out]


def _doubtful(session: Session) -> Iterator[list[Entry]]:
    """Yield the evictions that go together and share a node with one for another job.

    Whole gangs first; then the latest, since each search takes the cheapest first.
    """
    beneficiaries: dict[int, set[str]] = {}
    together: dict[str, list[Entry]] = {}
    whole = {e.job.key for e in session.journal if e.kind is EntryKind.EVICT and not e.is_elastic}
    for entry in session.journal:
        if entry.kind is EntryKind.EVICT and entry.beneficiary is not None:
            beneficiaries.setdefault(entry.node, set()).add(entry.beneficiary)
            name = f"{entry.job.key} whole" if entry.job.key in whole else entry.task.key
            together.setdefault(name, []).append(entry)
    units = list(together.values())[::-1]
    for entries in sorted(units, key=lambda unit: unit[0].job.key not in whole):
        if any(len(beneficiaries[entry.node]) > 1 for entry in entries):
            yield entries


def _served_beside(session: Session, spared: Sequence[Entry]) -> list[JobView]:
    """Return the jobs that were promised room on the nodes of some evictions."""
    nodes = {entry.node for entry in spared}
    jobs = {
        e.job.key: e.job for e in session.journal if e.kind is EntryKind.PROMISE and e.node in nodes
    }
    return list(jobs.values())


def _left_without(session: Session, spared: Sequence[Entry], kept_out: set[int]) -> list[JobView]:
    """Return the jobs for which nobody would go any more."""
    gone = kept_out | {id(entry) for entry in spared}
    served = {
        e.beneficiary for e in session.journal if e.kind is EntryKind.EVICT and id(e) not in gone
    }
    mine = {entry.beneficiary for entry in spared} - served
    return [job for job in _promised(session) if job.key in mine]
