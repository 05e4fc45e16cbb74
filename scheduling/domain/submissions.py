"""Accept jobs: one by itself, or thousands with a few statements, each judged by itself."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from uuid import UUID

from django.db import IntegrityError, transaction

from scheduling.domain import job_secrets, quotas
from scheduling.domain.bare_rows import NewRows
from scheduling.domain.transitions import Batch
from scheduling.engine.garbage import without_collecting
from scheduling.lifecycle.states import FINISHED_PHASES
from scheduling.models import Job, JobFile, Queue, Role
from scheduling.models.queue import QueueState
from scheduling.spec.job_spec import JobSpec, RoleSpec
from tenants.domain import access, audit
from tenants.domain.access import Actor, Verb
from tenants.domain.errors import Conflict, Denied, DomainError, Invalid, Problem
from tenants.domain.prepared import prepared
from tenants.models import AuditRow, OrgUnit

POD = 1000
"""What one task asks of `pods`."""
PRIORITY_CLASSES = {"low": -100, "normal": 0, "high": 100}
"""The classes that Terrace knows; any other name counts as normal."""
TASKS_AT_ONCE = 2_000
"""A transaction of a batch takes jobs until they have so many tasks."""
JOBS_AT_ONCE = 500

Submitted = Job | DomainError
_NEW_JOBS, _NEW_ROLES = NewRows(Job), NewRows(Role)


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
        Invalid: the queue takes no jobs, a quota none of this size or no more that wait, a secret
            or the code is not there.
        Conflict: a live job of the same unit has this name.
    """
    target, above = (queue, None) if queue else _named(actor, spec.queue)
    _require_may_submit(actor, target, above)
    _require_priority_right(actor, spec, target)
    try:
        with transaction.atomic():
            held = _hold_queue(target, roles=len(spec.roles))
            target = held.queue
            _require_allowance(actor, spec, target, is_counted=held.has_quotas)
            _require_code(actor, code_file_id)
            (job,) = _insert(actor, [spec], held, now=now, request_id=request_id)
            if code_file_id is not None:
                JobFile.objects.filter(id=code_file_id, job__isnull=True).update(job=job)
    except IntegrityError as error:
        raise _conflict(error, spec.name, target) from error
    return job


def submit_many(
    *,
    actor: Actor,
    specs: Sequence[JobSpec | DomainError],
    now: datetime,
    request_id: str = "",
    is_whole: bool = False,
) -> list[Submitted]:
    """Accept many jobs; return for each, in order, the job or why it was refused.

    A spec that could not be read is given as its error and keeps its place. Jobs go in by hundreds,
    in the order given, each transaction for one queue; where a name is taken in the very moment,
    the jobs of its transaction are tried one by one. With `is_whole` all are accepted or none: if
    one is refused, the others are refused for that.
    """
    if not is_whole:
        return _Submissions(actor, now, request_id).run(specs)
    with transaction.atomic():
        results = _Submissions(actor, now, request_id).run(specs)
        refused = sum(isinstance(one, DomainError) for one in results)
        if refused:
            transaction.set_rollback(True)
    if not refused:
        return results
    because = Conflict("batch_not_whole", {"refused": refused})
    return [one if isinstance(one, DomainError) else because for one in results]


@dataclass(slots=True)
class _Submissions:
    """One batch: rights are asked once for each queue, rows are written by hundreds."""

    actor: Actor
    now: datetime
    request_id: str
    _gates: dict[str, Queue | DomainError] = field(default_factory=dict)
    _priority: dict[UUID, DomainError | None] = field(default_factory=dict)

    def run(self, specs: Sequence[JobSpec | DomainError]) -> list[Submitted]:
        results: dict[int, Submitted] = {}
        by_queue: defaultdict[UUID, list[int]] = defaultdict(list)
        queues: dict[UUID, Queue] = {}
        for index, spec in enumerate(specs):
            judged = spec if isinstance(spec, DomainError) else self._judge(spec)
            if isinstance(judged, DomainError):
                results[index] = judged
            else:
                queues[judged.id] = judged
                by_queue[judged.id].append(index)
        for queue_id, indexes in by_queue.items():
            wanted = [(n, spec) for n in indexes if isinstance(spec := specs[n], JobSpec)]
            for part in _parts(wanted, at_once=self._at_once(queues[queue_id])):
                results.update(self._submit(queues[queue_id], part))
        return [results[index] for index in range(len(specs))]

    def _judge(self, spec: JobSpec) -> Queue | DomainError:
        """Return the queue of a spec if the actor may submit it there."""
        gate = self._gates.get(spec.queue)
        if gate is None:
            gate = self._gates[spec.queue] = self._gate(spec.queue)
        if isinstance(gate, DomainError) or priority_of(spec) <= 0:
            return gate
        if gate.id not in self._priority:
            self._priority[gate.id] = None
            try:
                _require_priority_right(self.actor, spec, gate)
            except DomainError as error:
                self._priority[gate.id] = error
        return self._priority[gate.id] or gate

    def _gate(self, name: str) -> Queue | DomainError:
        try:
            queue, above = _named(self.actor, name)
            _require_may_submit(self.actor, queue, above)
        except DomainError as error:
            return error
        return queue

    def _at_once(self, queue: Queue) -> int:
        """Return how many jobs go in together: one where a quota counts them as they come."""
        assert queue.unit_id is not None and self.actor.user_id is not None  # noqa: S101, PT018 -- judged
        is_counted = quotas.has_any(unit_id=queue.unit_id, owner_id=self.actor.user_id)
        return 1 if is_counted else JOBS_AT_ONCE

    def _submit(self, queue: Queue, part: list[tuple[int, JobSpec]]) -> dict[int, Submitted]:
        try:
            with without_collecting(), transaction.atomic():
                roles = sum(len(spec.roles) for _, spec in part)
                return self._insert(_hold_queue(queue, roles=roles), part)
        except IntegrityError as error:
            if len(part) == 1:
                (index, spec) = part[0]
                return {index: _conflict(error, spec.name, queue)}
            return {n: one for item in part for n, one in self._submit(queue, [item]).items()}
        except Invalid as error:  # the queue was closed, or got a queue below, meanwhile
            return dict.fromkeys((index for index, _ in part), error)

    def _insert(self, held: _Held, part: list[tuple[int, JobSpec]]) -> dict[int, Submitted]:
        queue = held.queue
        names = {spec.name for _, spec in part}
        live = Job.objects.filter(unit_id=queue.unit_id, name__in=names)
        taken = set(live.exclude(phase__in=FINISHED_PHASES).values_list("name", flat=True))
        results: dict[int, Submitted] = {}
        accepted: list[tuple[int, JobSpec]] = []
        for index, spec in part:
            if spec.name in taken:
                results[index] = _name_taken(spec.name, queue)
                continue
            try:
                is_counted = held.has_quotas and len(part) == 1
                _require_allowance(self.actor, spec, queue, is_counted=is_counted)
            except (Denied, Invalid) as error:
                results[index] = error
                continue
            taken.add(spec.name)
            accepted.append((index, spec))
        jobs = _insert(
            self.actor,
            [spec for _, spec in accepted],
            held,
            # A moment apart, so that they start in the order in which they were given.
            now=self.now + timedelta(microseconds=part[0][0]),
            request_id=self.request_id,
        )
        results.update(zip((index for index, _ in accepted), jobs, strict=True))
        return results


def _parts(
    wanted: list[tuple[int, JobSpec]], *, at_once: int = JOBS_AT_ONCE
) -> list[list[tuple[int, JobSpec]]]:
    """Split jobs into what one transaction takes."""
    parts: list[list[tuple[int, JobSpec]]] = []
    tasks = 0
    for item in wanted:
        size = item[1].task_count
        if not parts or len(parts[-1]) >= at_once or tasks + size > TASKS_AT_ONCE:
            parts.append([])
            tasks = 0
        parts[-1].append(item)
        tasks += size
    return parts


# --- what is required -----------------------------------------------------------------------------


def queue_named(*, actor: Actor, name: str) -> Queue:
    """Return the queue that a spec names.

    Raises:
        Invalid: there is none, or none that the actor may know of.
    """
    return _named(actor, name)[0]


QUEUE_FIELDS = ("id", "cluster_id", "unit_id", "parent_id", "name", "state", "created_at")
UNIT_FIELDS = ("id", "parent_id", "tenant_id", "name", "kind")
QUEUES_NAMED = f"""
SELECT {", ".join(f"queue.{name}" for name in QUEUE_FIELDS)},
    {", ".join(f"unit.{name}" for name in UNIT_FIELDS)},
    ARRAY(SELECT ancestor_id FROM tenants_orgclosure WHERE descendant_id = queue.unit_id)
FROM scheduling_queue AS queue LEFT JOIN tenants_orgunit AS unit ON unit.id = queue.unit_id
WHERE queue.name = %s ORDER BY queue.created_at
"""  # noqa: S608 -- the columns above
"""The queues of a name, one in each cluster, their units and all units above those."""


def _named(actor: Actor, name: str) -> tuple[Queue, list[UUID]]:
    """Return the queue that a spec names, as `queue_named`, and the units at and above its own.

    Each submission asks it: as text, so that it is not put together anew each time.
    """
    scope = access.reads(actor, Verb.QUEUE_READ)
    with prepared() as cursor:
        cursor.execute(QUEUES_NAMED, [name])
        rows = cursor.fetchall()
    for row in rows:
        above: list[UUID] = row[-1]
        if not scope.sees_everything and scope.readable_units.isdisjoint(above):
            continue
        queue = Queue.from_db("default", QUEUE_FIELDS, row[: len(QUEUE_FIELDS)])
        if queue.unit_id is not None:
            queue.unit = OrgUnit.from_db("default", UNIT_FIELDS, row[len(QUEUE_FIELDS) : -1])
        return queue, above
    raise Invalid([Problem("queue", "queue_missing", {"queue": name})])


def _require_may_submit(actor: Actor, queue: Queue, above: list[UUID] | None) -> None:
    if queue.unit_id is None:
        raise Invalid([Problem("queue", "queue_not_leaf", {"queue": queue.name, "children": 1})])
    access.require(actor, Verb.JOB_CREATE, queue.unit_id, above=above, what="queue")
    if actor.user_id is None:
        raise Invalid([Problem("owner", "owner_missing")])


@dataclass(frozen=True, slots=True)
class _Held:
    """A locked queue that takes jobs, and what was asked with it."""

    queue: Queue
    has_quotas: bool
    """Whether any quota is around its unit."""
    role_ids: list[int]
    """Fresh ids for the roles that are to come."""


AROUND = f"""
SELECT (SELECT count(*) FROM scheduling_queue WHERE parent_id = %s), {quotas.ANY_AROUND},
    ARRAY(SELECT nextval(pg_get_serial_sequence('scheduling_role', 'id'))
          FROM generate_series(1, %s::int))
"""  # noqa: S608 -- no value in it


def _hold_queue(queue: Queue, *, roles: int) -> _Held:
    """Lock a queue FOR SHARE, see that it takes jobs now, and take ids for so many roles.

    Many submit at once. Who closes the queue or gives it a queue below waits until we have
    committed and finds our job; if they came first we wait, and find what they did. Django knows
    no FOR SHARE, and FOR KEY SHARE lets an update pass by. The queues below are counted by a
    statement of its own: one that had to wait for the lock still sees them as they were before.
    """
    with prepared() as cursor:
        cursor.execute(
            "SELECT state, unit_id FROM scheduling_queue WHERE id = %s FOR SHARE", [queue.id]
        )
        row = cursor.fetchone()
        if row is None:
            raise Invalid([Problem("queue", "queue_missing", {"queue": queue.name})])
        state, unit_id = row
        cursor.execute(AROUND, [queue.id, unit_id, roles])
        children, has_quotas, role_ids = cursor.fetchone()
    if children:
        params: dict[str, str | int | float] = {"queue": queue.name, "children": children}
        raise Invalid([Problem("queue", "queue_not_leaf", params)])
    if state != QueueState.OPEN:
        raise Invalid([Problem("queue", "queue_closed", {"queue": queue.name, "state": state})])
    if unit_id != queue.unit_id:
        queue = Queue.objects.select_related("unit").get(id=queue.id)
    return _Held(queue, has_quotas, role_ids)


def _require_allowance(
    actor: Actor, spec: JobSpec, queue: Queue, *, is_counted: bool = True
) -> None:
    """Ask the quotas and secrets around the queue, in the submitting transaction."""
    assert queue.unit_id is not None and actor.user_id is not None  # noqa: S101, PT018 -- asked before
    if is_counted:
        quotas.require_room_to_submit(unit_id=queue.unit_id, owner_id=actor.user_id, spec=spec)
    job_secrets.require_usable(actor=actor, unit_id=queue.unit_id, spec=spec)


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


# --- rows -----------------------------------------------------------------------------------------


def _insert(
    actor: Actor, specs: Sequence[JobSpec], held: _Held, *, now: datetime, request_id: str
) -> list[Job]:
    """Insert jobs of one queue with their roles, tasks, history, audit and outbox rows."""
    if not specs:
        return []
    batch = Batch(now=now, actor_label=actor.label)
    queue, role_ids = held.queue, iter(held.role_ids)
    jobs = []
    for position, spec in enumerate(specs):
        at = now + timedelta(microseconds=position)
        job = _job_row(actor=actor, spec=spec, queue=queue, now=at)
        roles = role_rows(job, spec)
        for role in roles:
            role.id = next(role_ids)
        work = batch.adopt(job, roles)
        work.record_submission()
        for role in roles:
            work.create_tasks(role, 0, role.replicas)
        jobs.append(job)
    records = audit.rows_of(
        actor=actor,
        acts=[
            audit.Act(
                "job.create",
                job,
                None,
                {"queue": queue.name, "tasks": spec.task_count, "priority": job.priority},
            )
            for job, spec in zip(jobs, specs, strict=True)
        ],
        unit=queue.unit,
        now=now,
        request_id=request_id,
    )
    batch.insert_alongside(records, AuditRow)
    batch.flush()
    return jobs


def _conflict(error: IntegrityError, name: str, queue: Queue) -> Conflict:
    """Return what a broken constraint means to who submits, or raise it again."""
    if "job_name_unique_while_live" not in str(error):
        raise error
    return _name_taken(name, queue)


def _name_taken(name: str, queue: Queue) -> Conflict:
    assert queue.unit is not None  # noqa: S101 -- asked before
    return Conflict("job_name_taken", {"name": name, "unit": queue.unit.name})


def _job_row(*, actor: Actor, spec: JobSpec, queue: Queue, now: datetime) -> Job:
    assert queue.unit is not None and actor.user_id is not None  # noqa: S101, PT018 -- the caller did
    return _NEW_JOBS.make(
        related={"unit": queue.unit, "queue": queue},
        tenant_id=queue.unit.tenant_id,
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


def role_rows(job: Job, spec: JobSpec) -> list[Role]:
    """Return the roles of a job as its spec has them."""
    return [
        _NEW_ROLES.make(
            related={"job": job},
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
