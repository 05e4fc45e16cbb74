"""Divide amounts by min, max, weight and demand: exact weighted water-filling, level by level."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from operator import attrgetter
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

Int64 = NDArray[np.int64]
Bools = NDArray[np.bool_]

SMALL = 48
"""Up to this many claimants plain integers are faster than numpy's calls."""

SAFE_AMOUNTS = float(2**61)
"""Sum of all claims up to which no partial sum leaves int64."""

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
    """Do the same in arrays, for one group."""
    room = np.fromiter((min(r, rest) for r in rooms), dtype=np.int64, count=len(rooms))
    group = np.zeros(len(room), dtype=np.int64)
    raised = fill_groups(np.array([rest]), room, np.array(weights, dtype=np.int64), group)
    found: list[int] = raised.tolist()
    return found


def fill_groups(rest: Int64, room: Int64, weight: Int64, group: Int64) -> Int64:
    """Divide `rest` int64[G] by weight up to each room, within each group; all groups at once.

    `room`, `weight` and `group` are int64[n], members of one group beside each other; the weights
    of a group add up to `SAFE_WEIGHTS` at most. `rest * weight // weight_sum` would overflow, so it
    is taken as `quotient * weight + (remainder * weight) // weight_sum`, which is exact.

    Cost: O(n) a round for those that are neither saturated nor settled yet; rounds are few.
    """
    rest = rest.copy()
    raised = np.zeros(len(room), dtype=np.int64)
    active = np.flatnonzero((weight > 0) & (room > 0))
    while len(active):
        starts, run, ids = _runs(group[active])
        w, most = weight[active], room[active]
        weight_sum = np.add.reduceat(w, starts)
        quotient, remainder = np.divmod(rest[ids], weight_sum)
        level, parts = np.divmod(remainder[run] * w, weight_sum[run])
        level += quotient[run] * w
        is_full = level >= most
        is_settled = ~np.logical_or.reduceat(is_full, starts)
        if is_settled.any():
            mine = np.flatnonzero(is_settled[run])
            raised[active[mine]] = _rounded(level[mine], parts[mine], run[mine], rest[ids])
        raised[active[is_full]] = most[is_full]
        rest[ids] -= np.add.reduceat(np.where(is_full, most, 0), starts)
        active = active[~(is_full | is_settled[run])]
    return raised


def _rounded(level: Int64, remainder: Int64, run: Int64, amount: Int64) -> Int64:
    """Return the levels with what is left of each run's amount, by largest remainder."""
    starts, own, ids = _runs(run)
    left = amount[ids] - np.add.reduceat(level, starts)
    order = np.lexsort((-remainder, own))
    rank = np.arange(len(own)) - starts[own]
    result = level.copy()
    result[order[rank < left[own]]] += 1
    return result


def _runs(values: Int64) -> tuple[Int64, Int64, Int64]:
    """Return (where each run of equal values starts, the run of each element, the runs' values)."""
    is_first = np.empty(len(values), dtype=bool)
    is_first[:1] = True
    np.not_equal(values[1:], values[:-1], out=is_first[1:])
    starts = np.flatnonzero(is_first)
    return starts, np.cumsum(is_first) - 1, values[starts]


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

    Large trees are divided in arrays, a level at a time; what does not fit into int64 is not.
    """
    if len(claimants) > SMALL:
        forest = Forest.of(claimants, len(total))
        if forest is not None:
            return forest.fill(total)
    return _fill_tree_exact(claimants, total)


def _fill_tree_exact(claimants: Sequence[Claimant], total: Sequence[int]) -> list[list[int]]:
    """Divide group by group, in unbounded integers where they are needed."""
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


@dataclass(frozen=True, slots=True)
class Level:
    """The claims at one depth, in runs of those with the same parent."""

    members: Int64
    starts: Int64
    run: Int64
    parents: Int64
    """Of each run."""


@dataclass(frozen=True, slots=True)
class Forest:
    """Claims in arrays: `weight` and `lend_min` of n, the others int64[n, resources].

    All but the demand is laid out once for many divisions.
    """

    levels: tuple[Level, ...]
    """From the top down."""
    weight: Int64
    min: Int64
    max: Int64
    demand: Int64
    lend_min: Bools

    @classmethod
    def of(cls, claimants: Sequence[Claimant], width: int) -> Self | None:
        """Lay the claims out; None if sums of them might pass int64."""
        count = len(claimants)

        def column(name: str, kind: type = np.int64) -> NDArray[Any]:
            return np.fromiter(map(attrgetter(name), claimants), dtype=kind, count=count)

        try:
            least = _table([claimant.min for claimant in claimants], width)
            most = _table([claimant.max for claimant in claimants], width)
            weight = column("weight")
        except OverflowError:
            return None
        if float(weight.sum(dtype=np.float64)) > SAFE_WEIGHTS:
            return None
        levels = _levels(column("parent"))
        lends = column("lend_min", np.bool_)
        forest = cls(levels, weight, least, most, np.zeros_like(least), lends)
        return forest.asking([claimant.demand for claimant in claimants])

    def asking(self, demands: Sequence[Sequence[int]]) -> Self | None:
        """Return the same claims with these demands; None if sums of them might pass int64."""
        try:
            demand = _table(demands, self.min.shape[1])
        except OverflowError:
            return None
        if float(self.min.sum(dtype=np.float64) + demand.sum(dtype=np.float64)) > SAFE_AMOUNTS:
            return None
        return replace(self, demand=demand)

    def fill(self, total: Sequence[int]) -> list[list[int]]:
        """Return what each deserves, resource by resource."""
        floor, ceiling = self._claims()
        deserved = np.zeros_like(floor)
        for depth, level in enumerate(self.levels):
            at = level.members
            amount = deserved[level.parents] if depth else np.array([total], dtype=np.int64)
            deserved[at] = self._divide(
                amount, floor[at], ceiling[at], self.weight[at], level.starts, level.run
            )
        found: list[list[int]] = deserved.tolist()
        return found

    def _claims(self) -> tuple[Int64, Int64]:
        """Return floor and ceiling of each subtree, int64[n, resources], from the leaves up."""
        demand, below = self.demand.copy(), np.zeros_like(self.min)
        floor, ceiling = np.empty_like(self.min), np.empty_like(self.min)
        for level in reversed(self.levels):
            at = level.members
            most = self.max[at]
            wanted = np.minimum(most, demand[at])
            lends = self.lend_min[at][:, np.newaxis]
            kept = np.where(lends, np.minimum(self.min[at], wanted), self.min[at])
            floor[at] = np.minimum(np.maximum(kept, below[at]), most)
            ceiling[at] = np.maximum(wanted, floor[at])
            if level is not self.levels[0]:
                demand[level.parents] += np.add.reduceat(ceiling[at], level.starts)
                below[level.parents] += np.add.reduceat(floor[at], level.starts)
        return floor, ceiling

    @staticmethod
    def _divide(
        amount: Int64, floor: Int64, ceiling: Int64, weight: Int64, starts: Int64, run: Int64
    ) -> Int64:
        """Return the parts, int64[m, resources], of members in runs; `amount` has a row a run."""
        rest = amount - np.add.reduceat(floor, starts)
        width = floor.shape[1]
        weights = np.repeat(weight[:, np.newaxis], width, axis=1)
        room = np.maximum(ceiling - floor, 0)
        is_short = rest < 0
        if is_short.any():  # floors are cut in proportion to themselves
            for g, r in np.argwhere(is_short):
                mine = np.flatnonzero(run == g)
                cut = floor[mine, r].tolist()
                floor[mine, r] = _fill_exact(max(int(amount[g, r]), 0), cut, cut)
                room[mine, r] = 0
            rest = np.maximum(rest, 0)
        room = np.minimum(room, rest[run])
        group = run + (run[-1] + 1) * np.arange(width)[:, np.newaxis]
        raised = fill_groups(rest.T.ravel(), room.T.ravel(), weights.T.ravel(), group.ravel())
        return floor + raised.reshape(width, -1).T


def _table(rows: Sequence[Sequence[int]], width: int) -> Int64:
    """Return rows of amounts as int64[n, width].

    Raises: OverflowError if one does not fit.
    """
    amounts = chain.from_iterable(rows)
    return np.fromiter(amounts, dtype=np.int64, count=len(rows) * width).reshape(-1, width)


def _levels(parent: Int64) -> tuple[Level, ...]:
    """Return the members of each depth, from the top down."""
    depth = _depths(parent)
    levels = []
    for number in range(int(depth.max()) + 1):
        members = np.flatnonzero(depth == number)
        members = members[np.argsort(parent[members], kind="stable")]
        levels.append(Level(members, *_runs(parent[members])))
    return tuple(levels)


def _depths(parent: Int64) -> Int64:
    """Return how many ancestors each has."""
    depth = np.zeros(len(parent), dtype=np.int64)
    above = parent
    while (has := above >= 0).any():
        depth += has
        above = np.where(has, parent[above], -1)
    return depth
