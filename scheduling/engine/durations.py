"""Durations as Go writes them, in configurations and annotations."""

from __future__ import annotations

UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}


def parse_duration(text: str) -> float | None:
    """Return the seconds of a duration as Go writes it (`1h30m`, `90s`); None if it is none."""
    rest, seconds = text.strip(), 0.0
    if not rest:
        return None
    while rest:
        digits = len(rest) - len(rest.lstrip("0123456789."))
        if not digits:
            return None
        number, rest = rest[:digits], rest[digits:]
        letters = len(rest) - len(rest.lstrip("nuµmsh"))
        unit = next((rest[:n] for n in (2, 1) if n <= letters and rest[:n] in UNITS), None)
        if unit is None or number.count(".") > 1 or number == ".":
            return None
        seconds += float(number) * UNITS[unit]
        rest = rest[len(unit) :]
    return seconds
