"""The life of one simulated job: its tasks and attempts, moved by the same tables as real ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from scheduling.engine.types import GangPhase, Job, Task
from scheduling.engine.types import TaskState as EngineState
from scheduling.lifecycle.states import (
    FINISHED_PHASES,
    SCHEDULABLE_PHASES,
    AttemptState,
    JobPhase,
    StopReason,
    TaskState,
)
from scheduling.lifecycle.step import step_attempt, step_job, step_task
from scheduling.lifecycle.values import (
    AttemptEvent,
    AttemptView,
    CloseTasks,
    DelayedAction,
    JobEffect,
    JobEvent,
    JobView,
    Policy,
    Reconciled,
    ReleaseGang,
    RoleView,
    ScheduleDelayedAction,
    Scope,
    ScopeKind,
    StopTasks,
    TaskCounts,
    TaskEvent,
    TaskReported,
    TaskView,
    TellJob,
    TellTask,
)

ENGINE_STATES: Mapping[TaskState, EngineState] = {
    TaskState.PENDING: EngineState.PENDING,
    TaskState.BOUND: EngineState.BOUND,
    TaskState.STARTING: EngineState.BOUND,
    TaskState.RUNNING: EngineState.RUNNING,
    TaskState.STOPPING: EngineState.RELEASING,
    TaskState.SUCCEEDED: EngineState.SUCCEEDED,
    TaskState.FAILED: EngineState.FAILED,
    TaskState.CANCELLED: EngineState.FAILED,
}

LIFECYCLE_STATES: Mapping[EngineState, TaskState] = {
    EngineState.PENDING: TaskState.PENDING,
    EngineState.BOUND: TaskState.RUNNING,
    EngineState.RUNNING: TaskState.RUNNING,
    EngineState.RELEASING: TaskState.STOPPING,
    EngineState.SUCCEEDED: TaskState.SUCCEEDED,
    EngineState.FAILED: TaskState.FAILED,
}
"""What is bound will run in a moment: for a forecast it runs."""

STARTED = frozenset({TaskState.RUNNING, TaskState.SUCCEEDED, TaskState.FAILED})
LIVE = frozenset({TaskState.BOUND, TaskState.STARTING, TaskState.RUNNING, TaskState.STOPPING})


@dataclass(slots=True)
class SimulatedTask:
    """One task; `attempt` counts its executions, so that an old one's end is told from the last."""

    key: str
    role: str
    index: int
    state: TaskState = TaskState.PENDING
    attempt: int = 0
    view: AttemptView | None = None
    generation: int = 0
    node: str | None = None
    devices: tuple[str, ...] = ()
    started_at: float | None = None
    not_before: float = 0.0


@dataclass(frozen=True, slots=True)
class Stopped:
    """A task's attempt was told to stop."""

    task: SimulatedTask


@dataclass(frozen=True, slots=True)
class Delayed:
    """A policy's action falls due later."""

    action: DelayedAction
    after_seconds: float


class Life:
    """One job from its arrival to its end.

    Every change goes through `lifecycle.step_attempt`, `step_task` and `step_job`, as on the
    running system; what they ask of the outside (stops, timers) is collected in `asked`.
    """

    def __init__(self, job: Job, *, policies: tuple[Policy, ...] = (), max_retry: int = 3) -> None:
        """Take a job as it arrives: all its tasks wait."""
        self.job = job
        self.tasks = [SimulatedTask(t.key, t.role, t.index) for t in job.tasks]
        self.by_key = {task.key: task for task in self.tasks}
        self.asked: list[Stopped | Delayed] = []
        self.gang_phase = GangPhase.PENDING
        self.admitted_at: float | None = None
        self.view = JobView(
            phase=JobPhase.PENDING,
            roles=tuple(
                RoleView(r.name, r.replicas, r.min_available, max_retry=max_retry)
                for r in job.roles
            ),
            min_available=job.min_available,
            max_retry=max_retry,
            policies=policies,
        )

    @classmethod
    def resume(cls, job: Job, *, policies: tuple[Policy, ...] = ()) -> Life:
        """Take a job in the middle of its life, as a snapshot shows it."""
        life = cls(job, policies=policies)
        life.gang_phase, life.admitted_at = job.phase, job.admitted_at
        for task, known in zip(life.tasks, job.tasks, strict=True):
            task.state = LIFECYCLE_STATES[known.state]
            task.not_before = known.not_before
            if task.state in LIVE:
                task.attempt = 1
                task.node, task.devices = known.node, known.devices
                task.started_at = known.started_at
                is_stopping = task.state is TaskState.STOPPING
                task.view = (
                    AttemptView(AttemptState.STOPPING, StopReason.PREEMPTED)
                    if is_stopping
                    else AttemptView(AttemptState.RUNNING)
                )
        started = sum(t.state in STARTED for t in life.tasks)
        if started and started >= job.min_available:
            life.view = replace(life.view, phase=JobPhase.RUNNING)
        return life

    @property
    def is_finished(self) -> bool:
        """Whether its phase is final and nothing of it is left on a node."""
        return self.view.phase in FINISHED_PHASES and not any(t.state in LIVE for t in self.tasks)

    def bind(self, key: str, node: str, devices: tuple[str, ...]) -> SimulatedTask:
        """Start a new attempt of a task on a node."""
        task = self.by_key[key]
        task.attempt += 1
        task.view = AttemptView(AttemptState.BOUND)
        task.generation = self.view.generation
        task.node, task.devices = node, devices
        self._tell_task(task, TaskEvent.BOUND)
        return task

    def report(
        self, key: str, event: AttemptEvent, *, now: float, reason: StopReason | None = None
    ) -> None:
        """Say what the live attempt of a task did."""
        task = self.by_key[key]
        if task.view is None:
            return
        before = task.view.state
        task.view, effects = step_attempt(task.view, event, stop_reason=reason)
        if event is AttemptEvent.STARTED and task.view.state is not before:
            task.started_at = now
        if event is AttemptEvent.STOP and task.view.state is not before:
            self.asked.append(Stopped(task))
        for effect in effects:
            if isinstance(effect, TellTask):
                self._tell_task(task, effect.event)

    def give(self, event: JobEvent) -> None:
        """Give the job itself an event, such as a delayed action that fell due."""
        roles = tuple(replace(role, counts=self._counts(role.name)) for role in self.view.roles)
        self.view, effects = step_job(replace(self.view, roles=roles), event)
        self._apply(effects)

    def as_engine_job(self) -> Job:
        """Return the job as the engine shall see it now."""
        return replace(
            self.job,
            tasks=tuple(
                Task(
                    key=t.key,
                    role=t.role,
                    index=t.index,
                    state=ENGINE_STATES[t.state],
                    node=t.node if t.state in LIVE else None,
                    devices=t.devices if t.state in LIVE else (),
                    started_at=t.started_at if t.state in LIVE else None,
                    not_before=t.not_before,
                )
                for t in self.tasks
            ),
            phase=self.gang_phase,
            admitted_at=self.admitted_at,
            is_runnable=self.view.phase in SCHEDULABLE_PHASES,
        )

    def take_phase(self, phase: GangPhase, now: float) -> None:
        """Note what the scheduler made of the gang."""
        self.gang_phase = phase
        if phase is GangPhase.INQUEUE:
            self.admitted_at = now

    def _tell_task(self, task: SimulatedTask, event: TaskEvent) -> None:
        is_leaving = self.view.phase in FINISHED_PHASES
        view, effects = step_task(TaskView(task.state, is_leaving), event)
        task.state = view.state
        if task.state not in LIVE:
            task.view = None
        for effect in effects:
            if isinstance(effect, TellJob):
                self.give(TaskReported(effect.change, task.role, task.index, task.generation))

    def _counts(self, role: str) -> TaskCounts:
        states = Counter(t.state for t in self.tasks if t.role == role)
        running = states[TaskState.RUNNING]
        return TaskCounts(
            pending=states[TaskState.PENDING],
            launching=states[TaskState.BOUND] + states[TaskState.STARTING],
            running=running,
            ready=running,
            stopping=states[TaskState.STOPPING],
            succeeded=states[TaskState.SUCCEEDED],
            failed=states[TaskState.FAILED],
        )

    def _apply(self, effects: Sequence[JobEffect]) -> None:
        stops = [effect for effect in effects if isinstance(effect, StopTasks)]
        for effect in effects:
            if isinstance(effect, StopTasks):
                self._stop(effect)
            elif isinstance(effect, CloseTasks):
                self._close()
            elif isinstance(effect, ReleaseGang):
                self.gang_phase = GangPhase.PENDING
            elif isinstance(effect, ScheduleDelayedAction):
                self.asked.append(Delayed(effect.delayed, effect.after_seconds))
        if stops:
            self.give(Reconciled())

    def _close(self) -> None:
        for task in self.tasks:
            view, _ = step_task(TaskView(task.state, is_leaving=True), TaskEvent.CLOSE)
            task.state = view.state

    def _stop(self, effect: StopTasks) -> None:
        for task in self.tasks:
            if not effect.scope.covers(_scope(task, self.view)):
                continue
            if task.view is not None and task.view.state is not AttemptState.STOPPING:
                task.view, tells = step_attempt(
                    task.view, AttemptEvent.STOP, stop_reason=effect.reason
                )
                for tell in tells:
                    if isinstance(tell, TellTask):
                        step, _ = step_task(TaskView(task.state), tell.event)
                        task.state = step.state
                self.asked.append(Stopped(task))
            elif effect.reset:
                step, _ = step_task(TaskView(task.state), TaskEvent.RESET)
                task.state = step.state


def _scope(task: SimulatedTask, job: JobView) -> Scope:
    role = job.role(task.role)
    size = role.partition_size if role is not None else 0
    partition = task.index // size if size > 0 else None
    return Scope(ScopeKind.TASK, task.role, task.index, partition)
