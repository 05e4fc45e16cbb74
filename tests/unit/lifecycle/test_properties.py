"""What holds for every stream of events: ends are final, retries bounded, attempts single."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from scheduling.lifecycle.events import POLICY_ACTIONS, POLICY_EVENTS, LifecycleAction, PolicyEvent
from scheduling.lifecycle.states import (
    FINAL_ATTEMPT_STATES,
    FINISHED_PHASES,
    SCHEDULABLE_PHASES,
    JobPhase,
    StopReason,
    TaskState,
)
from scheduling.lifecycle.values import (
    ActionDue,
    AttemptEvent,
    CommandGiven,
    GangBroken,
    JobEvent,
    Policy,
    Reconciled,
    RoleView,
    TimeLimitReached,
)
from tests.unit.lifecycle.world import World, job_of

policies = st.lists(
    st.builds(
        Policy,
        action=st.sampled_from(POLICY_ACTIONS),
        events=st.tuples(st.sampled_from(POLICY_EVENTS)),
        timeout_seconds=st.sampled_from([None, 60.0]),
    ),
    max_size=3,
).map(tuple)

roles = st.lists(
    st.builds(
        RoleView,
        name=st.just("r"),
        replicas=st.integers(1, 4),
        policies=policies,
        partition_size=st.sampled_from([0, 2]),
    ),
    min_size=1,
    max_size=2,
).map(
    lambda made: tuple(
        RoleView(f"r{n}", r.replicas, None, 3, r.policies, r.partition_size)
        for n, r in enumerate(made)
    )
)

STEPS = st.one_of(
    st.just(("bind_all",)),
    st.just(("finish_stops",)),
    st.tuples(st.just("command"), st.sampled_from(POLICY_ACTIONS), st.integers(0, 7)),
    st.tuples(st.just("attempt"), st.sampled_from(list(AttemptEvent)), st.integers(0, 7)),
    st.just(("due",)),
    st.just(("broken",)),
    st.just(("limit",)),
)


SIMPLE_EVENTS: dict[str, JobEvent] = {"broken": GangBroken(), "limit": TimeLimitReached()}


def play(world: World, step: tuple[object, ...]) -> None:  # noqa: C901 - one case for each step
    """Let one thing happen to the world."""
    keys = list(world.tasks)
    match step:
        case ("bind_all",):
            if world.job.phase in SCHEDULABLE_PHASES:
                world.bind_all()
        case ("finish_stops",):
            world.finish_stops()
        case ("command", LifecycleAction() as action, int(number)):
            world.event(CommandGiven(action, *keys[number % len(keys)]))
        case ("attempt", AttemptEvent() as event, int(number)):
            key = keys[number % len(keys)]
            if world.tasks[key].attempts:
                world.attempt(*key, event, exit_code=7, reason=StopReason.PREEMPTED)
        case ("due",):
            for timer in world.timers[:1]:
                world.event(ActionDue(timer))
        case (str(name),):
            world.event(SIMPLE_EVENTS[name])


@settings(max_examples=150, deadline=None)
@given(
    roles=roles,
    policies=policies,
    max_retry=st.integers(1, 3),
    steps=st.lists(STEPS, max_size=25),
)
def test_every_stream_of_events_keeps_the_invariants(
    roles: tuple[RoleView, ...],
    policies: tuple[Policy, ...],
    max_retry: int,
    steps: list[tuple[object, ...]],
) -> None:
    """Ends are final, at most one attempt is live, retries stay within max_retry."""
    world = World(job_of(*roles, policies=policies, max_retry=max_retry))
    ended: JobPhase | None = None

    for step in steps:
        finals = [
            (key, n, attempt.state)
            for key, task in world.tasks.items()
            for n, attempt in enumerate(task.attempts)
            if attempt.state in FINAL_ATTEMPT_STATES
        ]
        play(world, step)
        if ended is not None:
            assert world.job.phase is ended
        ended = world.job.phase if world.job.phase in FINISHED_PHASES else None
        assert world.job.policy_restarts <= max_retry
        for key, n, state in finals:
            assert world.tasks[key].attempts[n].state is state
        for task in world.tasks.values():
            live = [a for a in task.attempts if a.state not in FINAL_ATTEMPT_STATES]
            assert len(live) <= 1

    assert [after for _, after in world.history[:-1]] == [before for before, _ in world.history[1:]]


@settings(max_examples=100, deadline=None)
@given(roles=roles, policies=policies, steps=st.lists(STEPS, max_size=15))
def test_a_terminated_job_comes_to_rest(
    roles: tuple[RoleView, ...],
    policies: tuple[Policy, ...],
    steps: list[tuple[object, ...]],
) -> None:
    """However confused, a job told to terminate ends and leaves nothing live or pending."""
    world = World(job_of(*roles, policies=policies))
    for step in steps:
        play(world, step)

    play(world, ("limit",))
    for _ in range(3):
        world.finish_stops()
        world.event(Reconciled())

    assert world.job.phase in FINISHED_PHASES
    assert all(task.live is None for task in world.tasks.values())
    assert not any(task.state is TaskState.PENDING for task in world.tasks.values())


@settings(max_examples=100, deadline=None)
@given(roles=roles, policies=policies, steps=st.lists(STEPS, max_size=15))
def test_looking_again_changes_nothing(
    roles: tuple[RoleView, ...],
    policies: tuple[Policy, ...],
    steps: list[tuple[object, ...]],
) -> None:
    """After every event the phase rests: a further look at the same counts has no effect."""
    world = World(job_of(*roles, policies=policies))
    for step in steps:
        play(world, step)

    phase, effects = world.job.phase, world.event(Reconciled())

    assert (world.job.phase, effects) == (phase, [])


def test_every_policy_event_has_a_docs_entry() -> None:
    """The events that a policy may name are all external ones."""
    assert {event.value for event in POLICY_EVENTS} == {event.value for event in PolicyEvent} - {
        "OutOfSync",
        "CommandIssued",
        "PodRunning",
    }
