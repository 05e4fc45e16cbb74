"""The smallest change with which a waiting job would start: of each kind, and always true."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given

from scheduling.engine.changes import ChangeKind, apply_change, smallest_changes
from scheduling.engine.cycle import DEFAULT_CONFIG, plan
from scheduling.engine.types import HyperNode, Requirement, Snapshot, TopologyMode, TopologyRule
from tests.scenarios import read
from tests.unit.engine.test_properties import few, snapshots


def changes(scenario: str | Snapshot, job: str, *, most: int = 4) -> dict[str, dict[str, object]]:
    """Return kind -> numbers; each of them starts the job."""
    snapshot = read(scenario) if isinstance(scenario, str) else scenario
    found = smallest_changes(snapshot, DEFAULT_CONFIG, job, most=most)
    for change in found:
        after = plan(apply_change(snapshot, job, change), DEFAULT_CONFIG)
        assert job in {b.job for b in after.binds}
    return {str(change.kind): dict(change.params) for change in found}


def test_a_full_queue_names_the_other_one() -> None:
    """The wall of queue a holds the job up, not room."""
    found = changes(
        "nodes n1: gpu=4\nqueue a: max.gpu=1\nqueue b:\njob a/x: 1 x gpu=2", "a/x", most=1
    )

    assert found == {"other_queue": {"queue": "b"}}


def test_only_queues_that_may_be_named_are() -> None:
    """Without leave to use another queue nothing is proposed."""
    snapshot = read("nodes n1: gpu=4\nqueue a: max.gpu=1\nqueue b:\njob a/x: 1 x gpu=2")

    assert smallest_changes(snapshot, DEFAULT_CONFIG, "a/x", queues=()) == ()


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("select.zone=none", {"role": "task", "constraint": "node_selector", "key": "zone"}),
    ],
)
def test_a_selector_that_nothing_meets_is_named(options: str, expected: dict[str, str]) -> None:
    """Dropping it starts the job."""
    found = changes(f"nodes n1: cpu=1\nqueue q:\njob q/a: 1 x cpu=1 {options}", "q/a")

    assert {**found["drop_constraint"], "role": "task"} == expected


def test_an_affinity_that_nothing_meets_is_named() -> None:
    """So is an expression about labels."""
    snapshot = read("nodes n1: cpu=1\nqueue q:\njob q/a: 1 x cpu=1")
    job = snapshot.jobs[0]
    role = replace(job.roles[0], node_affinity=((Requirement("zone", "Exists"),),))
    found = changes(replace(snapshot, jobs=(replace(job, roles=(role,)),)), "q/a")

    assert found["drop_constraint"]["constraint"] == "node_affinity"


def test_a_rule_of_topology_that_cannot_be_kept_is_named() -> None:
    """No switch has room for both tasks."""
    snapshot = read("nodes n1 n2: cpu=1\nqueue q:\njob q/a: 2 x cpu=1")
    switches = tuple(HyperNode(f"s{i}", 1, nodes=frozenset({f"n{i}"})) for i in (1, 2))
    job = replace(snapshot.jobs[0], topology=TopologyRule(TopologyMode.HARD, 1))
    found = changes(replace(snapshot, hypernodes=switches, jobs=(job,)), "q/a")

    assert found["drop_constraint"]["constraint"] == "topology"


def test_the_highest_minimum_that_fits_is_named() -> None:
    """Five of eight tasks have room."""
    found = changes("nodes n1: gpu=5\nqueue q:\njob q/a: 8 x gpu=1", "q/a")

    assert found == {"lower_min": {"min_available": 5, "was": 8}}


def test_the_fewest_holds_to_wait_for_are_named() -> None:
    """One job of two GPUs rather than two jobs of one."""
    found = changes(
        """
        nodes  n1: gpu=4
        queue  q:
        job    q/one: 1 x gpu=1 running n1*1 phase=Running priority=1
        job    q/two: 1 x gpu=1 running n1*1 phase=Running priority=1
        job    q/both: 1 x gpu=2 running n1*1 phase=Running priority=1
        job    q/new: 1 x gpu=2
        """,
        "q/new",
    )

    assert found["wait_for"] == {"jobs": ["q/both"], "tasks": 1, "until": None}


def test_what_nobody_may_evict_can_be_waited_for() -> None:
    """A job that must not be evicted ends some day."""
    found = changes(
        "nodes n1: gpu=1\nqueue q:\n"
        "job q/old: 1 x gpu=1 preemptable=no running n1*1 phase=Running\njob q/new: 1 x gpu=1",
        "q/new",
    )

    assert found["wait_for"]["jobs"] == ["q/old"]


@pytest.mark.parametrize(
    "job", ["job q/a: 1 x gpu=9", "job q/a: 2 x gpu=9 min=1", "job q/a: 1 x gpu=1"]
)
def test_nothing_is_named_where_no_single_change_helps(job: str) -> None:
    """No node is large enough; or it starts anyway."""
    assert changes(f"nodes n1: gpu=4\nqueue q:\n{job}", "q/a") == {}


def test_a_job_that_does_not_exist_is_an_error() -> None:
    """The caller learns that it asked for nothing."""
    with pytest.raises(KeyError):
        smallest_changes(read("nodes n1: gpu=4\nqueue q:"), DEFAULT_CONFIG, "q/none")


@few
@given(snapshots())
def test_every_named_change_starts_the_job(snapshot: Snapshot) -> None:
    """Whatever the cluster: planned again with the change, the job starts."""
    decided = plan(snapshot, DEFAULT_CONFIG)
    for key in decided.job_reasons:
        for change in smallest_changes(snapshot, DEFAULT_CONFIG, key, most=4):
            assert change.kind in ChangeKind
            after = plan(apply_change(snapshot, key, change), DEFAULT_CONFIG)
            assert key in {b.job for b in after.binds}
