"""How flows of jobs go on."""

from __future__ import annotations

import pytest

from scheduling.lifecycle.flows import (
    FlowCounts,
    FlowPhase,
    FlowStep,
    by_phase,
    count,
    decide,
    mark,
    record_phase,
    steps_to_start,
)
from scheduling.lifecycle.states import JobPhase

DIAMOND = (
    FlowStep("a"),
    FlowStep("b", ("a",)),
    FlowStep("c", ("a",)),
    FlowStep("d", ("b", "c")),
)


@pytest.mark.parametrize(
    ("jobs", "ready"),
    [
        ({}, ["a"]),
        ({"f-a": JobPhase.RUNNING}, []),
        ({"f-a": JobPhase.COMPLETED}, ["b", "c"]),
        ({"f-a": JobPhase.COMPLETED, "f-b": JobPhase.COMPLETED, "f-c": JobPhase.RUNNING}, []),
        ({f"f-{n}": JobPhase.COMPLETED for n in "abc"}, ["d"]),
        ({"f-a": JobPhase.FAILED}, []),
    ],
)
def test_a_diamond(jobs: dict[str, JobPhase], ready: list[str]) -> None:
    """A step starts once all before it have completed; a failure stops its successors."""
    assert [step.name for step in steps_to_start("f", DIAMOND, jobs)] == ready


@pytest.mark.parametrize(
    ("phase", "counts", "expected"),
    [
        (FlowPhase.PENDING, FlowCounts(), FlowPhase.PENDING),
        (FlowPhase.PENDING, FlowCounts(running=1), FlowPhase.RUNNING),
        (FlowPhase.RUNNING, FlowCounts(completed=2), FlowPhase.SUCCEEDED),
        (FlowPhase.RUNNING, FlowCounts(completed=1), FlowPhase.RUNNING),
        (FlowPhase.RUNNING, FlowCounts(completed=1, terminated=1), FlowPhase.FAILED),
        (FlowPhase.FAILED, FlowCounts(running=1), FlowPhase.FAILED),
    ],
)
def test_a_flow_stands_as_its_jobs_do(
    phase: FlowPhase, counts: FlowCounts, expected: FlowPhase
) -> None:
    """One bad job fails the flow, all good ones end it; ends are final."""
    assert decide(phase, steps=2, jobs=counts) is expected


def test_jobs_are_sorted_by_what_they_mean() -> None:
    """What is neither waiting, running nor ended is unknown."""
    jobs = {"a": JobPhase.COMPLETED, "b": JobPhase.ABORTED, "c": JobPhase.RUNNING}

    assert by_phase(jobs) == {
        "pending": [],
        "running": ["c"],
        "failed": [],
        "completed": ["a"],
        "terminated": [],
        "unknown": ["b"],
    }
    assert count(jobs) == FlowCounts(running=1, completed=1)


def test_a_history_has_each_change_once() -> None:
    """The same phase again, or none, adds nothing."""
    assert record_phase(["Pending"], "Running") == ["Pending", "Running"]
    assert record_phase(["Pending"], "Pending") == ["Pending"]
    assert record_phase([], "") == []
    assert mark("ns", "flow") == "ns.flow"
