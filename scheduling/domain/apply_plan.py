"""Make a plan true: whole gangs, re-checked against the rows, under the epoch of the lease.

A plan was made from a snapshot, and the world went on meanwhile. Each batch is one transaction:

1. compare the lease's epoch (locked FOR SHARE: a successor waits for us, or we find its epoch),
2. lock queues (root first), quotas, nodes and jobs, always in this order,
3. re-check each job as a whole: its tasks still wait, its nodes have the room and the devices, no
   queue above it would pass its max and no quota around it its limit; a job that does not hold is
   rejected, the others stand,
4. write attempts, holds, states, history, and the commands to launch and stop into the outbox.

What is left over follows: phases of gangs and reasons by a thousand jobs a transaction, then
reservations and shares.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

from django.db import connection

from scheduling.domain import holds, leases, ports, topics
from scheduling.domain.bulk_rows import copy_rows, next_ids, notify_each, update_rows
from scheduling.domain.job_work import JobWork
from scheduling.domain.quota_walls import Walls
from scheduling.domain.transition_rows import NewAttempt, OutboxLine
from scheduling.domain.transitions import LAUNCH_TOPIC, Batch
from scheduling.engine import types as engine
from scheduling.engine.garbage import without_collecting
from scheduling.lifecycle.states import (
    LIVE_ATTEMPT_STATES,
    SCHEDULABLE_PHASES,
    AttemptState,
    StopReason,
    TaskState,
)
from scheduling.lifecycle.values import AttemptEvent
from scheduling.models import (
    Attempt,
    Device,
    DeviceHold,
    Hold,
    Job,
    Node,
    Queue,
    QueueShare,
    Reservation,
    Task,
)
from scheduling.models.node import NodeState
from tenants.domain import notify, outbox
from tenants.models import OutboxRow

BATCH_BINDS = 5000
"""A batch takes whole jobs until it has so many binds."""
JOBS_AT_ONCE = 1000
"""So many jobs get their phase and reason in one transaction: it must not stay idle for long."""
REASONS_AT_MOST = 2000
"""How many jobs get a new reason in one cycle; the others are told in the next ones."""
SHARES_EVERY_SECONDS = 0.5
"""How often shares that change with every cycle are written; an idle cycle writes the last."""
REASON_REFRESH_SECONDS = 5.0
"""How often the numbers of an unchanged reason are written anew."""

STOP_REASONS = {
    "preempt": StopReason.PREEMPTED,
    "gangpreempt": StopReason.PREEMPTED,
    "shuffle": StopReason.PREEMPTED,
    "reclaim": StopReason.RECLAIMED,
    "gangreclaim": StopReason.RECLAIMED,
}

Amounts = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Rejection:
    """A job whose part of the plan did not hold any more; `what` names what stood in the way."""

    job: str
    what: str


@dataclass(slots=True)
class Applied:
    """What became true of a plan."""

    binds: int = 0
    evictions: int = 0
    rejected: list[Rejection] = field(default_factory=list)
    started: set[str] = field(default_factory=set)
    """Jobs whose gang's phase was written with their binds."""


@dataclass(slots=True)
class Told:
    """What a holder has written of reasons and shares, so that an idle cycle touches no row.

    A job's reason counts as told while the job's row has the same version: whoever changes the
    job's state takes its reason away.
    """

    versions: Mapping[str, int] = field(default_factory=dict)
    """Job key -> version of its row, as the snapshot cache keeps it."""
    reasons: dict[str, tuple[int, engine.Reason, datetime]] = field(default_factory=dict)
    shares: tuple[engine.QueueShare, ...] = ()
    shares_at: datetime | None = None

    def is_time_for(self, shares: tuple[engine.QueueShare, ...], now: datetime) -> bool:
        """Whether shares are to be written: they are new, and the last ones stood for a while."""
        if shares == self.shares:
            return False
        at = self.shares_at
        return at is None or (now - at).total_seconds() >= SHARES_EVERY_SECONDS

    def news(self, plan: engine.Plan, now: datetime) -> dict[str, engine.Reason]:
        """Return the reasons that are new, at most `REASONS_AT_MOST`, and count them as told."""
        fresh: dict[str, engine.Reason] = {}
        versions, reasons = self.versions, self.reasons
        # Thousands of jobs share a few reasons, the plan's and those told: each pair is compared
        # once, which makes an idle cycle half as long.
        alike: dict[tuple[int, int], bool] = {}
        for key, reason in plan.job_reasons.items():
            version = versions.get(key, 0)
            known = reasons.get(key)
            if known is not None and known[0] == version:
                pair = (id(known[1]), id(reason))
                is_alike = alike.get(pair)
                if is_alike is None:
                    is_alike = alike[pair] = known[1] == reason
                if is_alike or _is_too_soon(known[1], known[2], reason, now):
                    continue
            reasons[key] = (version, reason, now)
            fresh[key] = reason
            if len(fresh) >= REASONS_AT_MOST:
                break
        if len(reasons) > len(plan.job_reasons):
            for key in reasons.keys() - plan.job_reasons.keys():
                del reasons[key]
        return fresh


def _is_too_soon(told: engine.Reason, at: datetime, reason: engine.Reason, now: datetime) -> bool:
    """Whether only the numbers of a reason are others, and the old ones are young."""
    return told.code == reason.code and (now - at).total_seconds() < REASON_REFRESH_SECONDS


def apply(  # noqa: PLR0913 -- what a cycle has
    plan: engine.Plan,
    *,
    cluster_id: UUID,
    scope: str,
    epoch: int,
    snapshot: engine.Snapshot,
    now: datetime,
    told: Told | None = None,
) -> Applied:
    """Write a plan; every transaction checks the epoch. `told` is kept from cycle to cycle.

    Raises:
        LeaseLostError: another process holds the lease by now; what was committed before stands.
    """
    applied = Applied()
    for binds, evictions in _batches(plan):
        with without_collecting(), leases.fenced(scope=scope, epoch=epoch):
            _Apply(cluster_id, epoch, now, applied).run(binds, evictions, plan.phases)
    told = told if told is not None else Told()
    reasons = told.news(plan, now)
    phases = {key: one for key, one in plan.phases.items() if key not in applied.started}
    keys = sorted({*phases, *reasons})
    for first in range(0, len(keys), JOBS_AT_ONCE):
        part = keys[first : first + JOBS_AT_ONCE]
        with leases.fenced(scope=scope, epoch=epoch):
            _write_jobs(part, phases, reasons, cluster_id=cluster_id, now=now)
    has_new_shares = told.is_time_for(plan.shares, now)
    if plan.task_reasons or has_new_shares or plan.reservations != snapshot.reservations:
        with leases.fenced(scope=scope, epoch=epoch):
            _write_task_reasons(plan)
            _write_reservations(plan, snapshot, now)
            if has_new_shares:
                _write_shares(plan, cluster_id, now)
        if has_new_shares:
            told.shares, told.shares_at = plan.shares, now
    return applied


def _batches(plan: engine.Plan) -> Iterator[tuple[list[engine.Binding], list[engine.Eviction]]]:
    """Split a plan into parts of whole jobs; evictions go with the first part."""
    by_job: defaultdict[str, list[engine.Binding]] = defaultdict(list)
    for bind in plan.binds:
        by_job[bind.job].append(bind)
    evictions = list(plan.evictions)
    binds: list[engine.Binding] = []
    for group in by_job.values():
        if binds and len(binds) + len(group) > BATCH_BINDS:
            yield binds, evictions
            binds, evictions = [], []
        binds += group
    if binds or evictions:
        yield binds, evictions


@dataclass(slots=True)
class NewHold:
    """The columns of a hold that is just being taken."""

    id: int
    attempt_id: UUID
    node_id: UUID
    queue_id: UUID
    cpu_milli: int
    memory_bytes: int
    gpu_milli: int
    extended: dict[str, int]
    cpus: list[int]
    created_at: datetime
    released_at: datetime | None = None


class _Apply:
    """One transaction of a plan."""

    def __init__(self, cluster_id: UUID, epoch: int, now: datetime, applied: Applied) -> None:
        self.cluster_id, self.epoch, self.now, self.applied = cluster_id, epoch, now, applied
        self.batch = Batch(now=now, actor_label="scheduler")

    def run(
        self,
        binds: list[engine.Binding],
        evictions: list[engine.Eviction],
        phases: Mapping[str, engine.GangPhase],
    ) -> None:
        jobs = {UUID(bind.job) for bind in binds} | {UUID(one.job) for one in evictions}
        self.queues = _Queues(self.cluster_id, {UUID(bind.job) for bind in binds})
        self.walls = Walls({UUID(bind.job) for bind in binds})
        self.nodes = _Nodes(self.cluster_id, binds)
        self.phases = phases
        works = {work.job.id: work for work in self.batch.lock(sorted(jobs))}
        tasks = {int(bind.task) for bind in binds} | {int(one.task) for one in evictions}
        rows = Task.objects.in_bulk(tasks)
        self._evict(works, rows, evictions)
        self._bind(works, rows, binds)
        self.batch.flush()

    # --- evictions --------------------------------------------------------------------------------

    def _evict(
        self, works: dict[UUID, JobWork], rows: dict[int, Task], evictions: list[engine.Eviction]
    ) -> None:
        if not evictions:
            return
        tasks = [int(one.task) for one in evictions]
        live = [str(state) for state in LIVE_ATTEMPT_STATES - {AttemptState.STOPPING}]
        found = Attempt.objects.filter(task__in=tasks, state__in=live).select_related("task")
        attempts = {attempt.task_id: attempt for attempt in found}
        for eviction in evictions:
            work, attempt = works.get(UUID(eviction.job)), attempts.get(int(eviction.task))
            if work is None or attempt is None or int(eviction.task) not in rows:
                continue  # it ended by itself meanwhile
            work.take([attempt])
            work.attempt_event(
                work.attempts[attempt.id],
                AttemptEvent.STOP,
                stop_reason=STOP_REASONS[eviction.action],
                evicted_for_id=UUID(eviction.beneficiary) if eviction.beneficiary else None,
            )
            self.applied.evictions += 1

    # --- binds ------------------------------------------------------------------------------------

    def _bind(
        self, works: dict[UUID, JobWork], rows: dict[int, Task], binds: list[engine.Binding]
    ) -> None:
        by_job: defaultdict[str, list[engine.Binding]] = defaultdict(list)
        for bind in binds:
            by_job[bind.job].append(bind)
        accepted: list[tuple[engine.Binding, Task, JobWork]] = []
        for key, group in by_job.items():
            work = works.get(UUID(key))
            obstacle = "gone" if work is None else self._obstacle(work, rows, group)
            if obstacle or work is None:
                self.applied.rejected.append(Rejection(key, obstacle))
                continue
            accepted += [(bind, rows[int(bind.task)], work) for bind in group]
        self._write(accepted)
        for work in {id(work): work for _, _, work in accepted}.values():
            self._settle_gang(work)
        self.applied.binds += len(accepted)

    def _settle_gang(self, work: JobWork) -> None:
        """Write the gang's phase along with its binds, which saves the next cycle a write."""
        key = str(work.job.id)
        roles = work.roles.values()
        placed = sum(
            role.tasks_starting + role.tasks_running + role.tasks_stopping + role.tasks_succeeded
            for role in roles
        )
        if placed >= work.job.min_available:
            work.job.gang_phase = str(engine.GangPhase.RUNNING)
        elif key in self.phases:
            work.job.gang_phase = str(self.phases[key])
        self.applied.started.add(key)

    def _obstacle(self, work: JobWork, rows: dict[int, Task], group: list[engine.Binding]) -> str:
        """Return what stands in the way of a job's binds; if nothing does, count them as done."""
        job = work.job
        if job.phase not in SCHEDULABLE_PHASES or job.wish:
            return "phase"
        tasks = [rows.get(int(bind.task)) for bind in group]
        if any(task is None or not self._is_waiting(task, job) for task in tasks):
            return "task"
        requests = {role.id: role.request for role in work.roles.values()}
        pairs = [
            (bind, requests[task.role_id])
            for bind, task in zip(group, tasks, strict=True)
            if task is not None
        ]
        total = _sum(request for _, request in pairs)
        if not self.queues.has_room(job.queue_id, total):
            return "queue"
        if not self.walls.has_room(job, total):
            return "quota"
        if not self.nodes.take(pairs):
            return "node"
        self.queues.take(job.queue_id, total)
        self.walls.take(job, total)
        return ""

    def _is_waiting(self, task: Task, job: Job) -> bool:
        is_due = task.not_before is None or task.not_before <= self.now
        return task.job_id == job.id and task.state == TaskState.PENDING and is_due

    def _write(self, accepted: list[tuple[engine.Binding, Task, JobWork]]) -> None:
        if not accepted:
            return
        chosen = ports.choose(
            [(work.job, self.nodes.rows[bind.node]) for bind, _, work in accepted]
        )
        new_holds: list[NewHold] = []
        device_holds: list[DeviceHold] = []
        commands: list[OutboxLine] = []
        ids = next_ids(Hold, len(accepted))
        for hold_id, (bind, task, work), numbers in zip(ids, accepted, chosen, strict=True):
            node = self.nodes.rows[bind.node]
            attempt = self._attempt(task, work.job, node, numbers)
            work.bind(task, attempt)
            hold = self._hold(hold_id, attempt, work, task, bind)
            new_holds.append(hold)
            device_holds += self.nodes.device_holds(hold, bind, work.roles[task.role_id].request)
            key = str(attempt.id)
            commands.append(
                OutboxLine(LAUNCH_TOPIC, key, {"attempt": key}, node.id, self.now, self.now)
            )
        self.batch.write_first(lambda: self._copy(new_holds, device_holds, commands))

    def _copy(
        self,
        new_holds: list[NewHold],
        device_holds: list[DeviceHold],
        commands: list[OutboxLine],
    ) -> None:
        copy_rows(new_holds, Hold)
        copy_rows(device_holds)
        copy_rows(commands, OutboxRow)
        notify_each((notify.NODE, str(command.node)) for command in commands)

    def _attempt(self, task: Task, job: Job, node: Node, numbers: dict[str, int]) -> NewAttempt:
        return NewAttempt(
            id=uuid4(),
            task_id=task.id,
            job_id=job.id,
            node_id=node.id,
            number=task.attempt_number + 1,
            generation=job.generation,
            epoch=self.epoch,
            ports=numbers,
            bound_at=self.now,
        )

    def _hold(
        self, hold_id: int, attempt: NewAttempt, work: JobWork, task: Task, bind: engine.Binding
    ) -> NewHold:
        request = work.roles[task.role_id].request
        return NewHold(
            id=hold_id,
            attempt_id=attempt.id,
            node_id=attempt.node_id,
            queue_id=work.job.queue_id,
            cpu_milli=request.get(engine.CPU, 0),
            memory_bytes=request.get(engine.MEMORY, 0),
            gpu_milli=request.get(engine.GPU, 0),
            extended=holds.extended_of(request),
            cpus=list(bind.cpus),
            created_at=self.now,
        )


# --- room -----------------------------------------------------------------------------------------


class _Queues:
    """The queues above the jobs, locked, with what they hold and may hold."""

    def __init__(self, cluster_id: UUID, job_ids: Collection[UUID]) -> None:
        self.above: defaultdict[UUID, list[UUID]] = defaultdict(list)
        self.max: dict[UUID, Amounts] = {}
        self.usage: dict[UUID, dict[str, int]] = {}
        if job_ids:
            self._read(cluster_id, job_ids)

    def _read(self, cluster_id: UUID, job_ids: Collection[UUID]) -> None:
        with connection.cursor() as cursor:
            cursor.execute(QUEUES_ABOVE, [list(job_ids)])
            for ancestor, descendant in cursor.fetchall():
                self.above[descendant].append(ancestor)
        involved = {ancestor for group in self.above.values() for ancestor in group}
        self.max = _lock_queues(involved)
        limited = [queue_id for queue_id, limits in self.max.items() if limits]
        if limited:
            self.usage = {
                queue.id: dict(holds.usage_of_queue(queue))
                for queue in Queue.objects.filter(cluster_id=cluster_id, id__in=limited)
            }

    def has_room(self, queue_id: UUID, total: Amounts) -> bool:
        return all(
            self.usage[above].get(name, 0) + total.get(name, 0) <= limit
            for above in self.above[queue_id]
            for name, limit in self.max[above].items()
            if total.get(name, 0)
        )

    def take(self, queue_id: UUID, total: Amounts) -> None:
        for above in self.above[queue_id]:
            usage = self.usage.get(above)
            if usage is not None:
                for name, amount in total.items():
                    usage[name] = usage.get(name, 0) + amount


QUEUES_ABOVE = """
SELECT c.ancestor_id, c.descendant_id FROM scheduling_queueclosure AS c
WHERE c.descendant_id IN (SELECT queue_id FROM scheduling_job WHERE id = ANY(%s))
"""
LOCK_QUEUES = """
SELECT q.id, q.max FROM scheduling_queue AS q WHERE q.id = ANY(%s)
ORDER BY
    (SELECT count(*) FROM scheduling_queueclosure AS c WHERE c.descendant_id = q.id), q.id
FOR SHARE OF q
"""


def _lock_queues(queue_ids: Collection[UUID]) -> dict[UUID, Amounts]:
    """Lock queues FOR SHARE, the root first, and return their max as it is now.

    Of a row that it had to wait for, such a statement gives what is committed, not what it saw.
    """
    with connection.cursor() as cursor:
        cursor.execute(LOCK_QUEUES, [list(queue_ids)])
        return {queue_id: json.loads(limits) for queue_id, limits in cursor.fetchall()}


class _Nodes:
    """The nodes of the binds, locked, with what is free on them."""

    def __init__(self, cluster_id: UUID, binds: Collection[engine.Binding]) -> None:
        names = {bind.node for bind in binds}
        locked = Node.objects.select_for_update(no_key=True).order_by("id")
        self.rows = (
            {node.name: node for node in locked.filter(cluster_id=cluster_id, name__in=names)}
            if names
            else {}
        )
        self.free = {name: dict(node.allocatable) for name, node in self.rows.items()}
        ids = {node.id: node.name for node in self.rows.values()}
        for node_id, amounts in holds.usage_of_nodes(ids).items():
            _subtract(self.free[ids[node_id]], amounts)
        self.devices: dict[str, Device] = {}
        self.device_milli: defaultdict[str, int] = defaultdict(int)
        self._read_devices(ids, {device for bind in binds for device in bind.devices})

    def _read_devices(self, nodes: Collection[UUID], wanted: Collection[str]) -> None:
        """Read the devices that the binds take, and what of them is taken already."""
        if not wanted:
            return
        present = Device.objects.filter(id__in=wanted, node__in=nodes, is_present=True)
        self.devices = {str(device.id): device for device in present}
        held = DeviceHold.objects.filter(device__in=present, released_at__isnull=True)
        for device_id, milli in held.values_list("device_id", "gpu_milli"):
            self.device_milli[str(device_id)] += milli

    def take(self, pairs: list[tuple[engine.Binding, Amounts]]) -> bool:
        """Take the room of all binds of a job, or nothing."""
        wanted: defaultdict[str, dict[str, int]] = defaultdict(dict)
        milli: defaultdict[str, int] = defaultdict(int)
        for bind, request in pairs:
            _add(wanted[bind.node], request)
            for device in bind.devices:
                milli[device] += _device_milli(bind, request)
        if not all(self._has_room(name, amounts) for name, amounts in wanted.items()):
            return False
        if not all(self._is_free(device, amount) for device, amount in milli.items()):
            return False
        for name, amounts in wanted.items():
            _subtract(self.free[name], amounts)
        for device, amount in milli.items():
            self.device_milli[device] += amount
        return True

    def _has_room(self, name: str, amounts: Amounts) -> bool:
        node = self.rows.get(name)
        if node is None or node.state != NodeState.READY or node.is_cordoned or node.is_draining:
            return False
        free = self.free[name]
        return all(amount <= free.get(resource, 0) for resource, amount in amounts.items())

    def _is_free(self, device_id: str, milli: int) -> bool:
        device = self.devices.get(device_id)
        is_usable = device is not None and device.is_healthy
        return is_usable and self.device_milli[device_id] + milli <= WHOLE_DEVICE

    def device_holds(
        self, hold: NewHold, bind: engine.Binding, request: Amounts
    ) -> list[DeviceHold]:
        """Return the rows of the devices that a bind takes."""
        milli = _device_milli(bind, request)
        return [
            DeviceHold(
                hold_id=hold.id,
                device=self.devices[device_id],
                gpu_milli=milli,
                memory_bytes=self.devices[device_id].memory_bytes * milli // WHOLE_DEVICE,
                is_whole=milli == WHOLE_DEVICE,
            )
            for device_id in bind.devices
        ]


WHOLE_DEVICE = 1000


def _device_milli(bind: engine.Binding, request: Amounts) -> int:
    """Return how much of each of its devices a task takes: the whole, unless it asked for less."""
    gpu = request.get(engine.GPU, 0)
    if len(bind.devices) == 1 and 0 < gpu < WHOLE_DEVICE:
        return gpu
    return WHOLE_DEVICE


def _sum(requests: Iterable[Amounts]) -> dict[str, int]:
    total: dict[str, int] = {}
    for request in requests:
        _add(total, request)
    return total


def _add(total: dict[str, int], amounts: Amounts) -> None:
    for name, amount in amounts.items():
        total[name] = total.get(name, 0) + amount


def _subtract(total: dict[str, int], amounts: Amounts) -> None:
    for name, amount in amounts.items():
        total[name] = total.get(name, 0) - amount


# --- what a plan says besides ---------------------------------------------------------------------


LOCK_JOBS = """
SELECT j.id FROM scheduling_job AS j
JOIN scheduling_queue AS q ON q.id = j.queue_id AND q.cluster_id = %(cluster)s
WHERE j.id = ANY(%(ids)s) AND j.phase = ANY(%(phases)s)
ORDER BY j.id FOR NO KEY UPDATE OF j
"""
WRITE_JOBS = """
UPDATE scheduling_job AS j SET
    gang_phase = coalesce(said.gang_phase, j.gang_phase),
    admitted_at = CASE WHEN said.gang_phase = 'Inqueue' THEN %(now)s ELSE j.admitted_at END,
    reason_code = coalesce(said.code, j.reason_code),
    reason_params = coalesce(said.params, j.reason_params),
    reason_at = CASE WHEN said.code IS NULL THEN j.reason_at ELSE %(now)s END
FROM unnest(%(ids)s::uuid[], %(gang_phases)s::text[], %(codes)s::text[], %(params)s::jsonb[])
    AS said(id, gang_phase, code, params)
WHERE j.id = said.id AND j.id = ANY(%(locked)s::uuid[]) AND (
    said.gang_phase IS DISTINCT FROM j.gang_phase AND said.gang_phase IS NOT NULL
    OR said.gang_phase = 'Inqueue'
    OR said.code IS NOT NULL
    AND (said.code, said.params) IS DISTINCT FROM (j.reason_code::text, j.reason_params)
)
RETURNING j.id
"""


def _write_jobs(
    keys: Sequence[str],
    phases: Mapping[str, engine.GangPhase],
    reasons: Mapping[str, engine.Reason],
    *,
    cluster_id: UUID,
    now: datetime,
) -> None:
    """Write phases of gangs and reasons; a row that says so already is left alone."""
    ids = [UUID(key) for key in keys]
    schedulable = [str(phase) for phase in SCHEDULABLE_PHASES]
    said = [reasons.get(key) for key in keys]
    with connection.cursor() as cursor:
        cursor.execute(LOCK_JOBS, {"cluster": cluster_id, "ids": ids, "phases": schedulable})
        cursor.execute(
            WRITE_JOBS,
            {
                "ids": ids,
                "gang_phases": [str(phases[key]) if key in phases else None for key in keys],
                "codes": [None if one is None else str(one.code) for one in said],
                "params": [None if one is None else json.dumps(_json(one.params)) for one in said],
                "locked": [job_id for (job_id,) in cursor.fetchall()],
                "now": now,
            },
        )
        changed = sorted(job_id for (job_id,) in cursor.fetchall())
    message = topics.message([topics.Hint(topics.job(job_id), "state") for job_id in changed])
    if message is not None:
        outbox.publish_many([message], now=now)


def _write_task_reasons(plan: engine.Plan) -> None:
    if not plan.task_reasons:
        return
    rows = Task.objects.filter(
        id__in=[int(key) for key in plan.task_reasons], state=TaskState.PENDING
    )
    changed = []
    for task in rows.select_for_update(no_key=True).order_by("id"):
        reason = plan.task_reasons[str(task.id)]
        params = _json(reason.params)
        if (task.reason_code, task.reason_params) != (reason.code, params):
            task.reason_code, task.reason_params = reason.code, params
            changed.append(task)
    update_rows(changed, ("reason_code", "reason_params"))


def _write_reservations(plan: engine.Plan, snapshot: engine.Snapshot, now: datetime) -> None:
    if plan.reservations == snapshot.reservations:
        return
    kept = {UUID(one.job): one for one in plan.reservations}
    given_up = {UUID(one.job) for one in snapshot.reservations} - kept.keys()
    Reservation.objects.filter(job_id__in=given_up).delete()
    Reservation.objects.bulk_create(
        (
            Reservation(
                job_id=job_id,
                amounts_by_node=_json(one.amounts_by_node),
                reason=one.reason,
                created_at=now,
                expires_at=datetime.fromtimestamp(one.expires_at, tz=UTC),
            )
            for job_id, one in kept.items()
        ),
        update_conflicts=True,
        unique_fields=["job"],
        update_fields=["amounts_by_node", "reason", "expires_at"],
    )


def _write_shares(plan: engine.Plan, cluster_id: UUID, now: datetime) -> None:
    ids = dict(Queue.objects.filter(cluster_id=cluster_id).values_list("name", "id"))
    known = {
        row.queue_id: (row.deserved, row.allocated, row.requested)
        for row in QueueShare.objects.filter(queue__cluster_id=cluster_id)
    }
    changed = []
    for share in plan.shares:
        values = (_json(share.deserved), _json(share.allocated), _json(share.requested))
        queue_id = ids.get(share.queue)
        if queue_id is not None and known.get(queue_id) != values:
            deserved, allocated, requested = values
            changed.append(
                QueueShare(
                    queue_id=queue_id,
                    deserved=deserved,
                    allocated=allocated,
                    requested=requested,
                    updated_at=now,
                )
            )
    if not changed:
        return
    QueueShare.objects.bulk_create(
        changed,
        update_conflicts=True,
        unique_fields=["queue"],
        update_fields=["deserved", "allocated", "requested", "updated_at"],
    )
    hints = [topics.Hint(topics.queue(share.queue_id), "state") for share in changed]
    message = topics.message([*hints, topics.Hint(topics.cluster(cluster_id), "state")])
    if message is not None:
        outbox.publish_many([message], now=now)


def _json(value: Any) -> Any:
    """Return a value as JSON gives it back, so that old and new compare equal."""
    if isinstance(value, Mapping):
        return {str(key): _json(one) for key, one in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_json(one) for one in value]
    if isinstance(value, float):
        return round(value, 3)
    if value is None or isinstance(value, (bool, int)):
        return value
    return str(value)
