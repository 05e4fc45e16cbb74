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

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID, uuid4

from scheduling.domain import holds, leases, ports
from scheduling.domain.bare_rows import tasks_by_id
from scheduling.domain.bulk_rows import copy_rows, next_ids, notify_each
from scheduling.domain.job_work import JobWork
from scheduling.domain.plan_room import NodeRoom, QueueRoom, total_of
from scheduling.domain.plan_words import (
    Told,
    write_jobs,
    write_reservations,
    write_shares,
    write_task_reasons,
)
from scheduling.domain.quota_walls import Walls
from scheduling.domain.transition_rows import NewAttempt, NewHold, OutboxLine
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
from scheduling.models import Attempt, DeviceHold, Hold, Job, Node, Task
from tenants.domain import notify
from tenants.models import OutboxRow

BATCH_BINDS = 5000
"""A batch takes whole jobs until it has so many binds."""
FIRST_BATCH_BINDS = 500
"""The first batch is small: its tasks start while the others are written."""
JOBS_AT_ONCE = 1000
"""So many jobs get their phase and reason in one transaction: it must not stay idle for long."""
STOP_REASONS = {
    "preempt": StopReason.PREEMPTED,
    "gangpreempt": StopReason.PREEMPTED,
    "shuffle": StopReason.PREEMPTED,
    "reclaim": StopReason.RECLAIMED,
    "gangreclaim": StopReason.RECLAIMED,
}


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
            write_jobs(part, phases, reasons, cluster_id=cluster_id, now=now)
    has_new_shares = told.is_time_for(plan.shares, now)
    if plan.task_reasons or has_new_shares or plan.reservations != snapshot.reservations:
        with leases.fenced(scope=scope, epoch=epoch):
            write_task_reasons(plan)
            write_reservations(plan, snapshot, now)
            if has_new_shares:
                write_shares(plan, cluster_id, now)
        if has_new_shares:
            told.shares, told.shares_at = plan.shares, now
    return applied


def _batches(plan: engine.Plan) -> Iterator[tuple[list[engine.Binding], list[engine.Eviction]]]:
    """Split a plan into parts of whole jobs; evictions go with the first part."""
    limit = FIRST_BATCH_BINDS
    by_job: defaultdict[str, list[engine.Binding]] = defaultdict(list)
    for bind in plan.binds:
        by_job[bind.job].append(bind)
    evictions = list(plan.evictions)
    binds: list[engine.Binding] = []
    for group in by_job.values():
        if binds and len(binds) + len(group) > limit:
            yield binds, evictions
            binds, evictions = [], []
            limit = BATCH_BINDS
        binds += group
    if binds or evictions:
        yield binds, evictions


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
        self.queues = QueueRoom(self.cluster_id, {UUID(bind.job) for bind in binds})
        self.walls = Walls({UUID(bind.job) for bind in binds})
        self.nodes = NodeRoom(self.cluster_id, binds)
        self.phases = phases
        works = {work.job.id: work for work in self.batch.lock(sorted(jobs))}
        tasks = {int(bind.task) for bind in binds} | {int(one.task) for one in evictions}
        rows = tasks_by_id(tasks)
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
        total = total_of(request for _, request in pairs)
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
