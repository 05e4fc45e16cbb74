"""Shards, revocable nodes, disruption budgets, withdrawals, task topology, trees of shares."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace

import pytest

from scheduling.engine import budgets, verify
from scheduling.engine.cycle import plan
from scheduling.engine.fairness.hierarchy import ShareTree
from scheduling.engine.plugins import task_topology, tdm
from scheduling.engine.types import (
    CPU_PERCENT,
    MEASURED_AT,
    MEMORY_PERCENT,
    ActionConfig,
    Config,
    DisruptionBudget,
    Job,
    PluginConfig,
    Shard,
    ShardMode,
    Snapshot,
)
from tests.scenarios import read

NOON = 12 * 3600.0


def config(*plugins: PluginConfig | str, actions: str = "allocate") -> Config:
    """Return a configuration of one tier."""
    return Config(
        actions=tuple(ActionConfig(name) for name in actions.split()),
        tiers=(tuple(PluginConfig(p) if isinstance(p, str) else p for p in plugins),),
    )


def with_job(snapshot: Snapshot, **changes: object) -> Snapshot:
    """Return the snapshot with its only job changed."""
    job: Job = replace(snapshot.jobs[0], **changes)  # type: ignore[arg-type]
    return replace(snapshot, jobs=(job,))


def with_role(snapshot: Snapshot, **changes: object) -> Snapshot:
    """Return the snapshot with the only job's only role changed."""
    role = replace(snapshot.jobs[0].roles[0], **changes)  # type: ignore[arg-type]
    return with_job(snapshot, roles=(role,))


@pytest.mark.parametrize(
    ("mode", "tasks", "used"),
    [
        (None, 1, {"n1": 1}),
        (ShardMode.SOFT, 1, {"n2": 1}),
        (ShardMode.SOFT, 3, {"n1": 1, "n2": 2}),
        (ShardMode.HARD, 3, {}),
    ],
)
def test_shard_keeps_to_its_nodes(mode: ShardMode | None, tasks: int, used: dict[str, int]) -> None:
    """A soft shard is filled first, a hard one is all there is."""
    snapshot = read(f"nodes n1 n2: gpu=2\nqueue q:\njob q/j: {tasks} x gpu=1")
    if mode is not None:
        snapshot = replace(snapshot, shard=Shard(mode, frozenset({"n2"})))

    outcome = plan(snapshot, config("gang", "predicates"))

    assert Counter(b.node for b in outcome.binds) == used


@pytest.mark.parametrize("mode", list(ShardMode))
def test_shard_is_reclaimed_first(mode: ShardMode) -> None:
    """Reclaim takes room in the shard though the other node costs the same."""
    snapshot = read(
        "nodes n1 n2: gpu=1\nqueue a:\nqueue b:\njob a/old: 2 x gpu=1 min=1 running n2 n1\n"
        "job b/new: 1 x gpu=1"
    )
    snapshot = replace(snapshot, shard=Shard(mode, frozenset({"n1"})))

    outcome = plan(snapshot, config("gang", "proportion", "predicates", actions="enqueue reclaim"))

    assert [e.node for e in outcome.evictions] == ["n1"]


@pytest.mark.parametrize(
    ("window", "time", "expected"),
    [
        ("10:00-21:00", "12:00", True),
        ("10:00-21:00", "21:00", False),
        ("22:00-06:00", "05:59", True),
        ("22:00-06:00", "06:00", False),
        ("0:00-0:00", "13:00", True),
        ("soon", "13:00", False),
    ],
)
def test_window_is_open_in_its_hours(window: str, time: str, expected: bool) -> None:
    """A window has its start and not its end, and may pass midnight."""
    hours, minutes = time.split(":")

    assert tdm.is_open(window, int(hours) * 60 + int(minutes)) is expected


@pytest.mark.parametrize(("zone", "node"), [("UTC", "own"), ("Asia/Shanghai", "lent")])
def test_hours_are_those_of_the_time_zone(zone: str, node: str) -> None:
    """Noon of UTC is eight in the evening in Shanghai; the verifier reads the clock alike."""
    snapshot = read(
        f"nodes lent: gpu=1 label.{tdm.ZONE}=z\nnodes own: gpu=1\nqueue q:\njob q/j: 1 x gpu=1",
        now=NOON,
    )
    snapshot = with_role(snapshot, annotations={tdm.ZONE: "*"})
    hours = {"tdm.revocable-zone.z": "19:30-21:00", "tdm.time-zone": zone}
    by = config("gang", "predicates", PluginConfig("tdm", hours))

    outcome = plan(snapshot, by)

    assert [b.node for b in outcome.binds] == [node]
    assert verify.check(snapshot, outcome, by) == []


@pytest.mark.parametrize(
    ("accepts", "window", "disabled", "node"),
    [
        (True, "10:00-21:00", (), "lent"),
        (False, "10:00-21:00", (), "own"),
        (True, "13:00-21:00", (), "own"),
        (False, "13:00-21:00", ("predicate", "node_order"), "lent"),
    ],
)
def test_revocable_nodes_are_for_those_who_accept_them(
    accepts: bool, window: str, disabled: tuple[str, ...], node: str
) -> None:
    """A lent node is preferred in its hours by roles that accept it, and shut to all others."""
    snapshot = read(
        f"nodes lent: gpu=1 label.{tdm.ZONE}=z\nnodes own: gpu=1\nqueue q:\njob q/j: 1 x gpu=1",
        now=NOON,
    )
    snapshot = with_role(snapshot, annotations={tdm.ZONE: "*"} if accepts else {})
    tdm_config = PluginConfig("tdm", {"tdm.revocable-zone.z": window}, frozenset(disabled))

    outcome = plan(snapshot, config("gang", "predicates", tdm_config))

    assert [b.node for b in outcome.binds] == [node]


@pytest.mark.parametrize(
    ("annotations", "count"),
    [
        ({}, 1),
        ({budgets.MAX_UNAVAILABLE: "50%"}, 3),
        ({budgets.MIN_AVAILABLE: "3"}, 2),
        ({budgets.MIN_AVAILABLE: "9"}, 0),
    ],
)
def test_withdrawal_keeps_to_the_budget(annotations: dict[str, str], count: int) -> None:
    """Outside the hours tasks go, the last first, as far as the job's budget allows."""
    snapshot = read(
        f"nodes lent: gpu=5 label.{tdm.ZONE}=z\nqueue q:\njob q/j: 5 x gpu=1 min=1 running lent*5",
        now=NOON,
    )
    snapshot = with_job(snapshot, annotations=annotations)
    tdm_config = PluginConfig("tdm", {"tdm.revocable-zone.z": "0:00-1:00"})

    outcome = plan(snapshot, config(tdm_config, actions="shuffle"))
    again = plan(snapshot, config("gang", actions="shuffle"))

    assert sorted(e.task for e in outcome.evictions) == [f"q/j-{i}" for i in range(5 - count, 5)]
    assert again.evictions == ()


@pytest.mark.parametrize(("with_pdb", "count"), [(True, 1), (False, 3)])
def test_disruption_budget_spares_what_it_covers(with_pdb: bool, count: int) -> None:
    """With one disruption allowed one task of the label goes, of three that would."""
    snapshot = read(
        f"nodes lent: gpu=3 label.{tdm.ZONE}=z\nqueue q:\njob q/j: 3 x gpu=1 min=1 running lent*3",
        now=NOON,
    )
    snapshot = with_role(snapshot, labels={"app": "web"})
    snapshot = with_job(snapshot, annotations={budgets.MAX_UNAVAILABLE: "3"})
    budget = DisruptionBudget("b", {"app": "web"}, 1, namespace="q")
    other = DisruptionBudget("o", {"app": "web"}, 0, namespace="elsewhere")
    snapshot = replace(snapshot, disruption_budgets=(budget, other))
    tdm_config = PluginConfig("tdm", {"tdm.revocable-zone.z": "0:00-1:00"})
    plugins = [tdm_config, "pdb"] if with_pdb else [tdm_config]

    outcome = plan(snapshot, config(*plugins, actions="shuffle"))

    assert len(outcome.evictions) == count


@pytest.mark.parametrize("is_on", [True, False])
def test_task_topology_fills_buckets(is_on: bool) -> None:
    """Each server gets a node with its own workers; without the plugin the first node fills up."""
    snapshot = read(
        "nodes n1 n2: cpu=3\nqueue q:\njob q/j: 2 x cpu=1 role=ps ; 4 x cpu=1 role=worker min=6"
    )
    rules = {task_topology.AFFINITY: "ps,worker", task_topology.ANTI_AFFINITY: "ps"}
    snapshot = with_job(snapshot, annotations=rules)
    plugins = ["gang", "predicates", *(["task-topology"] if is_on else [])]

    outcome = plan(snapshot, config(*plugins))

    servers = sorted(b.node for b in outcome.binds if "-ps-" in b.task)
    assert len(outcome.binds) == 6
    assert servers == (["n1", "n2"] if is_on else ["n1", "n1"])


def test_share_tree_rescales_a_branch_to_its_poorest_part() -> None:
    """A branch counts its rich part no higher than its poor one, unless that is saturated."""
    paths = {"a": ("root/x/a", "1/1/1"), "b": ("root/x/b", "1/1/1"), "c": ("root/y", "1/2")}
    tree = ShareTree((10, 10), paths)
    tree.add("a", allocated=(8, 0), requested=(20, 0))
    tree.add("b", allocated=(0, 2), requested=(0, 20))
    tree.add("c", allocated=(0, 5), requested=(0, 20))
    tree.settle()

    key = [(is_saturated, round(share, 6)) for is_saturated, share in tree.key("a")]
    assert key == [(False, 0.2), (False, 0.8)]
    assert list(tree.key("c")) == [(False, 0.25)]


@pytest.mark.parametrize(("disabled", "held"), [((), (4, 4)), (("hierarchy",), (8, 0))])
def test_hierarchy_shares_by_branch(disabled: tuple[str, ...], held: tuple[int, int]) -> None:
    """Two queues of one branch get together what the other branch gets."""
    snapshot = read(
        "nodes n: gpu=8\nqueue a1:\nqueue a2:\nqueue b:\n"
        "job a1/j: 8 x gpu=1 min=0\njob a2/j: 8 x gpu=1 min=0\njob b/j: 8 x gpu=1 min=0"
    )
    paths = {"a1": "root/a/a1", "a2": "root/a/a2", "b": "root/b"}
    queues = tuple(
        replace(
            q,
            annotations={
                "volcano.sh/hierarchy": paths[q.name],
                "volcano.sh/hierarchy-weights": "1/1/1",
            },
        )
        for q in snapshot.queues
    )
    drf = PluginConfig("drf", {}, frozenset(disabled))

    outcome = plan(replace(snapshot, queues=queues), config(drf, "predicates"))

    per_branch = Counter(b.job[0] for b in outcome.binds)
    assert (per_branch["a"], per_branch["b"]) == held


def test_hierarchy_is_that_of_the_queues_where_none_is_annotated() -> None:
    """The weights of the tree divide: of eight GPUs a department of weight 3 gets six."""
    snapshot = read(
        "nodes n: gpu=8\nqueue a: weight=3\nqueue a1: parent=a\nqueue a2: parent=a\nqueue b:\n"
        "job a1/j: 8 x gpu=1 min=0\njob a2/j: 8 x gpu=1 min=0\njob b/j: 8 x gpu=1 min=0"
    )

    outcome = plan(snapshot, config("drf", "predicates"))

    assert Counter(b.job for b in outcome.binds) == {"a1/j": 3, "a2/j": 3, "b/j": 2}


@pytest.mark.parametrize(
    ("idle", "preemptable", "minimum", "expected"),
    [
        (10, "yes", 0, ["q/j-0", "q/j-1"]),
        (10, "yes", 3, ["q/j-0"]),
        (10, "no", 0, []),
        (40, "yes", 0, []),
    ],
)
def test_rescheduling_unloads_busy_nodes(
    idle: int, preemptable: str, minimum: int, expected: list[str]
) -> None:
    """Elastic tasks go until the busy node is at its target, if another node idles."""
    snapshot = read(
        f"nodes busy calm: cpu=10\nqueue q:\n"
        f"job q/j: 4 x cpu=2 min={minimum} preemptable={preemptable} running busy*4"
    )
    nodes = tuple(
        replace(
            n,
            annotations={
                CPU_PERCENT: str(percent),
                MEMORY_PERCENT: "0",
                MEASURED_AT: str(snapshot.now),
            },
        )
        for n, percent in zip(snapshot.nodes, (80, idle), strict=True)
    )
    params = {"thresholds": {"cpu": 20, "memory": 20}, "targetThresholds": {"cpu": 50}}
    strategy = json.dumps([{"name": "lowNodeUtilization", "params": params}])
    plugin = PluginConfig("rescheduling", {"strategies": strategy})
    # Memory is given so that its target, which is not stated, leaves room.
    nodes = tuple(replace(n, allocatable={**n.allocatable, "memory": 100}) for n in nodes)

    outcome = plan(replace(snapshot, nodes=nodes), config(plugin, actions="shuffle"))

    assert sorted(e.task for e in outcome.evictions) == expected


@pytest.mark.parametrize(
    ("firm", "place", "count"), [(True, "own", 1), (False, "own", 0), (True, "lent", 0)]
)
def test_firm_tasks_take_ordinary_nodes_from_those_that_may_go(
    firm: bool, place: str, count: int
) -> None:
    """`tdm` lets tasks on ordinary nodes give way only to those that must not be evicted."""
    snapshot = read(f"""
        nodes  own: gpu=2
        nodes  lent: gpu=2 label.{tdm.ZONE}=z
        queue  q:
        job    q/soft: 2 x gpu=1 min=1 running {place}*2 phase=Running
        job    q/block: 2 x gpu=1 running {"lent" if place == "own" else "own"}*2 phase=Running
        job    q/new: 1 x gpu=1 priority=9 {"preemptable=no" if firm else ""}
    """)
    snapshot = replace(
        snapshot,
        jobs=tuple(
            replace(job, roles=tuple(replace(r, preemptable=False) for r in job.roles))
            if job.key == "q/block"
            else job
            for job in snapshot.jobs
        ),
    )
    shut = PluginConfig("tdm", {"tdm.revocable-zone.z": "0:00-0:01"})

    found = plan(snapshot, config("gang", "predicates", shut, actions="allocate preempt"))

    assert len(found.evictions) == count
