"""Small cases against every possibility: the fewest evictions, the smallest domain."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations, product
from random import Random

import pytest

from scheduling.engine.cycle import DEFAULT_CONFIG, plan
from scheduling.engine.types import GPU, HyperNode, Snapshot, TopologyMode, TopologyRule
from tests.scenarios import read


def crowded(seed: int) -> Snapshot:
    """Return three nodes full of tasks of one job each, and a task of higher priority."""
    dice = Random(seed)
    lines = []
    for node in range(3):
        left = 4
        while left:
            size = dice.randint(1, left)
            left -= size
            name = f"q/r{node}{left}"
            lines.append(f"job {name}: 1 x gpu={size} running n{node}*1 phase=Running")
    lines.append(f"job q/new: 1 x gpu={dice.randint(1, 4)} priority=1")
    return read("nodes n0 n1 n2: gpu=4\nqueue q:\n" + "\n".join(lines))


@pytest.mark.parametrize("seed", range(25))
def test_no_fewer_evictions_make_room(seed: int) -> None:
    """Of all sets of tasks on one node the smallest that makes room is as large as the plan's."""
    snapshot = crowded(seed)
    wanted = snapshot.jobs[-1].roles[0].request[GPU]
    by_node: dict[str, list[int]] = {}
    for job in snapshot.jobs[:-1]:
        by_node.setdefault(str(job.tasks[0].node), []).append(job.roles[0].request[GPU])
    least = min(
        count
        for sizes in by_node.values()
        for count in range(1, len(sizes) + 1)
        if any(sum(chosen) >= wanted for chosen in combinations(sizes, count))
    )

    found = plan(snapshot, DEFAULT_CONFIG)

    assert len(found.evictions) == least
    assert len(found.pipelined) == 1


@pytest.mark.parametrize("seed", range(25))
def test_no_smaller_domain_has_room(seed: int) -> None:
    """Two tiers of switches: the gang lies in one of the lowest tier that could hold it."""
    dice = Random(seed)
    free = [dice.randint(0, 3) for _ in range(8)]
    size = dice.randint(1, 6)
    nodes = "\n".join(f"nodes n{i}: gpu={count}" for i, count in enumerate(free))
    snapshot = read(f"{nodes}\nqueue q:\njob q/a: {size} x gpu=1")
    racks = {f"r{i}": {2 * i, 2 * i + 1} for i in range(4)}
    rows = {f"w{i}": {4 * i, 4 * i + 1, 4 * i + 2, 4 * i + 3} for i in range(2)}
    switches = tuple(
        HyperNode(name, tier, nodes=frozenset(f"n{i}" for i in members))
        for tier, level in ((1, racks), (2, rows))
        for name, members in level.items()
    )
    job = replace(snapshot.jobs[0], topology=TopologyRule(TopologyMode.HARD, 2))
    snapshot = replace(snapshot, hypernodes=switches, jobs=(job,))
    tiers = [
        tier
        for tier, level in ((1, racks), (2, rows))
        if any(sum(free[i] for i in members) >= size for members in level.values())
    ]

    places = {int(b.node[1:]) for b in plan(snapshot, DEFAULT_CONFIG).binds}

    used = [
        tier
        for tier, level in ((1, racks), (2, rows))
        if places and any(places <= members for members in level.values())
    ]
    assert used[:1] == tiers[:1]


@pytest.mark.parametrize("seed", range(15))
def test_a_gang_starts_if_any_choice_of_nodes_holds_it(seed: int) -> None:
    """Tasks of two sizes on three nodes: placed whenever some assignment of all of them exists."""
    dice = Random(seed)
    free = [dice.randint(1, 4) for _ in range(3)]
    large, small = dice.randint(1, 2), dice.randint(1, 3)
    sizes = [2] * large + [1] * small
    nodes = "\n".join(f"nodes n{i}: gpu={count}" for i, count in enumerate(free))
    snapshot = read(
        f"{nodes}\nqueue q:\njob q/a: {small} x gpu=1 role=ps min={large + small} ; "
        f"{large} x gpu=2 role=worker"
    )
    is_possible = any(
        all(
            sum(s for s, n in zip(sizes, chosen, strict=True) if n == i) <= free[i]
            for i in range(3)
        )
        for chosen in product(range(3), repeat=len(sizes))
    )

    assert bool(plan(snapshot, DEFAULT_CONFIG).binds) is is_possible
