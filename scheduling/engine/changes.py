"""The smallest change of one thing with which a waiting job would start now.

Each change is tried on what the cycle left, which is cheap, and then proven: the whole cycle is
planned again on the changed snapshot, and only what starts the job there is named.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

import numpy as np

from scheduling.engine.actions.evicting import Search
from scheduling.engine.actions.failures import standing_reason
from scheduling.engine.actions.serving import place_job
from scheduling.engine.actions.victims import gather
from scheduling.engine.cycle import close, plan, run
from scheduling.engine.explain import Ladder, ladder_of
from scheduling.engine.journal import Claim, EntryKind, Statement, Unit
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
    TopologyMode,
)
from scheduling.engine.views import JobView

CANDIDATES = 32
"""Nodes that are looked at for holds to wait for: those that lack least."""

QUEUES = 5
"""Other queues that are tried: those with the smallest part of their share in use."""


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

    In the order of `ChangeKind`, one of a kind. None if the job starts anyway, or if no single
    change would start it. `queues` are those that may be proposed; None: all. Costs one cycle,
    and one more for each change that is proven.
    Raises: KeyError if the snapshot has no such job.
    """
    session = run(snapshot, config, memo=memo)
    return _changes(session, job_key, memo=memo, queues=queues, most=most)


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
    session = run(snapshot, config, memo=memo)
    ladder = ladder_of(session, close(session), job_key)
    return ladder, _changes(session, job_key, memo=memo, queues=queues, most=most)


def _changes(
    session: Session,
    job_key: str,
    *,
    memo: Memo | None,
    queues: Collection[str] | None,
    most: int,
) -> tuple[Change, ...]:
    """Return what `smallest_changes` does; the session has run and is used up."""
    row = session.tables.rows[job_key]
    if any(e.job.key == job_key and e.kind is not EntryKind.EVICT for e in session.journal):
        return ()
    if not row.pending_count or not row.job.is_runnable:
        return ()
    found: dict[ChangeKind, Change] = {}
    session.may_borrow = True
    proposals = list(_proposals(session, row.job, queues))
    for change in proposals:
        if len(found) >= most:
            break
        if change.kind in found:
            continue
        changed = apply_change(session.snapshot, job_key, change)
        if any(b.job == job_key for b in plan(changed, session.config, memo=memo).binds):
            found[change.kind] = change
    return tuple(found.values())


def apply_change(snapshot: Snapshot, job_key: str, change: Change) -> Snapshot:
    """Return the snapshot with a change made."""
    if change.kind is ChangeKind.WAIT_FOR:
        listed = change.params["jobs"]
        ended = set(listed) if isinstance(listed, (list, tuple)) else set()
        return replace(snapshot, jobs=tuple(j for j in snapshot.jobs if j.key not in ended))
    return replace(
        snapshot,
        jobs=tuple(_changed(j, change) if j.key == job_key else j for j in snapshot.jobs),
    )


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


# -- proposals -------------------------------------------------------------------------------------


def _proposals(session: Session, job: Job, queues: Collection[str] | None) -> Iterator[Change]:
    """Yield the changes with which the job fits into what the cycle left."""
    for change in _other_queues(session, job, queues):
        if _fits(session, _changed(job, change)):
            yield change
    for change in _constraints(job):
        if _fits(session, _changed(job, change)):
            yield change
    lower = _lower_min(session, job)
    if lower is not None:
        yield lower
    wait = _waits(session, job)
    if wait is not None:
        yield wait


def _fits(session: Session, job: Job) -> bool:
    """Return whether a job could start in what the cycle left; nothing of it stays."""
    queue = session.queues.get(job.queue)
    if queue is None:
        return False
    view = JobView(session.tables.read(job), queue=queue, now=session.now)
    if standing_reason(session, view) is not None:
        return False
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


def _lower_min(session: Session, job: Job) -> Change | None:
    """Return the highest minimum that fits, by bisection."""
    was = max(job.min_available, sum(role.min_available for role in job.roles))
    least = 1 if len(job.roles) == 1 else max(1, sum(r.min_available for r in job.roles))
    if was <= least or not _fits(session, _with_min(job, least)):
        return None
    low, high = least, was - 1
    while low < high:
        middle = (low + high + 1) // 2
        if _fits(session, _with_min(job, middle)):
            low = middle
        else:
            high = middle - 1
    return Change(ChangeKind.LOWER_MIN, {"min_available": low, "was": was})


class _Wait(Search):
    """A search in which everybody's holds may end, whatever protects them from eviction."""

    def _allows(self, claim: Claim, unit: Unit) -> bool:
        del claim
        return unit.job is not self.job and not unit.job.placed

    def _whole_unit(self, view: JobView) -> Unit | None:
        held = self.session.held_tasks(view)
        return Unit(view, tuple(held), is_whole=True) if held and view is not self.job else None


def _waits(session: Session, job: Job) -> Change | None:
    """Return the fewest holds whose end makes room for the job."""
    view = session.view(job.key)
    if view is None or view.is_shaped or standing_reason(session, view) is not None:
        return None
    keys = _around(session, view)
    victims = gather(session, keys, claimant=view.queue, is_anyone=True)
    statement = Statement(session)
    search = _Wait(session, view, action="wait", veto="preemptable", victims=victims)
    stands = search.run(lambda _: True)
    gone = [e for e in statement.commit() if e.kind is EntryKind.EVICT] if stands else []
    statement.rollback()
    if not gone:
        return None
    ends = [
        e.task.started_at + e.job.job.time_limit_seconds
        for e in gone
        if e.task.started_at is not None and e.job.job.time_limit_seconds is not None
    ]
    return Change(
        ChangeKind.WAIT_FOR,
        {
            "jobs": sorted({e.job.key for e in gone}),
            "tasks": len(gone),
            "until": max(ends) if len(ends) == len(gone) else None,
        },
    )


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
    if limited is None:
        return keys
    inside = {
        key
        for name, rows in session.tables.holders.items()
        if (queue := session.queues.get(name)) is not None and limited in queue.path
        for key in rows
    }
    return keys & inside or inside
