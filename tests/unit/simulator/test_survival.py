"""How long things last, by those that have ended and those that have not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduling.simulator.survival import Survival

TIMES = st.lists(st.integers(1, 50).map(float), min_size=1, max_size=30)


def test_kaplan_and_meiers_example() -> None:
    """Deaths at 0.8, 3.1, 5.4 and 9.2, losses at 1.0, 2.7, 7.0 and 12.1: as they printed it."""
    found = Survival.of([0.8, 3.1, 5.4, 9.2], [1.0, 2.7, 7.0, 12.1])

    assert found.ends == (0.8, 3.1, 5.4, 9.2)
    assert found.ended == pytest.approx([1 - 7 / 8, 1 - 0.7, 1 - 0.525, 1 - 0.2625])
    assert found.longest == 12.1


def test_what_still_lasts_makes_the_rest_longer() -> None:
    """Three took 10 s and three run for 40 s: half of all last longer than any that has ended."""
    assert Survival.of([10, 10, 10]).quantile(0.5) == 10
    assert Survival.of([10, 10, 10], [40, 40, 40]).quantile(0.6) is None


@given(ended=TIMES, lasting=TIMES, beyond=st.integers(0, 60).map(float), share=st.floats(0, 0.99))
def test_who_has_lasted_is_measured_by_those_who_lasted_as_long(
    ended: list[float], lasting: list[float], beyond: float, share: float
) -> None:
    """Whatever ended or was lost before a time says nothing of what comes after it."""
    longer = Survival.of([t for t in ended if t > beyond], [t for t in lasting if t > beyond])
    found = Survival.of(ended, lasting).quantile(share, beyond=beyond)

    near = {longer.quantile(min(max(share + by, 0.0), 1.0)) for by in (-1e-9, 0.0, 1e-9)}
    assert found in near  # the two are rounded differently


@given(ended=TIMES)
def test_without_anything_that_lasts_it_is_the_share_of_all(ended: list[float]) -> None:
    """The curve is then how many of all have ended by a time."""
    found = Survival.of(ended)

    for at, share in zip(found.ends, found.ended, strict=True):
        assert share <= sum(t <= at for t in ended) / len(ended) + 1e-9
    assert found.quantile(0.999) == max(ended)
