"""Whole devices close together, parts of devices, CPUs beside them, useless remainders, caches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import combinations

import pytest

from scheduling.engine.cycle import plan
from scheduling.engine.devices import Ask, Card, Chooser, choose
from scheduling.engine.types import (
    CPU,
    GPU,
    ActionConfig,
    Config,
    Device,
    Node,
    NumaNode,
    PluginConfig,
    Role,
    Snapshot,
)
from scheduling.engine.verify import check
from tests.scenarios import read

GIB = 2**30
NVLINK = "NVLink"


def config(*plugins: PluginConfig) -> Config:
    """Return a configuration that allocates gangs with these plugins."""
    return Config((ActionConfig("allocate"),), ((PluginConfig("gang"), *plugins),))


def binds(snapshot: Snapshot, *plugins: PluginConfig) -> dict[str, tuple[str, tuple[str, ...]]]:
    """Return task -> node and devices, once the plan has been checked."""
    found = plan(snapshot, config(PluginConfig("predicates"), *plugins))
    assert check(snapshot, found) == []
    return {b.task: (b.node, b.devices) for b in found.binds}


def linked(count: int, pairs: set[tuple[int, int]]) -> tuple[Device, ...]:
    """Return devices of which some pairs are joined by NVLink and the rest by the system."""
    return tuple(
        Device(
            f"d{i}",
            i,
            links=tuple(
                (f"d{j}", NVLINK if (min(i, j), max(i, j)) in pairs else "SYS")
                for j in range(count)
                if j != i
            ),
        )
        for i in range(count)
    )


def test_two_gpus_are_joined_by_nvlink_rather_than_next_to_each_other() -> None:
    """Of four GPUs 1 and 3 are linked: a task of two gets them."""
    snapshot = read("nodes n1: gpu=4\nqueue q:\njob q/a: 1 x gpu=2")
    snapshot = replace(snapshot, nodes=(replace(snapshot.nodes[0], devices=linked(4, {(1, 3)})),))

    assert binds(snapshot) == {"q/a-0": ("n1", ("d1", "d3"))}


def test_a_single_gpu_does_not_break_a_linked_pair() -> None:
    """The GPU without a link goes first."""
    snapshot = read("nodes n1: gpu=3\nqueue q:\njob q/a: 1 x gpu=1")
    snapshot = replace(snapshot, nodes=(replace(snapshot.nodes[0], devices=linked(3, {(0, 1)})),))

    assert binds(snapshot) == {"q/a-0": ("n1", ("d2",))}


def test_sets_of_many_devices_are_grown() -> None:
    """Sixteen GPUs in two linked halves: eight of one half."""
    halves = {p for p in combinations(range(16), 2) if p[0] // 8 == p[1] // 8}
    cards = [Card(device) for device in linked(16, halves)]

    chosen = choose(cards, Ask(8, is_whole=True), Chooser())

    assert chosen == tuple(f"d{i}" for i in range(8))


def sharing(count: int, request: Mapping[str, int], **annotations: str) -> Snapshot:
    """Return a node of two GPUs of 40 GiB and a job whose tasks ask for parts of them."""
    snapshot = read(f"nodes n1: gpu=2 cpu=64\nqueue q:\njob q/a: {count} x cpu=1 min=1")
    devices = tuple(
        Device(f"d{i}", i, memory_bytes=40 * GIB, model=model)
        for i, model in enumerate(("NVIDIA A100", "NVIDIA L40"))
    )
    job = snapshot.jobs[0]
    notes = {f"nvidia.com/{k.replace('_', '-')}": v for k, v in annotations.items()}
    role = replace(job.roles[0], request={CPU: 1000, **request}, annotations=notes)
    return replace(
        snapshot,
        nodes=(replace(snapshot.nodes[0], devices=devices),),
        jobs=(replace(job, roles=(role,)),),
    )


def vgpu(number: int = 1, mib: int = 0, percent: int = 0, cores: int = 0) -> dict[str, int]:
    """Return a request for parts of devices."""
    return {
        "volcano.sh/vgpu-number": number * 1000,
        "volcano.sh/vgpu-memory": mib * 1000,
        "volcano.sh/vgpu-memory-percentage": percent * 1000,
        "volcano.sh/vgpu-cores": cores * 1000,
    }


@pytest.mark.parametrize(
    ("request_of", "expected"),
    [
        ({GPU: 500}, ["d0", "d0", "d1", "d1"]),
        ({GPU: 300}, ["d0", "d0", "d0", "d1", "d1", "d1"]),
        (vgpu(mib=20 * 1024), ["d0", "d0", "d1", "d1"]),
        (vgpu(mib=10 * 1024, cores=50), ["d0", "d0", "d1", "d1"]),
        (vgpu(percent=50), ["d0", "d0", "d1", "d1"]),
        (vgpu(mib=1024, cores=100), ["d0", "d1"]),
        (vgpu(number=2, mib=30 * 1024), ["d0", "d1"]),
        ({"volcano.sh/gpu-memory": 40 * 1024 * 1000}, ["d0", "d1"]),
        ({"volcano.sh/gpu-number": 1000}, ["d0", "d1"]),
    ],
)
def test_parts_of_devices_add_up_to_no_more_than_a_device(
    request_of: Mapping[str, int], expected: list[str]
) -> None:
    """Of six tasks as many start as memory and compute allow, on the fullest device first."""
    found = binds(sharing(6, request_of), PluginConfig("deviceshare"))

    assert sorted(name for _, names in found.values() for name in names) == expected


def test_parts_of_devices_are_spread_where_the_policy_says_so() -> None:
    """Two halves on two devices."""
    share = PluginConfig("deviceshare", {"deviceshare.SchedulePolicy": "spread"})

    found = binds(sharing(2, {GPU: 500}), share)

    assert sorted(names for _, names in found.values()) == [("d0",), ("d1",)]


@pytest.mark.parametrize(
    ("annotations", "expected"),
    [
        ({"use_gputype": "a100"}, {"d0"}),
        ({"nouse_gputype": "A100, H100"}, {"d1"}),
        ({"use_gpuuuid": "d1"}, {"d1"}),
        ({"nouse_gpuuuid": "d0,d1"}, set()),
    ],
)
def test_devices_are_chosen_by_model_and_id(
    annotations: dict[str, str], expected: set[str]
) -> None:
    """Only devices that the annotations allow are used."""
    found = binds(sharing(4, {GPU: 500}, **annotations), PluginConfig("deviceshare"))

    assert {name for _, names in found.values() for name in names} == expected


def test_groups_that_exclude_themselves_share_no_device() -> None:
    """Three quarters of one group: one a device."""
    snapshot = sharing(3, {GPU: 250})
    job = snapshot.jobs[0]
    role = replace(job.roles[0], annotations={"terrace/gpu-exclusive": "prod"})
    snapshot = replace(snapshot, jobs=(replace(job, roles=(role,)),))

    found = binds(snapshot, PluginConfig("deviceshare"))

    assert sorted(names for _, names in found.values()) == [("d0",), ("d1",)]


@pytest.mark.parametrize(("policy", "expected"), [("binpack", "n1"), ("spread", "n2")])
def test_nodes_are_scored_by_the_devices_that_a_task_would_get(policy: str, expected: str) -> None:
    """A node with a half-used device for binpack, an unused one for spread."""
    snapshot = read("""
        nodes  n1 n2: gpu=1
        queue  q:
        job    q/old: 1 x gpu=0.5 running n1*1 phase=Running
        job    q/new: 1 x gpu=0.5
    """)
    nodes = tuple(
        replace(n, devices=(Device(f"{n.name}-d", 0, memory_bytes=GIB),)) for n in snapshot.nodes
    )
    old = snapshot.jobs[0]
    task = replace(old.tasks[0], devices=("n1-d",))
    snapshot = replace(snapshot, nodes=nodes, jobs=(replace(old, tasks=(task,)), snapshot.jobs[1]))
    arguments = {"deviceshare.SchedulePolicy": policy, "deviceshare.ScheduleWeight": "1"}

    found = binds(snapshot, PluginConfig("deviceshare", arguments))

    assert found["q/new-0"][0] == expected


# -- NUMA ------------------------------------------------------------------------------------------


def two_numa(policy: str = "any", *, gpus: int = 0) -> Node:
    """Return a machine of two NUMA nodes of four CPUs."""
    return Node(
        "n1",
        {CPU: 8000, GPU: gpus * 1000},
        numa=(NumaNode(0, (0, 1, 2, 3)), NumaNode(1, (4, 5, 6, 7))),
        numa_policy=policy,
        devices=tuple(Device(f"d{i}", i, numa_node=i % 2) for i in range(gpus)),
    )


def pinned(cpus: list[float], policy: str, node: Node, *, gpu: int = 0) -> list[tuple[int, ...]]:
    """Return the CPUs that jobs of one task each get, in order; those that wait are left out."""
    text = "nodes n1: cpu=8\nqueue q:\n" + "\n".join(
        f"job q/{i}: 1 x cpu={c} gpu={gpu} created={i}" for i, c in enumerate(cpus)
    )
    snapshot = read(text)
    jobs = tuple(
        replace(j, roles=tuple(replace(r, topology_policy=policy) for r in j.roles))
        for j in snapshot.jobs
    )
    snapshot = replace(snapshot, nodes=(node,), jobs=jobs)
    found = plan(snapshot, config(PluginConfig("predicates"), PluginConfig("numa-aware")))
    assert check(snapshot, found) == []
    by_task = {b.task: b.cpus for b in found.binds}
    return [by_task[f"q/{i}-0"] for i in range(len(cpus)) if f"q/{i}-0" in by_task]


@pytest.mark.parametrize(
    ("policy", "cpus", "expected"),
    [
        ("single-numa-node", [3, 3, 2], [(0, 1, 2), (4, 5, 6)]),
        ("restricted", [3, 3, 2], [(0, 1, 2), (4, 5, 6)]),
        ("best-effort", [3, 3, 2], [(0, 1, 2), (4, 5, 6), (3, 7)]),
        ("none", [3, 3, 2], [(), (), ()]),
        ("single-numa-node", [6], []),
        ("restricted", [6], [(0, 1, 2, 3, 4, 5)]),
        ("single-numa-node", [1.5], [()]),
    ],
)
def test_cpus_come_from_the_numa_nodes_that_the_policy_admits(
    policy: str, cpus: list[float], expected: list[tuple[int, ...]]
) -> None:
    """single-numa-node never crosses; restricted only what no NUMA node could hold."""
    assert pinned(cpus, policy, two_numa()) == expected


@pytest.mark.parametrize(
    ("own", "of_node", "is_placed"),
    [
        ("restricted", "restricted", True),
        ("restricted", "best-effort", False),
        ("restricted", "any", True),
        ("none", "single-numa-node", True),
    ],
)
def test_a_node_serves_its_own_policy_only(own: str, of_node: str, is_placed: bool) -> None:
    """Unless it gives out CPUs as it is told."""
    assert bool(pinned([2], own, two_numa(of_node))) is is_placed


def test_a_task_with_a_policy_goes_to_no_node_that_tells_nothing() -> None:
    """Without NUMA nodes nobody can keep the promise."""
    assert pinned([2], "restricted", Node("n1", {CPU: 8000})) == []
    assert pinned([2], "none", Node("n1", {CPU: 8000})) == [()]


def test_devices_come_from_beside_the_cpus() -> None:
    """Two GPUs of one NUMA node and its CPUs, twice."""
    assert pinned([3, 3], "single-numa-node", two_numa(gpus=4), gpu=2) == [(0, 1, 2), (4, 5, 6)]


# -- fragmentation and data ------------------------------------------------------------------------


def test_a_task_goes_where_it_leaves_the_fewest_useless_gpus() -> None:
    """Tasks of two GPUs could use n1 wholly, but never the third GPU of n2."""
    share = PluginConfig("fragmentation")
    snapshot = read("""
        nodes  n1: gpu=2 cpu=8
        nodes  n2: gpu=3 cpu=8
        queue  q:
        job    q/typical: 9 x gpu=2 cpu=1 min=9 created=9
        job    q/new: 1 x gpu=1 cpu=1
    """)

    assert binds(snapshot, share)["q/new-0"][0] == "n2"
    assert binds(snapshot)["q/new-0"][0] == "n1"


def test_parts_of_gpus_gather_for_typical_whole_ones() -> None:
    """A half goes beside a half, so that a whole GPU stays whole."""
    snapshot = read("""
        nodes  n1: gpu=1 cpu=8
        nodes  n2: gpu=2 cpu=8
        queue  q:
        job    q/typical: 9 x gpu=1 cpu=1 min=9 created=9
        job    q/old: 1 x gpu=0.5 cpu=1 running n2*1 phase=Running
        job    q/new: 1 x gpu=0.5 cpu=1
    """)

    assert binds(snapshot, PluginConfig("fragmentation"))["q/new-0"][0] == "n2"


def test_cpu_is_kept_for_the_gpus_that_need_it() -> None:
    """A task without GPUs goes where CPU is plenty for each GPU that is left."""
    snapshot = read("""
        nodes  n1: gpu=2 cpu=8
        nodes  n2: gpu=2 cpu=32
        queue  q:
        job    q/typical: 9 x gpu=1 cpu=2 min=9 created=9
        job    q/new: 1 x cpu=5
    """)

    share = PluginConfig("fragmentation", {"fragmentation.stranded": "2"})
    assert binds(snapshot, share)["q/new-0"][0] == "n2"
    assert binds(snapshot)["q/new-0"][0] == "n1"


def caching(required: str) -> dict[str, tuple[str, tuple[str, ...]]]:
    """Return where two tasks go that read a data set of which one small node has a cache."""
    snapshot = read("nodes n1: cpu=8\nnodes n2: cpu=1\nqueue q:\njob q/a: 2 x cpu=1 min=1")
    job = snapshot.jobs[0]
    roles: tuple[Role, ...] = (replace(job.roles[0], data_sets=("imagenet",)),)
    nodes = (snapshot.nodes[0], replace(snapshot.nodes[1], data_sets=frozenset({"imagenet"})))
    return binds(
        replace(snapshot, nodes=nodes, jobs=(replace(job, roles=roles),)),
        PluginConfig("data-locality", {"data-locality.required": required}),
    )


def test_tasks_prefer_nodes_that_cache_their_data() -> None:
    """The first goes to the cache, the second elsewhere unless it must not."""
    assert sorted(node for node, _ in caching("false").values()) == ["n1", "n2"]
    assert [node for node, _ in caching("true").values()] == ["n2"]
