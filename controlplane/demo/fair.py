"""An exact division of one resource over a tree of queues, to hold the scheduler's against.

Written from docs/queues.md alone and in fractions; it shares nothing with the engine, whose
rounding, order of work and mistakes it must not repeat.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True, slots=True)
class Claim:
    """A queue's numbers of one resource; `demand` counts only where no queue lies below."""

    name: str
    parent: str | None
    weight: int
    demand: int
    least: int = 0
    most: int | None = None


def divide(total: int, claims: Sequence[Claim]) -> dict[str, Fraction]:
    """Return what each queue should get: at each level its min first, the rest by weight."""
    below: dict[str | None, list[Claim]] = {}
    for claim in claims:
        below.setdefault(claim.parent, []).append(claim)
    wanted = {claim.name: _wanted(claim, below) for claim in claims}
    shares: dict[str, Fraction] = {}
    open_levels: list[tuple[str | None, Fraction]] = [(None, Fraction(total))]
    while open_levels:
        parent, amount = open_levels.pop()
        siblings = below.get(parent, [])
        for claim, share in zip(siblings, _level(amount, siblings, wanted), strict=True):
            shares[claim.name] = share
            open_levels.append((claim.name, share))
    return shares


def _wanted(claim: Claim, below: Mapping[str | None, Sequence[Claim]]) -> int:
    children = below.get(claim.name)
    own = sum(_wanted(child, below) for child in children) if children else claim.demand
    return own if claim.most is None else min(own, claim.most)


def _level(
    amount: Fraction, siblings: Sequence[Claim], wanted: Mapping[str, int]
) -> list[Fraction]:
    """Divide among siblings: share = min(wanted, floor + level x weight), for one level."""
    floors = [Fraction(min(one.least, wanted[one.name])) for one in siblings]
    promised = sum(floors, Fraction(0))
    if promised > amount:
        return [floor * amount / promised for floor in floors]
    rooms = [wanted[one.name] - floor for one, floor in zip(siblings, floors, strict=True)]
    rest = amount - promised
    if rest >= sum(rooms):
        return [Fraction(wanted[one.name]) for one in siblings]
    # What is given away grows with the level, in straight pieces between the levels at which one
    # sibling after the other has all that it wants.
    full_at = [room / one.weight for one, room in zip(siblings, rooms, strict=True)]
    weight = sum(one.weight for one in siblings)
    given = reached = Fraction(0)
    for place in sorted(range(len(siblings)), key=lambda index: full_at[index]):
        step = (full_at[place] - reached) * weight
        if given + step >= rest:
            break
        given += step
        reached = full_at[place]
        weight -= siblings[place].weight
    level = reached + (rest - given) / weight
    return [
        floor + min(room, level * one.weight)
        for one, floor, room in zip(siblings, floors, rooms, strict=True)
    ]
