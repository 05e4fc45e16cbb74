"""Learn from forecasts that came true, or not yet, by how much to stretch the next ones.

A forecast knows nothing of jobs yet to come, of failures, and of jobs that end early together; so
it may be wrong in the same way again and again. What came true tells how: the waits that were,
each divided by the wait that was foretold. Half of these ratios lie below the factor of p50, nine
in ten below that of p90. A job that still waits, or was withdrawn, counts with the ratio that it
has reached, as one that lies somewhere above (`survival`): else only short waits would be learnt.
Both times are stretched on their own, so the ranges of single jobs stay different.

Jobs that wait at one time are wrong together, so many forecasts of one hour teach no more than one:
whoever calls takes one forecast a job, and jobs from all over a long time. And p50, which is right
where plays are, is stretched only by what these times agree on: what is early in one and late in
the next is chance, and correcting it makes the next one worse. p90 is stretched wholly, since plays
cannot know how far such chance goes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import stdev

from scheduling.simulator.forecast import Forecast
from scheduling.simulator.survival import Survival

FEWEST = 20
"""Fewer outcomes than this teach nothing."""
SHORTEST_SECONDS = 10.0
"""What was foretold to start sooner is taken as if it had been this long: ratios stay finite."""
MOST = 20.0
"""No factor is above this, or below one divided by it."""
SPANS = 5
"""Stretches of time, of equally many outcomes, whose agreement is asked for."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """An earlier forecast before any stretching, and when its job started; None: it waits."""

    made_at: float
    p50: float | None
    p90: float | None
    started_at: float | None
    ended_at: float | None = None
    """When it was withdrawn, if it was before it started: so long it waited at least."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """By how much the waits up to p50 and p90 are stretched."""

    p50: float = 1.0
    p90: float = 1.0
    outcomes: int = 0

    def of(self, found: Forecast, *, now: float) -> Forecast:
        """Return a forecast made now, stretched; p90 never before p50."""
        if not self.outcomes:
            return found
        p50 = _stretched(found.p50, now, self.p50)
        p90 = _stretched(found.p90, now, self.p90)
        if p50 is not None and p90 is not None:
            p90 = max(p50, p90)
        return replace(found, p50=p50, p90=p90)


def learn(outcomes: Iterable[Outcome], *, now: float) -> Calibration:
    """Return what earlier forecasts teach at an instant; nothing where they are few."""
    known = sorted(outcomes, key=lambda outcome: outcome.made_at)
    p50 = _ratios([(o, o.p50) for o in known], now)
    p90 = _ratios([(o, o.p90) for o in known], now)
    if min(sum(not waits for _, waits in ratios) for ratios in (p50, p90)) < FEWEST:
        return Calibration()
    return Calibration(_agreed(p50), _factor(p90, 0.9), len(known))


def _stretched(at: float | None, now: float, factor: float) -> float | None:
    return None if at is None else now + max(at - now, 0.0) * factor


def _ratios(told: Sequence[tuple[Outcome, float | None]], now: float) -> list[tuple[float, bool]]:
    """Return the wait over the wait foretold, and whether it goes on: the ratio is to grow yet."""
    ratios = []
    for outcome, at in told:
        if at is None:
            continue
        end = next(at for at in (outcome.started_at, outcome.ended_at, now) if at is not None)
        ratio = (end - outcome.made_at) / max(at - outcome.made_at, SHORTEST_SECONDS)
        ratios.append((ratio, outcome.started_at is None))
    return ratios


def _factor(ratios: Sequence[tuple[float, bool]], share: float) -> float:
    """Return the ratio below which a share of the jobs starts."""
    lasts = Survival.of(
        (r for r, waits in ratios if not waits), (r for r, waits in ratios if waits)
    )
    found = lasts.quantile(share)
    return min(max(lasts.longest if found is None else found, 1 / MOST), MOST)


def _agreed(ratios: Sequence[tuple[float, bool]]) -> float:
    """Return the median ratio, nearer to 1 by twice its standard error over stretches of time."""
    cuts = [len(ratios) * i // SPANS for i in range(SPANS + 1)]
    spans = [math.log(_factor(ratios[begin:end], 0.5)) for begin, end in pairwise(cuts)]
    error = stdev(spans) / math.sqrt(SPANS)
    median = math.log(_factor(ratios, 0.5))
    return math.exp(math.copysign(max(abs(median) - 2 * error, 0.0), median))
