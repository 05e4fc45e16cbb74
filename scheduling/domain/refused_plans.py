"""What of a plan may still be carried out when the independent check refuses a part of it.

A fault of the engine in one job must not keep all others waiting. The decisions of the jobs at
fault are taken out, whole gangs with the evictions made for them, until nothing is refused.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from scheduling.engine import verify
from scheduling.engine.reasons import ReasonCode
from scheduling.engine.types import Config, Eviction, Plan, Reason, Snapshot
from scheduling.engine.verify import Violation

ROUNDS = 32
"""After so many jobs were taken out one after another, the plan is not to be mended."""
NO_REASON = "no_reason"
"""A job that waits and is not told why: nothing that would be unsafe to carry out."""


@dataclass(frozen=True, slots=True)
class Mended:
    """A plan that the check lets through, and what was taken out of it."""

    plan: Plan
    refused: tuple[Violation, ...] = ()
    """Everything that the check said of the plan as it was; none: it was sound."""
    left_out: tuple[str, ...] = ()
    """Keys of the jobs whose decisions were taken out, in order."""
    guilty: Mapping[str, str] = field(default_factory=dict)
    """Those of them that alone are to blame -> the code of what was wrong."""

    @property
    def summary(self) -> str:
        """Say what was refused in one line; empty where nothing was."""
        if not self.refused:
            return ""
        first = self.refused[0]
        return f"plan refused: {first.code} {first.subject}, {len(self.left_out)} jobs left out"


def mend(snapshot: Snapshot, plan: Plan, config: Config | None = None) -> Mended:
    """Return what may be carried out of a plan: all of it, if the check finds nothing.

    1. Check. 2. For each thing that is wrong, find the jobs that decided it. A task, a gang or an
    eviction is one job's fault. A node or a queue that gets too much is shared by several: the
    last that was served gives way, and is not blamed unless it was alone. 3. Take the decisions
    of those jobs out and check again, `ROUNDS` times at most; then nothing of the plan is left.
    """
    refused = verify.check(snapshot, plan, config)
    violations, left_out, guilty = refused, dict[str, None](), dict[str, str]()
    for _ in range(ROUNDS):
        faults = [one for one in violations if one.code != NO_REASON]
        if not faults:
            plan = _with_reasons(plan, violations, guilty)
            return Mended(plan, tuple(refused), tuple(left_out), guilty)
        found = _at_fault(snapshot, plan, faults[0])
        if not found:
            break
        if len(found) == 1:
            guilty.setdefault(found[0], faults[0].code)
        left_out[found[-1]] = None
        plan = _without(plan, {found[-1]})
        violations = verify.check(snapshot, plan, config)
    nothing = Plan(reservations=snapshot.reservations)
    return Mended(nothing, tuple(refused), tuple(left_out), guilty)


def _at_fault(snapshot: Snapshot, plan: Plan, fault: Violation) -> list[str]:
    """Return the jobs that decided what is wrong, in the order in which they were served."""
    subject = fault.subject
    evictions = [one for one in plan.evictions if subject in (one.task, one.job)]
    places = [(one.task, one.job, one.node) for one in plan.binds]
    places += [(one.task, one.job, one.node) for one in plan.pipelined]
    served = [job for task, job, _ in places if subject in (task, job)]
    kept = [one.job for one in plan.reservations if one.job == subject]
    found = served or kept or [_decider(one) for one in evictions]
    if not found:
        below = _queues_below(snapshot, subject)
        members = {job.key for job in snapshot.jobs if job.queue in below}
        taken = [_decider(one) for one in plan.evictions if one.job in members]
        found = [job for _, job, node in places if node == subject or job in members] or taken
    return list(dict.fromkeys(found))


def _decider(eviction: Eviction) -> str:
    """Return the job for which a task goes; its own, where it goes for nobody."""
    return eviction.beneficiary or eviction.job


def _queues_below(snapshot: Snapshot, name: str) -> Collection[str]:
    """Return a queue and those below it by name; nothing if there is no such queue."""
    below = {queue.name for queue in snapshot.queues if queue.name == name}
    is_growing = bool(below)
    while is_growing:
        more = {q.name for q in snapshot.queues if q.parent in below} - below
        below |= more
        is_growing = bool(more)
    return below


def _without(plan: Plan, jobs: Collection[str]) -> Plan:
    """Return a plan without what it decided for these jobs."""
    return replace(
        plan,
        binds=tuple(one for one in plan.binds if one.job not in jobs),
        pipelined=tuple(one for one in plan.pipelined if one.job not in jobs),
        evictions=tuple(one for one in plan.evictions if _decider(one) not in jobs),
        reservations=tuple(one for one in plan.reservations if one.job not in jobs),
        phases={key: phase for key, phase in plan.phases.items() if key not in jobs},
    )


def _with_reasons(plan: Plan, silent: Sequence[Violation], guilty: Collection[str]) -> Plan:
    """Return a plan that tells every job that waits at least that it was not come to.

    Those to blame are told by the strike against them.
    """
    if not silent and not guilty:
        return plan
    reasons = {one.subject: Reason(ReasonCode.NOT_CONSIDERED) for one in silent}
    told = {**reasons, **plan.job_reasons}
    return replace(
        plan, job_reasons={key: reason for key, reason in told.items() if key not in guilty}
    )
