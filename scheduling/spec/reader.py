"""Reads maps of unknown content: wrong types become problems at their path, never exceptions."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from scheduling.spec.problems import Note, Param, Problem
from scheduling.spec.quantities import read_seconds, read_thousandths, read_units


@dataclass(slots=True)
class Findings:
    """Problems and notes found so far."""

    problems: list[Problem] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)

    def refuse(self, path: str, code: str, /, **params: Param) -> None:
        """Add a problem."""
        self.problems.append(Problem(path, code, params))

    def note(self, path: str, code: str, /, **params: Param) -> None:
        """Add a note."""
        self.notes.append(Note(path, code, params))


def suggestion(name: str, known: list[str]) -> str:
    """Return the known name closest to a wrong one, else all known names."""
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.75)
    return close[0] if close else ", ".join(known)


@dataclass(slots=True)
class MapReader:
    """One map of a document at its path; remembers which keys were asked for."""

    value: dict[str, Any]
    path: str
    findings: Findings
    seen: set[str] = field(default_factory=set)

    def at(self, key: str) -> str:
        """Return the path of a key."""
        return f"{self.path}.{key}" if self.path else key

    def raw(self, key: str) -> Any:
        """Return a value as it is, None where there is none."""
        self.seen.add(key)
        return self.value.get(key)

    def _typed(self, key: str, expected: str, fits: Callable[[Any], bool]) -> Any:
        value = self.raw(key)
        if value is None or fits(value):
            return value
        self.findings.refuse(self.at(key), "wrong_type", expected=expected, value=f"{value!r:.80}")
        return None

    def text(self, key: str) -> str | None:
        """Return a text; a number or truth value is written as one."""
        value = self._typed(key, "a text", lambda v: isinstance(v, str | int | float))
        return None if value is None else plain_text(value)

    def whole(self, key: str) -> int | None:
        """Return a whole number."""
        value: int | None = self._typed(key, "a whole number", _is_whole)
        return value

    def flag(self, key: str) -> bool | None:
        """Return a truth value."""
        value: bool | None = self._typed(key, "true or false", lambda v: isinstance(v, bool))
        return value

    def map(self, key: str) -> dict[str, Any]:
        """Return a map, empty where there is none."""
        return self._typed(key, "a map", lambda v: isinstance(v, dict)) or {}

    def sub(self, key: str) -> MapReader | None:
        """Return a reader for a map, None where there is none."""
        value = self._typed(key, "a map", lambda v: isinstance(v, dict))
        return None if value is None else MapReader(value, self.at(key), self.findings)

    def items(self, key: str) -> list[Any]:
        """Return a list, empty where there is none."""
        return self._typed(key, "a list", lambda v: isinstance(v, list)) or []

    def maps(self, key: str) -> Iterator[MapReader]:
        """Yield a reader for each map of a list; what is no map becomes a problem."""
        for index, item in enumerate(self.items(key)):
            path = f"{self.at(key)}[{index}]"
            if isinstance(item, dict):
                yield MapReader(item, path, self.findings)
            else:
                self.findings.refuse(path, "wrong_type", expected="a map", value=f"{item!r:.80}")

    def texts(self, key: str) -> list[str] | None:
        """Return a list of texts, None where there is none."""
        value = self._typed(key, "a list", lambda v: isinstance(v, list))
        if value is None:
            return None
        texts = []
        for index, item in enumerate(value):
            if isinstance(item, str | int | float):
                texts.append(plain_text(item))
            else:
                path = f"{self.at(key)}[{index}]"
                self.findings.refuse(path, "wrong_type", expected="a text", value=f"{item!r:.80}")
        return texts

    def text_map(self, key: str) -> dict[str, str]:
        """Return a map of texts; numbers and truth values are written as text."""
        result = {}
        for name, value in self.map(key).items():
            if value is None:
                result[name] = ""
            elif isinstance(value, str | int | float):
                result[name] = plain_text(value)
            else:
                self.findings.refuse(
                    f"{self.at(key)}.{name}",
                    "wrong_type",
                    expected="a text",
                    value=f"{value!r:.80}",
                )
        return result

    def seconds(self, key: str) -> float | None:
        """Return a duration in seconds."""
        value = self.raw(key)
        if value is None:
            return None
        seconds = read_seconds(value)
        if seconds is None:
            self.findings.refuse(self.at(key), "not_a_duration", value=f"{value!s:.80}")
        return seconds

    def unknown(self) -> list[str]:
        """Return the keys that nobody asked for."""
        return [key for key in self.value if key not in self.seen]


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def plain_text(value: str | float) -> str:
    """Write a scalar as text the way JSON does."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def read_amount(name: str, value: Any, path: str, findings: Findings) -> int:
    """Return an amount in the unit of its resource: bytes for memory and storage, else thousandths.

    What is no quantity becomes a problem, and 0 is returned.
    """
    amount = read_units(value) if counts_in_bytes(name) else read_thousandths(value)
    if amount is None:
        findings.refuse(path, "not_a_quantity", value=f"{value!s:.80}", resource=name)
        return 0
    if amount < 0:
        findings.refuse(path, "negative_number", value=f"{value!s:.80}")
        return 0
    return amount


def counts_in_bytes(resource: str) -> bool:
    """Whether a resource is measured in bytes (and not in thousandths of a unit)."""
    return resource in ("memory", "ephemeral-storage", "storage") or resource.startswith(
        "hugepages-"
    )
