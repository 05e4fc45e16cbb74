"""The smallest change with which a waiting job would start: of each kind, and always true."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduling.engine.changes import Change, ChangeKind, apply_change, smallest_changes
from scheduling.engine.cycle import DEFAULT_CONFIG, plan
from scheduling.engine.tables import Memo
from scheduling.engine.types import (
    HyperNode,
    Requirement,
    Snapshot,
    TaskState,
    TopologyMode,
    TopologyRule,
)
from tests.random_clusters import clusters
from tests.scenarios import read
from tests.unit.engine.test_answers import days
from tests.unit.engine.test_properties import examples


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


def test_a_minimum_that_tasks_without_a_request_meet_is_named() -> None:
    """The three that ask for nothing start without the one for which no node is large enough."""
    found = changes(
        "nodes n1: gpu=1\nqueue q:\njob q/a: 1 x gpu=4 role=a ; 3 x role=b min=4", "q/a"
    )

    assert found == {"lower_min": {"min_available": 3, "was": 4}}


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


@examples(4)
@given(clusters())
def test_every_named_change_starts_the_job(snapshot: Snapshot) -> None:
    """Whatever the cluster: planned again with the change, the job starts."""
    for state in days(snapshot):
        memo = Memo()
        for key in plan(state, DEFAULT_CONFIG).job_reasons:
            for change in smallest_changes(state, DEFAULT_CONFIG, key, memo=memo, most=4):
                assert starts(state, key, change)


@examples(30)
@given(clusters(has_rules=False), st.integers(0, 2**63).map(Random))
def test_where_nothing_is_named_no_single_change_helps(snapshot: Snapshot, dice: Random) -> None:
    """No other queue, no lower minimum, nor the end of any one job starts it.

    Some changes of two jobs in each cluster: each costs a cycle. Of 296 questions another queue or
    a lower minimum would help in 29, the end of others in 73.
    """
    state = dice.choice((snapshot, list(days(snapshot))[-1]))
    memo = Memo()
    decided = plan(state, DEFAULT_CONFIG)
    served = {one.job for one in decided.binds} | {one.job for one in decided.pipelined}
    waiting = sorted(decided.job_reasons.keys() - served)
    for key in dice.sample(waiting, min(2, len(waiting))):
        found = smallest_changes(state, DEFAULT_CONFIG, key, memo=memo, most=4)
        named = {change.kind for change in found}
        others = [change for change in every_change(state, key) if change.kind not in named]
        for change in dice.sample(others, min(5, len(others))):
            assert not starts(state, key, change)


def starts(snapshot: Snapshot, key: str, change: Change) -> bool:
    """Return whether the cycle of everybody starts a job with a change made."""
    after = plan(apply_change(snapshot, key, change), DEFAULT_CONFIG)
    return any(bind.job == key for bind in after.binds)


def every_change(snapshot: Snapshot, key: str) -> Iterator[Change]:
    """Yield each change of one thing, of the other jobs' ends only those of one job."""
    job = next(job for job in snapshot.jobs if job.key == key)
    least = max(1, sum(role.min_available for role in job.roles) if len(job.roles) > 1 else 1)
    was = max(job.min_available, sum(role.min_available for role in job.roles))
    parents = {queue.parent for queue in snapshot.queues}
    for queue in snapshot.queues:
        if queue.name != job.queue and queue.name not in parents:
            yield Change(ChangeKind.OTHER_QUEUE, {"queue": queue.name})
    for count in range(least, was):
        yield Change(ChangeKind.LOWER_MIN, {"min_available": count, "was": was})
    for other in snapshot.jobs:
        if other.key != key and any(task.state is TaskState.RUNNING for task in other.tasks):
            yield Change(ChangeKind.WAIT_FOR, {"jobs": [other.key], "tasks": 1, "until": None})
