"""Which lifecycle action answers an event: a role's policies before the job's, then a plain sync.

Source: Volcano `pkg/controllers/job/job_controller_util.go`, applyPolicies. Ours: in one list the
policies by exit code are looked at before those by event, unless the job asks for listed order.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from scheduling.lifecycle.events import INTERNAL_EVENTS, LifecycleAction, PolicyEvent
from scheduling.lifecycle.values import JobView, Policy, RoleView, TaskChange, TaskReported


@dataclass(frozen=True, slots=True)
class Answer:
    """The action that answers an event, and how long to wait before it."""

    action: LifecycleAction
    delay_seconds: float = 0.0
    policy: Policy | None = None


SYNC = Answer(LifecycleAction.SYNC_JOB)


def effective_order(policies: Iterable[Policy], *, exit_code_first: bool = True) -> list[Policy]:
    """Return a list of policies in the order in which they are looked at."""
    listed = list(policies)
    if not exit_code_first:
        return listed
    return sorted(listed, key=lambda policy: policy.exit_code is None)


def resolve(
    *,
    job: JobView,
    event: PolicyEvent | None,
    role: str = "",
    exit_code: int = 0,
    generation: int | None = None,
) -> Answer:
    """Return what answers an event: role policies in order, then job policies, else a sync.

    An internal event, and one of an older generation, leads to a sync whatever the policies say.
    Without an event (None) only exit codes are compared.
    """
    if event in INTERNAL_EVENTS:
        return SYNC
    if generation is not None and generation < job.generation:
        return SYNC
    view = job.role(role) if role else None
    for policies in (view.policies if view else (), job.policies):
        for policy in effective_order(policies, exit_code_first=job.exit_code_first):
            if _hits(policy, event, exit_code):
                return Answer(policy.action, policy.timeout_seconds or 0.0, policy)
    return SYNC


def _hits(policy: Policy, event: PolicyEvent | None, exit_code: int) -> bool:
    """Whether a policy answers; one for exit code 0 is refused when a job is submitted."""
    if policy.exit_code is not None and policy.exit_code == exit_code:
        return True
    if event is None:
        return False
    if event is PolicyEvent.POD_PENDING and policy.timeout_seconds is None:
        return False
    return event in policy.events or PolicyEvent.ANY in policy.events


_RAISED = {
    TaskChange.PENDING: PolicyEvent.POD_PENDING,
    TaskChange.RUNNING: PolicyEvent.POD_RUNNING,
    TaskChange.FAILED: PolicyEvent.POD_FAILED,
    TaskChange.EVICTED: PolicyEvent.POD_EVICTED,
}


def raised_event(*, report: TaskReported, role: RoleView | None) -> PolicyEvent:
    """Return the event that a change of a task raises, with the role's counts after the change."""
    if report.change in _RAISED:
        return _RAISED[report.change]
    if role is not None:
        if report.change is TaskChange.SUCCEEDED and is_role_completed(role):
            return PolicyEvent.TASK_COMPLETED
        if report.change is TaskChange.RESTARTED_IN_PLACE and has_role_failed(role):
            return PolicyEvent.TASK_FAILED
    return PolicyEvent.OUT_OF_SYNC


def is_role_completed(role: RoleView) -> bool:
    """Whether as many tasks succeeded as the role has replicas (a role of none never is)."""
    return role.replicas > 0 and role.counts.succeeded >= role.replicas


def has_role_failed(role: RoleView) -> bool:
    """Whether the in-place restarts of the role have used up its own retries."""
    return role.in_place_restarts >= role.max_retry
