"""A small caller of `step`: rows in memory, effects applied as the README says."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace

from scheduling.lifecycle.states import (
    FINISHED_PHASES,
    LIVE_ATTEMPT_STATES,
    AttemptState,
    JobPhase,
    StopReason,
    TaskState,
)
from scheduling.lifecycle.step import step_attempt, step_job, step_task
from scheduling.lifecycle.values import (
    AttemptEvent,
    AttemptView,
    CancelDelayedActions,
    CloseTasks,
    CreateTasks,
    DelayedAction,
    JobEffect,
    JobEvent,
    JobView,
    PhaseChanged,
    Policy,
    Reconciled,
    RemoveTasks,
    RoleView,
    ScheduleDelayedAction,
    Scope,
    ScopeKind,
    StopTasks,
    TaskChange,
    TaskCounts,
    TaskEvent,
    TaskReported,
    TaskView,
    TellJob,
    TellTask,
)


@dataclass
class Task:
    """One task with all its attempts."""

    role: str
    index: int
    state: TaskState = TaskState.PENDING
    attempts: list[AttemptView] = field(default_factory=list)
    generations: list[int] = field(default_factory=list)

    @property
    def live(self) -> AttemptView | None:
        """Its live attempt."""
        last = self.attempts[-1] if self.attempts else None
        return last if last and last.state in LIVE_ATTEMPT_STATES else None


class World:
    """One job and its tasks."""

    def __init__(self, job: JobView) -> None:
        self.job = job
        self.tasks = {
            (role.name, n): Task(role.name, n) for role in job.roles for n in range(role.replicas)
        }
        self.history: list[tuple[JobPhase, JobPhase]] = []
        self.effects: list[JobEffect] = []
        self.timers: list[DelayedAction] = []

    # -- what the outside does --

    def bind_all(self) -> None:
        """Bind, launch and start every pending task, as a scheduler and agent would."""
        for key, task in list(self.tasks.items()):
            if task.state is TaskState.PENDING:
                self.bind(*key)
                self.attempt(*key, AttemptEvent.LAUNCHED)
                self.attempt(*key, AttemptEvent.STARTED)

    def bind(self, role: str, index: int) -> None:
        """Bind one task."""
        task = self.tasks[role, index]
        task.attempts.append(AttemptView(AttemptState.BOUND))
        task.generations.append(self.job.generation)
        self._tell_task(task, TaskEvent.BOUND, 0)

    def attempt(
        self,
        role: str,
        index: int,
        event: AttemptEvent,
        *,
        exit_code: int = 0,
        number: int = -1,
        reason: StopReason | None = None,
    ) -> None:
        """Report something of an attempt (the last one, or an older one by number)."""
        task = self.tasks[role, index]
        before = task.attempts[number]
        after, effects = step_attempt(before, event, stop_reason=reason)
        task.attempts[number] = after
        for effect in effects:
            if isinstance(effect, TellTask):
                self._tell_task(task, effect.event, exit_code, number)

    def fail(self, role: str, index: int, exit_code: int = 1) -> None:
        """Let the live attempt end with an exit code."""
        self.attempt(role, index, AttemptEvent.EXITED_NONZERO, exit_code=exit_code)

    def succeed(self, role: str, index: int) -> None:
        """Let the live attempt end well."""
        self.attempt(role, index, AttemptEvent.EXITED_ZERO)

    def finish_stops(self) -> None:
        """Let every stopping attempt end."""
        for (role, index), task in list(self.tasks.items()):
            if task.live and task.live.state is AttemptState.STOPPING:
                self.attempt(role, index, AttemptEvent.EXITED_NONZERO, exit_code=143)

    def event(self, event: JobEvent) -> list[JobEffect]:
        """Give the job an event."""
        self._count()
        self.job, effects = step_job(self.job, event)
        self._apply(effects)
        return list(effects)

    def resize(self, role: str, replicas: int) -> None:
        """Change the replicas of the stored role."""
        self.job = replace(
            self.job,
            roles=tuple(
                replace(r, replicas=replicas) if r.name == role else r for r in self.job.roles
            ),
        )

    # -- what the caller of step does --

    def _tell_task(self, task: Task, event: TaskEvent, exit_code: int, number: int = -1) -> None:
        changes = self._step_task(task, event)
        for change in changes:
            generation = task.generations[number] if task.generations else self.job.generation
            self.event(TaskReported(change, task.role, task.index, generation, exit_code))

    def _step_task(self, task: Task, event: TaskEvent) -> list[TaskChange]:
        role = self.job.role(task.role)
        is_leaving = self.job.phase in FINISHED_PHASES or task.index >= (
            role.replicas if role else 0
        )
        view, effects = step_task(TaskView(task.state, is_leaving), event)
        task.state = view.state
        return [effect.change for effect in effects if isinstance(effect, TellJob)]

    def _count(self) -> None:
        self.job = replace(self.job, roles=tuple(self._counted(role) for role in self.job.roles))

    def _counted(self, role: RoleView) -> RoleView:
        states = Counter(task.state for task in self.tasks.values() if task.role == role.name)
        running = states[TaskState.RUNNING]
        return replace(
            role,
            counts=TaskCounts(
                pending=states[TaskState.PENDING],
                launching=states[TaskState.BOUND] + states[TaskState.STARTING],
                running=running,
                ready=running,
                stopping=states[TaskState.STOPPING],
                succeeded=states[TaskState.SUCCEEDED],
                failed=states[TaskState.FAILED],
            ),
        )

    def _apply(self, effects: tuple[JobEffect, ...]) -> None:
        self.effects += effects
        for effect in effects:
            if isinstance(effect, PhaseChanged):
                self.history.append((effect.before, effect.after))
            elif isinstance(effect, ScheduleDelayedAction):
                self.timers.append(effect.delayed)
            elif isinstance(effect, CancelDelayedActions):
                self.timers = [one for one in self.timers if one not in effect.delayed]
            else:
                self._apply_to_tasks(effect)
        if any(isinstance(effect, StopTasks | RemoveTasks) for effect in effects):
            self.event(Reconciled())

    def _apply_to_tasks(self, effect: JobEffect) -> None:
        if isinstance(effect, StopTasks):
            self._stop(effect)
        elif isinstance(effect, RemoveTasks):
            self._remove(effect)
        elif isinstance(effect, CloseTasks):
            for task in self.tasks.values():
                self._step_task(task, TaskEvent.CLOSE)
        elif isinstance(effect, CreateTasks):
            for n in range(effect.first, effect.last):
                self.tasks[effect.role, n] = Task(effect.role, n)

    def _stop(self, effect: StopTasks) -> None:
        for task in self.tasks.values():
            if effect.scope.covers(self._scope(task)):
                self._stop_task(task, effect.reason)
                if effect.reset and task.state in (TaskState.SUCCEEDED, TaskState.FAILED):
                    self._step_task(task, TaskEvent.RESET)

    def _scope(self, task: Task) -> Scope:
        role = self.job.role(task.role)
        size = role.partition_size if role else 0
        return Scope(ScopeKind.TASK, task.role, task.index, task.index // size if size else None)

    def _stop_task(self, task: Task, reason: StopReason) -> None:
        if task.live is None or task.live.state is AttemptState.STOPPING:
            return
        task.attempts[-1], _ = step_attempt(
            task.attempts[-1], AttemptEvent.STOP, stop_reason=reason
        )
        self._step_task(task, TaskEvent.STOPPING)

    def _remove(self, effect: RemoveTasks) -> None:
        for task in self.tasks.values():
            if task.role == effect.role and task.index >= effect.first:
                self._stop_task(task, StopReason.SCALE_DOWN)
                self._step_task(task, TaskEvent.CLOSE)


def job_of(
    *roles: RoleView,
    min_available: int | None = None,
    min_success: int | None = None,
    max_retry: int = 3,
    policies: tuple[Policy, ...] = (),
) -> JobView:
    """Make a pending job; its gang is everything unless said otherwise."""
    total = sum(role.replicas for role in roles)
    return JobView(
        phase=JobPhase.PENDING,
        roles=roles,
        min_available=total if min_available is None else min_available,
        min_success=min_success,
        max_retry=max_retry,
        policies=policies,
    )
