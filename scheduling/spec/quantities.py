"""Amounts and durations as manifests write them, exactly, to and from integers."""

from __future__ import annotations

import re
from decimal import ROUND_CEILING, Decimal

_QUANTITY = re.compile(
    r"([+-]?(?:\d{1,30}\.?\d{0,30}|\.\d{1,30}))([numkKMGTPE]i?|[eE][+-]?\d{1,3})?"
)
_SUFFIXES: dict[str | None, Decimal] = {
    None: Decimal(1),
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    **{letter: Decimal(1000) ** n for n, letter in enumerate("kMGTPE", 1)},
    **{f"{letter}i": Decimal(1024) ** n for n, letter in enumerate("KMGTPE", 1)},
}
_DURATION_PART = re.compile(r"(\d+\.?\d*|\.\d+)(ns|us|µs|ms|s|m|h)")
_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
LARGEST = 2**63 - 1
"""Amounts are stored as 64-bit integers."""


def read_quantity(value: object) -> Decimal | None:
    """Return the number that a Kubernetes quantity stands for, None if it is not one."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    match = _QUANTITY.fullmatch(str(value).strip())
    if match is None:
        return None
    number, suffix = match[1], match[2]
    if suffix and suffix[0] in "eE" and len(suffix) > 1 and suffix != "Ei":
        amount = Decimal(number).scaleb(int(suffix[1:]))
    elif suffix in _SUFFIXES:
        amount = Decimal(number) * _SUFFIXES[suffix]
    else:
        return None
    return amount if abs(amount) <= LARGEST else None


def read_units(value: object) -> int | None:
    """Return a quantity in whole units (bytes), rounded up as Kubernetes does; None if not one."""
    amount = read_quantity(value)
    return None if amount is None else int(amount.to_integral_value(ROUND_CEILING))


def read_thousandths(value: object) -> int | None:
    """Return a quantity in thousandths (milli-CPU, milli-GPU), rounded up; None if not one."""
    amount = read_quantity(value)
    if amount is None or abs(amount) * 1000 > LARGEST:
        return None
    return int((amount * 1000).to_integral_value(ROUND_CEILING))


def write_thousandths(amount: int) -> str:
    """Write thousandths of a unit as the shortest quantity: 1500 is `1500m`, 2000 is `2`."""
    return f"{amount}m" if amount % 1000 else str(amount // 1000)


def write_bytes(amount: int) -> str:
    """Write bytes as the shortest exact quantity: 2147483648 is `2Gi`."""
    for n, suffix in reversed(list(enumerate(("Ki", "Mi", "Gi", "Ti", "Pi"), 1))):
        if amount and amount % 1024**n == 0:
            return f"{amount // 1024**n}{suffix}"
    return str(amount)


def read_seconds(value: object) -> float | None:
    """Return seconds from a number, or from a duration such as `1h2m3s`; None if it is neither."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return float(value)
    if not isinstance(value, str):
        return None
    text = value.strip()
    sign = -1.0 if text.startswith("-") else 1.0
    text = text.lstrip("+-")
    if text == "0" or re.fullmatch(r"\d{1,15}(\.\d{1,9})?", text):
        return sign * float(text)
    parts = _DURATION_PART.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        return None
    return sign * sum(float(number) * _SECONDS[unit] for number, unit in parts)


def write_duration(seconds: float) -> str:
    """Write seconds as a duration that `read_seconds` reads back to the same number."""
    if seconds != int(seconds):
        return f"{Decimal(repr(seconds)):f}s"
    whole = int(seconds)
    hours, rest = divmod(whole, 3600)
    minutes, left = divmod(rest, 60)
    text = f"{hours}h" * bool(hours) + f"{minutes}m" * bool(minutes) + f"{left}s" * bool(left)
    return text or "0s"
