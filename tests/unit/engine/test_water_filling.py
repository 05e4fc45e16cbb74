"""Water-filling against an exact rational solver."""

from __future__ import annotations

from fractions import Fraction
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduling.engine.fairness import water_filling
from scheduling.engine.fairness.water_filling import SMALL, Claimant, Forest, fill, fill_tree


def exact(total: int, floors: list[int], ceilings: list[int], weights: list[int]) -> list[Fraction]:
    """Solve by trying every breakpoint of the common level in rational numbers."""
    if total < sum(floors):
        return exact(total, [0] * len(floors), floors, floors)

    def at(level: Fraction) -> list[Fraction]:
        return [
            min(Fraction(c), f + level * w)
            for f, c, w in zip(floors, ceilings, weights, strict=True)
        ]

    points = sorted(
        {Fraction(c - f, w) for f, c, w in zip(floors, ceilings, weights, strict=True) if w}
    )
    low: Fraction = Fraction(0)
    for point in points:
        if sum(at(point)) >= total:
            gain = sum(at(point)) - sum(at(low))
            part = (total - sum(at(low))) / gain if gain else Fraction(0)
            return at(Fraction(low + part * (point - low)))
        low = point
    return at(low)


claims = st.integers(1, SMALL + 20).flatmap(
    lambda n: st.tuples(
        st.integers(0, 10**15),
        st.lists(
            st.tuples(st.integers(0, 10**13), st.integers(0, 10**13), st.integers(1, 1000)),
            min_size=n,
            max_size=n,
        ),
    )
)


@settings(max_examples=40, deadline=None)
@given(claims)
def test_fill_is_the_exact_solution_rounded(
    drawn: tuple[int, list[tuple[int, int, int]]],
) -> None:
    """Each part is less than one unit from the rational solution, and the sum is exact."""
    total, rows = drawn
    floors = [f for f, _, _ in rows]
    ceilings = [f + more for f, more, _ in rows]
    weights = [w for _, _, w in rows]

    parts = fill(total=total, floors=floors, ceilings=ceilings, weights=weights)

    assert sum(parts) == min(total, sum(ceilings))
    for part, rational in zip(parts, exact(total, floors, ceilings, weights), strict=True):
        assert abs(part - rational) < 1


@settings(max_examples=30, deadline=None)
@given(claims)
def test_arrays_and_plain_integers_agree(drawn: tuple[int, list[tuple[int, int, int]]]) -> None:
    """The fast way for many claimants gives the same as unbounded integers."""
    rest, rows = drawn
    rooms = [more for _, more, _ in rows]
    weights = [w for _, _, w in rows]

    fast = water_filling._fill_arrays(rest, rooms, weights)

    assert fast == water_filling._fill_exact(rest, rooms, weights)


@pytest.mark.parametrize(
    ("total", "floors", "ceilings", "weights", "parts"),
    [
        (10, [0, 0], [10, 10], [1, 1], [5, 5]),
        (10, [0, 0], [10, 1], [3, 1], [9, 1]),
        (10, [6, 0], [10, 10], [1, 1], [8, 2]),
        (10, [0, 0, 0], [10, 10, 10], [1, 1, 1], [4, 3, 3]),
        (4, [6, 2], [10, 10], [1, 1], [3, 1]),
        (10, [0, 0], [3, 4], [1, 1], [3, 4]),
        (10, [0, 2], [10, 10], [1, 0], [8, 2]),
    ],
)
def test_fill_by_hand(
    total: int, floors: list[int], ceilings: list[int], weights: list[int], parts: list[int]
) -> None:
    """Weights share what is left after every min; a lack cuts mins in proportion."""
    assert fill(total=total, floors=floors, ceilings=ceilings, weights=weights) == parts


def claimant(
    parent: int, demand: int, *, least: int = 0, most: int = 100, lend: bool = True
) -> Claimant:
    return Claimant(parent, 1, [least], [most], [demand], lend)


def test_idle_share_goes_to_the_sibling_first() -> None:
    """Two departments halve the whole; inside the first the busy team gets the idle one's part."""
    tree = [
        claimant(-1, 0),
        claimant(-1, 0),
        claimant(0, 100),
        claimant(0, 0),
        claimant(1, 100),
    ]

    assert fill_tree(tree, [20]) == [[10], [10], [10], [0], [10]]


def test_min_that_is_not_lent_stays_free() -> None:
    """An idle queue keeps its min from the others only if it does not lend it."""
    lent = fill_tree([claimant(-1, 100), claimant(-1, 0, least=4)], [10])
    kept = fill_tree([claimant(-1, 100), claimant(-1, 0, least=4, lend=False)], [10])

    assert (lent, kept) == ([[10], [0]], [[6], [4]])


def test_min_of_a_child_reaches_through_its_parent() -> None:
    """A parent that states no min is given what its child is guaranteed."""
    tree = [claimant(-1, 100, least=0), claimant(-1, 0), claimant(1, 100, least=8)]

    assert fill_tree(tree, [10])[2] == [9]


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_tree_never_gives_more_than_max_or_the_parent_has(data: st.DataObject) -> None:
    """At every level: within max, children within the parent, and min met where there is room."""
    count = data.draw(st.integers(1, 12))
    tree = [
        Claimant(
            data.draw(st.integers(-1, i - 1)),
            data.draw(st.integers(1, 5)),
            [data.draw(st.integers(0, 5))],
            [data.draw(st.integers(5, 40))],
            [data.draw(st.integers(0, 30))],
            data.draw(st.booleans()),
        )
        for i in range(count)
    ]

    deserved = [row[0] for row in fill_tree(tree, [50])]

    for i, node in enumerate(tree):
        assert 0 <= deserved[i] <= node.max[0]
        below = sum(deserved[c] for c in range(count) if tree[c].parent == i)
        assert below <= deserved[i]
    assert sum(d for d, node in zip(deserved, tree, strict=True) if node.parent < 0) <= 50


def rational_tree(tree: list[Claimant], total: Fraction) -> list[Fraction]:
    """Solve a whole tree in rational numbers, from claims counted by recursion."""
    children = {i: [c for c, n in enumerate(tree) if n.parent == i] for i in range(-1, len(tree))}

    def ceiling(i: int) -> int:
        demand = tree[i].demand[0] + sum(ceiling(c) for c in children[i])
        return max(min(tree[i].max[0], demand), floor(i))

    def floor(i: int) -> int:
        demand = tree[i].demand[0] + sum(ceiling(c) for c in children[i])
        least = tree[i].min[0]
        own = min(least, tree[i].max[0], demand) if tree[i].lend_min else least
        return min(tree[i].max[0], max(own, sum(floor(c) for c in children[i])))

    found = [Fraction(0)] * len(tree)

    def share(parent: int, amount: Fraction) -> None:
        members = children[parent]
        if not members:
            return
        parts = exact(
            amount,  # type: ignore[arg-type]
            [floor(i) for i in members],
            [ceiling(i) for i in members],
            [tree[i].weight for i in members],
        )
        for i, part in zip(members, parts, strict=True):
            found[i] = part
            share(i, part)

    share(-1, total)
    return found


def test_a_thousand_trees_equal_the_rational_solution() -> None:
    """At each level less than one unit is lost to whole numbers, and none to anything else."""
    dice = Random(5)
    for _ in range(1000):
        tree = [
            Claimant(
                parent=dice.randint(-1, i - 1),
                weight=dice.randint(1, 5),
                min=[dice.choice([0, 0, dice.randint(0, 3000)])],
                max=[dice.choice([10**6, dice.randint(3000, 20_000)])],
                demand=[dice.randint(0, 15_000)],
                lend_min=dice.random() < 0.7,
            )
            for i in range(dice.randint(1, 14))
        ]
        total = dice.randint(0, 40_000)

        solved = [row[0] for row in fill_tree(tree, [total])]

        for i, rational in enumerate(rational_tree(tree, Fraction(total))):
            depth, above = 1, tree[i].parent
            while above >= 0:
                depth, above = depth + 1, tree[above].parent
            assert abs(solved[i] - rational) < depth


def large_tree(dice: Random, *, unit: int, width: int) -> list[Claimant]:
    """Grow a tree that is divided in arrays; amounts are up to a unit, some without a max."""

    def amounts(*others: int) -> list[int]:
        return [dice.choice([dice.randint(0, unit), *others]) for _ in range(width)]

    return [
        Claimant(
            parent=dice.choice([-1, dice.randint(-1, i - 1)]),
            weight=dice.randint(0, 5),
            min=amounts(0, 0),
            max=amounts(2**60, 3 * unit),
            demand=amounts(0, 2 * unit),
            lend_min=dice.random() < 0.7,
        )
        for i in range(dice.randint(SMALL + 1, 2 * SMALL))
    ]


@pytest.mark.parametrize("unit", [10, 10**4, 10**15])
def test_large_trees_in_arrays_equal_plain_integers(unit: int) -> None:
    """All resources and groups of a level at once give the same as group after group."""
    dice = Random(unit)
    for _ in range(20):
        tree = large_tree(dice, unit=unit, width=dice.randint(1, 3))
        total = [dice.choice([0, 2**60, dice.randint(0, 50 * unit)]) for _ in tree[0].min]
        forest = Forest.of(tree, len(total))

        assert forest is not None
        assert forest.fill(total) == water_filling._fill_tree_exact(tree, total)


def test_amounts_that_pass_int64_are_divided_in_plain_integers() -> None:
    """Claims whose sum no int64 holds are shared out all the same."""
    tree = [Claimant(-1, 1, [0], [2**62], [2**62]) for _ in range(SMALL + 2)]

    assert Forest.of(tree, 1) is None
    assert fill_tree(tree, [SMALL + 2]) == [[1]] * (SMALL + 2)
