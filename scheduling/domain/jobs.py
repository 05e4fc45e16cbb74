"""What people do with jobs: submit, cancel, suspend, resume, retry, scale; singly and in bulk."""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Required, TypedDict, Unpack
from uuid import UUID

from django.db import transaction

from scheduling.domain.job_work import JobWork
from scheduling.domain.submissions import (
    PRIORITY_CLASSES,
    priority_of,
    queue_named,
    request_of,
    submit_job,
    submit_many,
)
from scheduling.domain.transitions import Batch
from scheduling.lifecycle import values
from scheduling.lifecycle.events import LifecycleAction
from scheduling.lifecycle.states import FINISHED_PHASES, JobPhase
from scheduling.models import Job, Role
from scheduling.spec.job_spec import JobSpec
from tenants.domain import access, audit
from tenants.domain.access import Actor, Verb
from tenants.domain.errors import Conflict, Denied, DomainError, Invalid, NotFound, Problem

__all__ = [
    "MOST_REPLICAS",
    "PRIORITY_CLASSES",
    "BulkResult",
    "JobAction",
    "act",
    "bulk",
    "cancel_job",
    "change_priority",
    "clone_spec",
    "priority_of",
    "queue_named",
    "request_of",
    "restart_part",
    "resume_job",
    "retry_job",
    "scale_role",
    "submit_job",
    "submit_many",
    "suspend_job",
]

MOST_REPLICAS = 100_000


class JobAction(StrEnum):
    """What can be done to jobs one by one or in bulk."""

    CANCEL = "cancel"
    SUSPEND = "suspend"
    RESUME = "resume"
    RETRY = "retry"


@dataclass(frozen=True, slots=True)
class BulkResult:
    """How a bulk action ended for one job; without an error it was done."""

    job_id: UUID
    error: DomainError | None = None


# --- actions --------------------------------------------------------------------------------------


class _Order(TypedDict, total=False):
    """What an action on a job is given; the last two may be left out."""

    actor: Required[Actor]
    job_id: Required[UUID]
    now: Required[datetime]
    expected_version: int | None
    reason: str


def cancel_job(**order: Unpack[_Order]) -> Job:
    """End a job for good: what runs is stopped with grace, what waits is given up."""
    return act(JobAction.CANCEL, **order)


def suspend_job(**order: Unpack[_Order]) -> Job:
    """Stop a job so that it can be resumed."""
    return act(JobAction.SUSPEND, **order)


def resume_job(**order: Unpack[_Order]) -> Job:
    """Let a suspended job wait for its place again."""
    return act(JobAction.RESUME, **order)


def retry_job(**order: Unpack[_Order]) -> Job:
    """Begin a live job anew as a whole; this spends none of its retries."""
    return act(JobAction.RETRY, **order)


def restart_part(
    *, actor: Actor, job_id: UUID, role: str, now: datetime, index: int | None = None
) -> Job:
    """Begin one role, or one task of it, anew."""
    action = LifecycleAction.RESTART_TASK if index is None else LifecycleAction.RESTART_POD
    params = {"role": role, "index": index}
    return _change(
        actor=actor,
        job_id=job_id,
        verb=Verb.JOB_CONTROL,
        change=lambda work: work.command(action, role=role, index=index),
        audit_action="job.restart",
        now=now,
        after=params,
    )


LIFECYCLE_ACTIONS = {
    JobAction.CANCEL: LifecycleAction.TERMINATE_JOB,
    JobAction.SUSPEND: LifecycleAction.ABORT_JOB,
    JobAction.RESUME: LifecycleAction.RESUME_JOB,
    JobAction.RETRY: LifecycleAction.RESTART_JOB,
}
DESIRED = {
    JobAction.CANCEL: "terminate",
    JobAction.SUSPEND: "suspend",
    JobAction.RESUME: "run",
    JobAction.RETRY: "run",
}


def act(action: JobAction, **order: Unpack[_Order]) -> Job:
    """Do an action to a job.

    Raises:
        NotFound: the actor may not know of the job.
        Denied: the actor sees the job and may not do this to it.
        Conflict: it would change nothing, or the job is not at the expected version.
    """

    def change(work: JobWork) -> None:
        work.command(LIFECYCLE_ACTIONS[action])
        work.wish_for(DESIRED[action])

    return _change(verb=Verb.JOB_CONTROL, change=change, audit_action=f"job.{action}", **order)


def scale_role(
    *,
    actor: Actor,
    job_id: UUID,
    role: str,
    replicas: int,
    now: datetime,
    expected_version: int | None = None,
) -> Job:
    """Give a role another number of replicas; the highest indexes go first.

    Raises:
        Invalid: fewer than the role's or the job's minimum, or more than an installation allows.
    """

    def change(work: JobWork) -> None:
        row = work.role_row(role)
        if row is None:
            raise NotFound("role")
        _require_scalable(work, row, replicas)
        before = row.replicas
        work.resize(row, replicas)
        work.tell(values.RoleResized(role, before))

    return _change(
        actor=actor,
        job_id=job_id,
        verb=Verb.JOB_EDIT,
        change=change,
        audit_action="job.scale",
        now=now,
        expected_version=expected_version,
        after={"role": role, "replicas": replicas},
    )


def _require_scalable(work: JobWork, role: Role, replicas: int) -> None:
    total = sum(other.replicas for other in work.roles.values()) - role.replicas + replicas
    problems = []
    if not role.min_available <= replicas <= MOST_REPLICAS:
        params = {"replicas": replicas, "min": role.min_available, "max": MOST_REPLICAS}
        problems.append(Problem("replicas", "replicas_out_of_range", params))
    if total < work.job.min_available:
        gang: dict[str, str | int | float] = {
            "tasks": total,
            "min_available": work.job.min_available,
            "role": role.name,
        }
        problems.append(Problem("replicas", "not_enough_tasks", gang))
    if JobPhase(work.job.phase) in FINISHED_PHASES:
        raise Conflict("job_finished", {"job": work.job.name, "phase": work.job.phase})
    if problems:
        raise Invalid(problems)


def change_priority(
    *,
    actor: Actor,
    job_id: UUID,
    priority: int,
    now: datetime,
    expected_version: int | None = None,
) -> Job:
    """Give a job another place in the order of its queue."""

    def change(work: JobWork) -> None:
        work.job.priority = priority
        Job.objects.filter(id=work.job.id).update(priority=priority)

    return _change(
        actor=actor,
        job_id=job_id,
        verb=Verb.JOB_PRIORITY,
        change=change,
        audit_action="job.priority",
        now=now,
        expected_version=expected_version,
        after={"priority": priority},
    )


def clone_spec(job: Job) -> JobSpec:
    """Return the spec of a job as it would be submitted again."""
    return JobSpec.model_validate(job.spec)


def bulk(
    *, actor: Actor, action: JobAction, job_ids: Collection[UUID], now: datetime, reason: str = ""
) -> list[BulkResult]:
    """Do an action to many jobs, each in a transaction of its own; say how each ended."""
    results = []
    for job_id in dict.fromkeys(job_ids):
        try:
            act(action, actor=actor, job_id=job_id, now=now, reason=reason)
        except (Conflict, Denied, NotFound, Invalid) as error:
            results.append(BulkResult(job_id, error))
        else:
            results.append(BulkResult(job_id))
    return results


def _change(  # noqa: PLR0913 -- what every change of a job has
    *,
    actor: Actor,
    job_id: UUID,
    verb: Verb,
    change: Callable[[JobWork], None],
    audit_action: str,
    now: datetime,
    expected_version: int | None = None,
    reason: str = "",
    after: dict[str, Any] | None = None,
) -> Job:
    known = Job.objects.filter(id=job_id).values_list("unit_id", "owner_id").first()
    if known is None:
        raise NotFound("job")
    access.require(actor, verb, known[0], owner_id=known[1], what="job")
    with transaction.atomic():
        batch = Batch(now=now, actor_label=actor.label)
        works = batch.lock([job_id])
        if not works:
            raise NotFound("job")
        work = works[0]
        if expected_version is not None and work.job.version != expected_version:
            params = {"expected": expected_version, "version": work.job.version}
            raise Conflict("version", params, current=work.job)
        before = {"phase": work.job.phase, "version": work.job.version}
        change(work)
        batch.flush()
        audit.record(
            actor=actor,
            action=audit_action,
            subject=work.job,
            before=before,
            after={"phase": work.job.phase, "version": work.job.version, **(after or {})},
            unit=work.job.unit,
            now=now,
            reason=reason,
        )
    return work.job
