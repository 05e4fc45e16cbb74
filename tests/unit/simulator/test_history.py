"""Whose run times a job's is guessed by."""

from __future__ import annotations

from scheduling.simulator.forecast import Basis
from scheduling.simulator.history import History, Ran, most_of_an_owner


def ended(alike: str, *seconds: float, gpus: int = 1000) -> list[Ran]:
    return [Ran(alike, gpus, each, is_over=True) for each in seconds]


SMALL = ended("mine", 10, 20, 30)
LARGE = ended("theirs", 1000, 2000, 3000, gpus=8000)


def test_the_likest_come_first() -> None:
    """Jobs alike, then its limit, then jobs as large, then any."""
    history = History(SMALL + LARGE)

    def found(alike: str, *, gpus: int, limit: float | None = None) -> tuple[Basis, float | None]:
        run_time = history.run_time(alike, gpus=gpus, limit=limit)
        return run_time.basis, run_time.lasts.quantile(0.5)

    assert found("mine", gpus=8000, limit=7) == (Basis.HISTORY, 20)
    assert found("new", gpus=8000, limit=7) == (Basis.LIMIT, 7)
    assert found("new", gpus=8000) == (Basis.SIZE, 2000)
    assert found("new", gpus=2000) == (Basis.OTHERS, 1000)


def test_too_few_are_no_sample() -> None:
    """Of two jobs nothing is learnt, and of one that only runs neither."""
    few = [*ended("mine", 10, 20), Ran("mine", 1000, 500, is_over=False)]

    assert History(few).run_time("mine", gpus=1000, limit=None).basis is Basis.UNKNOWN


def test_who_still_runs_counts_as_longer() -> None:
    """Three ended within 30 s, but five like them run for 500 s: few are over by then."""
    running = [Ran("mine", 1000, 500, is_over=False)] * 5

    alone = History(SMALL).run_time("mine", gpus=1000, limit=None)
    with_running = History([*SMALL, *running]).run_time("mine", gpus=1000, limit=None)

    assert alone.lasts.quantile(0.9) == 30
    assert with_running.lasts.quantile(0.9) is None


def test_many_owners_share_what_is_read() -> None:
    """One owner's newest thousand, and of 200 owners a hundred each."""
    assert [most_of_an_owner(owners) for owners in (0, 1, 200)] == [1000, 1000, 100]
