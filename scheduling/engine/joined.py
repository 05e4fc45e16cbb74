"""Two plans of one instant as one: what the second adds to the state that the first leaves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace

from scheduling.engine.reasons import ReasonCode
from scheduling.engine.types import Eviction, Plan, Reason, Snapshot


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

    A task that the first starts and the second evicts has not been started at all. Evictions for
    somebody who gets nothing any more are for whoever gets a place on the node instead.
    """
    started = {b.task for b in first.binds}
    gone = {e.task for e in more.evictions}
    binds = (*(b for b in first.binds if b.task not in gone), *more.binds)
    evictions = (*first.evictions, *(e for e in more.evictions if e.task not in started))
    gains = {b.job for b in binds} | {p.job for p in more.pipelined}
    gains |= {r.job for r in more.reservations}
    heirs = {b.node: b.job for b in binds} | {p.node: p.job for p in more.pipelined}
    return replace(
        more,
        binds=binds,
        evictions=tuple(_for_an_heir(eviction, gains, heirs) for eviction in evictions),
        phases={**first.phases, **more.phases},
    )


def _for_an_heir(eviction: Eviction, gains: set[str], heirs: Mapping[str, str]) -> Eviction:
    if eviction.beneficiary is None or eviction.beneficiary in gains:
        return eviction
    heir = heirs.get(eviction.node)
    reason = eviction.reason
    if heir is None or reason is None:
        return eviction
    told = Reason(reason.code, {**reason.params, "job": heir})
    return replace(eviction, beneficiary=heir, reason=told)


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
