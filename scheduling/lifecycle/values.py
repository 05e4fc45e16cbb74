"""The frozen values that `step` takes and gives: views of objects, events and effects.

A job's view holds counts of its tasks by role, not tasks: one event of a job of 10,000 tasks
costs as much as one of a job of two.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from scheduling.lifecycle.events import LifecycleAction, PolicyEvent
from scheduling.lifecycle.states import AttemptState, JobPhase, StopReason, TaskState


class ScopeKind(StrEnum):
    """Which part of a job is meant."""

    JOB = "job"
    ROLE = "role"
    PARTITION = "partition"
    TASK = "task"


@dataclass(frozen=True, slots=True)
class Scope:
    """A part of a job. `index` is set for a task, `partition` for a partition (index // size)."""

    kind: ScopeKind = ScopeKind.JOB
    role: str = ""
    index: int | None = None
    partition: int | None = None

    def covers(self, other: Scope) -> bool:
        """Whether everything in the other scope lies in this one."""
        if self.kind is ScopeKind.JOB:
            return True
        if self.role != other.role or other.kind is ScopeKind.JOB:
            return False
        if self.kind is ScopeKind.ROLE:
            return True
        if self.kind is ScopeKind.PARTITION:
            return self.partition == other.partition
        return other.kind is ScopeKind.TASK and self.index == other.index


WHOLE_JOB = Scope()


@dataclass(frozen=True, slots=True)
class Policy:
    """When one of the events, or this exit code, is seen: do the action, after the timeout."""

    action: LifecycleAction
    events: tuple[PolicyEvent, ...] = ()
    exit_code: int | None = None
    timeout_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class TaskCounts:
    """How many tasks of a role are in which state; cancelled ones are counted nowhere."""

    pending: int = 0
    launching: int = 0
    """Bound or Starting."""
    running: int = 0
    ready: int = 0
    """Those of `running` that can serve others (a backend without readiness: all of them)."""
    stopping: int = 0
    succeeded: int = 0
    failed: int = 0

    @property
    def live(self) -> int:
        """Tasks with a live attempt."""
        return self.launching + self.running + self.stopping

    @property
    def ended(self) -> int:
        """Tasks that succeeded or failed."""
        return self.succeeded + self.failed

    def __add__(self, other: TaskCounts) -> TaskCounts:
        return TaskCounts(
            self.pending + other.pending,
            self.launching + other.launching,
            self.running + other.running,
            self.ready + other.ready,
            self.stopping + other.stopping,
            self.succeeded + other.succeeded,
            self.failed + other.failed,
        )


@dataclass(frozen=True, slots=True)
class RoleView:
    """What the lifecycle needs to know of a role."""

    name: str
    replicas: int
    min_available: int | None = None
    max_retry: int = 3
    policies: tuple[Policy, ...] = ()
    partition_size: int = 0
    depends_on: tuple[str, ...] = ()
    depends_on_any: bool = False
    counts: TaskCounts = field(default_factory=TaskCounts)
    in_place_restarts: int = 0
    """Restarts that the backend made inside live attempts of the role, summed."""


@dataclass(frozen=True, slots=True)
class DelayedAction:
    """An action that waits for its time; the caller keeps it as a row with `due_at`."""

    action: LifecycleAction
    scope: Scope
    origin: Scope
    """The task whose event asked for it."""
    event: PolicyEvent


@dataclass(frozen=True, slots=True)
class JobView:
    """What the lifecycle needs to know of a job; counts are those *after* the reported change."""

    phase: JobPhase
    roles: tuple[RoleView, ...]
    min_available: int
    min_success: int | None = None
    max_retry: int = 3
    policies: tuple[Policy, ...] = ()
    policy_restarts: int = 0
    """Restarts that policies asked for after a failure: only these use up `max_retry`."""
    user_restarts: int = 0
    platform_restarts: int = 0
    """Restarts after evictions and lost nodes."""
    generation: int = 0
    """Raised when the whole job is stopped; reports of older attempts trigger nothing."""
    wish: LifecycleAction | None = None
    """An action that the phase could not take at once and that is done as soon as it can."""
    delayed: tuple[DelayedAction, ...] = ()
    exit_code_first: bool = True
    """In a list of policies those by exit code are looked at first (False: in listed order)."""

    @property
    def counts(self) -> TaskCounts:
        """The counts of all roles together."""
        return sum((role.counts for role in self.roles), TaskCounts())

    @property
    def task_count(self) -> int:
        """How many tasks the job wants."""
        return sum(role.replicas for role in self.roles)

    @property
    def restarts(self) -> int:
        """All restarts, whoever asked for them (Volcano: retryCount)."""
        return self.policy_restarts + self.user_restarts + self.platform_restarts

    def role(self, name: str) -> RoleView | None:
        """Return the role with this name, None if the job has none."""
        return next((role for role in self.roles if role.name == name), None)


@dataclass(frozen=True, slots=True)
class AttemptView:
    """What the lifecycle needs to know of an attempt."""

    state: AttemptState
    stop_reason: StopReason | None = None


@dataclass(frozen=True, slots=True)
class TaskView:
    """What the lifecycle needs to know of a task."""

    state: TaskState
    is_leaving: bool = False
    """No further attempt is wanted: the job is finished, or the index is beyond the replicas."""


# --- events -------------------------------------------------------------------------------------


class AttemptEvent(StrEnum):
    """What a backend or the control plane says of an attempt."""

    LAUNCHED = "launched"
    STARTED = "started"
    STOP = "stop"
    EXITED_ZERO = "exited_zero"
    EXITED_NONZERO = "exited_nonzero"
    LAUNCH_FAILED = "launch_failed"
    GONE = "gone"
    """It certainly does not run (any more), and nobody of ours stopped it."""
    LOST = "lost"
    """Its lease ran out: by now the shim has ended it, wherever the node is."""


class TaskEvent(StrEnum):
    """What happens to a task: mostly what its attempt did."""

    BOUND = "bound"
    LAUNCHED = "launched"
    STARTED = "started"
    STOPPING = "stopping"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    EVICTED = "evicted"
    CANCELLED = "cancelled"
    LOST = "lost"
    RESET = "reset"
    """It shall be executed again."""
    CLOSE = "close"
    """No attempt is wanted any more."""


class TaskChange(StrEnum):
    """What a job is told about one of its tasks."""

    PENDING = "pending"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    EVICTED = "evicted"
    STOPPED = "stopped"
    """Ended because we asked for it: never triggers a policy."""
    RESTARTED_IN_PLACE = "restarted_in_place"


@dataclass(frozen=True, slots=True)
class TaskReported:
    """One task changed. `generation` is the job's when the attempt was made (PENDING: ignored)."""

    change: TaskChange
    role: str
    index: int
    generation: int
    exit_code: int = 0


@dataclass(frozen=True, slots=True)
class CommandGiven:
    """A user or client wants an action; targeted ones name a role, and a task's index."""

    action: LifecycleAction
    role: str = ""
    index: int | None = None


@dataclass(frozen=True, slots=True)
class ActionDue:
    """The time of a delayed action has come."""

    delayed: DelayedAction


@dataclass(frozen=True, slots=True)
class GangBroken:
    """Some tasks of the gang run and the rest cannot be placed (Volcano's event Unknown)."""


@dataclass(frozen=True, slots=True)
class TimeLimitReached:
    """The job ran for as long as it may: it is terminated."""


@dataclass(frozen=True, slots=True)
class RoleResized:
    """The replicas of a role were changed; the view has the new number already."""

    role: str
    replicas_before: int


@dataclass(frozen=True, slots=True)
class Reconciled:
    """Nothing new: look at the counts again."""


JobEvent = (
    TaskReported
    | CommandGiven
    | ActionDue
    | GangBroken
    | TimeLimitReached
    | RoleResized
    | Reconciled
)


# --- effects ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SendStop:
    """Attempt: tell the backend to stop it, with grace."""

    reason: StopReason


@dataclass(frozen=True, slots=True)
class ReleaseHold:
    """Attempt: it is over, free what it holds."""


@dataclass(frozen=True, slots=True)
class TellTask:
    """Attempt: apply this event to its task."""

    event: TaskEvent


@dataclass(frozen=True, slots=True)
class RecordLate:
    """Attempt or task: the event came too late to change anything; note it in the history."""

    event: str


@dataclass(frozen=True, slots=True)
class TellJob:
    """Task: apply a `TaskReported` with this change to its job (with the counts updated)."""

    change: TaskChange


@dataclass(frozen=True, slots=True)
class StopTasks:
    """Job: send STOP to every live attempt in the scope.

    `reset`: tasks in the scope that ended are to be executed again (event RESET), not before
    `delay_seconds` from now; without it they keep their result. What is stopped becomes Pending.
    """

    scope: Scope
    reason: StopReason
    reset: bool = False
    delay_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class CloseTasks:
    """Job: it is finished; each task still Pending gets CLOSE, live ones end as Cancelled."""


@dataclass(frozen=True, slots=True)
class ReleaseGang:
    """Job: the gang gives up its admission and must be admitted anew by the scheduler."""


@dataclass(frozen=True, slots=True)
class PhaseChanged:
    """Job: one step of its phase, to be written to the history in this order."""

    before: JobPhase
    after: JobPhase
    because: str
    """A LifecycleAction, or the name of a decision (`Verdict`, `GangStarted`, ...)."""
    action_event: str = ""
    """The policy event or `command` that led to the action, where there was one."""


@dataclass(frozen=True, slots=True)
class ActionIgnored:
    """Job: the action changes nothing in this phase; a command is answered with a refusal."""

    action: LifecycleAction
    phase: JobPhase


@dataclass(frozen=True, slots=True)
class ScheduleDelayedAction:
    """Job: keep this action until `after_seconds` from now, then give `ActionDue`."""

    delayed: DelayedAction
    after_seconds: float


@dataclass(frozen=True, slots=True)
class CancelDelayedActions:
    """Job: forget these delayed actions."""

    delayed: tuple[DelayedAction, ...]


@dataclass(frozen=True, slots=True)
class CreateTasks:
    """Job: make tasks `first` to `last` (exclusive) of the role."""

    role: str
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class RemoveTasks:
    """Job: tasks from index `first` on are not wanted: live ones are stopped, all end Cancelled."""

    role: str
    first: int


AttemptEffect = SendStop | ReleaseHold | TellTask | RecordLate
TaskEffect = TellJob | RecordLate
JobEffect = (
    StopTasks
    | CloseTasks
    | ReleaseGang
    | PhaseChanged
    | ActionIgnored
    | ScheduleDelayedAction
    | CancelDelayedActions
    | CreateTasks
    | RemoveTasks
)
