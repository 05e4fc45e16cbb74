"""Quantities as files have them, in any valid form, and in the engine's units."""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import ROUND_CEILING, Decimal
from typing import Any

Data = Mapping[str, Any]  # a parsed JSON object; its shape is checked where it is read

QUANTITY = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)([numkMGTPE]|[KMGTPE]i)?")

UNITS = {
    "": 1,
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    **{unit: 1000 ** (n + 1) for n, unit in enumerate("kMGTPE")},
    **{f"{unit}i": 1024 ** (n + 1) for n, unit in enumerate("KMGTPE")},
}


class UnsupportedCaseError(Exception):
    """The case says something that the program cannot translate yet."""


def amount(name: str, text: str) -> int:
    """Return a quantity in the engine's unit: bytes of memory, thousandths of anything else."""
    match = QUANTITY.fullmatch(str(text))
    if match is None:
        raise UnsupportedCaseError(f"quantity {text!r}")
    value = Decimal(match[1]) * UNITS[match[2] or ""]
    is_bytes = name in ("memory", "ephemeral-storage")
    return int((value if is_bytes else value * 1000).to_integral_value(ROUND_CEILING))


def quantity(name: str, value: int) -> str:
    """Return an amount as a quantity."""
    if name in ("memory", "ephemeral-storage"):
        return str(value)
    return str(value // 1000) if value % 1000 == 0 else f"{value}m"


def amounts(data: Data | None) -> dict[str, int]:
    """Return a mapping of quantities in the engine's units."""
    return {name: amount(name, text) for name, text in (data or {}).items()}
