"""The plain orders that a replay is held against."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduling.simulator.baselines import Foreteller, Order, PoolJob, run


def ends(jobs: list[PoolJob], order: Order, *, servers: int = 1) -> dict[str, tuple[float, float]]:
    return {
        e.job.key: (e.started_at, e.ended_at)
        for e in run(jobs, servers=servers, gpus=8, order=order)
    }


LONG_THEN_SHORT = [
    PoolJob("first", 0, 10, 8),
    PoolJob("long", 1, 100, 8),
    PoolJob("short", 2, 5, 8),
]


def test_fifo_serves_in_order_of_arrival() -> None:
    """The short job waits for the long one that came before it."""
    assert ends(LONG_THEN_SHORT, Order.FIFO) == {
        "first": (0, 10),
        "long": (10, 110),
        "short": (110, 115),
    }


def test_sjf_serves_the_shortest_that_waits() -> None:
    """The short job goes first, what runs is left alone."""
    assert ends(LONG_THEN_SHORT, Order.SJF) == {
        "first": (0, 10),
        "short": (10, 15),
        "long": (15, 115),
    }


def test_srtf_stops_what_has_more_left() -> None:
    """The short job takes the place of the first at once, which then goes on where it was."""
    assert ends(LONG_THEN_SHORT, Order.SRTF) == {
        "short": (2, 7),
        "first": (0, 15),
        "long": (15, 115),
    }


def test_qssf_goes_by_what_alike_jobs_took() -> None:
    """An owner whose jobs were short goes before one whose jobs were long, whatever comes now."""
    jobs = [
        PoolJob("h1", 0, 50, 4, "slow"),
        PoolJob("h2", 0, 5, 4, "quick"),
        PoolJob("busy", 60, 10, 8, "other"),
        PoolJob("s", 61, 1, 8, "slow"),
        PoolJob("q", 62, 90, 8, "quick"),
    ]

    found = ends(jobs, Order.QSSF)

    assert found["q"] == (70, 160)
    assert found["s"] == (160, 161)


def test_a_job_of_more_than_a_server_takes_whole_ones() -> None:
    """12 GPUs take one empty server and half of another."""
    jobs = [PoolJob("a", 0, 10, 4), PoolJob("b", 0, 10, 12), PoolJob("c", 0, 10, 8)]

    found = ends(jobs, Order.FIFO, servers=2)

    assert found == {"a": (0, 10), "b": (0, 10), "c": (10, 20)}


def test_a_job_larger_than_the_pool_is_refused() -> None:
    """It would block its queue for ever."""
    with pytest.raises(ValueError, match="9 GPUs, the pool has 8"):
        run([PoolJob("a", 0, 1, 9)], servers=1, gpus=8, order=Order.FIFO)


def test_the_foreteller_goes_from_near_to_far() -> None:
    """Same owner and kind first, then the owner, then everybody."""
    foreteller = Foreteller()
    assert foreteller.seconds(PoolJob("x", 0, 1, 1)) == 0
    foreteller.learn(PoolJob("a", 0, 10, 1, "u", "k"))
    foreteller.learn(PoolJob("b", 0, 30, 1, "u", "other"))

    assert foreteller.seconds(PoolJob("x", 0, 1, 1, "u", "k")) == 10
    assert foreteller.seconds(PoolJob("x", 0, 1, 1, "u", "new")) == 20
    assert foreteller.seconds(PoolJob("x", 0, 1, 1, "nobody", "k")) == 20


@settings(max_examples=50, deadline=None)
@given(
    rows=st.lists(
        st.tuples(st.integers(0, 50), st.integers(1, 40), st.integers(1, 16)), max_size=20
    ),
    order=st.sampled_from(Order),
)
def test_every_job_ends_once_and_never_sooner_than_its_run_time(
    rows: list[tuple[int, int, int]], order: Order
) -> None:
    """Nothing is lost, nothing ends early, and no more GPUs work than there are."""
    jobs = [PoolJob(f"j{i}", at, seconds, gpus) for i, (at, seconds, gpus) in enumerate(rows)]

    ended = run(jobs, servers=2, gpus=8, order=order)

    assert sorted(e.job.key for e in ended) == sorted(job.key for job in jobs)
    assert all(e.ended_at - e.started_at >= e.job.seconds - 1e-6 for e in ended)
    assert all(e.started_at >= e.job.arrives_at for e in ended)
    if jobs:
        first = min(job.arrives_at for job in jobs)
        last = max(e.ended_at for e in ended)
        assert sum(j.gpus * j.seconds for j in jobs) <= (last - first) * 16 + 1e-6
