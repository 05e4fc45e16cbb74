"""Divide amounts by min, max, weight and demand: exact weighted water-filling, level by level."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Int64 = NDArray[np.int64]

SMALL = 48
"""Up to this many claimants plain integers are faster than numpy's calls."""

SAFE_WEIGHTS = 2**31
"""Sum of weights up to which a remainder times a weight stays inside int64."""


def fill(
    *, total: int, floors: Sequence[int], ceilings: Sequence[int], weights: Sequence[int]
) -> list[int]:
    """Divide `total` so that each claimant gets its floor, then by weight up to its ceiling.

    Claimant i gets `min(ceiling, floor + level * weight)` for one common level, rounded to whole
    units by largest remainder (ties: the earlier claimant); the sum is exactly
    `min(total, sum(ceilings))`. Floors that exceed the total are cut in proportion to themselves.

    1. Give every floor. 2. Raise the level until the first ceiling is reached or nothing is left;
    take saturated claimants out and repeat with the rest. 3. Round.

    Cost: O(n) a round; rounds are few (at most n).
    """
    rooms = [max(c - f, 0) for c, f in zip(ceilings, floors, strict=True)]
    rest = total - sum(floors)
    if rest < 0:
        return _fill_exact(max(total, 0), list(floors), list(floors))
    if len(rooms) <= SMALL or sum(weights) > SAFE_WEIGHTS:
        raised = _fill_exact(rest, rooms, list(weights))
    else:
        raised = _fill_arrays(rest, rooms, weights)
    return [f + r for f, r in zip(floors, raised, strict=True)]


def _fill_exact(rest: int, rooms: list[int], weights: list[int]) -> list[int]:
    """Divide `rest` by weight up to each room, in unbounded integers."""
    if sum(room for room, weight in zip(rooms, weights, strict=True) if weight > 0) <= rest:
        return [room if weight > 0 else 0 for room, weight in zip(rooms, weights, strict=True)]
    raised = [0] * len(rooms)
    active = [i for i, weight in enumerate(weights) if weight > 0 and rooms[i] > 0]
    while active:
        weight_sum = sum(weights[i] for i in active)
        full = [i for i in active if rest * weights[i] >= rooms[i] * weight_sum]
        if not full:
            break
        for i in full:
            raised[i] = rooms[i]
            rest -= rooms[i]
        saturated = set(full)
        active = [i for i in active if i not in saturated]
    if active:
        weight_sum = sum(weights[i] for i in active)
        remainders = []
        for i in active:
            raised[i], remainder = divmod(rest * weights[i], weight_sum)
            remainders.append((-remainder, i))
        left = rest - sum(raised[i] for i in active)
        for _, i in sorted(remainders)[:left]:
            raised[i] += 1
    return raised


def _fill_arrays(rest: int, rooms: Sequence[int], weights: Sequence[int]) -> list[int]:
    """Do the same in int64 arrays.

    `rest * weight // weight_sum` would overflow, so it is taken as
    `quotient * weight + (remainder * weight) // weight_sum`, which is exact.
    """
    room = np.asarray(rooms, dtype=np.int64)
    weight = np.asarray(weights, dtype=np.int64)
    raised = np.zeros(len(room), dtype=np.int64)
    active = np.flatnonzero((weight > 0) & (room > 0))
    if int(room[active].sum()) <= rest:
        raised[active] = room[active]
        return [int(x) for x in raised]
    while len(active):
        w = weight[active]
        weight_sum = int(w.sum())
        quotient, remainder = divmod(rest, weight_sum)
        parts = remainder * w
        level = quotient * w + parts // weight_sum
        full = level >= room[active]
        if not full.any():
            left = rest - int(level.sum())
            order = np.argsort(-(parts % weight_sum), kind="stable")[:left]
            level[order] += 1
            raised[active] = level
            break
        saturated = active[full]
        raised[saturated] = room[saturated]
        rest -= int(room[saturated].sum())
        active = active[~full]
    return [int(x) for x in raised]


@dataclass(frozen=True, slots=True)
class Claimant:
    """A queue's claim: one amount for each resource; `parent` is an index, -1 at the top.

    `demand` is what the queue itself asks for and holds, without its children.
    """

    parent: int
    weight: int
    min: Sequence[int]
    max: Sequence[int]
    demand: Sequence[int]
    lend_min: bool = True


def fill_tree(claimants: Sequence[Claimant], total: Sequence[int]) -> list[list[int]]:
    """Return what each claimant deserves, per resource: `fill` at every level, from the top down.

    Parents must come before their children. A subtree's min is at least the sum of its
    children's, so that a child's guarantee reaches through a parent that states none; its demand
    is the sum of its children's, each cut at its max.
    """
    count, width = len(claimants), len(total)
    children: list[list[int]] = [[] for _ in range(count)]
    tops: list[int] = []
    for i, claimant in enumerate(claimants):
        (children[claimant.parent] if claimant.parent >= 0 else tops).append(i)
    deserved = [[0] * width for _ in range(count)]
    for r in range(width):
        floor, ceiling = _claims_of_subtrees(claimants, children, r)
        groups = [(tops, total[r])]
        while groups:
            members, amount = groups.pop()
            if not members:
                continue
            parts = fill(
                total=amount,
                floors=[floor[i] for i in members],
                ceilings=[ceiling[i] for i in members],
                weights=[claimants[i].weight for i in members],
            )
            for i, part in zip(members, parts, strict=True):
                deserved[i][r] = part
                if children[i]:
                    groups.append((children[i], part))
    return deserved


def _claims_of_subtrees(
    claimants: Sequence[Claimant], children: Sequence[Sequence[int]], r: int
) -> tuple[list[int], list[int]]:
    """Return floor and ceiling of each subtree in resource `r`, from the leaves up."""
    count = len(claimants)
    floor, ceiling = [0] * count, [0] * count
    for i in range(count - 1, -1, -1):
        claimant = claimants[i]
        demand = claimant.demand[r] + sum(ceiling[c] for c in children[i])
        wanted = min(claimant.max[r], demand)
        kept = min(claimant.min[r], wanted) if claimant.lend_min else claimant.min[r]
        floor[i] = min(max(kept, sum(floor[c] for c in children[i])), claimant.max[r])
        ceiling[i] = max(wanted, floor[i])
    return floor, ceiling
