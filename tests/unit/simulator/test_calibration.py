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
    learnt = learn(started(*[50.0] * 12, *[400.0] * 8), now=NOW)

    assert learnt == Calibration(0.5, 2.0, 20)
    assert learnt.of(TOLD, now=NOW) == Forecast(NOW + 50, NOW + 600, 11, is_cut=False)


def test_few_outcomes_teach_nothing() -> None:
    """One less than the fewest, and a forecast stays as it was played."""
    learnt = learn(started(*[50.0] * (FEWEST - 1)), now=NOW)

    assert learnt.of(TOLD, now=NOW) == TOLD


def test_who_still_waits_counts_as_having_waited_longer() -> None:
    """Twenty started within 50 s, but thirty wait for 90 s by now: the median lies beyond."""
    waiting = [Outcome(1000.0, 1100.0, 1200.0, None)] * 30
    more = started(*[50.0] * 20, *[150.0] * 10)

    assert learn(more, now=1090.0).p50 == 0.5
    assert learn([*more, *waiting], now=1090.0).p50 == 1.5


def test_who_was_withdrawn_counts_as_having_waited_until_then() -> None:
    """Thirty left after 40 s, ages ago: of those that stayed half started within 50 s still."""
    left = [Outcome(1000.0, 1100.0, 1200.0, None, 1040.0)] * 30

    assert learn([*started(*[50.0] * 20, *[150.0] * 10), *left], now=NOW).p50 == 0.5


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
