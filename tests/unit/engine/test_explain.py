"""Why a job waits and whether one would fit."""

from __future__ import annotations

import pytest

from scheduling.engine.cycle import DEFAULT_CONFIG
from scheduling.engine.explain import RungState, explain, fits
from scheduling.engine.reasons import ReasonCode
from tests.scenarios import read

CLUSTER = """
    nodes  n1: gpu=4
    nodes  n2: gpu=4 cordoned
    queue  org: max.gpu=6
    queue  a: parent=org
    job    a/run: 3 x gpu=1 running n1*3 phase=Running
    job    a/gang: 2 x gpu=1
    job    a/wide: 4 x gpu=1
"""


def test_ladder_names_the_first_failing_rung() -> None:
    """A gang that lacks nodes fails at the gang; queue and max are passed, with their numbers."""
    ladder = explain(read(CLUSTER), DEFAULT_CONFIG, "a/gang")

    states = {rung.name: rung.state for rung in ladder.rungs}
    assert (states["queue"], states["max"], states["gang"]) == (
        RungState.PASSED,
        RungState.PASSED,
        RungState.FAILED,
    )
    assert ladder.headline is not None
    assert ladder.headline.params["placeable"] == 1
    nodes = next(rung for rung in ladder.rungs if rung.name == "nodes")
    assert nodes.facts["role0"]["histogram"] == {  # type: ignore[index]  # facts are plain data
        "not_schedulable": 1,
        "Insufficient nvidia.com/gpu": 1,
    } or nodes.facts["role0"]["histogram"] == {"not_schedulable": 1}  # type: ignore[index]  # same


def test_max_of_an_ancestor_is_the_headline() -> None:
    """A gang above the department's max is told which level refuses, and by how much."""
    ladder = explain(read(CLUSTER), DEFAULT_CONFIG, "a/wide")

    assert ladder.headline is not None
    assert ladder.headline.code == ReasonCode.QUEUE_MAX
    assert ladder.headline.params == {
        "queue": "org",
        "resource": "nvidia.com/gpu",
        "requested": 4000,
        "allocated": 3000,
        "max": 6000,
    }


def test_unknown_job_is_an_error() -> None:
    """Asking for a job that is not there raises KeyError."""
    with pytest.raises(KeyError):
        explain(read(CLUSTER), DEFAULT_CONFIG, "a/none")


@pytest.mark.parametrize(("gpus", "fits_now"), [(1, True), (2, False)])
def test_fits_counts_what_is_free_now(gpus: int, fits_now: bool) -> None:
    """One GPU is free: a job of one fits, a job of two does not."""
    asked = read(f"queue a:\njob a/asked: 1 x gpu={gpus} priority=5").jobs[0]

    fit = fits(read(CLUSTER), DEFAULT_CONFIG, asked)

    assert fit.fits_now is fits_now
    assert (fit.ladder.headline is None) is fits_now
