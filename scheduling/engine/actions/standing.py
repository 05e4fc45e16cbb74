"""Whether what was promised holds: with victims spared, and where nobody goes for it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from scheduling.engine.journal import Entry, EntryKind
from scheduling.engine.session import Session
from scheduling.engine.views import JobView, RoleView


def is_welcome(
    session: Session, job: JobView, role: RoleView, node: int, *, at_once: bool = False
) -> bool:
    """Return whether nothing that is on the nodes keeps the role's next task off this one.

    What is ending there does so only if the task is to start `at_once`.
    """
    if not session.each("task_predicate"):
        return True
    extra = session.task_scores(job, role)
    if at_once:
        extra = session.starting_scores(job, role, extra)
    return extra is None or bool(extra[node] > -np.inf)


def _are_all_welcome(session: Session, job: JobView) -> bool:
    """Return whether no promised task of a job is kept off its node by what is there."""
    own = [e for e in session.journal if e.job is job and e.kind is EntryKind.PROMISE]
    stands = True
    for entry in own:
        session.withdraw([entry])
        stands = stands and is_welcome(session, job, entry.role, entry.node)
        session.restore([entry])
    return stands


def is_relied_on(session: Session, evicted: Sequence[Entry]) -> bool:
    """Return whether a node has promised more than it would have without some evictions."""
    short: dict[int, list[int]] = {}
    for entry in evicted:
        if entry.node >= 0:
            left = short.get(entry.node)
            if left is None:
                left = short[entry.node] = session.future_free(entry.node)
            for d, amount in entry.role.shape.items:
                left[d] -= amount
    return any(amount < 0 for left in short.values() for amount in left)


def still_stands(session: Session, spared: Sequence[Entry], jobs: Sequence[JobView]) -> bool:
    """Return whether the promises of some jobs hold with some victims spared."""
    for node in {e.node for e in spared if e.node >= 0}:
        if any(amount < 0 for amount in session.future_free(node)):
            return False
    if session.each("task_predicate") and not all(_are_all_welcome(session, j) for j in jobs):
        return False
    return all(
        allocated <= most
        for queue in (*(e.job.queue for e in spared), *(job.queue for job in jobs))
        for level in queue.path
        for allocated, most in zip(level.allocated, level.max, strict=True)
    )


def is_granted(session: Session, job: JobView) -> bool:
    """Return whether a job may have been promised its room if nobody goes for it.

    A queue that is above its share would rise further: idle room is lent by backfill, in the
    order of the queues.
    """
    own = [e for e in session.journal if e.job is job and e.kind is not EntryKind.EVICT]
    session.withdraw(own[-1:])
    may_have = session.refusal(job, own[-1].role) is None
    session.restore(own[-1:])
    return may_have
