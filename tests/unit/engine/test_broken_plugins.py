"""Every registered plugin acts through the registry: broken, it changes what is decided."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import pytest

from scheduling.engine import registry
from scheduling.engine.cycle import close, open_session
from scheduling.engine.plugin import Plugin
from scheduling.engine.shapes import QUEUE_AFFINITY
from scheduling.engine.types import (
    CPU,
    CPU_PERCENT,
    MEASURED_AT,
    MEMORY_PERCENT,
    ActionConfig,
    Config,
    Device,
    DisruptionBudget,
    GangPhase,
    HyperNode,
    NumaNode,
    PluginConfig,
    Quota,
    Role,
    Snapshot,
    TopologyMode,
    TopologyRule,
)
from tests.scenarios import read

Change = Callable[[Snapshot], Snapshot]


@dataclass(frozen=True, slots=True)
class Case:
    """A cluster on which one plugin makes the difference."""

    text: str
    change: Change = lambda snapshot: snapshot
    actions: str = "allocate"
    others: tuple[str, ...] = ("gang",)
    arguments: Mapping[str, str] = field(default_factory=dict)


def each_role(**changes: object) -> Change:
    """Return a change of every role."""
    return lambda s: replace(
        s,
        jobs=tuple(
            replace(j, roles=tuple(replace(r, **changes) for r in j.roles))  # type: ignore[arg-type]
            for j in s.jobs
        ),
    )


def each_job(**changes: object) -> Change:
    """Return a change of every job."""
    return lambda s: replace(s, jobs=tuple(replace(j, **changes) for j in s.jobs))  # type: ignore[arg-type]


def node(name: str, **changes: object) -> Change:
    """Return a change of one node."""
    return lambda s: replace(
        s,
        nodes=tuple(replace(n, **changes) if n.name == name else n for n in s.nodes),  # type: ignore[arg-type]
    )


def role_of(job: int, **changes: object) -> Change:
    """Return a change of one job's roles."""

    def change(snapshot: Snapshot) -> Snapshot:
        jobs = list(snapshot.jobs)
        roles: tuple[Role, ...] = tuple(replace(r, **changes) for r in jobs[job].roles)  # type: ignore[arg-type]
        jobs[job] = replace(jobs[job], roles=roles)
        return replace(snapshot, jobs=tuple(jobs))

    return change


def both(*changes: Change) -> Change:
    """Return several changes one after the other."""

    def change(snapshot: Snapshot) -> Snapshot:
        for one in changes:
            snapshot = one(snapshot)
        return snapshot

    return change


TWO_NODES = "nodes n1 n2: cpu=4 memory=4\nqueue q:\n"
ONE_GPU = "nodes n1: gpu=1\nqueue a:\nqueue b:\n"
FULL = "nodes n1: cpu=1\nqueue q:\njob q/old: 1 x cpu=1 running n1*1 phase=Running\n"

SWITCHES = tuple(
    HyperNode(f"s{i}", 1, nodes=frozenset({f"n{2 * i}", f"n{2 * i + 1}"})) for i in range(2)
)

LOAD = {MEMORY_PERCENT: "90", MEASURED_AT: "999"}

CASES: dict[str, Case] = {
    "binpack": Case(
        TWO_NODES + "job q/old: 1 x cpu=1 running n2*1 phase=Running\njob q/a: 1 x cpu=1"
    ),
    "capacity": Case("nodes n1: gpu=4\nqueue a: max.gpu=1\njob a/x: 2 x gpu=1 min=1", each_role()),
    "cdp": Case(
        FULL + "job q/new: 1 x cpu=1 priority=1",
        both(
            role_of(0, annotations={"volcano.sh/cooldown-time": "1h"}),
            lambda s: replace(
                s,
                jobs=tuple(
                    replace(j, tasks=tuple(replace(t, started_at=990.0) for t in j.tasks))
                    for j in s.jobs
                ),
            ),
        ),
        "allocate preempt",
        ("priority",),
    ),
    "conformance": Case(
        FULL + "job q/new: 1 x cpu=1 priority=1",
        role_of(0, priority=2 * 10**9),
        "allocate preempt",
        ("priority",),
    ),
    "data-locality": Case(
        TWO_NODES + "job q/a: 1 x cpu=1",
        both(node("n2", data_sets=frozenset({"d"})), each_role(data_sets=("d",))),
    ),
    "deviceshare": Case(
        "nodes n1 n2: gpu=1\nqueue q:\n"
        "job q/old: 1 x gpu=0.5 running n2*1 phase=Running\njob q/a: 1 x gpu=0.5",
        both(
            node("n1", devices=(Device("d1", 0),)),
            node("n2", devices=(Device("d2", 0),)),
            lambda s: replace(
                s,
                jobs=(
                    replace(s.jobs[0], tasks=(replace(s.jobs[0].tasks[0], devices=("d2",)),)),
                    s.jobs[1],
                ),
            ),
        ),
        arguments={"deviceshare.ScheduleWeight": "1"},
    ),
    "drf": Case(
        "nodes n1: cpu=4\nqueue q:\njob q/a: 3 x cpu=1 min=1 running n1*2 phase=Running\n"
        "job q/b: 3 x cpu=1 min=1 running n1*1 phase=Running"
    ),
    "fair_users": Case(
        "nodes n1: cpu=3\nqueue q:\njob q/old: 1 x cpu=1 running n1*1 phase=Running owner=x\n"
        "job q/a: 2 x cpu=1 owner=x\njob q/b: 2 x cpu=1 owner=y created=5"
    ),
    "fragmentation": Case(
        "nodes n1: gpu=2\nnodes n2: gpu=3\nqueue q:\n"
        "job q/typical: 9 x gpu=2 min=9 created=9\njob q/new: 1 x gpu=1"
    ),
    "gang": Case("nodes n1: cpu=1\nqueue q:\njob q/a: 2 x cpu=1", others=()),
    "network-topology-aware": Case(
        "nodes n0: cpu=1\nnodes n1 n2 n3: cpu=2\nqueue q:\njob q/a: 2 x cpu=2",
        both(
            lambda s: replace(s, hypernodes=SWITCHES),
            each_job(topology=TopologyRule(TopologyMode.HARD, 1)),
        ),
    ),
    "nodegroup": Case(
        TWO_NODES + "job q/a: 1 x cpu=1",
        both(
            node("n2", labels={"volcano.sh/nodegroup-name": "g"}),
            lambda s: replace(
                s,
                queues=tuple(
                    replace(
                        q,
                        annotations={QUEUE_AFFINITY: json.dumps({"affinity": {"required": ["g"]}})},
                    )
                    for q in s.queues
                ),
            ),
        ),
    ),
    "nodeorder": Case(
        TWO_NODES + "job q/old: 1 x cpu=1 running n1*1 phase=Running\njob q/a: 1 x cpu=1"
    ),
    "numa-aware": Case(
        TWO_NODES + "job q/a: 1 x cpu=2",
        both(
            node("n2", numa=(NumaNode(0, (0, 1)), NumaNode(1, (2, 3))), numa_policy="any"),
            each_role(topology_policy="single-numa-node"),
        ),
    ),
    "overcommit": Case(
        "nodes n1: cpu=1\nqueue q:\njob q/a: 2 x cpu=1 min=2",
        each_job(min_resources={CPU: 2000}, phase=GangPhase.PENDING),
        "enqueue",
    ),
    "packing": Case(
        TWO_NODES + "job q/old: 1 x cpu=1 running n2*1 phase=Running\njob q/a: 1 x cpu=1"
    ),
    "pdb": Case(
        FULL + "job q/new: 1 x cpu=1 priority=1",
        lambda s: replace(s, disruption_budgets=(DisruptionBudget("b", {}, 0),)),
        "allocate preempt",
        ("priority",),
    ),
    "predicates": Case("nodes n1: cpu=1 cordoned\nqueue q:\njob q/a: 1 x cpu=1"),
    "priority": Case(
        "nodes n1: cpu=1\nqueue q:\njob q/a: 1 x cpu=1\njob q/b: 1 x cpu=1 priority=1"
    ),
    "proportion": Case(
        "nodes n1: gpu=2\nqueue a:\nqueue b:\njob a/x: 2 x gpu=1 min=1\njob b/y: 2 x gpu=1 min=1"
    ),
    "queue_policy": Case(
        "nodes n1: cpu=1\nqueue q: policy=fifo\n"
        "job q/a: 1 x cpu=1 created=5 priority=9\njob q/b: 1 x cpu=1",
        others=("priority", "gang"),
    ),
    "rescheduling": Case(
        "nodes n1 n2: cpu=4 memory=4\nqueue q:\n"
        "job q/a: 2 x cpu=1 min=1 running n1*2 phase=Running",
        both(
            node("n1", annotations={CPU_PERCENT: "90", **LOAD}),
            node("n2", annotations={**LOAD, CPU_PERCENT: "5", MEMORY_PERCENT: "5"}),
        ),
        "shuffle",
        arguments={
            "strategies": json.dumps(
                [
                    {
                        "name": "lowNodeUtilization",
                        "params": {
                            "thresholds": {"cpu": 20, "memory": 20},
                            "targetThresholds": {"cpu": 50, "memory": 50},
                        },
                    }
                ]
            )
        },
    ),
    "resource-strategy-fit": Case(
        TWO_NODES + "job q/old: 1 x cpu=1 running n1*1 phase=Running\njob q/a: 1 x cpu=1"
    ),
    "resourcequota": Case(
        "nodes n1: cpu=4\nqueue q:\njob q/a: 2 x cpu=1 min=2",
        both(
            each_job(min_resources={CPU: 2000}, phase=GangPhase.PENDING),
            lambda s: replace(s, quotas=(Quota("one", "q", {CPU: 1000}),)),
        ),
        "enqueue",
    ),
    "shares": Case(
        "nodes n1: gpu=2\nqueue a:\nqueue b:\njob a/x: 2 x gpu=1 min=1\njob b/y: 2 x gpu=1 min=1"
    ),
    "sla": Case(
        "nodes n1: cpu=1\nqueue q:\njob q/a: 1 x cpu=1\njob q/b: 1 x cpu=1 created=1 sla=10"
    ),
    "task-topology": Case(
        "nodes n1 n2: cpu=4\nqueue q:\njob q/a: 2 x cpu=1 role=ps min=4 ; 2 x cpu=1 role=worker",
        each_job(annotations={"volcano.sh/task-topology-anti-affinity": "ps"}),
    ),
    "tdm": Case(
        TWO_NODES + "job q/a: 1 x cpu=1",
        both(
            node("n1", labels={"volcano.sh/revocable-zone": "night"}),
        ),
        arguments={"tdm.revocable-zone.night": "22:00-06:00"},
    ),
    "usage": Case(
        TWO_NODES + "job q/a: 1 x cpu=1", node("n1", annotations={CPU_PERCENT: "90", **LOAD})
    ),
}


class Broken(Plugin):
    """A plugin of which nothing is left but its place in the configuration."""


def decided(name: str, known: Mapping[str, type[Plugin]]) -> tuple[object, ...]:
    """Return what a cycle decides with these plugins."""
    case = CASES[name]
    tier = tuple(PluginConfig(other) for other in case.others if other != name)
    config = Config(
        tuple(ActionConfig(action) for action in case.actions.split()),
        ((PluginConfig(name, case.arguments), *tier),),
    )
    session = open_session(case.change(read(case.text)), config, plugins=known)
    for action in config.actions:
        registry.action(action.name)(session, action.arguments)
    plan = close(session)
    return (
        {b.task: (b.node, b.devices, b.cpus) for b in plan.binds},
        {e.task for e in plan.evictions},
        {key for key, phase in plan.phases.items() if phase is GangPhase.INQUEUE},
    )


def test_every_registered_plugin_has_a_case() -> None:
    """None is left out, none is too many."""
    assert set(CASES) == set(registry.PLUGINS)


@pytest.mark.parametrize("name", sorted(CASES))
def test_a_broken_plugin_changes_what_is_decided(name: str) -> None:
    """The decision is the plugin's own: without it another one is made."""
    broken = {**registry.PLUGINS, name: Broken}

    assert decided(name, registry.PLUGINS) != decided(name, broken)
