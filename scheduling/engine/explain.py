"""Answer why a job waits, whether one would fit, in the order of the explain ladder."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from scheduling.engine.actions.failures import missing_request, node_histogram
from scheduling.engine.amended import amended, prepare_for
from scheduling.engine.bystanders import ask_about, run_about
from scheduling.engine.cycle import close
from scheduling.engine.reasons import RUNGS, ReasonCode
from scheduling.engine.rows import JobRow
from scheduling.engine.session import Session
from scheduling.engine.shapes import UNLIMITED
from scheduling.engine.tables import Memo
from scheduling.engine.types import (
    Binding,
    Config,
    Job,
    Plan,
    Reason,
    Snapshot,
    TaskState,
)
from scheduling.engine.views import JobView


class RungState(StrEnum):
    """What a rung says."""

    PASSED = "passed"
    FAILED = "failed"
    NOT_REACHED = "not_reached"


@dataclass(frozen=True, slots=True)
class Rung:
    """One rung of the ladder: its name, whether it is passed, and its numbers."""

    name: str
    state: RungState
    reason: Reason | None = None
    facts: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Ladder:
    """Why a job waits: all rungs in order; the headline is the first one that failed."""

    job: str
    rungs: tuple[Rung, ...]
    headline: Reason | None
    starts: int = 0
    """Tasks that this cycle starts."""


@dataclass(frozen=True, slots=True)
class Fit:
    """Whether a job would start now, with everything else in line before it."""

    fits_now: bool
    waits_for_evictions: bool
    binds: tuple[Binding, ...]
    ladder: Ladder


def explain(
    snapshot: Snapshot, config: Config, job_key: str, *, memo: Memo | None = None
) -> Ladder:
    """Return the ladder of a job of the snapshot, from the cycle that would run now.

    Raises: KeyError if the snapshot has no such job.
    """
    memo = memo or Memo()
    session = ask_about(snapshot, config, job_key, memo=memo)
    return ladder_of(session, close(session), job_key)


def fits(snapshot: Snapshot, config: Config, job: Job, *, memo: Memo | None = None) -> Fit:
    """Return whether a job would start if it were submitted now; nothing else is changed by it."""
    memo = memo or Memo()
    tables = prepare_for(snapshot, memo, job)
    key = job.key if job.key not in tables.rows else f"{job.key} (asked)"
    asked = replace(
        job,
        key=key,
        tasks=tuple(
            replace(task, key=f"{key}/{task.key}", state=TaskState.PENDING, node=None)
            for task in job.tasks
        ),
    )
    with amended(tables, new=(asked,)):
        session = run_about(snapshot, config, key, memo=memo)
        plan = close(session)
        return Fit(
            fits_now=any(b.job == key for b in plan.binds),
            waits_for_evictions=any(p.job == key for p in plan.pipelined),
            binds=tuple(b for b in plan.binds if b.job == key),
            ladder=ladder_of(session, plan, key),
        )


def told(job_key: str, headline: Reason | None) -> Ladder:
    """Return the ladder that a reason alone tells: which rung fails, without the others' facts."""
    return Ladder(job_key, _rungs(headline, {}), headline)


def ladder_of(session: Session, plan: Plan, key: str) -> Ladder:
    """Return the ladder of a job from a session that has run and its plan.

    Raises: KeyError if its snapshot has no such job.
    """
    if key not in session.tables.rows:
        raise KeyError(key)
    headline = plan.job_reasons.get(key)
    job = session.view(key)
    facts = {} if job is None else {name: tell(session, job) for name, tell in FACTS.items()}
    starts = sum(b.job == key for b in plan.binds)
    return Ladder(key, _rungs(headline, facts), headline, starts)


def _rungs(headline: Reason | None, facts: Mapping[str, Mapping[str, object]]) -> tuple[Rung, ...]:
    rungs = []
    is_failed = False
    for name, codes in RUNGS:
        fails = headline is not None and headline.code in codes
        state = (
            RungState.FAILED if fails else RungState.NOT_REACHED if is_failed else RungState.PASSED
        )
        is_failed = is_failed or fails
        rungs.append(Rung(name, state, headline if fails else None, facts.get(name, {})))
    return tuple(rungs)


def _queue_facts(session: Session, job: JobView) -> dict[str, object]:
    del session
    return {"queue": job.queue.name, "state": str(job.queue.queue.state)}


def _max_facts(session: Session, job: JobView) -> dict[str, object]:
    """Return, for each level with a max, what the gang asks, what is held and the max."""
    need = missing_request(session, job)
    names = session.tables.resources.names
    return {
        level.name: {
            names[d]: {"requested": need[d], "allocated": level.allocated[d], "max": most}
            for d, most in enumerate(level.max)
            if most < UNLIMITED and need[d]
        }
        for level in job.queue.path
    }


def _gang_facts(session: Session, job: JobView) -> dict[str, object]:
    del session
    return {
        "ready": job.ready,
        "promised": job.waiting,
        "min_available": job.min_available,
        "roles": {
            r.name: {"ready": r.ready, "needed": r.needed, "pending": len(r.pending)}
            for r in job.roles
        },
    }


def _order_facts(session: Session, job: JobView) -> dict[str, object]:
    lines = [
        rows
        for group in (*session.groups, *session.aside)
        if (rows := group.left()) and rows[0].job.queue == job.queue.name
    ]
    waits = any(row is job.row for rows in lines for row in rows)
    resources = session.tables.resources
    return {
        "position": 1 + sum(_before(session, rows, job) for rows in lines) if waits else 0,
        "waiting": sum(map(len, lines)),
        "priority": job.job.priority,
        "queue": job.queue.name,
        "allocated": resources.amounts(job.queue.allocated),
        "deserved": resources.limits(job.queue.deserved),
        "sla_waiting_seconds": job.job.sla_waiting_seconds,
        "waited_seconds": session.now - job.job.created_at,
    }


def _before(session: Session, rows: list[JobRow], job: JobView) -> int:
    """Return how many of some jobs that fare alike, and so are in order by age, come before one."""

    def key(row: JobRow) -> tuple[object, ...]:
        view = session.view(row.job.key)
        return session.job_key(view) if view is not None else ()

    return bisect_left(rows, session.job_key(job), key=key)


def _node_facts(session: Session, job: JobView) -> dict[str, object]:
    resources = session.tables.resources
    return {
        r.name: {
            "nodes": session.tables.nodes.count,
            "request": resources.amounts(r.shape.request),
            "histogram": node_histogram(session, r.shape),
        }
        for r in job.roles
        if r.pending
    }


FACTS = {
    "queue": _queue_facts,
    "max": _max_facts,
    "gang": _gang_facts,
    "order": _order_facts,
    "nodes": _node_facts,
}

__all__ = [
    "Fit",
    "Ladder",
    "ReasonCode",
    "Rung",
    "RungState",
    "explain",
    "fits",
    "ladder_of",
    "told",
]
