"""What a node offers to a claim: who would go there, and what that costs."""

from __future__ import annotations

from dataclasses import dataclass, field

from scheduling.engine.journal import Unit

Going = tuple[tuple[int, bool], ...]
"""Who goes of a node's victims: their places among them, and whether as whole gangs."""

Cost = tuple[int, int, int, int, float]
"""Gangs broken, highest priority among the victims, places among what is to be spared (how far
the queues are above their share), tasks, seconds of work lost."""


@dataclass(order=True, slots=True)
class Offer:
    """A node where the task would fit after evicting some units."""

    is_outside: bool
    """Whether the node is not of the scheduler's shard."""
    cost: Cost
    node: int
    units: tuple[Unit, ...] = field(compare=False)
