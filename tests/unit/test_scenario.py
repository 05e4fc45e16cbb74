"""The scenario program: files in, decisions out as JSON lines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from scheduling import scenario
from scheduling.engine.types import QueueState
from scheduling.scenario.cluster import read_queue
from scheduling.scenario.quantities import amount

CASE: dict[str, Any] = {
    "id": "own-01",
    "kind": "session",
    "actions": ["enqueue", "allocate"],
    "tiers": [
        [
            {"name": "gang", "enabled": ["job_ready", "job_pipelined"]},
            {"name": "proportion", "enabled": ["allocatable", "queue_order", "job_enqueued"]},
        ]
    ],
    "nodes": [{"name": "n1", "allocatable": {"cpu": "2", "memory": "4Gi", "pods": "10"}}],
    "queues": [{"name": "q1"}],
    "podgroups": [
        {"namespace": "ns", "name": "pg", "queue": "q1", "min_member": 2, "phase": "Pending"}
    ],
    "pods": [
        {
            "namespace": "ns",
            "name": f"p{i}",
            "podgroup": "pg",
            "role": "w",
            "request": {"cpu": "500m", "memory": "1Gi"},
            "phase": "Pending",
        }
        for i in range(2)
    ],
}


def test_session_prints_what_was_decided(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Binds, phases, what groups hold and the state of pods, in the file's names and units."""
    path = tmp_path / "case.json"
    path.write_text(json.dumps(CASE))

    status = scenario.main([str(path)])

    assert status == 0
    assert json.loads(capsys.readouterr().out) == {
        "id": "own-01",
        "binds": {"ns/p0": "n1", "ns/p1": "n1"},
        "evicted": [],
        "pipelined": {},
        "podgroup_phase": {"ns/pg": "Inqueue"},
        "allocated": {"ns/pg": {"pods": "2", "cpu": "1", "memory": "2147483648"}},
        "task_status": {"ns/p0": "Binding", "ns/p1": "Binding"},
        "nomination_cleared": [],
    }


def test_unreadable_file_is_reported_and_the_rest_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Status 2, the path on stderr, and the readable file answered."""
    good = tmp_path / "good.json"
    good.write_text(json.dumps(CASE))

    status = scenario.main([str(tmp_path / "none.json"), str(good)])

    printed = capsys.readouterr()
    assert status == 2
    assert "none.json" in printed.err
    assert json.loads(printed.out)["id"] == "own-01"


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"actions": ["dance"]}, "action dance"),
        ({"tiers": [[{"name": "gong", "enabled": []}]]}, "plugin gong"),
        ({"kind": "query", "query": {"ask": "weather"}}, "question weather"),
        ({"nodes": [{"name": "n"}]}, "KeyError: 'allocatable'"),
    ],
)
def test_what_cannot_be_translated_is_unsupported(change: dict[str, Any], why: str) -> None:
    """The case says why, and no decision is made up."""
    assert scenario.answer({**CASE, **change}) == {"id": "own-01", "unsupported": why}


def test_cycles_build_on_one_another() -> None:
    """The second cycle sees the first one's binds."""
    case = {k: v for k, v in CASE.items() if k != "actions"} | {
        "cycles": [
            {"present_podgroups": ["ns/pg"], "actions": ["enqueue", "allocate"]},
            {"present_podgroups": ["ns/pg"], "actions": ["enqueue", "allocate"]},
        ]
    }

    cycles: Any = scenario.answer(case)["cycles"]
    first, second = cycles

    assert (len(first["binds"]), second["binds"]) == (2, {})
    assert second["task_status"] == {"ns/p0": "Bound", "ns/p1": "Bound"}


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("cpu", "200m", 200),
        ("cpu", "0.2", 200),
        ("cpu", "3", 3000),
        ("memory", "1Gi", 2**30),
        ("memory", "1k", 1000),
        ("nvidia.com/gpu", "2", 2000),
        ("cpu", "1e3", 1_000_000),
        ("cpu", "1500000u", 1500),
        ("cpu", "100n", 1),
        ("memory", "1.5Gi", 1_610_612_736),
        ("memory", "1500m", 2),
        ("memory", ".5Ki", 512),
    ],
)
def test_quantities_become_the_engines_units(name: str, text: str, value: int) -> None:
    """Milli-cores, bytes and thousandths of devices, from any valid form, rounded up."""
    assert amount(name, text) == value


def test_queue_keeps_its_min_free() -> None:
    """Scenarios follow Volcano: a guarantee is not lent."""
    queue = read_queue({"name": "q", "guarantee": {"cpu": "1"}, "state": "Closed"})

    assert (queue.min, queue.lend_min, queue.state) == ({"cpu": 1000}, False, QueueState.CLOSED)


def variant(**changes: Any) -> dict[str, Any]:
    """Return the answer to the usual case with some of it changed."""
    answer: dict[str, Any] = scenario.answer({**CASE, **changes})
    return answer


def pod(name: str, **changes: Any) -> dict[str, Any]:
    """Return a pod of the usual group."""
    return {**CASE["pods"][0], "name": name, **changes}


def test_a_pod_of_which_nothing_is_known_keeps_its_room() -> None:
    """It is not counted in its gang, is still on its node, and is printed as Unknown."""
    pods = [pod("lost", phase="Unknown", node="n1", request={"cpu": "1500m"}), *CASE["pods"]]

    found = variant(pods=pods)

    assert found["task_status"]["ns/lost"] == "Unknown"
    assert found["binds"] == {}


def test_admission_that_is_configured_but_does_not_run_keeps_pending_groups_out() -> None:
    """A cycle says whether enqueue is configured: then allocate leaves Pending groups alone."""
    cycle = {"present_podgroups": ["ns/pg"], "actions": ["allocate"]}
    data = {k: v for k, v in CASE.items() if k != "actions"}

    def bound(*, is_configured: bool) -> int:
        cycles = [{**cycle, "enqueue_configured": is_configured}]
        answer: Any = scenario.answer({**data, "cycles": cycles})
        return len(answer["cycles"][0]["binds"])

    assert (bound(is_configured=True), bound(is_configured=False)) == (0, 2)


@pytest.mark.parametrize(
    ("ask", "more", "expected"),
    [
        ("node_status", {"pods": ["ns/p0"]}, {"ns/p0": {"n1": "unresolvable"}}),
        ("node_scores", {"pods": ["ns/p0"]}, {"ns/p0": {"n1": 0.0}}),
        ("feasible_nodes", {"pods": ["ns/p0"]}, {"ns/p0": []}),
        ("job_order", {"jobs": ["ns/pg"]}, []),
        ("enqueueable", {"enqueue": ["ns/pg"]}, {"ns/pg": False}),
        ("victims", {"as": ["preempt", "reclaim"], "candidates": ["ns/p0"]}, []),
        ("steps", {"steps": [{"op": "check", "pod": "ns/p0", "node": "n1"}]}, [False]),
        ("backfill_order", {}, []),
    ],
)
def test_a_group_without_its_queue_may_run_nowhere_and_takes_no_part(
    ask: str, more: dict[str, Any], expected: object
) -> None:
    """No node is open to its pods, and it is not let in, ordered, evicted or placed."""
    data = {k: v for k, v in CASE.items() if k != "actions"}

    found = scenario.answer(
        {**data, "kind": "query", "queues": [{"name": "q2"}], "query": {"ask": ask, **more}}
    )

    assert found == {"id": "own-01", ask: expected}


def test_best_effort_pods_count_for_their_gang_only_if_they_can_start() -> None:
    """Where backfill runs a gang is bound with them or not at all; without it they may wait."""
    idle = pod("idle", request={}, node_selector={"disk": "ssd"})
    group = {**CASE["podgroups"][0], "min_member": 3}
    tiers = [[*CASE["tiers"][0], {"name": "predicates", "enabled": ["predicate"]}]]
    nodes = [CASE["nodes"][0], {**CASE["nodes"][0], "name": "n2", "labels": {"disk": "ssd"}}]

    def bound(actions: list[str], nodes: list[dict[str, Any]]) -> list[str]:
        changes = {"podgroups": [group], "tiers": tiers, "pods": [*CASE["pods"], idle]}
        return sorted(variant(actions=actions, nodes=nodes, **changes)["binds"])

    both = ["enqueue", "allocate", "backfill"]
    assert bound(both, nodes) == ["ns/idle", "ns/p0", "ns/p1"]
    assert bound(both, nodes[:1]) == []
    assert bound(["enqueue", "allocate"], nodes) == ["ns/p0", "ns/p1"]


def test_a_gang_of_best_effort_pods_is_bound_whole_or_not_at_all() -> None:
    """With one slot too few none of them is placed."""
    pods = [pod(f"p{i}", request={}) for i in range(3)]
    group = {**CASE["podgroups"][0], "min_member": 3, "phase": "Inqueue"}

    def bound(slots: str) -> int:
        nodes = [{"name": "n1", "allocatable": {"cpu": "1", "pods": slots}}]
        return len(
            variant(actions=["backfill"], nodes=nodes, pods=pods, podgroups=[group])["binds"]
        )

    assert (bound("2"), bound("3")) == (0, 3)


@pytest.mark.parametrize(("limit", "phase"), [("1", "Pending"), ("2", "Inqueue")])
@pytest.mark.parametrize("minimums", [{}, {"w": 1}])
def test_devices_of_claims_count_for_admission_though_no_minimum_is_stated(
    limit: str, phase: str, minimums: dict[str, int]
) -> None:
    """A claim for two devices is let in where the queue may have two, whatever runs today."""
    claims = [
        {"namespace": "ns", "name": name, "requests": [{"device_class": "gpu", "count": 2}]}
        for name in ("c0", "c1")
    ]
    pods = [
        {**pod, "resource_claims": [claim["name"]]}
        for pod, claim in zip(CASE["pods"], claims, strict=True)
    ]
    group = {**CASE["podgroups"][0], "min_member": 1, "min_task_member": minimums}

    answer = scenario.answer(
        {
            **CASE,
            "actions": ["enqueue"],
            "tiers": [[{"name": "capacity", "enabled": ["job_enqueued"]}]],
            "queues": [{"name": "q1", "capability": {"deviceclass/gpu": limit}}],
            "podgroups": [group],
            "pods": pods,
            "device_claims": claims,
        }
    )

    assert answer["podgroup_phase"] == {"ns/pg": phase}


def test_a_pod_that_is_placed_already_is_not_placed_again() -> None:
    """The second step has no pod left to place."""
    data = {k: v for k, v in CASE.items() if k != "actions"}
    step = {"op": "place", "pod": "ns/p0", "node": "n1"}

    found = scenario.answer(
        {
            **data,
            "kind": "query",
            "pods": CASE["pods"][:1],
            "query": {"ask": "steps", "steps": [step, step]},
        }
    )

    assert found["steps"] == [True, False]
