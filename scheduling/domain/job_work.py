"""One locked job in memory, and what a transaction does to it, as `scheduling.lifecycle` says.

Nothing is written here. What changed, what is new and what is to be stopped stands in the work's
lists until the batch it belongs to is flushed (`scheduling.domain.transitions`).
"""

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from scheduling.domain.bare_rows import NewRows
from scheduling.domain.errors import InconsistentJobError
from scheduling.domain.lifecycle_views import (
    COUNTERS,
    delayed_view,
    has_policies,
    job_view,
    task_counts,
    task_view,
)
from scheduling.domain.transition_rows import (
    JOB_FIELDS,
    ROLE_FIELDS,
    HistoryLine,
    NewAttempt,
    attempt_values,
    column_values,
    task_values,
)
from scheduling.lifecycle import values
from scheduling.lifecycle.clean_up import expires_at
from scheduling.lifecycle.events import LifecycleAction, PolicyEvent
from scheduling.lifecycle.states import (
    ENDED_TASK_STATES,
    FINAL_ATTEMPT_STATES,
    FINISHED_PHASES,
    AttemptState,
    JobPhase,
    StopReason,
    TaskState,
)
from scheduling.lifecycle.step import step_attempt, step_job, step_task
from scheduling.lifecycle.values import AttemptEvent, JobEvent, Scope, ScopeKind, TaskEvent
from scheduling.models import Attempt, DelayedAction, Job, Role, Task
from scheduling.models.attempt import LIVE_STATES
from tenants.domain.errors import Conflict

_NEW_TASKS = NewRows(Task)
FEWEST_STEPS, STEPS_A_TASK = 100, 8
"""More events than this of one job in one transaction lead nowhere: its rows are at odds."""

COMING_UP = frozenset(
    {AttemptState.BOUND, AttemptState.STARTING, AttemptState.RUNNING, JobPhase.RUNNING}
)
"""States of attempts and jobs that follow from a bind when all goes well."""
BOUND_EVENT = "bound"
"""The event under which the history shows an attempt's first state."""


@dataclass(frozen=True, slots=True)
class Exit:
    """What is known of an attempt's end, or of its start, besides the event itself."""

    exit_code: int | None = None
    signal: int | None = None
    is_oom: bool = False
    reason_code: str = ""
    message: str = ""
    address: str = ""
    ports: dict[str, int] | None = None


NOTHING_KNOWN = Exit()


class JobWork:
    """One locked job and what the transaction does to it."""

    def __init__(
        self,
        job: Job,
        roles: list[Role],
        delayed: list[DelayedAction],
        *,
        now: datetime,
        actor_label: str = "",
        is_new: bool = False,
    ) -> None:
        """Start from the rows as they are, or from a job that has none yet."""
        self.job = job
        self.is_new = is_new
        self._now = now
        self._actor_label = actor_label
        self.is_resized = False
        known = [] if is_new else self._rows(roles)
        self._as_read = [(row, fields, column_values(row, fields)) for row, fields in known]
        self.roles = {role.id: role for role in roles}
        self.delayed = delayed
        self.tasks: dict[int, Task] = {}
        self.attempts: dict[UUID, Attempt] = {}
        self.changed_tasks: dict[int, Task] = {}
        self.changed_attempts: dict[UUID, Attempt] = {}
        self.tasks_as_read: dict[int, tuple[Any, ...]] = {}
        self.attempts_as_read: dict[UUID, tuple[Any, ...]] = {}
        self.new_tasks: list[Task] = []
        self.new_attempts: list[NewAttempt] = []
        self.new_delayed: list[DelayedAction] = []
        self.dropped_delayed: list[DelayedAction] = []
        self.history: list[HistoryLine] = []
        self.ended: list[Attempt] = []
        self.stops: list[Attempt] = []
        self.maybe_unsent: dict[str, Attempt] = {}
        self.ignored: values.ActionIgnored | None = None
        self._events: deque[JobEvent] = deque()
        self._is_applying = False
        self._view = job_view(job, roles, delayed)
        self._are_reports_one = not (has_policies(self._view) or delayed)
        self._reports_pending = has_pending_policy(self._view)

    def _rows(self, roles: list[Role]) -> list[tuple[Job | Role, tuple[str, ...]]]:
        return [(self.job, JOB_FIELDS), *((role, ROLE_FIELDS) for role in roles)]

    def changed_fields(self, row: Job | Role) -> list[str]:
        """Return which columns of the job's or a role's row are not as they were read."""
        for known, fields, values_read in self._as_read:
            if known is row:
                now = column_values(row, fields)
                return [f for f, a, b in zip(fields, values_read, now, strict=True) if a != b]
        return []

    # --- what happens -----------------------------------------------------------------------------

    def attempt_event(
        self,
        attempt: Attempt,
        event: AttemptEvent,
        *,
        exit_: Exit = NOTHING_KNOWN,
        stop_reason: StopReason | None = None,
        evicted_for_id: UUID | None = None,
    ) -> bool:
        """Apply an event to an attempt and follow it to its task; False when it came too late."""
        before = values.AttemptView(
            AttemptState(attempt.state),
            StopReason(attempt.stop_reason) if attempt.stop_reason else None,
        )
        after, effects = step_attempt(before, event, stop_reason=stop_reason)
        if any(isinstance(effect, values.RecordLate) for effect in effects):
            self._record_late(attempt, event, exit_)
            return False
        self.attempts_as_read.setdefault(attempt.id, attempt_values(attempt))
        attempt.state = after.state
        attempt.stop_reason = after.stop_reason or ""
        attempt.evicted_for_id = evicted_for_id or attempt.evicted_for_id
        self._note_on_attempt(attempt, exit_)
        self._record_attempt(attempt, event, before.state, exit_)
        for effect in effects:
            match effect:
                case values.SendStop():
                    self.stops.append(attempt)
                    if before.state is AttemptState.BOUND:
                        self.maybe_unsent[str(attempt.id)] = attempt
                case values.ReleaseHold():
                    self.ended.append(attempt)
                case values.TellTask():
                    self._task_event(self.task(attempt.task_id), effect.event, attempt)
        return True

    def command(self, action: LifecycleAction, *, role: str = "", index: int | None = None) -> None:
        """Give the job a user's command.

        Raises:
            Conflict: it would change nothing in the job's phase.
        """
        self.job.quarantine_strikes = 0
        self._events.append(values.CommandGiven(action, role, index))
        self.settle()
        if self.ignored is not None:
            raise Conflict(
                "action_ignored",
                {"action": str(action), "phase": self.job.phase, "job": self.job.name},
                current=self.job,
            )

    def record_submission(self) -> None:
        """Write the first row of the job's history."""
        self._record("job", "submitted", "", self.job.phase)

    def wish_for(self, desired_state: str) -> None:
        """Keep what the job's people want in the end."""
        self.job.desired_state = desired_state

    def role_row(self, name: str) -> Role | None:
        """Return the role with this name, None if there is none."""
        return next((role for role in self.roles.values() if role.name == name), None)

    def resize(self, role: Role, replicas: int) -> None:
        """Give a role another number of replicas, in its row and the spec; no task changes yet."""
        self.is_resized = True
        role.replicas = replicas
        for part in self.job.spec["roles"]:
            if part["name"] == role.name:
                part["replicas"] = replicas
        self.job.gpu_milli = self._requested("gpu_milli")
        self.job.cpu_milli = self._requested("cpu_milli")
        self.job.memory_bytes = self._requested("memory_bytes")

    def _requested(self, amount: str) -> int:
        return sum(part[amount] * part["replicas"] for part in self.job.spec["roles"])

    def tell(self, event: JobEvent) -> None:
        """Apply an event to the job itself and follow its effects."""
        self._events.append(event)
        self.settle()

    def create_tasks(self, role: Role, first: int, last: int) -> None:
        """Make tasks of the role with the indexes `first` to `last`, exclusive."""
        for index in range(first, last):
            related = {"job": self.job, "role": role}
            task = _NEW_TASKS.make(related=related, index=index, state_at=self._now)
            self.new_tasks.append(task)
            self._count(task, None)
        if self._reports_pending:
            for index in range(first, last):
                self._report(values.TaskChange.PENDING, role, index, self.job.generation, 0)

    def bind(self, task: Task, attempt: NewAttempt) -> None:
        """Give a pending task its new attempt.

        Raises:
            Conflict: the task is not pending.
        """
        after, _ = step_task(task_view(task, self.roles[task.role_id], self.job), TaskEvent.BOUND)
        if after.state is not TaskState.BOUND:
            raise Conflict("task_not_pending", {"task": task.id, "state": task.state})
        self.tasks[task.id] = task
        self._set_task_state(task, after.state)
        task.attempt_number = attempt.number
        task.node_id = attempt.node_id
        task.reason_code, task.reason_params, task.not_before = "", {}, None
        self.new_attempts.append(attempt)
        params = {"number": attempt.number}
        self._record("attempt", BOUND_EVENT, "", attempt.state, attempt=attempt, params=params)

    def settle(self) -> None:
        """Work off the events of the job until nothing follows any more.

        Raises:
            InconsistentJobError: its rows contradict one another, so that there would be no end.
        """
        left = FEWEST_STEPS + STEPS_A_TASK * self.job.tasks_total
        while self._events:
            if not left:
                raise InconsistentJobError(self.job.id)
            left -= 1
            event = self._events.popleft()
            if self._are_reports_one and isinstance(event, values.TaskReported):
                self._events = deque(
                    one for one in self._events if not isinstance(one, values.TaskReported)
                )
                event = values.Reconciled()
            self._step(event)

    @property
    def wants_a_cycle(self) -> bool:
        """Whether a cycle could decide something else now.

        Not when tasks of this job just came up as they were told to: the amounts were taken when
        they were bound. Otherwise each job would wake the scheduler three times for nothing.
        """
        if self.new_tasks or not self.history or self._waits_for_roles:
            return True
        return any(line.to_state not in COMING_UP for line in self.history)

    @property
    def _waits_for_roles(self) -> bool:
        return any(part.get("depends_on") for part in self.job.spec["roles"])

    @property
    def view(self) -> values.JobView:
        """The job as the lifecycle knows it now."""
        return self._fresh_view()

    # --- loading ----------------------------------------------------------------------------------

    def task(self, task_id: int) -> Task:
        """Return the task, loaded once."""
        if task_id not in self.tasks:
            self.tasks[task_id] = Task.objects.get(id=task_id)
        return self.tasks[task_id]

    def take(self, attempts: Iterable[Attempt]) -> None:
        """Use these rows, read after the job was locked; the first of each that was given stays."""
        for attempt in attempts:
            self.attempts.setdefault(attempt.id, attempt)
            self.tasks.setdefault(attempt.task_id, attempt.task)

    def live_attempts(self) -> list[Attempt]:
        """Return all attempts of the job that are live, as this transaction left them."""
        found = Attempt.objects.filter(job=self.job, state__in=LIVE_STATES).select_related("task")
        self.take(found)
        return [one for one in self.attempts.values() if one.state not in FINAL_ATTEMPT_STATES]

    def all_tasks(self) -> list[Task]:
        """Return all tasks of the job that are in the database, as this transaction left them."""
        for task in Task.objects.filter(job=self.job):
            self.tasks.setdefault(task.id, task)
        return list(self.tasks.values())

    # --- the job ----------------------------------------------------------------------------------

    def _step(self, event: JobEvent) -> None:
        before = self._fresh_view()
        after, effects = step_job(before, event)
        job = self.job
        job.generation = after.generation
        job.wish = after.wish or ""
        job.retry_count = after.policy_restarts
        job.user_restarts = after.user_restarts
        job.platform_restarts = after.platform_restarts
        self._are_reports_one = not (has_policies(after) or after.delayed)
        self._view = after
        self._is_applying = True
        for effect in effects:
            self._do(effect)
        self._is_applying = False

    def _fresh_view(self) -> values.JobView:
        """Return the view with the counts, phase and numbers of the rows as they are now."""
        if self._is_static():
            roles = list(self.roles.values())
            return replace(
                self._view,
                phase=JobPhase(self.job.phase),
                roles=tuple(
                    replace(view, counts=task_counts(role))
                    for view, role in zip(self._view.roles, roles, strict=True)
                ),
            )
        return job_view(self.job, list(self.roles.values()), self.delayed)

    def _is_static(self) -> bool:
        return not self.delayed and all(
            view.replicas == role.replicas
            for view, role in zip(self._view.roles, self.roles.values(), strict=True)
        )

    def _do(self, effect: values.JobEffect) -> None:
        match effect:
            case values.PhaseChanged():
                self._change_phase(effect)
            case values.ReleaseGang():
                self.job.gang_phase = "Pending"
            case values.ActionIgnored():
                self.ignored = effect
            case values.ScheduleDelayedAction():
                self._schedule(effect)
            case values.CancelDelayedActions():
                self._cancel(effect.delayed)
            case _:
                self._do_to_tasks(effect)

    def _do_to_tasks(self, effect: values.JobEffect) -> None:
        match effect:
            case values.StopTasks():
                self._stop_tasks(effect)
            case values.CloseTasks():
                self._close_tasks(lambda _task: True)
            case values.CreateTasks():
                role = self._role_named(effect.role)
                self.create_tasks(role, effect.first, effect.last)
                self._events.append(values.Reconciled())
            case values.RemoveTasks():
                self._remove_tasks(effect)

    def _change_phase(self, change: values.PhaseChanged) -> None:
        job, now = self.job, self._now
        job.phase = change.after
        params = {"because": change.because}
        if change.action_event:
            params["event"] = change.action_event
        self._record("job", change.because, change.before, change.after, params=params)
        job.reason_code, job.reason_params, job.reason_at = "", {}, now
        if change.after is JobPhase.RUNNING and job.started_at is None:
            job.started_at = now
        if change.after is JobPhase.FAILED:
            job.reason_code = "retries_used_up" if change.because == "Restarted" else "tasks_failed"
            job.reason_params = {
                "failed": sum(role.tasks_failed for role in self.roles.values()),
                "succeeded": sum(role.tasks_succeeded for role in self.roles.values()),
                "min_available": job.min_available,
                "max_retry": job.max_retry,
            }
        if change.after in FINISHED_PHASES:
            job.finished_at = now
            job.delete_after = expires_at(
                phase=change.after, finished_at=now, ttl_seconds=job.spec.get("ttl_seconds")
            )

    def _stop_tasks(self, effect: values.StopTasks) -> None:
        delay = timedelta(seconds=effect.delay_seconds)
        not_before = self._now + delay if effect.delay_seconds > 0 else None
        for attempt in self.live_attempts():
            task = self.task(attempt.task_id)
            if self._covers(effect.scope, task) and attempt.state != AttemptState.STOPPING:
                self.attempt_event(attempt, AttemptEvent.STOP, stop_reason=effect.reason)
        if effect.reset:
            for task in self.all_tasks():
                if self._covers(effect.scope, task):
                    self._reset(task, not_before)
        self._events.append(values.Reconciled())

    def _reset(self, task: Task, not_before: datetime | None) -> None:
        if not_before is not None:
            self._change(task)
            task.not_before = not_before
        if task.state in ENDED_TASK_STATES:
            self._task_event(task, TaskEvent.RESET, None)

    def _close_tasks(self, is_meant: Callable[[Task], bool]) -> None:
        for task in self.all_tasks():
            if task.state == TaskState.PENDING and is_meant(task):
                self._task_event(task, TaskEvent.CLOSE, None)

    def _remove_tasks(self, effect: values.RemoveTasks) -> None:
        role = self._role_named(effect.role)

        def is_meant(task: Task) -> bool:
            return task.role_id == role.id and task.index >= effect.first

        for attempt in self.live_attempts():
            if is_meant(self.task(attempt.task_id)) and attempt.state != AttemptState.STOPPING:
                self.attempt_event(attempt, AttemptEvent.STOP, stop_reason=StopReason.SCALE_DOWN)
        self._close_tasks(is_meant)
        self._events.append(values.Reconciled())

    def _schedule(self, effect: values.ScheduleDelayedAction) -> None:
        origin = effect.delayed.origin
        row = DelayedAction(
            job=self.job,
            task=self._task_at(origin),
            event=effect.delayed.event,
            action=effect.delayed.action,
            generation=self.job.generation,
            due_at=self._now + timedelta(seconds=effect.after_seconds),
        )
        self.delayed.append(row)
        self.new_delayed.append(row)

    def _cancel(self, gone: tuple[values.DelayedAction, ...]) -> None:
        for row in list(self.delayed):
            if delayed_view(row, self._view, self.roles) in gone:
                self.delayed.remove(row)
                if row in self.new_delayed:
                    self.new_delayed.remove(row)
                else:
                    self.dropped_delayed.append(row)

    # --- tasks ------------------------------------------------------------------------------------

    def _task_event(self, task: Task, event: TaskEvent, attempt: Attempt | None) -> None:
        role = self.roles[task.role_id]
        before = task.state
        after, effects = step_task(task_view(task, role, self.job), event)
        if after.state != before:
            self._set_task_state(task, after.state)
            if attempt is None:
                self._record("task", event, before, after.state, task=task)
        generation = self.job.generation if attempt is None else attempt.generation
        exit_code = (attempt.exit_code or 0) if attempt is not None else 0
        for effect in effects:
            if isinstance(effect, values.TellJob):
                self._report(effect.change, role, task.index, generation, exit_code)

    def _report(
        self, change: values.TaskChange, role: Role, index: int, generation: int, exit_code: int
    ) -> None:
        """Tell the job of a task's change, unless it is what the job itself has just asked for."""
        if self._is_applying and not (
            change is values.TaskChange.PENDING and self._reports_pending
        ):
            return
        self._events.append(values.TaskReported(change, role.name, index, generation, exit_code))

    def _set_task_state(self, task: Task, state: TaskState) -> None:
        before = task.state
        self._change(task)
        task.state = state
        task.state_at = self._now
        self._count(task, before)

    def _change(self, task: Task) -> None:
        """Have a task written that is about to change, and keep what it was."""
        if task.id not in self.changed_tasks:
            self.changed_tasks[task.id] = task
            self.tasks_as_read[task.id] = task_values(task)

    def _count(self, task: Task, before: str | None) -> None:
        role = self.roles[task.role_id]
        for state, step in ((before, -1), (task.state, 1)):
            name = COUNTERS.get(state) if state is not None else None
            if name is not None:
                setattr(role, name, getattr(role, name) + step)

    def _covers(self, scope: Scope, task: Task) -> bool:
        role = self.roles[task.role_id]
        match scope.kind:
            case ScopeKind.JOB:
                return True
            case ScopeKind.ROLE:
                return role.name == scope.role
            case ScopeKind.TASK:
                return role.name == scope.role and task.index == scope.index
            case ScopeKind.PARTITION:
                view = self._view.role(role.name)
                size = view.partition_size if view is not None else 0
                is_in = size > 0 and task.index // size == scope.partition
                return role.name == scope.role and is_in

    def _task_at(self, origin: Scope) -> Task | None:
        if origin.kind is not ScopeKind.TASK or origin.index is None:
            return None
        role = self._role_named(origin.role)
        for task in (*self.tasks.values(), *self.new_tasks):
            if task.role_id == role.id and task.index == origin.index:
                return task
        task = Task.objects.get(role=role, index=origin.index)
        self.tasks[task.id] = task
        return task

    def _role_named(self, name: str) -> Role:
        return next(role for role in self.roles.values() if role.name == name)

    # --- attempts and history ---------------------------------------------------------------------

    def _note_on_attempt(self, attempt: Attempt, exit_: Exit) -> None:
        now = self._now
        self.changed_attempts[attempt.id] = attempt
        attempt.address = exit_.address or attempt.address
        if exit_.ports:
            attempt.ports = {**attempt.ports, **exit_.ports}
        if attempt.state == AttemptState.RUNNING and attempt.started_at is None:
            attempt.started_at = now
        if attempt.state == AttemptState.STOPPING:
            attempt.stopping_at = now
        if attempt.state in FINAL_ATTEMPT_STATES:
            attempt.finished_at = now
            attempt.exit_code, attempt.signal = exit_.exit_code, exit_.signal
            attempt.is_oom = exit_.is_oom
            attempt.reason_code = exit_.reason_code[:60]
            attempt.message = exit_.message[:1000]

    def _record_attempt(self, attempt: Attempt, event: str, before: str, exit_: Exit) -> None:
        params: dict[str, Any] = {"number": attempt.number}
        if exit_.exit_code is not None:
            params["exit_code"] = exit_.exit_code
        if exit_.signal is not None:
            params["signal"] = exit_.signal
        if attempt.state == AttemptState.STOPPING:
            params["stop_reason"] = attempt.stop_reason
        self._record(
            "attempt",
            event,
            before,
            attempt.state,
            attempt=attempt,
            params=params,
            reason_code=exit_.reason_code[:60],
        )

    def _record_late(self, attempt: Attempt, event: AttemptEvent, exit_: Exit) -> None:
        """Note the end of an attempt that was given up; a mere repeat is not worth a row."""
        ends = (AttemptEvent.EXITED_ZERO, AttemptEvent.EXITED_NONZERO)
        if attempt.state == AttemptState.LOST and event in ends:
            code = "late_report"
            params = {"number": attempt.number, "exit_code": exit_.exit_code}
            state = attempt.state
            self._record(
                "attempt", event, state, state, attempt=attempt, params=params, reason_code=code
            )

    def _record(  # noqa: PLR0913 -- the columns of a history row
        self,
        subject: str,
        event: str,
        before: str,
        after: str,
        *,
        task: Task | None = None,
        attempt: Attempt | NewAttempt | None = None,
        params: dict[str, Any] | None = None,
        reason_code: str = "",
    ) -> None:
        self.job.history_seq += 1
        task_id = attempt.task_id if attempt is not None else task.id if task else None
        self.history.append(
            HistoryLine(
                job_id=self.job.id,
                seq=self.job.history_seq,
                subject=subject,
                event=event,
                from_state=before,
                to_state=after,
                at=self._now,
                reason_code=reason_code,
                params=params or {},
                actor_label=self._actor_label,
                task_id=task_id,
                attempt_id=attempt.id if attempt is not None else None,
            )
        )


def has_pending_policy(view: values.JobView) -> bool:
    """Whether some policy acts on tasks that stay pending for too long."""
    every = (*view.policies, *(policy for role in view.roles for policy in role.policies))
    return any(
        policy.timeout_seconds is not None
        and (PolicyEvent.POD_PENDING in policy.events or PolicyEvent.ANY in policy.events)
        for policy in every
    )
