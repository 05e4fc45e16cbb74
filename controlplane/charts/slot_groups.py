"""GPUs by what they have in common: their queue, their owner, their state, their health.

A group is a colour and a mark: what stands in the cells stands in the legend, so that colour says
nothing alone. Colours follow the names, not the counts, so that a map drawn again looks the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from uuid import UUID

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from controlplane.charts.chart import LINES
from scheduling.domain.queries.cluster import NodeLoad, Slot
from scheduling.models.node import NodeState

IDLE_PERCENT = 5


class Colouring(StrEnum):
    """What the colours of the map stand for; the first is what it opens with."""

    USE = "use"
    QUEUE = "queue"
    OWNER = "owner"
    STATE = "state"
    HEALTH = "health"


NAMES = {
    Colouring.USE: gettext_lazy("Use"),
    Colouring.QUEUE: gettext_lazy("Queue"),
    Colouring.OWNER: gettext_lazy("Owner"),
    Colouring.STATE: gettext_lazy("State"),
    Colouring.HEALTH: gettext_lazy("Health"),
}


@dataclass(frozen=True, slots=True)
class Group:
    """One colour of the map: what stands in its cells, what it is called, how many GPUs it has."""

    mark: str
    name: str
    token: str
    count: int = 0


@dataclass(frozen=True, slots=True)
class Grouped:
    """The groups that occur, and which of them each GPU is in."""

    groups: tuple[Group, ...]
    of_device: Mapping[UUID, int]

    @property
    def words(self) -> dict[UUID, str]:
        """Return the name of each GPU's group."""
        return {device: self.groups[number].name for device, number in self.of_device.items()}


def colouring(text: str) -> Colouring:
    """Read what an address asks for."""
    return next((one for one in Colouring if one == text), Colouring.USE)


def grouped(loads: Sequence[NodeLoad], by: Colouring) -> Grouped:
    """Divide the GPUs of some nodes."""
    slots = [(load, slot) for load in loads for slot in load.slots]
    group_of: Callable[[NodeLoad, Slot], Group]
    if by in {Colouring.QUEUE, Colouring.OWNER}:
        holders = _holders([slot for _load, slot in slots], by)

        def group_of(_load: NodeLoad, slot: Slot) -> Group:
            return _of_holder(slot, by, holders)
    else:
        group_of = _of_state if by == Colouring.STATE else _of_health
    found = {slot.device.id: group_of(load, slot) for load, slot in slots}
    counts = Counter(found.values())
    order = sorted(counts, key=lambda group: (not group.mark, group.mark, group.name))
    number = {group: at for at, group in enumerate(order)}
    return Grouped(
        tuple(Group(one.mark, one.name, one.token, counts[one]) for one in order),
        {device: number[group] for device, group in found.items()},
    )


def _name(slot: Slot, by: Colouring) -> str:
    if slot.job is None:
        return ""
    return slot.job.queue if by == Colouring.QUEUE else slot.job.owner


def _holders(slots: Sequence[Slot], by: Colouring) -> dict[str, Group]:
    """Give a colour of its own to each of those who hold most, in the order of their names."""
    counts = Counter(name for slot in slots if (name := _name(slot, by)))
    most = sorted(name for name, _count in counts.most_common(len(LINES)))
    return {name: Group(str(at + 1), name, LINES[at]) for at, name in enumerate(most)}


def _of_holder(slot: Slot, by: Colouring, holders: Mapping[str, Group]) -> Group:
    if not slot.held_milli:
        return Group("", _("free"), "surface-hover")
    if slot.job is None:
        return Group("·", _("held by others"), "border-strong")
    return holders.get(_name(slot, by)) or Group("+", _("all others"), "data-1")


def _of_state(_load: NodeLoad, slot: Slot) -> Group:
    if slot.state == "bad":
        return Group("!", _("not healthy"), "state-failed")
    if slot.state == "free":
        return Group("", _("free"), "surface-hover")
    if slot.percent is not None and slot.percent < IDLE_PERCENT:
        return Group("z", _("held, idle"), "state-pending")
    return Group("▸", _("held"), "state-running")


def _of_health(load: NodeLoad, slot: Slot) -> Group:
    if not slot.device.is_present:
        return Group("x", _("gone"), "state-preempted")
    if not slot.device.is_healthy:
        return Group("!", _("not healthy"), "state-failed")
    if load.node.state != NodeState.READY:
        return Group("?", _("its node is silent"), "state-pending")
    if not load.is_schedulable:
        return Group("⊘", _("its node takes nothing new"), "border-strong")
    return Group("", _("healthy"), "data-2")
