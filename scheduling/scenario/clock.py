"""When scenarios happen."""

from __future__ import annotations

NOW = 1_000_000_000.0
"""The instant at which scenarios happen, in seconds since the epoch."""

DAY_SECONDS = 24 * 60 * 60


def read_clock(text: str | None) -> float:
    """Return the instant of the case: of the usual day, at the stated time."""
    if not text:
        return NOW
    hours, minutes, seconds = (float(part) for part in f"{text}:0:0".split(":")[:3])
    return NOW // DAY_SECONDS * DAY_SECONDS + hours * 3600 + minutes * 60 + seconds
