"""A day on a virtual cluster: jobs arrive, run, are evicted and end."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from scheduling.engine.types import CPU, GPU, PODS, Node, Plan, Queue, Snapshot
from scheduling.engine.verify import check
from scheduling.simulator.replay import Arrival, Day, Settings, World, replay
from scheduling.simulator.report import report
from scheduling.simulator.trace import gang

EVERY_SECOND = Settings(cycle_seconds=1.0)


def cluster(count: int, *queues: Queue) -> World:
    amounts = {CPU: 64_000, GPU: 8000, PODS: 110_000}
    return World(tuple(Node(f"n{i}", amounts) for i in range(count)), queues or (Queue("q"),))


def arrival(
    name: str,
    *,
    at: float = 0.0,
    seconds: float = 100.0,
    gpus: int = 1,
    tasks: int = 1,
    queue: str = "q",
) -> Arrival:
    request = {CPU: 1000, GPU: gpus * 1000, PODS: 1000}
    return Arrival(gang(name, queue=queue, request=request, tasks=tasks, arrives_at=at), seconds)


def times(day: Day) -> dict[str, tuple[float | None, float | None]]:
    return {r.job.key: (r.started_at, r.ended_at) for r in day.records}


def test_jobs_wait_for_one_another_and_end_after_their_time() -> None:
    """Two gangs that do not fit together run one after the other, each for its time."""
    day = replay(
        cluster(1),
        [arrival("a", gpus=4, tasks=2), arrival("b", at=10, gpus=4, tasks=2, seconds=50)],
        settings=EVERY_SECOND,
    )

    assert times(day) == {"a": (0.0, 100.0), "b": (100.0, 150.0)}


def test_a_job_that_never_fits_waits_without_end_of_cycles() -> None:
    """What is larger than the cluster stays waiting, and the day still ends."""
    day = replay(cluster(1), [arrival("big", gpus=8, tasks=3), arrival("a")], settings=EVERY_SECOND)

    assert times(day) == {"big": (None, None), "a": (0.0, 100.0)}


def test_an_end_just_after_a_rounded_cycle_is_seen() -> None:
    """Steps of a tenth are not exact: 0.7 and 0.2 make more than nine of them, and the day ends."""
    steps = Settings(cycle_seconds=0.1, most_cycles=10)

    day = replay(cluster(1), [arrival("a", at=0.65, seconds=0.2)], settings=steps)

    assert times(day)["a"][1] == 0.7000000000000001 + 0.2
    assert day.cycles < 10


def reclaimed(settings: Settings) -> Day:
    """A queue lends its share, takes it back after 40 s, and the borrower begins again."""
    world = cluster(1, Queue("a", min={GPU: 8000}), Queue("b"))
    return replay(
        world,
        [
            arrival("lent", queue="b", gpus=8, seconds=100),
            arrival("owner", queue="a", at=40, gpus=8, seconds=30),
        ],
        settings=settings,
    )


def test_an_evicted_job_begins_again_and_what_it_lost_is_counted() -> None:
    """Without checkpoints the 40 s before the eviction are run twice."""
    day = reclaimed(replace(EVERY_SECOND, grace_seconds=5))

    assert times(day)["owner"] == (45.0, 75.0)
    assert times(day)["lent"] == (0.0, 175.0)
    lent = day.records[0]
    assert (lent.evictions, lent.lost_task_seconds) == (1, 40.0)


def test_an_evicted_job_goes_on_from_its_checkpoint() -> None:
    """With a checkpoint every 15 s, 30 of the 40 s are kept."""
    day = reclaimed(replace(EVERY_SECOND, checkpoint_seconds=15))

    lent = day.records[0]
    assert lent.lost_task_seconds == 10.0
    assert lent.ended_at == times(day)["owner"][1] + 70.0  # type: ignore[operator]  # it has ended


def test_an_eviction_stops_the_rest_of_a_gang_too() -> None:
    """A training without one of its workers gives up all its places and starts whole again."""
    world = cluster(2, Queue("a", min={GPU: 8000}), Queue("b"))
    day = replay(
        world,
        [
            arrival("lent", queue="b", gpus=8, tasks=2),
            arrival("owner", queue="a", at=40, gpus=8, seconds=30),
        ],
        settings=EVERY_SECOND,
    )

    lent, owner = day.records
    assert owner.started_at is not None
    assert owner.started_at < 45
    assert lent.ended_at is not None
    assert lent.ended_at >= owner.started_at + 30 + 100
    assert lent.lost_task_seconds == 80.0


def test_the_day_ends_where_the_settings_say() -> None:
    """With an end, what comes later is not played."""
    day = replay(
        cluster(1),
        [arrival("a"), arrival("late", at=1000)],
        settings=replace(EVERY_SECOND, until=500),
    )

    assert times(day) == {"a": (0.0, 100.0), "late": (None, None)}


ARRIVALS = st.lists(
    st.tuples(
        st.integers(0, 60),
        st.integers(1, 50),
        st.sampled_from([1, 2, 4, 8]),
        st.integers(1, 3),
        st.sampled_from(["a", "b", "c"]),
    ),
    max_size=25,
)


@settings(max_examples=20, deadline=None)
@given(rows=ARRIVALS, grace=st.sampled_from([0, 3]))
def test_every_plan_of_a_day_keeps_the_rules_and_every_job_that_fits_ends(
    rows: list[tuple[int, int, int, int, str]], grace: int
) -> None:
    """Whatever arrives: each plan passes the verifier, all jobs end, and no work is conjured up."""
    world = cluster(3, Queue("a", min={GPU: 8000}, weight=2), Queue("b"), Queue("c", weight=3))
    arrivals = [
        arrival(f"job{i}", at=at, seconds=seconds, gpus=gpus, tasks=tasks, queue=queue)
        for i, (at, seconds, gpus, tasks, queue) in enumerate(rows)
    ]
    found: list[object] = []

    def verify(snapshot: Snapshot, plan: Plan) -> None:
        found.extend(check(snapshot, plan))

    day = replay(world, arrivals, settings=replace(EVERY_SECOND, grace_seconds=grace), check=verify)

    assert found == []
    assert [r.job.key for r in day.records if r.ended_at is None] == []
    for record in day.records:
        assert record.started_at is not None
        assert record.ended_at is not None
        assert record.ended_at - record.job.created_at >= record.seconds
    assert [sample.used for sample in day.samples[-1:] if any(sample.used.values())] == []
    assert report(day).ended == len(rows)


@settings(max_examples=8, deadline=None)
@given(rows=ARRIVALS)
def test_the_same_trace_gives_the_same_day(rows: list[tuple[int, int, int, int, str]]) -> None:
    """Neither the order of the lines nor a second run changes anything."""
    world = cluster(2, Queue("a"), Queue("b"), Queue("c"))
    arrivals = [
        arrival(f"job{i:02}", at=at, seconds=seconds, gpus=gpus, tasks=tasks, queue=queue)
        for i, (at, seconds, gpus, tasks, queue) in enumerate(rows)
    ]

    first = times(replay(world, arrivals, settings=EVERY_SECOND))
    second = times(replay(world, list(reversed(arrivals)), settings=EVERY_SECOND))

    assert first == second
