"""The scenario program: files in, decisions out as JSON lines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from scheduling import scenario
from scheduling.engine.types import QueueState

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
    ],
)
def test_quantities_become_the_engines_units(name: str, text: str, value: int) -> None:
    """Milli-cores, bytes and thousandths of devices."""
    assert scenario.amount(name, text) == value


def test_queue_keeps_its_min_free() -> None:
    """Scenarios follow Volcano: a guarantee is not lent."""
    queue = scenario.read_queue({"name": "q", "guarantee": {"cpu": "1"}, "state": "Closed"})

    assert (queue.min, queue.lend_min, queue.state) == ({"cpu": 1000}, False, QueueState.CLOSED)
