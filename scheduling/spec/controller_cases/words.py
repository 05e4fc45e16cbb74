"""What the families have in common: faults, names of pods, and cases nobody can answer."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from scheduling.spec.problems import Problem


class UnsupportedCaseError(Exception):
    """A case asks for something that Terrace does not have."""


def faults(problems: Iterable[Problem]) -> list[dict[str, str]]:
    """Write problems as faults: the keyword is the code, with dashes."""
    return [{"field": one.path, "keyword": one.code.replace("_", "-")} for one in problems]


def verdict(found: list[dict[str, str]]) -> dict[str, Any]:
    """Return the answer of an admission."""
    return {"allowed": not found, "faults": found}


def pod_index(name: str) -> int | None:
    """Return the position at the end of a pod's name, None if there is none."""
    last = name.rpartition("-")[2]
    return int(last) if last.isdecimal() else None


def read_time(text: str | None) -> datetime | None:
    """Read an RFC 3339 time."""
    if text is None:
        return None
    return datetime.fromisoformat(text).astimezone(UTC)


def write_time(time: datetime | None) -> str | None:
    """Write a time as RFC 3339 in UTC."""
    return None if time is None else time.astimezone(UTC).isoformat().replace("+00:00", "Z")
