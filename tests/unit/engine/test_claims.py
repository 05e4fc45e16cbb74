"""Ports, volumes and devices that tasks claim, and evictions that only rules make necessary."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from scheduling.engine.cycle import DEFAULT_CONFIG, plan
from scheduling.engine.device_classes import is_met
from scheduling.engine.types import (
    ActionConfig,
    Binding,
    Config,
    Device,
    DeviceClass,
    PluginConfig,
    PodTerm,
    Requirement,
    Role,
    Snapshot,
    StorageClass,
    TaskState,
    Volume,
    VolumeClaim,
)
from scheduling.engine.verify import check
from tests.scenarios import read

GIB = 2**30

ALLOCATE = Config(
    (ActionConfig("allocate"),), ((PluginConfig("gang"), PluginConfig("predicates")),)
)


def with_roles(snapshot: Snapshot, change: Callable[[Role], Role], job: int = -1) -> Snapshot:
    """Return the snapshot with the roles of one job changed."""
    jobs = list(snapshot.jobs)
    jobs[job] = replace(jobs[job], roles=tuple(change(r) for r in jobs[job].roles))
    return replace(snapshot, jobs=tuple(jobs))


def places(snapshot: Snapshot, config: Config = ALLOCATE) -> dict[str, str]:
    """Return which task is placed where, once the plan has been checked."""
    found = plan(snapshot, config)
    assert check(snapshot, found) == []
    return {b.task: b.node for b in found.binds}


def test_tasks_that_want_the_same_port_go_to_different_nodes() -> None:
    """Three tasks with one host port on two nodes: two are placed."""
    snapshot = read("nodes n1 n2: cpu=4\nqueue q:\njob q/a: 3 x cpu=1 min=1")
    snapshot = with_roles(snapshot, lambda r: replace(r, ports=(8080,)))

    assert sorted(places(snapshot).values()) == ["n1", "n2"]


def test_a_task_goes_where_its_volume_is() -> None:
    """A claim that has its volume binds the task to the nodes that reach it."""
    snapshot = read("nodes n1: cpu=4\nnodes n2: cpu=4 label.zone=b\nqueue q:\njob q/a: 1 x cpu=1")
    snapshot = replace(
        with_roles(snapshot, lambda r: replace(r, volume_claims=("q/data",))),
        volumes=(Volume("v", "local", GIB, ((Requirement("zone", "In", ("b",)),),)),),
        volume_claims=(VolumeClaim("q/data", "local", GIB, "v"),),
    )

    assert places(snapshot) == {"q/a-0": "n2"}


@pytest.mark.parametrize(
    ("kind", "sizes", "expected"),
    [
        (StorageClass("c", is_provisioned=False, waits_for_consumer=True), (1, 2), 2),
        (StorageClass("c", is_provisioned=False, waits_for_consumer=True), (2,), 1),
        (StorageClass("c", is_provisioned=False, waits_for_consumer=True), (), 0),
        (StorageClass("c", is_provisioned=True, waits_for_consumer=True), (), 2),
        (StorageClass("c", is_provisioned=True, waits_for_consumer=False), (2, 2), 0),
    ],
)
def test_claims_get_a_volume_each(
    kind: StorageClass, sizes: tuple[int, ...], expected: int
) -> None:
    """Two tasks with a claim each: as many start as there are volumes, or can be made."""
    snapshot = read("nodes n1: cpu=4\nqueue q:\njob q/a: 1 x cpu=1\njob q/b: 1 x cpu=1")
    snapshot = with_roles(snapshot, lambda r: replace(r, volume_claims=("q/x",)), 0)
    snapshot = with_roles(snapshot, lambda r: replace(r, volume_claims=("q/y",)), 1)
    snapshot = replace(
        snapshot,
        storage_classes=(kind,),
        volumes=tuple(Volume(f"v{i}", "c", size * GIB) for i, size in enumerate(sizes)),
        volume_claims=(VolumeClaim("q/x", "c", GIB), VolumeClaim("q/y", "c", GIB)),
    )

    assert len(places(snapshot)) == expected


def test_a_claim_that_does_not_exist_keeps_its_task_waiting() -> None:
    """Nothing is placed on the hope that somebody makes the claim."""
    snapshot = read("nodes n1: cpu=4\nqueue q:\njob q/a: 1 x cpu=1")

    assert places(with_roles(snapshot, lambda r: replace(r, volume_claims=("q/no",)))) == {}


def test_devices_of_a_class_are_counted() -> None:
    """A node with one healthy device of the class takes one of two tasks."""
    devices = (
        Device("d0", 0, resource="", driver="gpu.example"),
        Device("d1", 1, resource="", driver="gpu.example", is_healthy=False),
        Device("d2", 2, resource="", driver="nic.example"),
    )
    snapshot = read("nodes n1: cpu=4\nqueue q:\njob q/a: 2 x cpu=1 min=1")
    snapshot = replace(
        with_roles(snapshot, lambda r: replace(r, request={**r.request, "deviceclass/gpu": 1000})),
        nodes=(replace(snapshot.nodes[0], devices=devices),),
        device_classes=(DeviceClass("gpu", ("device.driver == 'gpu.example'",)),),
    )

    assert list(places(snapshot).values()) == ["n1"]


def test_tasks_that_share_a_claim_share_a_node() -> None:
    """The second task follows the first, though another node is emptier."""
    snapshot = read("nodes n1 n2: cpu=4\nqueue q:\njob q/a: 3 x cpu=1")
    snapshot = with_roles(snapshot, lambda r: replace(r, device_claims=("q/shared",)))
    spread = replace(ALLOCATE, tiers=(*ALLOCATE.tiers, (PluginConfig("nodeorder"),)))

    assert len(set(places(snapshot, spread).values())) == 1


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("device.driver == 'a.b'", True),
        ('device.driver != "a.b"', False),
        ('device.attributes["a.b"].model == "x"', True),
        ('device.attributes["a.b"].ecc', True),
        ('!device.attributes["a.b"].ecc', False),
        ('device.driver == "a.b" && device.attributes["a.b"].model == "y"', False),
        ('device.attributes["a.b"].missing', False),
        ("device.capacity > 3", False),
    ],
)
def test_selectors_are_met_by_what_a_device_says(selector: str, expected: bool) -> None:
    """What the device does not say, or what cannot be read, is not met."""
    device = Device("d", 0, driver="a.b", attributes={"a.b/model": "x", "a.b/ecc": "true"})

    assert is_met(selector, device) is expected


def anti(value: str) -> PodTerm:
    """Return the wish not to share a host with tasks of a label."""
    return PodTerm((Requirement("app", "In", (value,)),), "host", is_anti=True)


def test_a_task_that_must_not_be_there_is_evicted_for_one_of_higher_priority() -> None:
    """Only the one with the label goes, though there is room and the other one is as cheap."""
    snapshot = read("""
        nodes  n1: cpu=4 label.host=n1
        queue  q:
        job    q/a: 1 x cpu=1 running n1*1 phase=Running
        job    q/b: 1 x cpu=1 running n1*1 phase=Running
        job    q/c: 1 x cpu=1 priority=5
    """)
    snapshot = with_roles(snapshot, lambda r: replace(r, labels={"app": "old"}), 1)
    snapshot = with_roles(snapshot, lambda r: replace(r, pod_terms=(anti("old"),)))

    found = plan(snapshot, DEFAULT_CONFIG)

    assert [e.task for e in found.evictions] == ["q/b-0"]
    assert [p.task for p in found.pipelined] == ["q/c-0"]


def test_nothing_is_evicted_for_a_role_that_may_not() -> None:
    """A role with preemptionPolicy Never waits."""
    text = """
        nodes  n1: cpu=1
        queue  q:
        job    q/a: 1 x cpu=1 running n1*1 phase=Running
        job    q/b: 1 x cpu=1 priority=5
    """
    never = with_roles(read(text), lambda r: replace(r, may_evict=False))

    assert [e.task for e in plan(read(text), DEFAULT_CONFIG).evictions] == ["q/a-0"]
    assert plan(never, DEFAULT_CONFIG).evictions == ()


def ending(snapshot: Snapshot, job: int) -> Snapshot:
    """Return the snapshot while a job's tasks are being stopped."""
    jobs = list(snapshot.jobs)
    tasks = tuple(replace(t, state=TaskState.RELEASING) for t in jobs[job].tasks)
    jobs[job] = replace(jobs[job], tasks=tasks)
    return replace(snapshot, jobs=tuple(jobs))


@pytest.mark.parametrize("rule", ["port", "theirs", "own", "none"])
def test_who_is_ending_is_in_the_way_until_then(rule: str) -> None:
    """A port and a rule against neighbours count until the other one has ended."""
    snapshot = ending(
        read("""
            nodes  n1: cpu=4 label.host=n1
            queue  q:
            job    q/a: 1 x cpu=1 running n1*1 phase=Running
            job    q/b: 1 x cpu=1
        """),
        0,
    )
    cases: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
        "port": ({"ports": (80,)}, {"ports": (80,)}),
        "theirs": ({"pod_terms": (anti("new"),)}, {}),
        "own": ({}, {"pod_terms": (anti("old"),)}),
        "none": ({"ports": (80,)}, {"ports": (81,)}),
    }
    theirs, own = cases[rule]
    snapshot = with_roles(snapshot, lambda r: replace(r, labels={"app": "old"}, **theirs), 0)
    snapshot = with_roles(snapshot, lambda r: replace(r, labels={"app": "new"}, **own))

    found = plan(snapshot, DEFAULT_CONFIG)

    assert [b.task for b in found.binds] == (["q/b-0"] if rule == "none" else [])
    assert [p.task for p in found.pipelined] == ([] if rule == "none" else ["q/b-0"])
    at_once = replace(found, binds=(Binding("q/b-0", "q/b", "n1"),), pipelined=())
    assert bool(check(snapshot, at_once)) is (rule != "none")


def test_nobody_is_evicted_whose_company_is_wanted() -> None:
    """Of two machines the one is taken where a friend stays."""
    snapshot = read("""
        nodes  n1 n2: cpu=1
        nodes  n3: cpu=2
        queue  q:
        job    q/a: 2 x cpu=1 min=1 running n1,n2 phase=Running
        job    q/b: 2 x cpu=1 min=1 running n3*2 priority=1 phase=Running
        job    q/c: 1 x cpu=1 priority=5
    """)
    snapshot = replace(
        snapshot, nodes=tuple(replace(n, labels={"host": n.name}) for n in snapshot.nodes)
    )
    for job in range(2):
        snapshot = with_roles(snapshot, lambda r: replace(r, labels={"app": "old"}), job)
    friend = replace(anti("old"), is_anti=False)
    snapshot = with_roles(snapshot, lambda r: replace(r, pod_terms=(friend,)))

    found = plan(snapshot, DEFAULT_CONFIG)

    assert [e.task for e in found.evictions] == ["q/b-1"]
    assert [(p.task, p.node) for p in found.pipelined] == [("q/c-0", "n3")]
