"""`step_attempt`, `step_task`, `step_job`: one event in, the new value and its effects out.

The caller (`scheduling.domain.transitions`) persists both in one transaction. See README.md.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from scheduling.lifecycle import decisions, policies
from scheduling.lifecycle.events import TARGETED_ACTIONS, LifecycleAction, PolicyEvent
from scheduling.lifecycle.states import (
    EVICTING_REASONS,
    FINISHED_PHASES,
    LIVE_ATTEMPT_STATES,
    AttemptState,
    JobPhase,
    StopReason,
    TaskState,
)
from scheduling.lifecycle.table import (
    ATTEMPT_TABLE,
    JOB_TABLE,
    TASK_TABLE,
    WISH_TABLE,
    WISHES,
    Decision,
    JobRow,
    Stop,
)
from scheduling.lifecycle.values import (
    WHOLE_JOB,
    ActionDue,
    ActionIgnored,
    AttemptEffect,
    AttemptEvent,
    AttemptView,
    CancelDelayedActions,
    CloseTasks,
    CommandGiven,
    CreateTasks,
    DelayedAction,
    GangBroken,
    JobEffect,
    JobEvent,
    JobView,
    PhaseChanged,
    Reconciled,
    RecordLate,
    ReleaseGang,
    ReleaseHold,
    RemoveTasks,
    RoleResized,
    RoleView,
    ScheduleDelayedAction,
    Scope,
    ScopeKind,
    SendStop,
    StopTasks,
    TaskChange,
    TaskCounts,
    TaskEffect,
    TaskEvent,
    TaskReported,
    TaskView,
    TellJob,
    TellTask,
    TimeLimitReached,
)

_MOST_SETTLING_STEPS = 8


# --- attempts and tasks -------------------------------------------------------------------------


def step_attempt(
    attempt: AttemptView, event: AttemptEvent, *, stop_reason: StopReason | None = None
) -> tuple[AttemptView, tuple[AttemptEffect, ...]]:
    """Apply an event to an attempt; a STOP needs its reason. What is late changes nothing."""
    row = ATTEMPT_TABLE.get((attempt.state, event))
    if row is None:
        return attempt, (RecordLate(event),)
    if event is AttemptEvent.STOP:
        if stop_reason is None:
            raise ValueError("a stop needs a reason")
        stopping = AttemptView(AttemptState.STOPPING, stop_reason)
        return stopping, (SendStop(stop_reason), TellTask(TaskEvent.STOPPING))
    state, tells = row.to, row.tells
    if state is None or tells is None:
        is_eviction = attempt.stop_reason in EVICTING_REASONS
        state = AttemptState.EVICTED if is_eviction else AttemptState.CANCELLED
        tells = TaskEvent.EVICTED if is_eviction else TaskEvent.CANCELLED
    after = AttemptView(state, attempt.stop_reason)
    if state in LIVE_ATTEMPT_STATES:
        return after, (TellTask(tells),)
    return after, (ReleaseHold(), TellTask(tells))


def step_task(task: TaskView, event: TaskEvent) -> tuple[TaskView, tuple[TaskEffect, ...]]:
    """Apply an event to a task; one that is leaving never becomes Pending again."""
    row = TASK_TABLE.get((task.state, event))
    if row is None or (task.is_leaving and event is TaskEvent.RESET):
        return task, (RecordLate(event),)
    state, tells = row.to, row.tells
    if state is TaskState.PENDING and task.is_leaving:
        # Its going away is our own doing, whatever took its place: no policy may answer it.
        state, tells = TaskState.CANCELLED, (TaskChange.STOPPED,)
    return replace(task, state=state), tuple(TellJob(change) for change in tells)


# --- jobs ---------------------------------------------------------------------------------------


def step_job(job: JobView, event: JobEvent) -> tuple[JobView, tuple[JobEffect, ...]]:
    """Apply an event to a job and go on until its phase rests.

    1. Find the action: a command is taken as it is, a task's change goes through the policies.
    2. An action with a waiting time is scheduled (once for a task and action), not done.
    3. Do the action by the table; look at the counts again until nothing changes any more.
    """
    return _settled(*_take(job, event))


def _take(job: JobView, event: JobEvent) -> tuple[JobView, tuple[JobEffect, ...]]:
    result: tuple[JobView, tuple[JobEffect, ...]] = job, ()
    match event:
        case CommandGiven():
            result = _do_command(job, event)
        case ActionDue():
            result = _do_due(job, event.delayed)
        case GangBroken():
            answer = policies.resolve(job=job, event=PolicyEvent.UNKNOWN)
            result = _answer(job, answer, WHOLE_JOB, PolicyEvent.UNKNOWN)
        case TimeLimitReached():
            result = _end_by_time_limit(job)
        case RoleResized():
            result = job, _resize(job, event)
        case TaskReported():
            result = _take_report(job, event)
        case Reconciled():
            pass
    return result


class Budget(StrEnum):
    """On whose account a restart goes."""

    POLICY = "policy"
    USER = "user"
    PLATFORM = "platform"


@dataclass(frozen=True, slots=True)
class Cause:
    """What an action is about and who or what asked for it."""

    scope: Scope = WHOLE_JOB
    event: str = ""
    budget: Budget = Budget.POLICY
    reason: StopReason | None = None


def act(
    job: JobView, action: LifecycleAction, cause: Cause | None = None
) -> tuple[JobView, tuple[JobEffect, ...]]:
    """Do one action by the job table, once, without looking further (`step_job` does)."""
    return _apply(job, JOB_TABLE[job.phase][action], action, cause or Cause())


def _apply(
    job: JobView, row: JobRow, action: LifecycleAction, cause: Cause
) -> tuple[JobView, tuple[JobEffect, ...]]:
    after = _count_restart(job, cause.budget) if row.counts_restart else job
    is_last = decisions.is_last_retry(job) and cause.budget is not Budget.USER
    resets = row.stop is Stop.TARGET or (row.stop is Stop.ALL and not is_last)
    after, stops = _stop(
        after,
        scope=cause.scope if row.stop is Stop.TARGET else WHOLE_JOB,
        stop=row.stop,
        resets=resets,
        reason=cause.reason or _reason_for(action),
    )
    then = row.then
    phase = decisions.decide(then, after, after.counts) if isinstance(then, Decision) else then
    is_whole = row.stop in (Stop.ALL, Stop.LIVE)
    if is_whole and (stops or phase is not job.phase):
        after = replace(after, generation=after.generation + 1)
    effects: list[JobEffect] = list(stops)
    if phase is not job.phase:
        because = then.value if isinstance(then, Decision) else action.value
        effects.append(PhaseChanged(job.phase, phase, because, cause.event))
        if is_whole and phase not in FINISHED_PHASES:
            effects.append(ReleaseGang())
    return replace(after, phase=phase), tuple(effects)


def _count_restart(job: JobView, budget: Budget) -> JobView:
    match budget:
        case Budget.USER:
            return replace(job, user_restarts=job.user_restarts + 1)
        case Budget.PLATFORM:
            return replace(job, platform_restarts=job.platform_restarts + 1)
        case Budget.POLICY:
            return replace(job, policy_restarts=job.policy_restarts + 1)


def _stop(
    job: JobView, *, scope: Scope, stop: Stop, resets: bool, reason: StopReason
) -> tuple[JobView, tuple[JobEffect, ...]]:
    """Stop what is meant, and count whole roles as stopping already.

    Of a single task or a partition only the caller knows the states: it reconciles afterwards.
    """
    if stop is Stop.NONE:
        return job, ()
    before = job.counts
    if scope.kind in (ScopeKind.JOB, ScopeKind.ROLE):
        roles = tuple(
            _stopped(role, resets=resets)
            if scope.kind is ScopeKind.JOB or role.name == scope.role
            else role
            for role in job.roles
        )
        job = replace(job, roles=roles)
        touched = before.launching + before.running + (before.ended if resets else 0)
        if scope.kind is ScopeKind.JOB and touched == 0:
            return job, ()
    delay = decisions.back_off_seconds(job.policy_restarts) if resets else 0.0
    return job, (StopTasks(scope, reason, reset=resets, delay_seconds=delay),)


def _stopped(role: RoleView, *, resets: bool) -> RoleView:
    now = role.counts
    counts = TaskCounts(
        pending=now.pending + (now.ended if resets else 0),
        stopping=now.live,
        succeeded=0 if resets else now.succeeded,
        failed=0 if resets else now.failed,
    )
    return replace(role, counts=counts)


def _reason_for(action: LifecycleAction) -> StopReason:
    if action is LifecycleAction.RESTART_JOB or action in TARGETED_ACTIONS:
        return StopReason.RESTART
    if action in (LifecycleAction.SYNC_JOB, LifecycleAction.COMPLETE_JOB):
        return StopReason.JOB_ENDED
    return StopReason.USER


def _act_or_wish(
    job: JobView, action: LifecycleAction, cause: Cause
) -> tuple[JobView, tuple[JobEffect, ...]]:
    """Do the action, or keep it as a wish where the phase must be left first."""
    if action in WISHES.get(job.phase, ()):
        job = replace(job, wish=action)
    after, effects = act(job, action, cause)
    return _drop_delayed(after, effects, within=cause.scope)


def _drop_delayed(
    job: JobView, effects: tuple[JobEffect, ...], *, within: Scope
) -> tuple[JobView, tuple[JobEffect, ...]]:
    gone = tuple(one for one in job.delayed if within.covers(one.origin))
    if not gone:
        return job, effects
    job = replace(job, delayed=tuple(one for one in job.delayed if one not in gone))
    return job, (*effects, CancelDelayedActions(gone))


def _settled(job: JobView, effects: tuple[JobEffect, ...]) -> tuple[JobView, tuple[JobEffect, ...]]:
    """Look at the counts again until the phase rests, and end what a finished job leaves."""
    collected = list(effects)
    if not any(_needs_fresh_counts(effect) for effect in collected):
        for _ in range(_MOST_SETTLING_STEPS):
            job, more, is_moving = _settle_once(job)
            collected += more
            if not is_moving:
                break
    if any(
        isinstance(effect, PhaseChanged) and effect.after in FINISHED_PHASES for effect in collected
    ):
        collected.append(CloseTasks())
        job, rest = _drop_delayed(replace(job, wish=None), (), within=WHOLE_JOB)
        collected += rest
    return job, tuple(collected)


def _needs_fresh_counts(effect: JobEffect) -> bool:
    is_partial = isinstance(effect, StopTasks) and effect.scope.kind in (
        ScopeKind.TASK,
        ScopeKind.PARTITION,
    )
    return is_partial or isinstance(effect, RemoveTasks)


def _settle_once(job: JobView) -> tuple[JobView, tuple[JobEffect, ...], bool]:
    if job.wish is not None and (job.phase, job.wish) in WISH_TABLE:
        wish = job.wish
        row = WISH_TABLE[job.phase, wish]
        after, effects = _apply(replace(job, wish=None), row, wish, Cause(event="wish"))
        return after, effects, True
    after, effects = act(job, LifecycleAction.SYNC_JOB)
    return after, effects, after.phase is not job.phase


def _take_report(job: JobView, report: TaskReported) -> tuple[JobView, tuple[JobEffect, ...]]:
    role = job.role(report.role)
    if role is None:
        return job, ()
    origin = task_scope(role, report.index)
    event = policies.raised_event(report=report, role=role)
    job, cancelled = _cancel_outlived(job, origin, report.change)
    if report.change is TaskChange.STOPPED:
        return job, cancelled
    answer = policies.resolve(
        job=job,
        event=event,
        role=report.role,
        exit_code=report.exit_code,
        generation=None if report.change is TaskChange.PENDING else report.generation,
    )
    is_platform = report.change is TaskChange.EVICTED
    after, effects = _answer(job, answer, origin, event, is_platform=is_platform)
    return after, (*cancelled, *effects)


def task_scope(role: RoleView, index: int) -> Scope:
    """Return the scope of one task, with the partition that its index falls into."""
    partition = index // role.partition_size if role.partition_size > 0 else None
    return Scope(ScopeKind.TASK, role.name, index, partition)


_HEALS = frozenset({PolicyEvent.POD_FAILED, PolicyEvent.POD_EVICTED})


def _cancel_outlived(
    job: JobView, origin: Scope, change: TaskChange
) -> tuple[JobView, tuple[JobEffect, ...]]:
    """Forget delayed actions whose cause is over: a pending task moved on, a failed one runs."""
    if change in (TaskChange.PENDING, TaskChange.RESTARTED_IN_PLACE):
        return job, ()
    over = {PolicyEvent.POD_PENDING} | (_HEALS if change is TaskChange.RUNNING else set())
    gone = tuple(one for one in job.delayed if one.origin == origin and one.event in over)
    if not gone:
        return job, ()
    left = tuple(one for one in job.delayed if one not in gone)
    return replace(job, delayed=left), (CancelDelayedActions(gone),)


def _answer(
    job: JobView,
    answer: policies.Answer,
    origin: Scope,
    event: PolicyEvent,
    *,
    is_platform: bool = False,
) -> tuple[JobView, tuple[JobEffect, ...]]:
    scope = action_scope(answer.action, origin)
    if answer.action is LifecycleAction.SYNC_JOB or scope is None:
        return job, ()
    if job.phase in FINISHED_PHASES:
        return job, ()
    if answer.delay_seconds > 0:
        delayed = DelayedAction(answer.action, scope, origin, event)
        return _schedule(job, delayed, answer.delay_seconds)
    reason = _policy_reason(answer.action)
    budget = Budget.PLATFORM if is_platform else Budget.POLICY
    return _act_or_wish(job, answer.action, Cause(scope, event, budget, reason))


def _policy_reason(action: LifecycleAction) -> StopReason | None:
    """A policy's ending of a job is a policy's, not a user's."""
    is_ending = action in (LifecycleAction.ABORT_JOB, LifecycleAction.TERMINATE_JOB)
    return StopReason.POLICY if is_ending else None


def action_scope(action: LifecycleAction, origin: Scope) -> Scope | None:
    """Return what an action touches when this task's event asked for it; None: nothing."""
    match action:
        case LifecycleAction.RESTART_TASK if origin.role:
            return Scope(ScopeKind.ROLE, origin.role)
        case LifecycleAction.RESTART_POD if origin.kind is ScopeKind.TASK:
            return origin
        case LifecycleAction.RESTART_PARTITION if origin.partition is not None:
            return Scope(ScopeKind.PARTITION, origin.role, partition=origin.partition)
        case _:
            return None if action in TARGETED_ACTIONS else WHOLE_JOB


def _schedule(
    job: JobView, delayed: DelayedAction, after_seconds: float
) -> tuple[JobView, tuple[JobEffect, ...]]:
    """Keep one delayed action for a task and event: the same one is not armed anew."""
    same_cause = tuple(
        one for one in job.delayed if one.origin == delayed.origin and one.event == delayed.event
    )
    if any(one.action is delayed.action for one in same_cause):
        return job, ()
    left = tuple(one for one in job.delayed if one not in same_cause)
    effects: list[JobEffect] = [CancelDelayedActions(same_cause)] if same_cause else []
    effects.append(ScheduleDelayedAction(delayed, after_seconds))
    return replace(job, delayed=(*left, delayed)), tuple(effects)


def _do_due(job: JobView, delayed: DelayedAction) -> tuple[JobView, tuple[JobEffect, ...]]:
    """Do a delayed action once; one that was cancelled or done before changes nothing."""
    if delayed not in job.delayed or job.phase in FINISHED_PHASES:
        return job, ()
    job = replace(job, delayed=tuple(one for one in job.delayed if one != delayed))
    is_platform = delayed.event is PolicyEvent.POD_EVICTED
    budget = Budget.PLATFORM if is_platform else Budget.POLICY
    reason = _policy_reason(delayed.action)
    return _act_or_wish(job, delayed.action, Cause(delayed.scope, delayed.event, budget, reason))


def _do_command(job: JobView, command: CommandGiven) -> tuple[JobView, tuple[JobEffect, ...]]:
    origin = WHOLE_JOB
    if command.action in TARGETED_ACTIONS:
        role = job.role(command.role)
        if role is None:
            return job, (ActionIgnored(command.action, job.phase),)
        origin = (
            Scope(ScopeKind.ROLE, role.name)
            if command.index is None
            else task_scope(role, command.index)
        )
    scope = action_scope(command.action, origin)
    if scope is None or is_ignored(job.phase, command.action):
        return job, (ActionIgnored(command.action, job.phase),)
    return _act_or_wish(job, command.action, Cause(scope, "command", Budget.USER))


def is_ignored(phase: JobPhase, action: LifecycleAction) -> bool:
    """Whether a command would change nothing in this phase (it is then refused, with a reason)."""
    if phase in FINISHED_PHASES:
        return True
    if action in WISHES.get(phase, ()):
        return False
    rows = JOB_TABLE[phase]
    return rows[action] == rows[LifecycleAction.SYNC_JOB]


def _end_by_time_limit(job: JobView) -> tuple[JobView, tuple[JobEffect, ...]]:
    cause = Cause(event="time_limit", reason=StopReason.TIME_LIMIT)
    return _act_or_wish(job, LifecycleAction.TERMINATE_JOB, cause)


def _resize(job: JobView, event: RoleResized) -> tuple[JobEffect, ...]:
    role = job.role(event.role)
    if role is None or role.replicas == event.replicas_before:
        return ()
    if role.replicas > event.replicas_before:
        return (CreateTasks(role.name, event.replicas_before, role.replicas),)
    return (RemoveTasks(role.name, role.replicas),)
