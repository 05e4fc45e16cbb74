"""Which devices belong to a class, by the selectors that Kubernetes' classes are written in."""

from __future__ import annotations

import re
from collections.abc import Iterable

from scheduling.engine.types import Device, DeviceClass

PREFIX = "deviceclass/"
"""A claim's devices are asked for, and a queue's are limited, under this and the class's name."""

ONE_DEVICE = 1000

TERM = re.compile(
    r"""\s*(?P<negated>!)?\s*device\.(?P<path>driver|attributes\[(?P<q>["'])(?P<domain>[^"']+)(?P=q)\]
    \.(?P<name>\w+))\s*(?:(?P<operator>==|!=)\s*(?P<value>"[^"]*"|'[^']*'|[\w.]+))?\s*""",
    re.VERBOSE,
)


def devices_of(
    name: str, classes: Iterable[DeviceClass], devices: Iterable[Device]
) -> list[Device]:
    """Return the healthy devices of a class; none where a selector cannot be answered."""
    selectors = next((c.selectors for c in classes if c.name == name), ())
    return [d for d in devices if d.is_healthy and all(is_met(s, d) for s in selectors)]


def is_met(selector: str, device: Device) -> bool:
    """Return whether a device meets a selector: comparisons of driver and attributes, by `&&`.

    What a device does not say, or what is written otherwise, is not met.
    """
    return all(_holds(term, device) for term in selector.split("&&"))


def _holds(text: str, device: Device) -> bool:
    term = TERM.fullmatch(text)
    if term is None:
        return False
    if term["path"] == "driver":
        actual: str | None = device.driver
    else:
        actual = device.attributes.get(f"{term['domain']}/{term['name']}")
    if actual is None:
        return False
    expected = (term["value"] or "true").strip("\"'")
    is_unequal = (term["operator"] == "!=") is not bool(term["negated"])
    return (actual != expected) if is_unequal else (actual == expected)
