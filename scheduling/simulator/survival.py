"""How long things last, learnt from those that have ended and from those that still last.

Whoever looks only at what has ended sees the short ones: the long ones of the same hour are not
over yet. Each of these says that it lasts at least as long as it has; the estimate of Kaplan and
Meier (J. Am. Stat. Assoc. 53, 1958) counts both.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Survival:
    """Which share of things lasts longer than a time."""

    ends: tuple[float, ...] = ()
    """When some ended, ascending."""
    ended: tuple[float, ...] = ()
    """The share that has ended by each of them, ascending."""
    longest: float = 0.0
    """The longest time that any has reached; of what comes after it nothing is known."""

    @classmethod
    def of(cls, ended: Iterable[float], lasting: Iterable[float] = ()) -> Survival:
        """Learn from times that are over, and from times that have been reached so far."""
        # Of equal times the ends come first: what still lasts at a time, lasts longer than it.
        seen = sorted([*((at, False) for at in ended), *((at, True) for at in lasting)])
        ends: list[float] = []
        shares: list[float] = []
        share = 1.0
        for i, (at, lasts) in enumerate(seen):
            if not lasts:
                share *= 1 - 1 / (len(seen) - i)
                ends.append(at)
                shares.append(1 - share)
        return cls(tuple(ends), tuple(shares), seen[-1][0] if seen else 0.0)

    def quantile(self, share: float, *, beyond: float = 0.0) -> float | None:
        """Return by when a share of what lasts longer than `beyond` has ended; None: not known."""
        first = bisect_right(self.ends, beyond)
        before = self.ended[first - 1] if first else 0.0
        wanted = before + share * (1 - before)
        at = max(bisect_right(self.ended, wanted), first)
        return self.ends[at] if at < len(self.ends) else None
