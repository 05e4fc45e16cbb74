"""How often something may happen: four times a second, and once ahead of time."""

from __future__ import annotations

INTERVAL_SECONDS = 0.25
"""Between two frames to a client and two renderings of a topic, on average."""


class Pace:
    """A bucket that holds two tokens and gets one each `INTERVAL_SECONDS`.

    With a plain pause after each time, what comes four times a second would wait for nearly a
    whole pause whenever it comes a little early. With the second token it does not wait at all,
    and what comes faster waits for one interval at most, then brings all that came meanwhile.
    """

    __slots__ = ("_empty_until",)

    def __init__(self) -> None:
        """Begin with a full bucket."""
        self._empty_until = 0.0

    def wait_seconds(self, now: float) -> float:
        """Return how long to wait until it may happen again; 0.0: now."""
        return max(0.0, self._empty_until - INTERVAL_SECONDS - now)

    def note(self, now: float) -> None:
        """It happens now."""
        self._empty_until = max(now, self._empty_until) + INTERVAL_SECONDS
