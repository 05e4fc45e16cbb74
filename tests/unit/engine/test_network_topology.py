"""Topology rules and sub-groups: gangs under one switch, each rule also switched off."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduling.engine.cycle import DEFAULT_CONFIG, plan
from scheduling.engine.domains import CLUSTER_TOP, Domains
from scheduling.engine.reasons import ReasonCode
from scheduling.engine.types import (
    GPU,
    ActionConfig,
    Config,
    HyperNode,
    Plan,
    PluginConfig,
    Snapshot,
    SubGroupPolicy,
    TopologyMode,
    TopologyRule,
)
from scheduling.engine.verify import check
from tests.scenarios import read

HARD, SOFT = TopologyMode.HARD, TopologyMode.SOFT

TREE = (
    HyperNode("s0", 1, "rack", frozenset({"a1", "a2"})),
    HyperNode("s1", 1, "rack", frozenset({"b1", "b2"})),
    HyperNode("s2", 1, "rack", frozenset({"c1", "c2"})),
    HyperNode("m0", 2, "row", members=("s0", "s1")),
    HyperNode("m1", 2, "row", members=("s2",)),
)
RACK = {node: h.name for h in TREE[:3] for node in h.nodes}
ROW = {"s0": "m0", "s1": "m0", "s2": "m1"}

TOPOLOGY = PluginConfig("network-topology-aware", {"hypernode.binpack.resources": GPU})
GATES = ("hyper_node_gradient", "hyper_node_order", "node_order")


def config(actions: str = "allocate", *, is_on: bool = True) -> Config:
    """Return a configuration with the plugin, or with all its flags off."""
    plugin = TOPOLOGY if is_on else replace(TOPOLOGY, disabled=frozenset(GATES))
    gang = PluginConfig("gang", {"gang.wholeGangs": "true"})
    plugins = (gang, PluginConfig("priority"), PluginConfig("predicates"), plugin)
    return Config(tuple(ActionConfig(name) for name in actions.split()), (plugins,))


def shaped(
    text: str,
    rule: TopologyRule | None = None,
    policies: tuple[SubGroupPolicy, ...] = (),
    *,
    job: str = "q/j",
) -> Snapshot:
    """Return six nodes of two GPUs under TREE, and jobs of which one has the rule."""
    snapshot = read(f"nodes a1 a2 b1 b2 c1 c2: gpu=2\nqueue q:\n{text}")
    jobs = tuple(
        replace(
            j,
            topology=rule,
            sub_groups=policies,
            roles=tuple(replace(r, labels={"part": r.name}) for r in j.roles),
        )
        if j.key == job
        else j
        for j in snapshot.jobs
    )
    return replace(snapshot, jobs=jobs, hypernodes=TREE)


def racks(outcome: Plan) -> list[str]:
    """Return the rack of each bind, sorted."""
    return sorted(RACK[b.node] for b in outcome.binds)


@pytest.mark.parametrize(
    ("tasks", "rule", "expected"),
    [
        (4, TopologyRule(HARD, 1), 1),
        (5, TopologyRule(HARD, 1), 0),
        (5, TopologyRule(HARD, highest_tier_name="row"), 2),
        (8, TopologyRule(HARD, 2), 2),
        (9, TopologyRule(HARD, 2), 0),
        (9, TopologyRule(HARD, 3), 3),
        (9, TopologyRule(HARD, highest_tier_name="galaxy"), 3),
        (3, TopologyRule(HARD), 1),
        (3, TopologyRule(SOFT), 1),
        (9, TopologyRule(SOFT, 1), 3),
    ],
)
def test_gang_lies_in_one_domain_of_an_allowed_tier(
    tasks: int, rule: TopologyRule, expected: int
) -> None:
    """A hard rule binds, a soft one wishes; both take the closest domain that has room."""
    outcome = plan(shaped(f"job q/j: {tasks} x gpu=1", rule), config())

    assert len(outcome.binds) == (tasks if expected else 0)
    assert len(set(racks(outcome))) == expected


def test_rule_binds_only_with_the_plugin() -> None:
    """With its flags off a hard job is placed wherever there is room."""
    outcome = plan(shaped("job q/j: 5 x gpu=1", TopologyRule(HARD, 1)), config(is_on=False))

    assert len(outcome.binds) == 5


def test_job_that_fits_no_domain_says_so() -> None:
    """The reason names the tier."""
    outcome = plan(shaped("job q/j: 5 x gpu=1", TopologyRule(HARD, 1)), config())

    reason = outcome.job_reasons["q/j"]
    assert (reason.code, reason.params["tier"]) == (ReasonCode.TOPOLOGY, 1)


def test_fuller_domain_is_taken_first() -> None:
    """Of two racks with room the one in use is filled, so that the empty one stays whole."""
    text = "job q/old: 2 x gpu=1 running b1*2\njob q/j: 2 x gpu=1"

    outcome = plan(shaped(text, TopologyRule(HARD, 1)), config())

    assert racks(outcome) == ["s1", "s1"]


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (TopologyRule(HARD, 1), []),
        (TopologyRule(HARD, 2), ["s1"]),
        (TopologyRule(SOFT), ["s1"]),
    ],
)
def test_replacement_stays_with_what_runs(rule: TopologyRule, expected: list[str]) -> None:
    """A missing task joins the domain of the others: the rack is full, the row is allowed."""
    text = "job q/j: 5 x gpu=1 min=4 running a1*2 a2*2"

    assert racks(plan(shaped(text, rule), config())) == expected


@pytest.mark.parametrize(("is_on", "expected"), [(True, {"s2"}), (False, {"s0", "s1"})])
def test_room_is_made_in_one_domain(is_on: bool, expected: set[str]) -> None:
    """Preempt looks for victims domain by domain, and finds those that the rule can use."""
    text = (
        "job q/a: 2 x gpu=1 min=0 running a1 a2\njob q/ka: 2 x gpu=1 priority=9 running a1 a2\n"
        "job q/b: 2 x gpu=1 min=0 running b1 b2\njob q/kb: 2 x gpu=1 priority=9 running b1 b2\n"
        "job q/c: 4 x gpu=1 min=0 priority=1 running c1*2 c2*2\njob q/j: 4 x gpu=1 priority=5"
    )

    outcome = plan(shaped(text, TopologyRule(HARD, 1)), config("enqueue preempt", is_on=is_on))

    assert {RACK[e.node] for e in outcome.evictions} == expected
    assert len(outcome.evictions) == 4


def test_sub_groups_lie_each_under_one_switch() -> None:
    """A job may span a row while each of its sub-groups keeps to a rack."""
    policy = SubGroupPolicy("p", ("part",), 3, 2, TopologyRule(HARD, 1))
    snapshot = shaped(
        "job q/j: 3 x gpu=1 role=x ; 3 x gpu=1 role=y min=6", TopologyRule(HARD, 2), (policy,)
    )

    outcome = plan(snapshot, config())

    found = {name: {RACK[b.node] for b in outcome.binds if f"-{name}-" in b.task} for name in "xy"}
    assert len(outcome.binds) == 6
    assert found in ({"x": {"s0"}, "y": {"s1"}}, {"x": {"s1"}, "y": {"s0"}})


def test_room_is_made_for_sub_groups_each_under_one_switch() -> None:
    """Of each rack as much goes as one sub-group lacks there, though any two would be cheaper."""
    policy = SubGroupPolicy("p", ("part",), 3, 2, TopologyRule(HARD, 1))
    text = (
        "job q/a: 2 x gpu=1 min=0 running a1*2\njob q/b: 2 x gpu=1 min=0 running b1*2\n"
        "job q/kc: 4 x gpu=1 priority=9 running c1*2 c2*2\n"
        "job q/j: 3 x gpu=1 role=x ; 3 x gpu=1 role=y priority=5 min=6"
    )

    outcome = plan(shaped(text, TopologyRule(HARD, 2), (policy,)), DEFAULT_CONFIG)

    found = {name: {RACK[p.node] for p in outcome.pipelined if f"-{name}-" in p.task}
             for name in "xy"}  # fmt: skip
    assert found in ({"x": {"s0"}, "y": {"s1"}}, {"x": {"s1"}, "y": {"s0"}})
    assert sorted(RACK[e.node] for e in outcome.evictions) == ["s0", "s1"]


def test_nobody_goes_for_sub_groups_that_would_not_fit() -> None:
    """One rack can be cleared; two sub-groups need two."""
    policy = SubGroupPolicy("p", ("part",), 4, 2, TopologyRule(HARD, 1))
    text = (
        "job q/a: 2 x gpu=1 min=0 running a1*2\njob q/kb: 1 x gpu=1 priority=9 running b1\n"
        "job q/kc: 1 x gpu=1 priority=9 running c1\n"
        "job q/j: 4 x gpu=1 role=x ; 4 x gpu=1 role=y priority=5 min=8"
    )

    outcome = plan(shaped(text, None, (policy,)), DEFAULT_CONFIG)

    assert (outcome.evictions, outcome.pipelined) == ((), ())


def test_overdue_job_keeps_the_domain_that_is_free_soonest() -> None:
    """Room is kept in one rack only, where what runs ends first."""
    text = (
        "job q/a: 2 x gpu=2 running a1 a2 limit=9000\njob q/b: 2 x gpu=2 running b1 b2 limit=50\n"
        "job q/c: 1 x gpu=2 running c1 limit=40\njob q/d: 1 x gpu=2 running c2 limit=60\n"
        "job q/j: 4 x gpu=1 sla=1 created=0"
    )

    outcome = plan(shaped(text, TopologyRule(HARD, 1)), DEFAULT_CONFIG)

    (kept,) = outcome.reservations
    assert (kept.job, kept.reason, set(kept.amounts_by_node)) == ("q/j", "sla", {"b1", "b2"})


def test_a_job_that_its_queue_refuses_says_so() -> None:
    """Its max is in the way, whatever the domain; nothing is kept for it."""
    snapshot = shaped("job q/j: 3 x gpu=1 sla=1 created=0", TopologyRule(HARD, 1))
    queues = tuple(replace(q, max={GPU: 2000}) for q in snapshot.queues)

    outcome = plan(replace(snapshot, queues=queues), DEFAULT_CONFIG)

    assert outcome.job_reasons["q/j"].code == ReasonCode.QUEUE_MAX
    assert outcome.reservations == ()


def test_sub_groups_beyond_the_minimum_wait_for_whole_room() -> None:
    """One of two sub-groups is enough; the second starts only if it fits wholly."""
    policy = SubGroupPolicy("p", ("part",), 4, 1, TopologyRule(HARD, 1))
    text = (
        "job q/old: 8 x gpu=1 running b1*2 b2*2 c1*2 c2*1 a1*1\n"
        "job q/j: 4 x gpu=1 role=x ; 4 x gpu=1 role=y min=4"
    )
    snapshot = shaped(text, TopologyRule(HARD, 3), (policy,))
    emptier = replace(snapshot, jobs=snapshot.jobs[1:])

    assert plan(snapshot, config()).binds == ()
    assert len(plan(emptier, config()).binds) == 8


def test_job_with_too_few_sub_groups_is_refused() -> None:
    """A job of one sub-group cannot have two."""
    policy = SubGroupPolicy("p", ("part",), 2, 2)

    outcome = plan(shaped("job q/j: 3 x gpu=1 role=x min=1", None, (policy,)), config())

    assert outcome.job_reasons["q/j"].code == ReasonCode.NOT_ENOUGH_TASKS
    assert outcome.binds == ()


def test_domains_in_a_circle_are_walked_once() -> None:
    """Two domains that name each other hold the nodes of both."""
    tree = (
        HyperNode("x", 1, "", frozenset({"a"}), ("y",)),
        HyperNode("y", 2, "", frozenset({"b"}), ("x",)),
    )

    domains = Domains(tree, {"a": 0, "b": 1})

    assert [(d.name, d.tier, int(d.mask.sum())) for d in domains.all] == [
        ("x", 1, 2),
        ("y", 2, 2),
        (CLUSTER_TOP, 3, 2),
    ]


@settings(max_examples=60, deadline=None)
@given(
    gangs=st.lists(
        st.tuples(st.integers(1, 7), st.integers(1, 3), st.booleans()), min_size=1, max_size=4
    )
)
def test_hard_gangs_never_leave_their_domain(gangs: list[tuple[int, int, bool]]) -> None:
    """Whatever the mix of gangs, a hard one is whole and in one domain of its tier."""
    text = "\n".join(f"job q/j{i}: {count} x gpu=1" for i, (count, _, _) in enumerate(gangs))
    snapshot = shaped(text)
    jobs = tuple(
        replace(job, topology=TopologyRule(HARD if is_hard else SOFT, tier))
        for job, (_, tier, is_hard) in zip(snapshot.jobs, gangs, strict=True)
    )

    outcome = plan(replace(snapshot, jobs=jobs), config())

    for job, (count, tier, is_hard) in zip(jobs, gangs, strict=True):
        used = {RACK[b.node] for b in outcome.binds if b.job == job.key}
        placed = sum(b.job == job.key for b in outcome.binds)
        assert placed in (0, count)
        if is_hard and tier == 1:
            assert len(used) <= 1
        if is_hard and tier == 2:
            assert len({ROW[rack] for rack in used}) <= 1


def test_best_effort_tasks_keep_to_the_domain_of_their_job() -> None:
    """The task that asks for nothing waits rather than leave the switch of the one that asks."""
    snapshot = read("""
        nodes  n0: cpu=1 pods=1
        nodes  n1: cpu=0.5
        nodes  n2: cpu=4 cordoned
        queue  q:
        job    q/a: 1 x cpu=1 role=main min=1 ; 1 x cpu=0 role=side
    """)
    switches = (
        HyperNode("s0", 1, nodes=frozenset({"n0", "n2"})),
        HyperNode("s1", 1, nodes=frozenset({"n1"})),
    )
    rule = TopologyRule(TopologyMode.HARD, 1)
    job = replace(snapshot.jobs[0], topology=rule)
    snapshot = replace(snapshot, hypernodes=switches, jobs=(job,))

    found = plan(snapshot, DEFAULT_CONFIG)

    assert check(snapshot, found) == []
    assert [b.node for b in found.binds] == ["n0"]
