"""One resource of a queue as a bullet: used against deserved, min and max."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from django.utils.translation import gettext as _

from controlplane.units import amount, resource_name

RESOURCES = ("nvidia.com/gpu", "cpu", "memory")


@dataclass(frozen=True, slots=True)
class Bullet:
    """Positions in percent of the whole bar, as text for SVG attributes, and the same in words."""

    resource: str
    used_percent: str
    deserved_percent: str
    over_percent: str
    min_percent: str
    has_min: bool
    summary: str


def bullets(
    *,
    minimum: Mapping[str, int],
    deserved: Mapping[str, int],
    allocated: Mapping[str, int],
    maximum: Mapping[str, int],
    capacity: Mapping[str, int],
) -> list[Bullet]:
    """Return a bullet for each resource that the queue has anything to do with."""
    return [
        bullet(
            name,
            minimum=minimum.get(name, 0),
            deserved=deserved.get(name),
            allocated=allocated.get(name, 0),
            maximum=maximum.get(name, capacity.get(name)),
        )
        for name in RESOURCES
        if any(amounts.get(name) for amounts in (minimum, deserved, allocated, maximum, capacity))
    ]


def bullet(
    resource: str, *, minimum: int, deserved: int | None, allocated: int, maximum: int | None
) -> Bullet:
    """Measure one bar; its full length is the max, or the largest amount where there is none.

    `deserved` None: the scheduler sets no bound for this resource, so nothing of it is borrowed.
    """
    whole = max(maximum or 0, deserved or 0, allocated, minimum, 1)
    inside = allocated if deserved is None else min(allocated, deserved)
    return Bullet(
        resource=resource,
        used_percent=_percent(inside, whole),
        deserved_percent=_percent(inside if deserved is None else deserved, whole),
        over_percent=_percent(allocated - inside, whole),
        min_percent=_percent(minimum, whole),
        has_min=minimum > 0,
        summary=_summary(resource, minimum, deserved, allocated, maximum),
    )


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.4g}"


def _summary(
    resource: str, minimum: int, deserved: int | None, allocated: int, maximum: int | None
) -> str:
    parts = [
        _("%(used)s %(name)s used")
        % {"used": amount(allocated, resource), "name": resource_name(resource)},
    ]
    if deserved is not None:
        parts.append(_("deserves %(amount)s") % {"amount": amount(deserved, resource)})
    if deserved is not None and allocated > deserved:
        parts.append(_("borrows %(amount)s") % {"amount": amount(allocated - deserved, resource)})
    if minimum:
        parts.append(_("min %(amount)s") % {"amount": amount(minimum, resource)})
    if maximum is not None:
        parts.append(_("max %(amount)s") % {"amount": amount(maximum, resource)})
    return ", ".join(parts)
