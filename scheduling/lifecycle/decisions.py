"""How the next phase of a job is read off its counts, where the table alone cannot say.

Source: Volcano `pkg/controllers/job/state/*.go`.
"""

from __future__ import annotations

from scheduling.lifecycle.states import JobPhase
from scheduling.lifecycle.table import STOPS_INTO, Decision
from scheduling.lifecycle.values import JobView, RoleView, TaskCounts

BACK_OFF_FIRST_SECONDS = 10.0
BACK_OFF_MOST_SECONDS = 600.0


def decide(decision: Decision, job: JobView, counts: TaskCounts) -> JobPhase:
    """Return the phase that a decision leads to, given the counts after what was stopped."""
    match decision:
        case Decision.GANG_STARTED:
            return _gang_started(job, counts)
        case Decision.VERDICT:
            return _verdict(job, counts)
        case Decision.RESTARTED:
            return _restarted(job, counts)
        case Decision.ALL_STOPPED:
            return STOPS_INTO[job.phase] if counts.live == 0 else job.phase
        case Decision.STAY:
            return job.phase


def _gang_started(job: JobView, counts: TaskCounts) -> JobPhase:
    has_started = job.min_available <= counts.running + counts.ended
    return JobPhase.RUNNING if has_started else JobPhase.PENDING


def _verdict(job: JobView, counts: TaskCounts) -> JobPhase:
    total = job.task_count
    if total == 0:
        return job.phase
    if job.min_success is not None and counts.succeeded >= job.min_success:
        return JobPhase.COMPLETED
    if counts.ended == total:
        return _final_verdict(job, counts)
    if counts.pending + counts.launching > total - job.min_available:
        return JobPhase.PENDING
    return job.phase


def _final_verdict(job: JobView, counts: TaskCounts) -> JobPhase:
    role_minimums = sum(_minimum(role) for role in job.roles)
    if job.min_available >= role_minimums and any(map(_missed_its_minimum, job.roles)):
        return JobPhase.FAILED
    if job.min_success is not None and counts.succeeded < job.min_success:
        return JobPhase.FAILED
    return JobPhase.COMPLETED if counts.succeeded >= job.min_available else JobPhase.FAILED


def _minimum(role: RoleView) -> int:
    return role.replicas if role.min_available is None else role.min_available


def _missed_its_minimum(role: RoleView) -> bool:
    return role.min_available is not None and role.counts.succeeded < role.min_available


def _restarted(job: JobView, counts: TaskCounts) -> JobPhase:
    if job.policy_restarts >= job.max_retry:
        return JobPhase.FAILED
    if job.task_count - counts.stopping >= job.min_available:
        return JobPhase.PENDING
    return job.phase


def is_last_retry(job: JobView) -> bool:
    """Whether the restart that is about to be counted will be the last: what ended is kept."""
    return job.policy_restarts >= job.max_retry - 1


def back_off_seconds(policy_restarts: int) -> float:
    """Return how long tasks wait before the next run: 0, then 10 s doubling up to 10 minutes."""
    if policy_restarts <= 1:
        return 0.0
    doublings = min(policy_restarts - 2, 10)
    return min(BACK_OFF_FIRST_SECONDS * 2.0**doublings, BACK_OFF_MOST_SECONDS)


def is_role_ready(role: RoleView) -> bool:
    """Whether those that depend on the role may start; without an own minimum they always may."""
    if role.min_available is None:
        return True
    return role.counts.ready + role.counts.succeeded >= role.min_available


def may_start(job: JobView, role: RoleView) -> bool:
    """Whether the start order lets the tasks of a role start now."""
    if not role.depends_on:
        return True
    ready = [
        other is not None and is_role_ready(other)
        for other in (job.role(name) for name in role.depends_on)
    ]
    return any(ready) if role.depends_on_any else all(ready)
