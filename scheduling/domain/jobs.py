"""What people do with jobs: submit, cancel, suspend, resume, retry, scale; singly and in bulk."""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

from django.db import IntegrityError, connection, transaction

from scheduling.domain import job_secrets, quotas
from scheduling.domain.transitions import Batch, JobWork
from scheduling.lifecycle import values
from scheduling.lifecycle.events import LifecycleAction
from scheduling.lifecycle.states import FINISHED_PHASES, JobPhase
from scheduling.models import Job, JobFile, Queue, Role
from scheduling.models.queue import QueueState
from scheduling.spec.job_spec import JobSpec, RoleSpec
from tenants.domain import access, audit
from tenants.domain.access import Actor, Verb
from tenants.domain.errors import Conflict, Denied, DomainError, Invalid, NotFound, Problem

POD = 1000
"""What one task asks of `pods`."""
PRIORITY_CLASSES = {"low": -100, "normal": 0, "high": 100}
"""The classes that Terrace knows; any other name counts as normal."""
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


# --- submit ---------------------------------------------------------------------------------------


def submit_job(
    *,
    actor: Actor,
    spec: JobSpec,
    now: datetime,
    queue: Queue | None = None,
    code_file_id: UUID | None = None,
    request_id: str = "",
) -> Job:
    """Accept a job: its rows, audit row and wake-up in one transaction.

    Raises:
        NotFound: the actor may not know of the queue.
        Denied: the actor sees the queue and may not submit to it.
        Invalid: the queue takes no jobs, a quota none of this size or no more that wait, or the
            code is not there.
        Conflict: a live job of the same unit has this name.
    """
    target = queue or queue_named(actor=actor, name=spec.queue)
    unit_id = target.unit_id
    if unit_id is None:
        raise Invalid([Problem("queue", "queue_not_leaf", {"queue": target.name, "children": 1})])
    access.require(actor, Verb.JOB_CREATE, unit_id, what="queue")
    _require_priority_right(actor, spec, target)
    if actor.user_id is None:
        raise Invalid([Problem("owner", "owner_missing")])
    with transaction.atomic():
        target = _held_queue(target)
        _require_open_leaf(target)
        quotas.require_room_to_submit(unit_id=unit_id, owner_id=actor.user_id, spec=spec)
        job_secrets.require_usable(actor=actor, unit_id=unit_id, spec=spec)
        _require_code(actor, code_file_id)
        job = _insert_job(actor=actor, spec=spec, queue=target, now=now)
        roles = Role.objects.bulk_create(_role_rows(job, spec))
        batch = Batch(now=now, actor_label=actor.label)
        work = batch.adopt(job, list(roles))
        work.record_submission()
        for role in roles:
            work.create_tasks(role, 0, role.replicas)
        batch.flush()
        if code_file_id is not None:
            JobFile.objects.filter(id=code_file_id, job__isnull=True).update(job=job)
        audit.record(
            actor=actor,
            action="job.create",
            subject=job,
            before=None,
            after={"queue": target.name, "tasks": spec.task_count, "priority": job.priority},
            unit=target.unit,
            now=now,
            request_id=request_id,
        )
    return job


def queue_named(*, actor: Actor, name: str) -> Queue:
    """Return the queue that a spec names.

    Raises:
        Invalid: there is none, or none that the actor may know of.
    """
    visible = Queue.objects.visible_to(access.reads(actor, Verb.QUEUE_READ))
    queue = visible.filter(name=name).select_related("unit").order_by("created_at").first()
    if queue is None:
        raise Invalid([Problem("queue", "queue_missing", {"queue": name})])
    return queue


def _held_queue(queue: Queue) -> Queue:
    """Lock a queue FOR SHARE and return it as it is now.

    Many submit at once. Who closes the queue or gives it a queue below waits until we have
    committed and finds our job; if they came first we wait, and find what they did. Django knows
    no FOR SHARE, and FOR KEY SHARE lets an update pass by.
    """
    with connection.cursor() as cursor:
        cursor.execute("SELECT id FROM scheduling_queue WHERE id = %s FOR SHARE", [queue.id])
    held = Queue.objects.select_related("unit").filter(id=queue.id).first()
    if held is None:
        raise Invalid([Problem("queue", "queue_missing", {"queue": queue.name})])
    return held


def _require_open_leaf(queue: Queue) -> None:
    children = queue.children.count()
    if children:
        raise Invalid(
            [Problem("queue", "queue_not_leaf", {"queue": queue.name, "children": children})]
        )
    if queue.state != QueueState.OPEN:
        raise Invalid(
            [Problem("queue", "queue_closed", {"queue": queue.name, "state": str(queue.state)})]
        )


def _require_code(actor: Actor, code_file_id: UUID | None) -> None:
    if code_file_id is None:
        return
    if not JobFile.objects.filter(id=code_file_id, owner_id=actor.user_id).exists():
        raise Invalid([Problem("code", "code_missing", {"file": str(code_file_id)})])


def _require_priority_right(actor: Actor, spec: JobSpec, queue: Queue) -> None:
    if priority_of(spec) > 0:
        access.require(actor, Verb.JOB_PRIORITY, queue.unit_id, owner_id=actor.user_id, what="job")


def priority_of(spec: JobSpec) -> int:
    """Return the number that the scheduler goes by."""
    if spec.priority is not None:
        return spec.priority
    return PRIORITY_CLASSES.get(spec.priority_class, 0)


def _insert_job(*, actor: Actor, spec: JobSpec, queue: Queue, now: datetime) -> Job:
    assert queue.unit is not None and actor.user_id is not None  # noqa: S101, PT018 -- the caller did
    job = Job(
        tenant_id=queue.unit.tenant_id,
        unit=queue.unit,
        queue=queue,
        owner_id=actor.user_id,
        name=spec.name,
        kind=spec.kind,
        spec=spec.model_dump(mode="json"),
        priority=priority_of(spec),
        min_available=spec.min_available,
        min_success=spec.min_success,
        max_retry=spec.max_retry,
        gpu_milli=sum(role.gpu_milli * role.replicas for role in spec.roles),
        cpu_milli=sum(role.cpu_milli * role.replicas for role in spec.roles),
        memory_bytes=sum(role.memory_bytes * role.replicas for role in spec.roles),
        created_at=now,
    )
    try:
        with transaction.atomic():
            job.save(force_insert=True)
    except IntegrityError as error:
        if "job_name_unique_while_live" not in str(error):
            raise
        raise Conflict("job_name_taken", {"name": spec.name, "unit": queue.unit.name}) from error
    return job


def _role_rows(job: Job, spec: JobSpec) -> list[Role]:
    return [
        Role(
            job=job,
            position=position,
            name=role.name,
            replicas=role.replicas,
            min_available=role.min_available,
            request=request_of(role),
        )
        for position, role in enumerate(spec.roles)
    ]


def request_of(role: RoleSpec) -> dict[str, int]:
    """Return what one task of the role asks for, its pod included."""
    return {**role.request, "pods": POD}


# --- actions --------------------------------------------------------------------------------------


def cancel_job(
    *,
    actor: Actor,
    job_id: UUID,
    now: datetime,
    expected_version: int | None = None,
    reason: str = "",
) -> Job:
    """End a job for good: what runs is stopped with grace, what waits is given up."""
    return _command(actor, job_id, JobAction.CANCEL, now, expected_version, reason)


def suspend_job(
    *,
    actor: Actor,
    job_id: UUID,
    now: datetime,
    expected_version: int | None = None,
    reason: str = "",
) -> Job:
    """Stop a job so that it can be resumed."""
    return _command(actor, job_id, JobAction.SUSPEND, now, expected_version, reason)


def resume_job(
    *,
    actor: Actor,
    job_id: UUID,
    now: datetime,
    expected_version: int | None = None,
    reason: str = "",
) -> Job:
    """Let a suspended job wait for its place again."""
    return _command(actor, job_id, JobAction.RESUME, now, expected_version, reason)


def retry_job(
    *,
    actor: Actor,
    job_id: UUID,
    now: datetime,
    expected_version: int | None = None,
    reason: str = "",
) -> Job:
    """Begin a live job anew as a whole; this spends none of its retries."""
    return _command(actor, job_id, JobAction.RETRY, now, expected_version, reason)


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


def _command(
    actor: Actor,
    job_id: UUID,
    action: JobAction,
    now: datetime,
    expected_version: int | None,
    reason: str,
) -> Job:
    def change(work: JobWork) -> None:
        work.command(LIFECYCLE_ACTIONS[action])
        work.wish_for(DESIRED[action])

    return _change(
        actor=actor,
        job_id=job_id,
        verb=Verb.JOB_CONTROL,
        change=change,
        audit_action=f"job.{action}",
        now=now,
        expected_version=expected_version,
        reason=reason,
    )


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
    doers: dict[JobAction, Callable[..., Job]] = {
        JobAction.CANCEL: cancel_job,
        JobAction.SUSPEND: suspend_job,
        JobAction.RESUME: resume_job,
        JobAction.RETRY: retry_job,
    }
    results = []
    for job_id in dict.fromkeys(job_ids):
        try:
            doers[action](actor=actor, job_id=job_id, now=now, reason=reason)
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
