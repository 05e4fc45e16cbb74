"""Two plans of one instant as one: what the second adds to the state that the first leaves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Set as AbstractSet
from dataclasses import replace

from scheduling.engine.reasons import ReasonCode
from scheduling.engine.types import Plan, Reason, Snapshot


def adds_nothing(first: Plan, more: Plan) -> bool:
    """Return whether a plan on the state that the first leaves changes nothing there."""
    return (
        not (more.binds or more.evictions or more.phases)
        and more.reservations == first.reservations
        and set(more.pipelined) == set(first.pipelined)
    )


def started_in_vain(first: Plan, more: Plan) -> set[str]:
    """Return the jobs of which the second plan evicts something that the first starts."""
    started = {b.task for b in first.binds}
    return {e.job for e in more.evictions if e.task in started}


def without_jobs(snapshot: Snapshot, keys: AbstractSet[str]) -> Snapshot:
    """Return the snapshot with some jobs held back: nothing of them starts."""
    return replace(
        snapshot,
        jobs=tuple(replace(j, is_runnable=False) if j.key in keys else j for j in snapshot.jobs),
    )


def join(first: Plan, more: Plan) -> Plan:
    """Return the plan that does at once what two do one after the other.

    A task that the first starts and the second evicts has not been started at all. What was right
    step by step need not be at once, such as room that changed hands twice: the caller checks.
    """
    started = {b.task for b in first.binds}
    gone = {e.task for e in more.evictions}
    return replace(
        more,
        binds=(*(b for b in first.binds if b.task not in gone), *more.binds),
        evictions=(*first.evictions, *(e for e in more.evictions if e.task not in started)),
        phases={**first.phases, **more.phases},
    )


def confirmed(decided: Plan, again: Plan) -> Plan:
    """Return a plan with the reasons and shares of the one that found nothing to add to it.

    The jobs that wait for room are told how many are evicted for it.
    """
    victims = Counter(e.beneficiary for e in decided.evictions)
    reasons = {
        key: Reason(reason.code, {**reason.params, "evictions": victims[key]})
        if reason.code is ReasonCode.WAITING_FOR_ROOM
        else reason
        for key, reason in again.job_reasons.items()
    }
    return replace(
        decided, job_reasons=reasons, task_reasons=again.task_reasons, shares=again.shares
    )
