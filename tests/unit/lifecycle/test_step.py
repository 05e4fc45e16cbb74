"""What becomes of whole jobs: the acceptance cases of the lifecycle."""

from __future__ import annotations

import pytest

from scheduling.lifecycle.events import LifecycleAction, PolicyEvent
from scheduling.lifecycle.states import AttemptState, JobPhase, StopReason, TaskState
from scheduling.lifecycle.step import is_ignored, step_attempt, step_task
from scheduling.lifecycle.values import (
    ActionDue,
    ActionIgnored,
    AttemptEvent,
    AttemptView,
    CommandGiven,
    GangBroken,
    Policy,
    RecordLate,
    ReleaseHold,
    RoleResized,
    RoleView,
    StopTasks,
    TaskChange,
    TaskEvent,
    TaskReported,
    TaskView,
    TellTask,
    TimeLimitReached,
)
from tests.unit.lifecycle.world import World, job_of

L, E, P = LifecycleAction, PolicyEvent, JobPhase
RESTART_ON_FAILURE = Policy(L.RESTART_JOB, (E.POD_FAILED,))


def running(*roles: RoleView, **options: object) -> World:
    """Make a job whose tasks all run."""
    world = World(job_of(*roles, **options))  # type: ignore[arg-type]  # passed through as they are
    world.bind_all()
    assert world.job.phase is P.RUNNING
    return world


def test_a_job_runs_once_its_gang_runs() -> None:
    """The phase becomes Running when min_available tasks run, not before."""
    world = World(job_of(RoleView("w", 3), min_available=2))

    world.bind("w", 0)
    world.attempt("w", 0, AttemptEvent.STARTED)
    after_one = world.job.phase
    world.bind("w", 1)
    world.attempt("w", 1, AttemptEvent.STARTED)

    assert (after_one, world.job.phase) == (P.PENDING, P.RUNNING)


def test_max_retry_counts_runs_and_the_last_failure_stays_visible() -> None:
    """With max_retry 2 a job that always fails runs twice and keeps its failed task."""
    world = running(RoleView("w", 2), policies=(RESTART_ON_FAILURE,), max_retry=2)

    world.fail("w", 0)
    world.finish_stops()
    world.bind_all()
    world.fail("w", 0)
    world.finish_stops()

    assert world.job.phase is P.FAILED
    assert world.job.policy_restarts == 2
    assert len(world.tasks["w", 0].attempts) == 2
    assert world.tasks["w", 0].state is TaskState.FAILED
    assert world.tasks["w", 1].state is TaskState.CANCELLED


def test_min_success_completes_a_job_and_stops_the_rest() -> None:
    """Two of three successes complete the job; the third task is stopped."""
    world = running(RoleView("w", 3), min_success=2)

    world.succeed("w", 0)
    world.succeed("w", 1)
    world.finish_stops()

    assert world.job.phase is P.COMPLETED
    assert world.tasks["w", 2].attempts[-1].state is AttemptState.CANCELLED
    assert world.tasks["w", 2].state is TaskState.CANCELLED


def test_a_completed_role_completes_the_job() -> None:
    """TaskCompleted -> CompleteJob on worker ends the job although ps would run on."""
    finish = Policy(L.COMPLETE_JOB, (E.TASK_COMPLETED,))
    world = running(RoleView("ps", 1), RoleView("worker", 2, policies=(finish,)))

    world.succeed("worker", 0)
    world.succeed("worker", 1)
    in_between = world.job.phase
    world.finish_stops()

    assert (in_between, world.job.phase) == (P.COMPLETING, P.COMPLETED)


@pytest.mark.parametrize(("min_available", "verdict"), [(2, P.COMPLETED), (3, P.FAILED)])
def test_the_verdict_waits_for_all_tasks(min_available: int, verdict: JobPhase) -> None:
    """Without policy one failure decides nothing until every task has ended."""
    world = running(RoleView("w", 3), min_available=min_available)

    world.fail("w", 0)
    in_between = world.job.phase
    world.succeed("w", 1)
    world.succeed("w", 2)

    assert (in_between, world.job.phase) == (P.RUNNING, verdict)


@pytest.mark.parametrize(("job_minimum", "verdict"), [(3, P.FAILED), (2, P.COMPLETED)])
def test_role_minimums_count_only_with_the_whole_gang(job_minimum: int, verdict: JobPhase) -> None:
    """A role's missed minimum fails the job unless the job asks for less than all minimums."""
    roles = RoleView("a", 2, min_available=2), RoleView("b", 1, min_available=1)
    world = running(*roles, min_available=job_minimum)

    world.succeed("a", 0)
    world.fail("a", 1)
    world.succeed("b", 0)

    assert world.job.phase is verdict


def test_a_lost_task_makes_the_gang_wait_again() -> None:
    """A task whose node is lost becomes pending, and a job without spare tasks with it."""
    world = running(RoleView("w", 2))

    world.attempt("w", 1, AttemptEvent.LOST)

    assert world.job.phase is P.PENDING
    assert world.tasks["w", 1].state is TaskState.PENDING


def test_an_eviction_restarts_on_the_platforms_account() -> None:
    """A restart after an eviction is counted apart and uses up nothing of max_retry."""
    evicted = Policy(L.RESTART_JOB, (E.POD_EVICTED,))
    world = running(RoleView("w", 2), policies=(evicted,), max_retry=1)

    world.attempt("w", 0, AttemptEvent.STOP, reason=StopReason.PREEMPTED)
    world.finish_stops()

    assert world.job.phase is P.PENDING
    assert (world.job.policy_restarts, world.job.platform_restarts) == (0, 1)


def test_suspend_and_resume_spend_no_retries() -> None:
    """Suspend stops everything, resume runs on, on the user's account."""
    world = running(RoleView("w", 2), max_retry=1)

    world.event(CommandGiven(L.ABORT_JOB))
    world.finish_stops()
    suspended = world.job.phase
    world.event(CommandGiven(L.RESUME_JOB))
    world.bind_all()

    assert (suspended, world.job.phase) == (P.ABORTED, P.RUNNING)
    assert (world.job.policy_restarts, world.job.user_restarts) == (0, 1)


def test_suspend_while_restarting_ends_suspended() -> None:
    """A suspend that arrives while old attempts still stop is kept and done afterwards."""
    world = running(RoleView("w", 2), policies=(RESTART_ON_FAILURE,))
    world.fail("w", 0)
    in_between = world.job.phase

    world.event(CommandGiven(L.ABORT_JOB))
    world.finish_stops()

    assert (in_between, world.job.phase) == (P.RESTARTING, P.ABORTED)
    assert world.job.wish is None


def test_a_suspended_job_can_be_ended_for_good() -> None:
    """Terminate works from Aborted and leads to Terminated."""
    world = running(RoleView("w", 1))
    world.event(CommandGiven(L.ABORT_JOB))
    world.finish_stops()

    world.event(CommandGiven(L.TERMINATE_JOB))

    assert world.job.phase is P.TERMINATED
    assert world.tasks["w", 0].state is TaskState.CANCELLED


def test_cancelling_a_waiting_job_ends_it_at_once() -> None:
    """A job without live attempts needs no further event to become Terminated."""
    world = World(job_of(RoleView("w", 2)))

    world.event(CommandGiven(L.TERMINATE_JOB))

    assert world.job.phase is P.TERMINATED
    assert world.history == [(P.PENDING, P.TERMINATING), (P.TERMINATING, P.TERMINATED)]


def test_a_command_on_a_finished_job_is_refused() -> None:
    """Nothing changes, and the caller is told so."""
    world = running(RoleView("w", 1))
    world.succeed("w", 0)

    effects = world.event(CommandGiven(L.RESTART_JOB))

    assert effects == [ActionIgnored(L.RESTART_JOB, P.COMPLETED)]
    assert is_ignored(P.RUNNING, L.RESUME_JOB)


def test_a_late_report_of_an_older_generation_triggers_nothing() -> None:
    """An attempt stopped by a restart that then reports failure restarts nothing again."""
    world = running(RoleView("w", 2), policies=(RESTART_ON_FAILURE,))
    world.fail("w", 0)
    restarts = world.job.policy_restarts

    world.attempt("w", 1, AttemptEvent.EXITED_NONZERO, exit_code=1)

    assert world.job.policy_restarts == restarts == 1
    assert world.job.phase is P.PENDING


def test_restarting_one_task_leaves_the_others_alone() -> None:
    """RestartPod stops and repeats only the task of the event."""
    world = running(RoleView("w", 3), policies=(Policy(L.RESTART_POD, (E.POD_FAILED,)),))

    world.fail("w", 1)
    world.bind_all()

    assert world.job.phase is P.RUNNING
    assert [len(world.tasks["w", n].attempts) for n in range(3)] == [1, 2, 1]


def test_restarting_a_partition_repeats_its_indexes_only() -> None:
    """A failure at index 5 of two groups of four restarts 4 to 7."""
    policy = Policy(L.RESTART_PARTITION, (E.POD_FAILED,))
    world = running(RoleView("w", 8, partition_size=4, policies=(policy,)))

    world.fail("w", 5)
    world.finish_stops()
    world.bind_all()

    assert world.job.phase is P.RUNNING
    assert [len(world.tasks["w", n].attempts) for n in range(8)] == [1, 1, 1, 1, 2, 2, 2, 2]


def test_scaling_down_takes_the_highest_indexes_and_fires_no_eviction_policy() -> None:
    """From 4 to 2 the tasks 3 and 2 go, the rest runs on, the policy stays silent."""
    evicted = Policy(L.RESTART_JOB, (E.POD_EVICTED,))
    world = running(RoleView("w", 4), min_available=2, policies=(evicted,))

    world.resize("w", 2)
    world.event(RoleResized("w", 4))
    world.finish_stops()

    assert [world.tasks["w", n].state for n in range(4)] == [
        TaskState.RUNNING,
        TaskState.RUNNING,
        TaskState.CANCELLED,
        TaskState.CANCELLED,
    ]
    assert world.job.phase is P.RUNNING


def test_scaling_to_zero_keeps_the_phase_and_up_again_makes_tasks() -> None:
    """A job without tasks keeps its phase until it has some again."""
    world = running(RoleView("w", 1), min_available=0)

    world.resize("w", 0)
    world.event(RoleResized("w", 1))
    world.finish_stops()
    at_zero = world.job.phase
    world.resize("w", 2)
    world.event(RoleResized("w", 0))

    assert at_zero is P.RUNNING
    assert world.tasks["w", 1].state is TaskState.PENDING


def test_a_pending_timeout_is_cancelled_by_running() -> None:
    """PodPending with a timeout acts only if the task still waits then."""
    policy = Policy(L.ABORT_JOB, (E.POD_PENDING,), timeout_seconds=300)
    world = running(RoleView("w", 1), policies=(policy,))
    world.attempt("w", 0, AttemptEvent.LOST)
    armed = list(world.timers)

    world.bind_all()
    world.event(ActionDue(armed[0]))

    assert armed[0].action is L.ABORT_JOB
    assert world.timers == []
    assert world.job.phase is P.RUNNING


def test_a_delayed_action_acts_once() -> None:
    """When its time comes the action is done, and a second call changes nothing."""
    policy = Policy(L.TERMINATE_JOB, (E.POD_FAILED,), timeout_seconds=60)
    world = running(RoleView("w", 2), policies=(policy,))
    world.fail("w", 0)
    due = ActionDue(world.timers[0])

    world.event(due)
    world.finish_stops()
    history = list(world.history)
    world.event(due)

    assert world.job.phase is P.TERMINATED
    assert world.history == history


def test_a_broken_gang_can_be_answered_more_than_once() -> None:
    """The event Unknown triggers its policy, also after a whole restart."""
    world = running(RoleView("w", 2), policies=(Policy(L.RESTART_JOB, (E.UNKNOWN,)),))

    world.event(GangBroken())
    world.finish_stops()
    world.bind_all()
    world.event(GangBroken())

    assert world.job.policy_restarts == 2


def test_the_time_limit_terminates_a_job() -> None:
    """A job that may not run longer is stopped with that reason."""
    world = running(RoleView("w", 1))

    world.event(TimeLimitReached())
    world.finish_stops()

    assert world.job.phase is P.TERMINATED
    assert world.tasks["w", 0].attempts[-1].stop_reason is StopReason.TIME_LIMIT


def test_restarts_by_policy_wait_longer_each_time() -> None:
    """The first restart waits for nothing, the next ones 10 s, 20 s."""
    world = running(RoleView("w", 1), policies=(RESTART_ON_FAILURE,), max_retry=9)

    for _ in range(3):
        world.fail("w", 0)
        world.bind_all()

    stops = [effect for effect in world.effects if isinstance(effect, StopTasks)]
    assert [stop.delay_seconds for stop in stops] == [0.0, 10.0, 20.0]


def test_a_second_report_of_an_end_is_only_noted() -> None:
    """A final attempt stays as it is, and its hold is released once."""
    ended, first = step_attempt(AttemptView(AttemptState.RUNNING), AttemptEvent.EXITED_ZERO)

    again, second = step_attempt(ended, AttemptEvent.LOST)

    assert first == (ReleaseHold(), TellTask(TaskEvent.SUCCEEDED))
    assert (again, second) == (ended, (RecordLate("lost"),))


def test_a_stop_needs_a_reason() -> None:
    """Without one nobody could say in which state the attempt ends."""
    with pytest.raises(ValueError, match="reason"):
        step_attempt(AttemptView(AttemptState.RUNNING), AttemptEvent.STOP)


def test_an_attempt_that_succeeds_while_it_is_evicted_counts_as_evicted() -> None:
    """A process that ends well because it was told to stop has not done its work."""
    stopping = AttemptView(AttemptState.STOPPING, StopReason.RECLAIMED)

    after, effects = step_attempt(stopping, AttemptEvent.EXITED_ZERO)

    assert after.state is AttemptState.EVICTED
    assert effects == (ReleaseHold(), TellTask(TaskEvent.EVICTED))


def test_a_leaving_task_is_never_executed_again() -> None:
    """Neither a reset nor an eviction brings a task back whose job is over."""
    cancelled = TaskView(TaskState.CANCELLED, is_leaving=True)
    running_task = TaskView(TaskState.RUNNING, is_leaving=True)

    after_reset, _ = step_task(cancelled, TaskEvent.RESET)
    after_loss, _ = step_task(running_task, TaskEvent.LOST)

    assert (after_reset.state, after_loss.state) == (TaskState.CANCELLED, TaskState.CANCELLED)


def test_a_restart_of_an_unknown_role_is_refused() -> None:
    """A targeted command that names nothing spends no retry."""
    world = running(RoleView("w", 1))

    effects = world.event(CommandGiven(L.RESTART_TASK, role="ghost"))

    assert effects == [ActionIgnored(L.RESTART_TASK, P.RUNNING)]
    assert world.job.restarts == 0


def test_a_user_restarts_one_role() -> None:
    """RestartTask by command stops and repeats that role's tasks."""
    world = running(RoleView("a", 1), RoleView("b", 2))

    world.event(CommandGiven(L.RESTART_TASK, role="b"))
    world.finish_stops()
    world.bind_all()

    assert world.job.phase is P.RUNNING
    assert [len(task.attempts) for task in world.tasks.values()] == [1, 2, 2]
    assert world.job.user_restarts == 1


def test_a_report_about_an_unknown_role_changes_nothing() -> None:
    """Its role was taken out, or never was."""
    world = running(RoleView("w", 1))
    before = world.job

    effects = world.event(TaskReported(TaskChange.FAILED, "ghost", 0, 0))

    assert (world.job, effects) == (before, [])


def test_a_resize_that_changes_nothing_has_no_effect() -> None:
    """The same number again, or a role that is not there."""
    world = running(RoleView("w", 2))

    assert world.event(RoleResized("w", 2)) == []
    assert world.event(RoleResized("ghost", 1)) == []


def test_a_second_failure_does_not_arm_the_same_timer_anew() -> None:
    """The first one keeps its time."""
    policy = Policy(L.TERMINATE_JOB, (E.POD_FAILED,), timeout_seconds=60)
    world = running(RoleView("w", 2), policies=(policy,))
    report = TaskReported(TaskChange.FAILED, "w", 0, world.job.generation)

    world.event(report)
    again = world.event(report)

    assert again == []
    assert len(world.timers) == 1


def test_all_ended_with_too_few_successes_fails() -> None:
    """min_success decides also when nothing is left to run."""
    world = running(RoleView("w", 2), min_available=1, min_success=2)

    world.succeed("w", 0)
    world.fail("w", 1)

    assert world.job.phase is P.FAILED
