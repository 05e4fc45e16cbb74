"""The smallest change of one thing with which a waiting job would start now.

Each change is tried on what the cycle left, which is cheap, and then proven: what bears on the job
is planned again with the change made, and only what starts the job there is named.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import chain, islice

import numpy as np

from scheduling.engine.actions.evicting import Search
from scheduling.engine.actions.failures import standing_reason
from scheduling.engine.actions.serving import place_job
from scheduling.engine.actions.victims import Held, gather
from scheduling.engine.amended import amended
from scheduling.engine.bystanders import ask_about, has_room, is_among_first, run_about, starts
from scheduling.engine.cycle import close
from scheduling.engine.explain import Ladder, ladder_of
from scheduling.engine.journal import Claim, Entry, EntryKind, Statement, Unit
from scheduling.engine.session import Session
from scheduling.engine.shapes import PODS_DIM
from scheduling.engine.tables import Memo
from scheduling.engine.types import (
    Config,
    Job,
    QueueState,
    Reason,
    Role,
    Snapshot,
    Task,
    TopologyMode,
)
from scheduling.engine.views import JobView, QueueView

CANDIDATES = 32
"""Nodes that are looked at for holds to wait for: those that lack least."""

HOLDERS = 500
"""Jobs of a full queue that are looked at where none of them is on those nodes."""

QUEUES = 5
"""Other queues that are tried: those with the smallest part of their share in use."""

TRIES = 8
"""Lower minimums that are tried one by one, from the highest for which there is room."""

FEW = 16
"""Jobs that hold something, up to which the end of each one is tried."""

ROUNDS = 2
"""How often holds are added because jobs that come first would take what the others leave."""


class ChangeKind(StrEnum):
    """What is changed, in the order in which it is tried."""

    OTHER_QUEUE = "other_queue"
    DROP_CONSTRAINT = "drop_constraint"
    LOWER_MIN = "lower_min"
    WAIT_FOR = "wait_for"


@dataclass(frozen=True, slots=True)
class Change:
    """One change and its numbers.

    other_queue: `queue`. drop_constraint: `role` (empty: the job), `constraint`, `key`. lower_min:
    `min_available`, `was`. wait_for: `jobs` (ids), `tasks`, `until` (None where unknown).
    """

    kind: ChangeKind
    params: Mapping[str, object] = field(default_factory=dict)


def smallest_changes(
    snapshot: Snapshot,
    config: Config,
    job_key: str,
    *,
    memo: Memo | None = None,
    queues: Collection[str] | None = None,
    most: int = 1,
) -> tuple[Change, ...]:
    """Return changes each of which alone starts the job in the next plan; at most `most`.

    In the order of `ChangeKind`, one of a kind. None if the job starts anyway or room is being made
    for it, or if no single change would start it. `queues` are those that may be proposed; None:
    all.
    Raises: KeyError if the snapshot has no such job.
    """
    memo = memo or Memo()
    session = ask_about(snapshot, config, job_key, memo=memo)
    return _Remedies(session, job_key, memo).found(queues, most)


def why(
    snapshot: Snapshot,
    config: Config,
    job_key: str,
    *,
    memo: Memo | None = None,
    queues: Collection[str] | None = None,
    most: int = 1,
) -> tuple[Ladder, tuple[Change, ...]]:
    """Return what `explain` and `smallest_changes` do, from one cycle instead of two.

    Raises: KeyError if the snapshot has no such job.
    """
    memo = memo or Memo()
    session = ask_about(snapshot, config, job_key, memo=memo)
    ladder = ladder_of(session, close(session), job_key)
    return ladder, _Remedies(session, job_key, memo).found(queues, most)


def apply_change(snapshot: Snapshot, job_key: str, change: Change) -> Snapshot:
    """Return the snapshot with a change made."""
    if change.kind is ChangeKind.WAIT_FOR:
        ended = _ended(change)
        return replace(snapshot, jobs=tuple(j for j in snapshot.jobs if j.key not in ended))
    return replace(
        snapshot,
        jobs=tuple(_changed(j, change) if j.key == job_key else j for j in snapshot.jobs),
    )


def _ended(change: Change) -> frozenset[str]:
    """Return the jobs that a change waits for."""
    listed = change.params["jobs"]
    return frozenset(listed) if isinstance(listed, (list, tuple)) else frozenset()


def _changed(job: Job, change: Change) -> Job:
    params = change.params
    if change.kind is ChangeKind.OTHER_QUEUE:
        return replace(job, queue=str(params["queue"]))
    if change.kind is ChangeKind.LOWER_MIN:
        return _with_min(job, int(str(params["min_available"])))
    return _without(job, str(params["role"]), str(params["constraint"]), str(params["key"]))


def _with_min(job: Job, count: int) -> Job:
    roles = job.roles
    if len(roles) == 1:
        role = roles[0]
        roles = (replace(role, min_available=min(role.min_available, count)),)
    return replace(job, min_available=count, roles=roles)


def _without(job: Job, role_name: str, constraint: str, key: str) -> Job:
    if constraint == "topology":
        return replace(job, topology=None)

    def relaxed(role: Role) -> Role:
        if role.name != role_name:
            return role
        match constraint:
            case "node_selector":
                kept = {k: v for k, v in role.node_selector.items() if k != key}
                return replace(role, node_selector=kept)
            case "node_affinity":
                return replace(role, node_affinity=())
            case "neighbours":
                return replace(
                    role, pod_terms=tuple(t for t in role.pod_terms if not t.is_required)
                )
            case "spread":
                return replace(role, spread=tuple(r for r in role.spread if not r.is_required))
            case _:
                return replace(role, topology_policy="none")

    return replace(job, roles=tuple(relaxed(role) for role in job.roles))


class _Remedies:
    """The changes of one job: proposed by what the cycle left, and proven by a cycle each."""

    def __init__(self, session: Session, key: str, memo: Memo) -> None:
        """Take over a session in which has run what bears on the job."""
        self.session = session
        self.row = session.tables.rows[key]
        self.job = self.row.job
        self.memo = memo
        self._nothing_else_starts = not session.journal and not session.kept
        """Then what does not fit what is left cannot start: nothing was taken or kept from it."""

    def found(self, queues: Collection[str] | None, most: int) -> tuple[Change, ...]:
        """Return what `smallest_changes` does."""
        is_served = any(
            entry.job.key == self.job.key and entry.kind is not EntryKind.EVICT
            for entry in self.session.journal
        )
        if is_served or not self.row.pending_count or not self.job.is_runnable:
            return ()
        self.session.may_borrow = True
        found: list[Change] = []
        for proposals in (
            self._proven(self._possible(_other_queues(self.session, self.job, queues))),
            self._proven(self._possible(_constraints(self.job))),
            self._proven(self._minimums()),
            self._waits(),
        ):
            if len(found) < most:
                found += islice(proposals, 1)
        return tuple(found)

    def _proven(self, changes: Iterable[Change]) -> Iterator[Change]:
        """Yield the changes of the job with which it starts in the cycle that would run now."""
        for change in changes:
            with amended(self.session.tables, gone=(self.job,), new=(_changed(self.job, change),)):
                session = self._planned()
            if starts(session, self.job.key):
                yield change

    def _planned(self) -> Session:
        session = self.session
        return run_about(
            session.snapshot, session.config, self.job.key, memo=self.memo, wants_reason=False
        )

    def _possible(self, changes: Iterable[Change]) -> list[Change]:
        """Return the changes that might start the job, those that fit what is left first.

        None of them where no node has room for it, whatever its queue and its constraints.
        """
        if not has_room(self.session, self.row):
            return []
        listed = list(changes)
        fitting = [one for one in listed if _fits(self.session, _changed(self.job, one))]
        if self._nothing_else_starts:
            return fitting
        return fitting + [one for one in listed if one not in fitting]

    def _minimums(self) -> Iterator[Change]:
        """Yield lower minimums that might start the job, the highest first."""
        roles = self.job.roles
        was = max(self.job.min_available, sum(role.min_available for role in roles))
        least = 1 if len(roles) == 1 else max(1, sum(role.min_available for role in roles))

        def might_do(count: int) -> bool:
            job = _with_min(self.job, count)
            return _fits(self.session, job) if self._nothing_else_starts else self._has_room(job)

        for count in _descending(might_do, least, was - 1):
            yield Change(ChangeKind.LOWER_MIN, {"min_available": count, "was": was})

    def _has_room(self, job: Job) -> bool:
        return has_room(self.session, self.session.tables.read(job))

    def _waits(self) -> Iterator[Change]:
        """Yield the fewest holds whose end starts the job, more if others would take their room.

        Then single ends: room is not all that a job may stand in the way of.
        """
        gone: dict[str, list[Held]] = {}
        session = self.session
        for _ in range(ROUNDS):
            session.may_borrow = True
            entries = _holds_in_the_way(session, self.job)
            if not entries:
                break
            for entry in entries:
                gone.setdefault(entry.job.key, []).append((entry.role, entry.task, entry.node))
            if not self._is_among_first(gone.values()):
                break
            session = self._without(gone)
            if starts(session, self.job.key):
                yield _wait_for(self.session, gone)
        yield from self._single_ends()

    def _single_ends(self) -> Iterator[Change]:
        """Yield each job whose end starts the job, where few hold something."""
        holders = [rows for rows in self.session.tables.holders.values() if rows]
        if sum(map(len, holders)) > FEW:
            return
        for key in sorted(key for rows in holders for key in rows if key != self.job.key):
            view = self.session.view(key)
            roles = [] if view is None else view.roles  # what is evicted now is held all the same
            held = [(role, task, node) for role in roles for task, node in role.row.held]
            if held and starts(self._without((key,)), self.job.key):
                yield _wait_for(self.session, {key: held})

    def _is_among_first(self, gone: Iterable[Sequence[Held]]) -> bool:
        job = self.session.view(self.job.key)
        freed = np.zeros_like(self.session.free)
        for role, _, node in chain.from_iterable(gone):
            freed[:, node] += role.shape.vector
        return job is not None and is_among_first(self.session, job, freed)

    def _without(self, gone: Iterable[str]) -> Session:
        """Return a session of the cycle that would run now if some jobs had ended."""
        rows = self.session.tables.rows
        with amended(self.session.tables, gone=[rows[key].job for key in gone]):
            return self._planned()


def _wait_for(session: Session, gone: Mapping[str, Sequence[Held]]) -> Change:
    ends = [
        _end_of(session.tables.rows[key].job, task)
        for key, held in gone.items()
        for _, task, _ in held
    ]
    known = [end for end in ends if end is not None]
    return Change(
        ChangeKind.WAIT_FOR,
        {
            "jobs": sorted(gone),
            "tasks": len(ends),
            "until": max(known) if len(known) == len(ends) else None,
        },
    )


def _end_of(job: Job, task: Task) -> float | None:
    """Return when a hold ends at the latest, None where that is unknown."""
    if task.started_at is None or job.time_limit_seconds is None:
        return None
    return task.started_at + job.time_limit_seconds


def _exchanged(
    session: Session, job: Job, change: Change
) -> tuple[tuple[Job, ...], tuple[Job, ...]]:
    """Return the jobs that a change takes out of the tables, and those that come instead."""
    if change.kind is ChangeKind.WAIT_FOR:
        return tuple(session.tables.rows[key].job for key in _ended(change)), ()
    return (job,), (_changed(job, change),)


# -- proposals -------------------------------------------------------------------------------------


def _fits(session: Session, job: Job) -> bool:
    """Return whether a job could start in what the cycle left; nothing of it stays."""
    queue = session.queues.get(job.queue)
    if queue is None:
        return False
    view = JobView(session.tables.read(job), queue=queue, now=session.now)
    if standing_reason(session, view) is not None:
        return False
    if view.best_effort:
        return True  # backfill places what asks for nothing: the cycle that proves it will tell
    statement = Statement(session)
    fits = place_job(session, view) is None and session.is_job_ready(view)
    statement.rollback()
    return fits


def _other_queues(session: Session, job: Job, queues: Collection[str] | None) -> Iterator[Change]:
    others = [
        q
        for q in session.queues.values()
        if q.name != job.queue
        and not q.children
        and q.queue.state is QueueState.OPEN
        and (queues is None or q.name in queues)
    ]
    for queue in sorted(others, key=session.queue_key)[:QUEUES]:
        yield Change(ChangeKind.OTHER_QUEUE, {"queue": queue.name})


def _constraints(job: Job) -> Iterator[Change]:
    """Yield each constraint of the job and its roles."""
    for role in job.roles:
        names = [("node_selector", key) for key in sorted(role.node_selector)]
        if role.node_affinity:
            names.append(("node_affinity", ""))
        if any(term.is_required for term in role.pod_terms):
            names.append(("neighbours", ""))
        if any(rule.is_required for rule in role.spread):
            names.append(("spread", ""))
        if role.topology_policy != "none":
            names.append(("numa", ""))
        for constraint, key in names:
            yield Change(
                ChangeKind.DROP_CONSTRAINT,
                {"role": role.name, "constraint": constraint, "key": key},
            )
    if job.topology is not None and job.topology.mode is TopologyMode.HARD:
        yield Change(ChangeKind.DROP_CONSTRAINT, {"role": "", "constraint": "topology", "key": ""})


def _descending(holds: Callable[[int], bool], low: int, high: int) -> Iterator[int]:
    """Yield the numbers from high to low of which something holds that holds of all below one.

    Once that one is found by bisection, at most `TRIES` of them.
    """
    if low > high or not holds(low):
        return
    first = low
    while first < high:
        middle = (first + high + 1) // 2
        if holds(middle):
            first = middle
        else:
            high = middle - 1
    yield from range(first, max(low, first - TRIES + 1) - 1, -1)
    if first - TRIES >= low:
        yield low


class _Wait(Search):
    """A search in which everybody's holds may end, whatever protects them from eviction."""

    def _allows(self, claim: Claim, unit: Unit) -> bool:
        del claim
        return unit.job is not self.job and not unit.job.placed

    def _whole_unit(self, view: JobView) -> Unit | None:
        held = self.session.held_tasks(view)
        return Unit(view, tuple(held), is_whole=True) if held and view is not self.job else None


def _holds_in_the_way(session: Session, job: Job) -> list[Entry]:
    """Return the fewest holds whose end makes room for the job in what a cycle left."""
    view = session.view(job.key)
    if view is None or view.is_shaped or standing_reason(session, view) is not None:
        return []
    keys = _around(session, view)
    victims = gather(session, keys, claimant=view.queue, is_anyone=True)
    statement = Statement(session)
    search = _Wait(session, view, action="wait", veto="preemptable", victims=victims)
    stands = search.run(lambda _: True)
    gone = [e for e in statement.commit() if e.kind is EntryKind.EVICT] if stands else []
    statement.rollback()
    return gone


def _around(session: Session, view: JobView) -> set[str]:
    """Return the jobs that hold something where the job could go; of its queue if that is full."""
    keys: set[str] = set()
    refused: Reason | None = None
    for role in view.roles:
        if not role.pending:
            continue
        refused = refused or session.refusal(view, role)
        shape = role.shape
        could = session.mask(shape)
        missing = np.zeros(session.tables.nodes.count)
        for d, amount in shape.items:
            could &= session.tables.nodes.allocatable[d] >= amount
            if d != PODS_DIM:
                missing += np.maximum(amount - session.free[d], 0) / amount
        missing[~could] = np.inf
        count = max(CANDIDATES, view.missing())
        for node in np.argsort(missing, kind="stable")[:count]:
            if could[node]:
                keys.update(session.tables.rows_by_node.get(int(node), ()))
    limited = session.queues.get(str(refused.params.get("queue"))) if refused is not None else None
    return keys if limited is None else _inside(session, limited, keys)


def _inside(session: Session, limited: QueueView, keys: set[str]) -> set[str]:
    """Return those of the jobs that hold something of a queue; others of it if there are none."""
    inside = [
        rows
        for name, rows in session.tables.holders.items()
        if (queue := session.queues.get(name)) is not None and limited in queue.path
    ]
    here = {key for rows in inside for key in keys & rows.keys()}
    return here or set(islice((key for rows in inside for key in sorted(rows)), HOLDERS))
