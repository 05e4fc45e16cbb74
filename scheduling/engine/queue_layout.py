"""Where the queues of a snapshot stand in their tree: what no cycle changes, worked out once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from operator import attrgetter

from scheduling.engine.fairness.water_filling import SMALL, Claimant, Forest
from scheduling.engine.shapes import UNLIMITED, Resources
from scheduling.engine.types import Queue, QueueState


@dataclass(frozen=True, slots=True)
class Place:
    """One queue, its limits in the order of the resources, and where its parent stands."""

    queue: Queue
    parent: int
    """Position of its parent's place, -1 at the top."""
    min: list[int]
    max: list[int]
    is_open: bool
    """Whether it and all above it are open."""


@dataclass(frozen=True)
class Layout:
    """The places of some queues: parents before their children, those of one depth by name."""

    queues: tuple[Queue, ...]
    places: tuple[Place, ...]
    width: int

    @cached_property
    def by_name(self) -> tuple[int, ...]:
        """Return the positions of the places in the order of their queues' names."""
        names = [place.queue.name for place in self.places]
        return tuple(sorted(range(len(names)), key=names.__getitem__))

    @cached_property
    def forest(self) -> Forest | None:
        """Return the claims in arrays, without demand; None where plain integers do better."""
        if len(self.places) <= SMALL:
            return None
        return Forest.of(self.claimants([[0] * self.width] * len(self.places)), self.width)

    def claimants(self, demands: Iterable[Sequence[int]]) -> list[Claimant]:
        """Return the claims of the queues, each with what it asks for."""
        return [
            Claimant(
                parent=place.parent,
                weight=max(place.queue.weight, 0),
                min=place.min,
                max=place.max,
                demand=demand,
                lend_min=place.queue.lend_min,
            )
            for place, demand in zip(self.places, demands, strict=True)
        ]


def lay_out(queues: tuple[Queue, ...], resources: Resources) -> Layout:
    """Lay the tree out; a queue in a circle of parents, or below one, is put at the top, closed."""
    width = len(resources.names)
    nothing, endless = [0] * width, [UNLIMITED] * width
    levels, circled = _levels(queues)
    positions: dict[str, int] = {}
    places: list[Place] = []
    for depth, level in enumerate(levels):
        for queue in level:
            parent = positions[queue.parent] if depth and queue.parent is not None else -1
            is_open = queue.state is QueueState.OPEN and queue.name not in circled
            positions[queue.name] = len(places)
            places.append(
                Place(
                    queue,
                    parent,
                    resources.row(queue.min) if queue.min else nothing,
                    resources.row(queue.max, missing=UNLIMITED) if queue.max else endless,
                    is_open=is_open and (parent < 0 or places[parent].is_open),
                )
            )
    return Layout(queues, tuple(places), width)


def _levels(queues: tuple[Queue, ...]) -> tuple[list[list[Queue]], frozenset[str]]:
    """Return the queues by depth, each depth by name, and the names of those that have no top."""
    known = {queue.name: queue for queue in queues}
    below: dict[str | None, list[Queue]] = {}
    for queue in known.values():
        below.setdefault(queue.parent if queue.parent in known else None, []).append(queue)
    levels = [below.get(None, [])]
    while children := [child for queue in levels[-1] for child in below.get(queue.name, ())]:
        levels.append(children)
    reached = {queue.name for queue in chain.from_iterable(levels)}
    circled = known.keys() - reached
    levels[0] = [*levels[0], *(known[name] for name in circled)]
    return [sorted(level, key=attrgetter("name")) for level in levels], frozenset(circled)
