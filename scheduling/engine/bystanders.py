"""One job's part of a cycle: the waiting jobs that cannot matter to it are left out.

Who asks about one job would otherwise pay for all of them. A *bystander* can neither start nor make
room in this cycle, so that whoever is looked at fares as beside all the others:

- no node has room for what it lacks, whatever is reserved, or a max or wall refuses it; room only
  shrinks and limits only fill up in a cycle, as long as nobody is evicted;
- there is nobody whom it could evict;
- it is not overdue (it could reserve), owns no reservation, and heads no first-in-first-out queue;
- its admission is counted by nobody.

Where room was made after all, the cycle is run again with everybody.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from scheduling.engine import registry
from scheduling.engine.actions import preempt, reclaim
from scheduling.engine.actions.failures import missing_request
from scheduling.engine.actions.victims import victim_keys, victim_queues
from scheduling.engine.cycle import open_session, run_actions
from scheduling.engine.garbage import without_collecting
from scheduling.engine.groups import Group
from scheduling.engine.journal import EntryKind
from scheduling.engine.reasons import FOR_WANT_OF_ROOM, WALLS, ReasonCode
from scheduling.engine.rows import JobRow
from scheduling.engine.session import Session
from scheduling.engine.shapes import Int64, Shape
from scheduling.engine.tables import Memo, prepare
from scheduling.engine.types import Config, GangPhase, QueuePolicy, Snapshot
from scheduling.engine.views import JobView, QueueView

KNOWN_ACTIONS = frozenset(
    {"enqueue", "reserve", "allocate", preempt.NAME, reclaim.NAME, "elastic", "backfill"}
)
"""Actions of which the argument above holds; with any other everybody is looked at."""

OWN_PLUGINS = "scheduling.engine.plugins."

LASTING = WALLS | {ReasonCode.QUEUE_MAX}
"""Refusals that last for the cycle, unless somebody is evicted."""

FEW_RIVALS = 32
"""Groups of waiting jobs among which a cycle is soon run, whoever comes first."""


def ask_about(snapshot: Snapshot, config: Config, key: str, *, memo: Memo) -> Session:
    """Return what `run_about` does, of a job that the snapshot has.

    Raises: KeyError if it has no such job.
    """
    if key not in prepare(snapshot, memo).rows:
        raise KeyError(key)
    return run_about(snapshot, config, key, memo=memo)


def run_about(
    snapshot: Snapshot, config: Config, key: str, *, memo: Memo, wants_reason: bool = True
) -> Session:
    """Return a session in which has run what bears on one job; of others it says but a part.

    1. Without bystanders. 2. Where the reason may be one that was told of a bystander of the same
    shape before, with those. 3. Where room was made, with everybody.
    """
    with without_collecting():
        session = open_session(snapshot, config, memo=memo)
        if not _is_known(config):
            run_actions(session)
            return session
        own = session.tables.rows[key]
        _set_aside(session, own)
        run_actions(session)
        if wants_reason and not _has_own_reason(session, own):
            alike = frozenset(role.shape.index for role in own.roles)
            session = open_session(snapshot, config, memo=memo)
            _set_aside(session, own, but=alike)
            run_actions(session)
        if session.aside and _has_made_room(session):
            session = open_session(snapshot, config, memo=memo)
            run_actions(session)
    return session


def starts(session: Session, key: str) -> bool:
    """Return whether a job of a session that has run starts in it."""
    return any(
        entry.job.key == key and entry.kind is EntryKind.PLACE and session.is_job_ready(entry.job)
        for entry in session.journal
    )


def _is_known(config: Config) -> bool:
    """Return whether the argument above holds: a stranger's plugin may look at whoever it likes."""
    return all(
        action.name in KNOWN_ACTIONS and float(action.arguments.get("lapseSeconds", "0")) <= 0
        for action in config.actions
    ) and all(
        registry.plugin(one.name).__module__.startswith(OWN_PLUGINS)
        for tier in config.tiers
        for one in tier
    )


def _set_aside(session: Session, own: JobRow, *, but: frozenset[int] = frozenset()) -> None:
    """Take the bystanders out of the session's groups, but for those of some shapes."""
    judge = _Judge(session)
    left: list[Group] = []
    for group in session.groups:
        row = group.rows[0]
        if row.signature == own.signature or (
            but and any(role.shape.index in but for role in row.roles)
        ):
            left.append(group)
        elif judge.stands_by(row):
            session.aside.append(group)
        else:
            left.append(group)
    session.groups = left


def _has_made_room(session: Session) -> bool:
    """Return whether somebody was evicted or promised room; then bystanders may get some too."""
    return session.has_made_room or any(e.kind is not EntryKind.PLACE for e in session.journal)


def _has_own_reason(session: Session, own: JobRow) -> bool:
    """Return whether a job is told nothing that depends on a bystander's having been told before.

    Reasons are remembered by shape. For want of room all jobs of a shape are told the same as long
    as nothing starts; but who is refused by a limit may be told of an earlier one's want of room.
    """
    mine = {role.shape.index for role in own.roles}
    if mine.isdisjoint(role.shape.index for g in session.aside for role in g.rows[0].roles):
        return True
    reason = next((g.reason for g in session.groups if own in g.left()), None)
    if reason is None and own.job.key in session.served:
        return not session.jobs[own.job.key].pending_count
    return not session.journal and reason is not None and reason.code in FOR_WANT_OF_ROOM


class _Judge:
    """Tells who stands by, before anything has been decided."""

    def __init__(self, session: Session) -> None:
        """Look at the room that there is at most."""
        self.session = session
        names = {action.name for action in session.config.actions}
        self._has_preempt = preempt.NAME in names
        self._has_reclaim = bool(names & {reclaim.NAME, "elastic"})
        self._may_reserve = "reserve" in names and bool(session.each("job_overdue"))
        self._has_own_times = all(
            owner.name == "sla" for owner, _ in session.callback_owners["job_overdue"]
        ) and not any(
            "sla-waiting-time" in plugin.arguments
            for tier in session.config.tiers
            for plugin in tier
        )
        """Whether only jobs that state a waiting time themselves can be overdue."""
        self._counts_admissions = bool(session.each("job_enqueued"))
        most = max((group.rows[0].job.priority for group in session.groups), default=0)
        self._preempted = victim_queues(session, preempt.NAME, most)
        self._reclaimed = victim_queues(session, reclaim.NAME, most)
        """The only queues that could lose something, None where any might."""
        self._preempts: dict[tuple[str, int], bool] = {}
        self._places = _places(
            session,
            {
                role.shape.index: role.shape
                for group in session.groups
                for role in group.rows[0].roles
                if role.pending
            }.values(),
        )

    def stands_by(self, row: JobRow) -> bool:
        """Return whether the jobs that fare like this one cannot matter to another."""
        session, job = self.session, row.job
        queue = session.queues.get(job.queue)
        if queue is None or queue.children or not queue.is_open:
            return True
        if queue.queue.policy is QueuePolicy.FIFO or job.key in session.kept:
            return False
        if self._counts_admissions and job.phase is GangPhase.PENDING:
            return False
        if self._places and _fills(row, self._places) and not self._is_refused(row):
            return False
        return not (self._is_overdue(row) or self._may_evict(row, queue))

    def _is_refused(self, row: JobRow) -> bool:
        """Return whether a limit keeps the job out even if its queue may borrow."""
        session = self.session
        job = session.view(row.job.key)
        if job is None:
            return True
        session.may_borrow = True
        refusals = [session.refusal(job, role) for role in job.roles if role.pending]
        if len(job.roles) == 1 and refusals == [None] and job.missing() > 1:
            refusals = [session.gang_refusal(job, missing_request(session, job))]
        session.may_borrow = False
        return all(refusal is not None and refusal.code in LASTING for refusal in refusals)

    def _is_overdue(self, row: JobRow) -> bool:
        if not self._may_reserve or (self._has_own_times and row.job.sla_waiting_seconds is None):
            return False
        job = self.session.view(row.job.key)
        return job is not None and any(ask(job) for ask in self.session.each("job_overdue"))

    def _may_evict(self, row: JobRow, queue: QueueView) -> bool:
        """Return whether the job has anybody whom it might evict."""
        if self._has_preempt and (self._preempted is None or queue.name in self._preempted):
            place = (queue.name, row.job.priority)
            known = self._preempts.get(place)
            if known is None:
                known = bool(victim_keys(self.session, preempt.NAME, queue, row.job.priority))
                self._preempts[place] = known
            if known:
                return True
        return self._has_reclaim and self._reclaimed != set() and self._may_take_back(row, queue)

    def _may_take_back(self, row: JobRow, queue: QueueView) -> bool:
        """Return whether the job's queue might take something back from another.

        The gates are asked first: to name the victims is dear where there are some.
        """
        return self._passes_gates(row) and bool(
            victim_keys(self.session, reclaim.NAME, queue, row.job.priority)
        )

    def _passes_gates(self, row: JobRow) -> bool:
        job = self.session.view(row.job.key)
        gates = self.session.each("preemptive")
        return job is not None and any(
            all(gate(job, role) for gate in gates) for role in job.roles if role.pending
        )


def has_room(session: Session, row: JobRow) -> bool:
    """Return whether nodes have room for what a job lacks, whoever else may come first."""
    shapes = {role.shape.index: role.shape for role in row.roles if role.pending}
    return _fills(row, _places(session, shapes.values()))


def _fills(row: JobRow, places: Mapping[int, int]) -> bool:
    """Return whether there are places for the gang's lack, or for a task of some role."""
    if len(row.roles) > 1:
        return any(role.pending and places.get(role.shape.index) for role in row.roles)
    role = row.roles[0]
    have = row.held_count + role.done + len(role.promised)
    return places.get(role.shape.index, 0) >= max(1, row.min_available - have)


def is_among_first(session: Session, job: JobView, freed: Int64) -> bool:
    """Return whether a job is before all, or but a few, who would have room with some more freed.

    `freed` is int64[R, N]. A guess that spares a cycle in which hundreds would be tried before it.
    """
    here = freed.any(axis=0)
    tables = session.tables
    room = (tables.nodes.allocatable - tables.used + freed)[:, here]
    own = (session.queue_key(job.queue), session.job_key(job))
    rivals = ahead = 0
    for group in session.aside:
        if any(_count(room, role.shape) for role in group.rows[0].roles if role.pending):
            view = session.view(group.rows[0].job.key)
            rivals += 1
            ahead += view is not None and (
                (session.queue_key(view.queue), session.job_key(view)) < own
            )
            if ahead and rivals > FEW_RIVALS:
                return False
    return True


def _places(session: Session, shapes: Iterable[Shape]) -> dict[int, int]:
    """Return index of a shape -> how many of it have room, each shape by itself, those that fit.

    At most: reservations count as room, and so does all that is being freed.
    """
    tables = session.tables
    room = tables.nodes.allocatable - tables.used
    if session.has_releasing:
        room = room + np.maximum(tables.releasing - tables.promised, 0)
    listed = list(shapes)
    if not listed or not tables.nodes.count:
        return {}
    least = np.concatenate([shape.least for shape in listed], axis=1)
    hopeful = np.flatnonzero((least <= room.max(axis=1)[:, np.newaxis]).all(axis=0))
    if not len(hopeful):
        return {}
    room = room[:, (room >= least[:, hopeful].min(axis=1)[:, np.newaxis]).all(axis=0)]
    found: dict[int, int] = {}
    for position in hopeful:
        shape = listed[position]
        count = _count(room, shape)
        if count:
            found[shape.index] = count
    return found


def _count(room: Int64, shape: Shape) -> int:
    """Return how many tasks of a shape fit the room of all nodes, int64[R, N]."""
    fits = np.logical_and.reduce(room >= shape.least)
    if not fits.any() or not shape.items:
        return int(np.count_nonzero(fits))
    return int(np.minimum.reduce([room[d][fits] // amount for d, amount in shape.items]).sum())
