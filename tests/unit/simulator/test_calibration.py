"""Forecasts stretched by what became of earlier ones."""

from __future__ import annotations

import pytest

from scheduling.simulator.calibration import FEWEST, Calibration, Outcome, learn
from scheduling.simulator.forecast import Forecast

NOW = 100_000.0
TOLD = Forecast(NOW + 100, NOW + 300, 11, is_cut=False)


def started(*waits: float) -> list[Outcome]:
    """Return forecasts of 100 s, or at most 200 s, after which the waits came true."""
    return [Outcome(1000.0, 1100.0, 1200.0, 1000.0 + wait) for wait in waits]


def test_waits_are_stretched_to_what_came_true() -> None:
    """Half of the jobs started within 50 s and nine in ten within 400: a half, and twice."""
    learnt = learn(started(*[50.0, 50.0, 50.0, 400.0, 400.0] * 10), now=NOW)

    assert learnt == Calibration(0.5, 2.0, 50)
    assert learnt.of(TOLD, now=NOW) == Forecast(NOW + 50, NOW + 600, 11, is_cut=False)


def test_few_outcomes_teach_nothing() -> None:
    """One less than the fewest, and a forecast stays as it was played."""
    learnt = learn(started(*[50.0] * (FEWEST - 1)), now=NOW)

    assert learnt.of(TOLD, now=NOW) == TOLD


def test_who_still_waits_counts_as_having_waited_longer() -> None:
    """Twenty started within 50 s, but thirty wait for 90 s by now: the median lies beyond."""
    waiting = [Outcome(1000.0, 1100.0, 1200.0, None)] * 3
    more = started(50.0, 50.0, 150.0)

    assert learn(more * 10, now=1090.0).p50 == 0.5
    assert learn([*more, *waiting] * 10, now=1090.0).p50 == 1.5


def test_who_was_withdrawn_counts_as_having_waited_until_then() -> None:
    """Thirty left after 40 s, ages ago: of those that stayed half started within 50 s still."""
    left = [Outcome(1000.0, 1100.0, 1200.0, None, 1040.0)] * 3

    assert learn([*started(50.0, 50.0, 150.0), *left] * 10, now=NOW).p50 == 0.5


def hours(*ratios: float) -> list[Outcome]:
    """Return ten forecasts of 100 s for each hour, and by how much all of the hour were wrong."""
    return [
        Outcome(3600.0 * hour, 3600.0 * hour + 100, 3600.0 * hour + 100, 3600 * hour + 100 * ratio)
        for hour, ratio in enumerate(ratios)
        for _ in range(10)
    ]


def test_what_is_late_in_one_hour_and_early_in_the_next_is_chance() -> None:
    """The middle hour of five is half as late again, but the others go both ways: p50 stays."""
    learnt = learn(hours(0.4, 3.0, 1.5, 0.6, 2.5), now=NOW)

    assert learnt.p50 == 1.0
    assert learnt.p90 == 3.0


def test_what_is_late_in_every_hour_is_corrected_but_for_its_error() -> None:
    """Each hour was late by about two: p50 is stretched by a little less, whatever the order."""
    told = hours(1.8, 2.2, 2.0, 1.9, 2.1)

    learnt = learn(told, now=NOW)

    assert 1.8 < learnt.p50 < 2.0
    assert learn(reversed(told), now=NOW) == learnt


def test_p90_never_comes_before_p50() -> None:
    """Where the stretched times would cross, both are the later one."""
    found = Calibration(4.0, 1.0, 20).of(TOLD, now=NOW)

    assert (found.p50, found.p90) == (NOW + 400, NOW + 400)


@pytest.mark.parametrize("wait", [0.0, 1e9])
def test_factors_stay_within_bounds(wait: float) -> None:
    """Neither a start at once nor one after ages makes a time useless."""
    learnt = learn(started(*[wait] * FEWEST), now=NOW)

    assert 1 / 20 <= learnt.p50 <= 20
    assert 1 / 20 <= learnt.p90 <= 20
