"""Evictions on random clusters: each is needed, ends, and never goes back and forth."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduling.engine.after import apply_plan
from scheduling.engine.cycle import DEFAULT_CONFIG, plan
from scheduling.engine.types import (
    ActionConfig,
    Config,
    Eviction,
    Plan,
    PluginConfig,
    Snapshot,
    TaskState,
)
from scheduling.engine.verify import check
from scheduling.simulator.state import release
from tests.random_clusters import clusters
from tests.scenarios import read
from tests.unit.engine.test_properties import FACTOR, examples


def gone_with(eviction: Eviction, result: Plan) -> set[str]:
    """Return the tasks that go together: one elastic task, or all of a gang that go."""
    if eviction.reason is not None and eviction.reason.params["is_elastic"]:
        return {eviction.task}
    return {e.task for e in result.evictions if e.job == eviction.job}


@examples(90)
@given(clusters(has_rules=False))
def test_no_task_is_evicted_that_could_stay(snapshot: Snapshot) -> None:
    """Who an eviction is for gets room in the same plan, and would not get it without.

    Without it could also mean: out of the room that the same plan keeps for an overdue job, which
    the verifier does not hold against it.
    """
    for _ in range(2):
        result = plan(snapshot, DEFAULT_CONFIG)
        served = {b.job for b in result.binds} | {p.job for p in result.pipelined}
        overdue = [one for one in result.reservations if one.reason == "sla"]
        kept = {node for one in overdue for node in one.amounts_by_node}
        for eviction in result.evictions:
            assert eviction.beneficiary in served
            spared = gone_with(eviction, result)
            rest = tuple(e for e in result.evictions if e.task not in spared)
            where = {e.node for e in result.evictions if e.task in spared}
            assert where & kept or check(snapshot, replace(result, evictions=rest))
        snapshot = replace(release(apply_plan(snapshot, result)), now=snapshot.now + 1)


CONTESTED = """
    nodes  n1 n2: cpu=64 gpu=8
    queue  left: weight={weights[0]} min.gpu={minimums[0]}
    queue  right: weight={weights[1]} min.gpu={minimums[1]}
    queue  third: parent=right
    queue  fourth: parent=right {lending}
"""


def contested(seed: int) -> Snapshot:
    """Return two sides that both want all of two machines, by tasks of several sizes."""
    dice = Random(seed)
    text = CONTESTED.format(
        weights=[dice.randint(1, 3) for _ in range(2)],
        minimums=[dice.choice([0, 0, 2, 5]) for _ in range(2)],
        lending=dice.choice(["", "keep_min min.gpu=2"]),
    )
    for i in range(dice.randint(8, 14)):
        queue = dice.choice(["left", "left", "third", "fourth"])
        size, count = dice.choice([1, 1, 2, 3, 8]), dice.randint(1, 8)
        least = dice.choice([1, count, count])
        text += (
            f"\njob {queue}/j{i}: {count} x gpu={size} cpu=1 min={least}"
            f" created={i} priority={dice.choice([0, 0, 1])}"
        )
    return read(text)


def after_the_left(snapshot: Snapshot, config: Config) -> Snapshot:
    """Return the state in which the left side has had the cluster to itself for a while."""
    early = tuple(job for job in snapshot.jobs if job.queue == "left")
    state = replace(snapshot, jobs=early)
    state = release(apply_plan(state, plan(state, config)))
    others = tuple(job for job in snapshot.jobs if job.queue != "left")
    return replace(state, jobs=(*state.jobs, *others), now=state.now + 1)


SHARINGS = {
    "default": DEFAULT_CONFIG,
    "capacity": Config(
        tuple(ActionConfig(name) for name in ("allocate", "preempt", "reclaim", "backfill")),
        (
            (PluginConfig("priority"), PluginConfig("gang"), PluginConfig("conformance")),
            (PluginConfig("drf"), PluginConfig("predicates"), PluginConfig("proportion")),
        ),
    ),
    "nobody says what a queue deserves": Config(
        (
            *(ActionConfig(name) for name in ("allocate", "preempt", "reclaim", "gangreclaim")),
            ActionConfig("elastic", {"takeBack": "true"}),
            ActionConfig("backfill"),
        ),
        (
            (
                PluginConfig("priority"),
                PluginConfig("gang", {"gang.wholeGangs": "true"}),
                PluginConfig("predicates"),
            ),
        ),
    ),
}


@pytest.mark.parametrize("name", SHARINGS)
@pytest.mark.parametrize("seed", range(3 * FACTOR))
def test_two_sides_never_take_turns(seed: int, name: str) -> None:
    """In 100 cycles of two queues that want everything, evictions end and nobody goes twice."""
    state = after_the_left(contested(seed), SHARINGS[name])
    evicted: list[tuple[int, str]] = []
    for number in range(100):
        result = plan(state, SHARINGS[name])
        evicted += [(number, e.task) for e in result.evictions]
        state = replace(release(apply_plan(state, result)), now=state.now + 1)
        if number == 50:
            held = {t.key for j in state.jobs for t in j.tasks if t.state is TaskState.RUNNING}

    assert [one for one in evicted if one[0] > 50] == []
    assert held == {t.key for j in state.jobs for t in j.tasks if t.state is TaskState.RUNNING}


PLUGINS = (
    "binpack",
    "capacity",
    "conformance",
    "deviceshare",
    "drf",
    "fair_users",
    "fragmentation",
    "nodeorder",
    "numa-aware",
    "overcommit",
    "packing",
    "priority",
    "proportion",
    "queue_policy",
    "resource-strategy-fit",
    "shares",
    "sla",
    "task-topology",
)
ACTIONS = (
    "allocate",
    "backfill",
    "elastic",
    "gangpreempt",
    "gangreclaim",
    "preempt",
    "reclaim",
    "reserve",
    "shuffle",
)


@st.composite
def configs(draw: st.DrawFn) -> Config:
    """Draw actions and plugins in any order and tiers; gang and predicates are always there."""
    actions = draw(st.permutations(ACTIONS))[: draw(st.integers(1, len(ACTIONS)))]
    chosen = draw(st.lists(st.sampled_from(PLUGINS), unique=True))
    names = draw(st.permutations([*chosen, "gang", "predicates"]))
    cut = draw(st.integers(0, len(names)))
    return Config(
        tuple(
            ActionConfig(name) for name in (*draw(st.sampled_from([(), ("enqueue",)])), *actions)
        ),
        tuple(
            tuple(PluginConfig(name) for name in tier)
            for tier in (names[:cut], names[cut:])
            if tier
        ),
    )


@examples(40)
@given(clusters(), configs())
def test_whatever_is_configured_no_wall_is_broken(snapshot: Snapshot, config: Config) -> None:
    """Room, gangs, devices and victims' rights hold under any actions and plugins."""
    sharing = {"shares", "proportion", "capacity"} & {p.name for t in config.tiers for p in t}
    if not sharing:  # nobody keeps to the queues' limits then
        snapshot = replace(
            snapshot, queues=tuple(replace(q, min={}, max={}) for q in snapshot.queues)
        )
    for _ in range(2):
        result = plan(snapshot, config)
        assert check(snapshot, result, config) == []
        snapshot = replace(release(apply_plan(snapshot, result)), now=snapshot.now + 1)
