"""Taking a queue out of service: closed first, then what to do with the jobs that it has.

Closing alone lets them go on to their end. Waiting jobs can be moved to another queue of the same
tenant or be cancelled; running ones can be cancelled. Each job is a transaction of its own, and
what was refused is named.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from uuid import UUID

from django.db import IntegrityError, connection, transaction
from django.db.models import Count, Q, QuerySet, Sum

from scheduling.domain import jobs, queues, quotas, topics
from scheduling.domain.jobs import BulkResult
from scheduling.models import Job, JobCount, Queue, QueueClosure
from scheduling.models.job import FINISHED_PHASES, JobPhase
from scheduling.models.queue import QueueState
from tenants.domain import access, audit, notify, outbox
from tenants.domain.access import Actor, Verb
from tenants.domain.errors import Conflict, Denied, DomainError, Invalid, NotFound, Problem

SHOWN = 50
AT_ONCE = 500
"""So many jobs are dealt with in one go; the others with the next."""


class Waiting(StrEnum):
    """What happens to jobs that have not started."""

    KEEP = "keep"
    """They wait on, start when it is their turn, and end; the queue is Closing until then."""
    MOVE = "move"
    CANCEL = "cancel"


class Running(StrEnum):
    """What happens to jobs that run."""

    KEEP = "keep"
    CANCEL = "cancel"


@dataclass(frozen=True, slots=True)
class Contents:
    """What a queue and all below it hold: what its end would concern."""

    below: tuple[Queue, ...]
    """The first `SHOWN` by name."""
    below_count: int
    open_below: int
    """How many queues below it are open and would be closed along."""
    waiting: int
    running: int
    ever: int
    """Jobs of the queue itself, finished ones too: with any, it stays for its history."""


@dataclass(frozen=True, slots=True)
class Drained:
    """How it went: what was done, what was refused and why, how many jobs are left to deal with."""

    done: int
    refused: tuple[BulkResult, ...]
    left: int


@dataclass(frozen=True, slots=True)
class _Deed:
    """Who empties a queue, when and why, and where its waiting jobs go."""

    actor: Actor
    now: datetime
    reason: str
    target_id: UUID | None


def contents(queue: Queue) -> Contents:
    """Count what a queue and all below it hold: four queries."""
    inside = QueueClosure.objects.filter(ancestor=queue).values("descendant_id")
    counts: dict[str, int] = dict(
        JobCount.objects.filter(queue__in=inside)
        .exclude(phase__in=FINISHED_PHASES)
        .values_list("phase")
        .annotate(n=Sum("amount"))
        .order_by("phase")
    )
    waiting = counts.pop(JobPhase.PENDING, 0)
    below = Queue.objects.filter(id__in=inside).exclude(id=queue.id).order_by("name")
    sums = below.order_by().aggregate(
        all=Count("id"), open=Count("id", filter=Q(state=QueueState.OPEN))
    )
    return Contents(
        below=tuple(below[:SHOWN]),
        below_count=sums["all"],
        open_below=sums["open"],
        waiting=waiting,
        running=sum(counts.values()),
        ever=Job.objects.filter(queue=queue).count(),
    )


def targets(actor: Actor, queue: Queue) -> QuerySet[Queue]:
    """Return the open leaves of the same tenant and cluster, outside of it, to move jobs to."""
    inside = QueueClosure.objects.filter(ancestor=queue).values("descendant_id")
    leaves = Queue.objects.visible_to(access.reads(actor, Verb.JOB_CREATE)).filter(
        cluster_id=queue.cluster_id, state=QueueState.OPEN, children__isnull=True
    )
    if queue.unit is not None:
        leaves = leaves.filter(unit__tenant_id=queue.unit.tenant_id)
    return leaves.exclude(id__in=inside).exclude(parent__isnull=True).order_by("name")


def drain(  # noqa: PLR0913 - by keyword
    *,
    actor: Actor,
    queue_id: UUID,
    now: datetime,
    waiting: Waiting = Waiting.KEEP,
    running: Running = Running.KEEP,
    target_id: UUID | None = None,
    expected_version: int | None = None,
    reason: str = "",
    request_id: str = "",
) -> Drained:
    """Close a queue and all below it, and do with its jobs what was chosen.

    Safe to repeat: called again it goes on with what is left.

    Raises:
        NotFound, Denied: the queue is invisible, or its parent is not managed.
        Invalid: jobs shall be moved and there is no such queue to move them to.
        Conflict: it is the root, or somebody changed it since `expected_version`.
    """
    queue = Queue.objects.filter(id=queue_id).select_related("unit").first()
    if queue is None:
        raise NotFound("queue")
    if waiting == Waiting.MOVE and not _is_target(actor, queue, target_id):
        access.require(actor, Verb.QUEUE_READ, queue.unit_id, what="queue")
        raise Invalid([Problem("target", "queue_no_target", {"queue": queue.name})])
    if queue.state == QueueState.OPEN:
        queues.close_queue(
            actor=actor,
            queue_id=queue_id,
            now=now,
            expected_version=expected_version,
            reason=reason,
            request_id=request_id,
        )
    else:
        queues.require_state_right(actor, queue_id)
    deed = _Deed(actor, now, reason, target_id)
    acts = _acts(deed, queue, waiting, running)
    done, refused, tried = 0, [], 0
    for rows, act in acts:
        for job_id in rows.order_by("created_at", "id").values_list("id", flat=True)[
            : AT_ONCE - tried
        ]:
            tried += 1
            error = _refusal(act, job_id)
            done += error is None
            refused += [BulkResult(job_id, error)] if error is not None else []
    left = sum(rows.count() for rows, _act in acts) - len(refused)
    return Drained(done, tuple(refused), max(0, left))


def _is_target(actor: Actor, queue: Queue, target_id: UUID | None) -> bool:
    return target_id is not None and targets(actor, queue).filter(id=target_id).exists()


def _acts(
    deed: _Deed, queue: Queue, waiting: Waiting, running: Running
) -> list[tuple[QuerySet[Job], Callable[[UUID], object]]]:
    """Return which jobs are to be done what to; what is kept is not listed."""
    inside = QueueClosure.objects.filter(ancestor=queue).values("descendant_id")
    here = Job.objects.filter(queue__in=inside)

    def cancel(job_id: UUID) -> object:
        return jobs.cancel_job(actor=deed.actor, job_id=job_id, now=deed.now, reason=deed.reason)

    def move(job_id: UUID) -> object:
        assert deed.target_id is not None  # noqa: S101 - the caller looked
        return move_job(
            actor=deed.actor,
            job_id=job_id,
            queue_id=deed.target_id,
            now=deed.now,
            reason=deed.reason,
        )

    acts: list[tuple[QuerySet[Job], Callable[[UUID], object]]] = []
    if waiting != Waiting.KEEP:
        act = move if waiting == Waiting.MOVE else cancel
        acts.append((here.filter(phase=JobPhase.PENDING), act))
    if running == Running.CANCEL:
        going = (JobPhase.RUNNING, JobPhase.RESTARTING, JobPhase.ABORTED, JobPhase.ABORTING)
        acts.append((here.filter(phase__in=going), cancel))
    return acts


def _refusal(act: Callable[[UUID], object], job_id: UUID) -> DomainError | None:
    try:
        act(job_id)
    except (Conflict, Denied, Invalid, NotFound) as error:
        return error
    return None


def move_job(*, actor: Actor, job_id: UUID, queue_id: UUID, now: datetime, reason: str = "") -> Job:
    """Let a job that has not started wait in another queue of its tenant.

    Raises:
        NotFound: the job or the queue is invisible.
        Denied: the actor may not control the job, or not submit to the queue.
        Invalid: the queue takes no jobs, belongs to another tenant or cluster, or a quota there
            has no room for it.
        Conflict: the job has started, or its name is taken in the other unit.
    """
    known = Job.objects.filter(id=job_id).values_list("unit_id", "owner_id").first()
    if known is None:
        raise NotFound("job")
    access.require(actor, Verb.JOB_CONTROL, known[0], owner_id=known[1], what="job")
    with transaction.atomic():
        target = _held(queue_id)
        access.require(actor, Verb.JOB_CREATE, target.unit_id, what="queue")
        rows = Job.objects.select_for_update(of=("self",), no_key=True)
        job = rows.select_related("queue", "unit").get(id=job_id)
        _require_movable(job, target)
        before = {"queue": job.queue.name, "unit": job.unit_id}
        old_queue = job.queue_id
        assert target.unit is not None  # noqa: S101 - the root takes no jobs
        quotas.require_room_to_submit(
            unit_id=target.unit.id,
            owner_id=job.owner_id,
            spec=jobs.clone_spec(job),
            moved_job=job.id,
        )
        job.queue, job.unit, job.version = target, target.unit, job.version + 1
        job.spec = {**job.spec, "queue": target.name}
        # Admission is asked anew there, and the reason of the old queue says nothing any more.
        job.gang_phase, job.reason_code, job.reason_params = "Pending", "", {}
        _save(job)
        after = {"queue": target.name, "unit": target.unit_id}
        audit.record(
            actor=actor,
            action="job.move",
            subject=job,
            before=before,
            after=after,
            unit=target.unit,
            now=now,
            reason=reason,
        )
        _announce(job, (old_queue, target.id), now)
    return job


def _held(queue_id: UUID) -> Queue:
    """Lock a queue like who submits to it does, and return it as it is now."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT id FROM scheduling_queue WHERE id = %s FOR SHARE", [queue_id])
    held = Queue.objects.select_related("unit").filter(id=queue_id).first()
    if held is None or held.unit is None:
        raise NotFound("queue")
    children = held.children.count()
    if children:
        raise Invalid(
            [Problem("queue", "queue_not_leaf", {"queue": held.name, "children": children})]
        )
    if held.state != QueueState.OPEN:
        raise Invalid(
            [Problem("queue", "queue_closed", {"queue": held.name, "state": str(held.state)})]
        )
    return held


def _require_movable(job: Job, target: Queue) -> None:
    is_near = (
        target.unit is not None
        and target.unit.tenant_id == job.tenant_id
        and target.cluster_id == job.queue.cluster_id
    )
    if not is_near:
        raise Invalid([Problem("queue", "job_stays_in_tenant", {"queue": target.name})])
    if job.phase != JobPhase.PENDING or job.tasks_starting or job.tasks_running:
        raise Conflict("job_not_waiting", {"job": job.name, "phase": job.phase})


def _save(job: Job) -> None:
    fields = ["queue", "unit", "version", "spec", "gang_phase", "reason_code", "reason_params"]
    try:
        with transaction.atomic():
            job.save(update_fields=fields)
    except IntegrityError as error:
        if "job_name_unique_while_live" not in str(error):
            raise
        raise Conflict("job_name_taken", {"name": job.name, "unit": job.unit.name}) from error


def _announce(job: Job, queue_ids: Sequence[UUID], now: datetime) -> None:
    hints = [topics.Hint(topics.job(job.id), "state")]
    hints += [topics.Hint(topics.jobs(queue_id), "state") for queue_id in queue_ids]
    message = topics.message(hints)
    if message is not None:
        outbox.publish_many([message], now=now)
    notify.notify(notify.SCHEDULE, str(job.queue.cluster_id))
