"""How the command line shows things: tables for people, JSON for programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

GIB = 1024**3


def print_json(value: object) -> None:
    """Write a value as JSON."""
    sys.stdout.write(json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Write rows below their headings; nothing but a sentence where there are none."""
    cells = [[clean(cell) for cell in row] for row in rows]
    if not cells:
        sys.stdout.write("No resources found\n")
        return
    widths = [max(map(len, column)) for column in zip(columns, *cells, strict=True)]
    for row in (columns, *cells):
        padded = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        sys.stdout.write("  ".join(padded).rstrip() + "\n")


def clean(value: object) -> str:
    """Return text for a terminal: what is not printable is written as an escape."""
    text = "-" if value is None or value == "" else str(value)
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode()
        for letter in text
    )


def amounts(found: dict[str, int] | None) -> str:
    """Write amounts of resources in people's units, None as a dash."""
    if not found:
        return "-"
    return " ".join(
        f"{name.rpartition('/')[2]}={amount(name, value)}" for name, value in sorted(found.items())
    )


def amount(resource: str, value: int) -> str:
    """Write one amount: memory in GiB, anything else in whole units."""
    if resource in {"memory", "ephemeral-storage"}:
        return f"{value / GIB:.4g}Gi"
    return f"{value / 1000:g}"


def since(text: str | None, now: datetime) -> str:
    """Write how long ago a time was, in one unit."""
    if not text:
        return "-"
    seconds = max(0, int((now - datetime.fromisoformat(text)).total_seconds()))
    for unit, size in (("d", 86_400), ("h", 3600), ("m", 60)):
        if seconds >= size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


def first_line(reason: dict[str, Any] | None) -> str:
    """Write a reason's sentence."""
    return str(reason["message"]) if reason else ""
