"""The verifier rejects every kind of planted fault, and names it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from scheduling.engine.cycle import DEFAULT_CONFIG, plan
from scheduling.engine.types import Binding, Eviction, Pipelined, Plan, Reservation, Snapshot
from scheduling.engine.verify import check
from tests.scenarios import read

CLUSTER = """
    nodes  n1: gpu=4 devices bad3 label.zone=a
    nodes  n2: gpu=2 taint.only=x
    nodes  n3: gpu=2 cordoned
    queue  org: max.gpu=6
    queue  a: parent=org
    queue  b: parent=org min.gpu=1
    queue  shut: state=Closed
    job    a/gang: 2 x gpu=1
    job    a/zone: 1 x gpu=1 select.zone=a priority=-1
    job    b/run: 2 x gpu=1 min=1 running n2*2 phase=Running
    job    a/fix: 1 x gpu=1 preemptable=no running n1 phase=Running
    job    shut/x: 1 x gpu=1
"""


def bind(task: str, node: str, *devices: str) -> Binding:
    return Binding(task, task.rpartition("-")[0], node, devices)


def evict(task: str, node: str, beneficiary: str = "a/gang") -> Eviction:
    return Eviction(task, task.rpartition("-")[0], node, "reclaim", beneficiary)


def with_binds(*binds: Binding) -> Callable[[Plan], Plan]:
    return lambda good: replace(good, binds=(*good.binds, *binds))


def only_binds(*binds: Binding) -> Callable[[Plan], Plan]:
    return lambda good: replace(good, binds=binds)


def with_evictions(*evictions: Eviction) -> Callable[[Plan], Plan]:
    return lambda good: replace(good, evictions=evictions)


FAULTS: dict[str, Callable[[Plan], Plan]] = {
    "bound_twice": lambda good: replace(good, binds=(*good.binds, good.binds[0])),
    "unknown_task": with_binds(bind("a/none-0", "n1")),
    "not_pending": with_binds(bind("b/run-0", "n2")),
    "unknown_node": only_binds(bind("a/zone-0", "n9")),
    "unfit_node": only_binds(bind("a/gang-0", "n2"), bind("a/gang-1", "n2")),
    "node_overfull": only_binds(
        bind("a/gang-0", "n1", "n1-gpu0"),
        bind("a/gang-1", "n1", "n1-gpu1"),
        bind("a/zone-0", "n1", "n1-gpu2"),
        bind("shut/x-0", "n1", "n1-gpu2"),
    ),
    "queue_not_open": with_binds(bind("shut/x-0", "n1", "n1-gpu2")),
    "gang_incomplete": only_binds(bind("a/gang-0", "n1", "n1-gpu0")),
    "bad_device": only_binds(bind("a/zone-0", "n1", "n1-gpu3")),
    "device_count": only_binds(bind("a/zone-0", "n1")),
    "device_taken": only_binds(
        bind("a/gang-0", "n1", "n1-gpu0"), bind("a/gang-1", "n1", "n1-gpu0")
    ),
    "evicted_twice": with_evictions(evict("b/run-1", "n2"), evict("b/run-1", "n2")),
    "not_live": with_evictions(evict("b/run-1", "n1")),
    "not_preemptable": with_evictions(evict("a/fix-0", "n1")),
    "useless_eviction": with_evictions(evict("b/run-1", "n2", "shut/x")),
    "queue_under_min": with_evictions(evict("b/run-0", "n2"), evict("b/run-1", "n2")),
    "promise_too_large": lambda good: replace(
        good,
        pipelined=(Pipelined("shut/x-0", "shut/x", "n1"), Pipelined("a/zone-0", "a/zone", "n1")),
    ),
    "useless_reservation": lambda good: replace(
        good, reservations=(Reservation("b/run", {"n1": {}}, 1e9),)
    ),
    "expired_reservation": lambda good: replace(
        good, reservations=(Reservation("shut/x", {"n1": {}}, 1.0),)
    ),
    "no_reason": lambda good: replace(good, job_reasons={}),
}


def snapshot() -> Snapshot:
    return read(CLUSTER)


def test_plan_of_the_engine_is_accepted() -> None:
    """The plan into which faults are planted has none itself."""
    state = snapshot()

    assert check(state, plan(state, DEFAULT_CONFIG)) == []


@pytest.mark.parametrize("code", sorted(FAULTS))
def test_planted_fault_is_named(code: str) -> None:
    """Each fault is found under its own code."""
    state = snapshot()
    faulty = FAULTS[code](plan(state, DEFAULT_CONFIG))

    assert code in {violation.code for violation in check(state, faulty)}


def test_max_of_an_ancestor_is_checked() -> None:
    """Six of six GPUs are held in the department: one more is too many."""
    state = read(CLUSTER.replace("max.gpu=6", "max.gpu=3"))
    faulty = replace(Plan(), binds=(bind("a/zone-0", "n1", "n1-gpu0"),))

    assert "queue_over_max" in {violation.code for violation in check(state, faulty)}


def test_broken_gang_is_found() -> None:
    """Evicting one of two tasks that are the gang's minimum leaves a broken gang."""
    state = read("nodes n1: gpu=2\nqueue a:\njob a/x: 2 x gpu=1 running n1*2\njob a/y: 1 x gpu=1")
    faulty = Plan(evictions=(evict("a/x-1", "n1", "a/y"),))

    assert "gang_broken" in {violation.code for violation in check(state, faulty)}
