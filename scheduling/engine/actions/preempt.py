"""The preempt action: a gang that lacks its minimum takes room from its own queue."""

from __future__ import annotations

from collections.abc import Mapping

from scheduling.engine.actions.evicting import Search, gather, starving_jobs, victim_keys
from scheduling.engine.actions.serving import Lines
from scheduling.engine.session import EntryKind, JobView, Session, Statement

NAME = "preempt"


def run(session: Session, arguments: Mapping[str, str]) -> None:
    """Serve starving jobs queue by queue; evict only if the whole gang then fits.

    A limit that only keeps a queue to its share does not count here: what idle room can settle
    by lending is left to backfill, which runs later.
    """
    del arguments
    by_queue: dict[str, list[JobView]] = {}
    for job in starving_jobs(session):
        by_queue.setdefault(job.queue.name, []).append(job)
    hopeful: list[JobView] = []
    for name, jobs in by_queue.items():
        top = max(job.job.priority for job in jobs)
        holders = session.tables.holders.get(name, {})
        if victim_keys(session, NAME, jobs[0].queue, top, holders):
            hopeful.extend(jobs)
    lines = Lines(session, hopeful)
    misses: set[tuple[object, ...]] = set()
    while (queue := lines.next_queue()) is not None:
        while (first := lines.next_job(queue)) is not None:
            ask = _ask(first)
            if ask not in misses and not make_room(session, first):
                misses.add(ask)


def _ask(job: JobView) -> tuple[object, ...]:
    """Return what makes two jobs fail alike."""
    roles = tuple((r.shape.index, r.needed, len(r.pending)) for r in job.roles)
    return job.queue.name, job.job.priority, job.missing(), roles


def make_room(session: Session, job: JobView) -> bool:
    """Evict tasks of the job's queue so that its gang fits; undo everything if it does not."""
    queue = job.queue
    keys = victim_keys(
        session, NAME, queue, job.job.priority, session.tables.holders.get(queue.name, {})
    )
    if not keys:
        return False
    own = session.give_up(job.key)
    statement = Statement(session)
    victims = gather(session, keys, beneficiary=job)
    search = Search(session, job, action=NAME, veto="preemptable", victims=victims)
    session.may_borrow = True
    stands = search.run(lambda _: True)
    session.may_borrow = False
    if stands and not any(e.kind is EntryKind.EVICT for e in statement.commit()):
        statement.rollback()
        stands = search.run(lambda _: True)
    if stands:
        session.reasons.pop(job.key, None)
        return True
    if own is not None:
        session.keep(own, index=session.tables.nodes.index)
    return False
