"""Scores by load still to come and by a role's own strategy; room kept for scarce devices."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from scheduling.engine import scoring
from scheduling.engine.cycle import Memo, open_session, plan
from scheduling.engine.types import (
    CPU_PERCENT,
    MEASURED_AT,
    MEMORY_PERCENT,
    ActionConfig,
    Config,
    PluginConfig,
    Snapshot,
)
from tests.scenarios import read

GANG = PluginConfig("gang")


def scores(snapshot: Snapshot, plugin: PluginConfig) -> dict[str, float]:
    """Return the scores of the nodes for the last job."""
    opened = open_session(snapshot, Config((), ((plugin,),)))
    shape = opened.tables.rows[snapshot.jobs[-1].key].roles[0].shape
    total = sum(callback(shape, slice(None)) for callback in opened.each("node_order"))
    return {n: round(float(s), 3) for n, s in zip(opened.tables.nodes.names, total, strict=True)}


def measured(text: str, *, started_at: float | None = None) -> Snapshot:
    """Return two nodes of 10 cores and 10 GiB, measured at 50 percent, and jobs."""
    snapshot = read("nodes n1 n2: cpu=10 memory=10\nqueue q:\n" + text)
    load = {CPU_PERCENT: "50", MEMORY_PERCENT: "50", MEASURED_AT: "999"}
    first = snapshot.jobs[0]
    tasks = tuple(replace(t, started_at=started_at) for t in first.tasks)
    return replace(
        snapshot,
        nodes=tuple(replace(n, annotations=load) for n in snapshot.nodes),
        jobs=(replace(first, tasks=tasks), *snapshot.jobs[1:]),
    )


USAGE = PluginConfig("usage", {"usage.weight": "1"})
RUNNING = "job q/old: 1 x cpu=1 running n1*1 phase=Running\njob q/new: 1 x cpu=1"


@pytest.mark.parametrize(
    ("started_at", "expected"),
    [(None, 50.0), (900.0, 50.0), (990.0, 46.5)],
)
def test_young_tasks_count_before_they_are_measured(
    started_at: float | None, expected: float
) -> None:
    """Seven tenths of a core of ten: 7 percent less idle, half of it in the mean with memory."""
    found = scores(measured(RUNNING, started_at=started_at), USAGE)

    assert found == {"n1": expected, "n2": 50.0}


def test_busy_nodes_count_what_comes_for_more() -> None:
    """At 60 percent with what is to come it counts 1.2 times: 2.1 cores become 25.2 percent."""
    text = "job q/old: 1 x cpu=3 running n1*1 phase=Running\njob q/new: 1 x cpu=1"

    assert scores(measured(text, started_at=990.0), USAGE)["n1"] == 37.4


def test_tasks_of_one_cycle_see_each_other() -> None:
    """Two equal nodes get one task each."""
    snapshot = measured("job q/a: 2 x cpu=2 min=1")
    config = Config((ActionConfig("allocate"),), ((GANG, USAGE),))

    assert sorted(b.node for b in plan(snapshot, config).binds) == ["n1", "n2"]


@pytest.mark.parametrize(
    ("annotations", "expected"),
    [
        ({}, {"n1": 800.0, "n2": 900.0}),
        ({"scoring-type": "MostAllocated"}, {"n1": 200.0, "n2": 100.0}),
        ({"scoring-type": "MostAllocated", "weight": "{"}, {"n1": 800.0, "n2": 900.0}),
        ({"scoring-type": "MostAllocated", "weight": "[3]"}, {"n1": 800.0, "n2": 900.0}),
        ({"scoring-type": "MostAllocated", "weight": '{"cpu": "x"}'}, {"n1": 800.0, "n2": 900.0}),
        ({"scoring-type": "MostAllocated", "weight": '{"cpu": 3}'}, {"n1": 200.0, "n2": 100.0}),
        ({"scoring-type": "Whatever"}, {"n1": 800.0, "n2": 900.0}),
    ],
)
def test_a_role_may_state_its_own_strategy(
    annotations: dict[str, str], expected: dict[str, float]
) -> None:
    """What cannot be read is as if it were not there."""
    snapshot = read("nodes n1 n2: cpu=10\nqueue q:\n" + RUNNING)
    job = snapshot.jobs[1]
    notes = {f"volcano.sh/resource-strategy-{k}": v for k, v in annotations.items()}
    role = replace(job.roles[0], annotations=notes)
    snapshot = replace(snapshot, jobs=(snapshot.jobs[0], replace(job, roles=(role,))))

    assert scores(snapshot, PluginConfig("resource-strategy-fit")) == expected


@pytest.mark.parametrize(
    ("rate", "cpu", "is_placed"), [(4, 2, True), (4, 3, False), (5, 1, False), (0, 10, True)]
)
def test_tasks_without_gpus_leave_cores_for_idle_gpus(rate: int, cpu: int, is_placed: bool) -> None:
    """Two idle GPUs keep `rate` of ten cores each."""
    snapshot = read(f"nodes n1: cpu=10 gpu=2 memory=10\nqueue q:\njob q/a: 1 x cpu={cpu}")
    stated = {
        "enable": True,
        "resources": "nvidia.com/gpu",
        "resourceProportion": {"nvidia.com/gpu.cpu": rate},
    }
    plugin = PluginConfig("resource-strategy-fit", {"proportional": json.dumps(stated)})
    config = Config((ActionConfig("allocate"),), ((GANG, plugin),))

    assert bool(plan(snapshot, config).binds) is is_placed


def test_tasks_with_gpus_may_use_what_is_kept_for_them() -> None:
    """The cores beside the idle GPUs are theirs."""
    snapshot = read("nodes n1: cpu=10 gpu=2\nqueue q:\njob q/a: 1 x cpu=9 gpu=1")
    stated = {
        "enable": True,
        "resources": "nvidia.com/gpu",
        "resourceProportion": {"nvidia.com/gpu.cpu": 5},
    }
    plugin = PluginConfig("resource-strategy-fit", {"proportional": json.dumps(stated)})

    assert plan(snapshot, Config((ActionConfig("allocate"),), ((GANG, plugin),))).binds


SHAPES = "nodes n1 n2 n3: cpu=8 memory=8\nqueue q:\n" + "\n".join(
    f"job q/j{i}: 1 x cpu={1 + i % 3} memory={1 + i % 2}" for i in range(12)
)


def test_scores_given_up_for_others_are_worked_out_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the scores of one shape only are kept, every task goes to the same node."""
    snapshot = read(SHAPES)
    kept = plan(snapshot)
    monkeypatch.setattr(scoring, "MOST_SCORES", 1)

    assert plan(snapshot) == kept


def test_what_is_kept_between_cycles_changes_no_plan() -> None:
    """Jobs come and go, a queue gets a min: with and without a memo the plans are the same."""
    whole = read(SHAPES)
    richer = tuple(replace(q, min={"cpu": 4000}) for q in whole.queues)
    memo = Memo()
    for jobs, queues in (
        (whole.jobs[:6], whole.queues),
        (whole.jobs[:6], whole.queues),
        (whole.jobs[3:], whole.queues),
        (whole.jobs, richer),
    ):
        snapshot = replace(whole, jobs=jobs, queues=queues)

        assert plan(snapshot, memo=memo) == plan(snapshot)


MIB = 2**20


@pytest.mark.parametrize(
    ("n1", "n2", "expected"),
    [
        ({"a": 500 * MIB}, {}, (23.0, 0.0)),
        ({"a": 500 * MIB}, {"a": 500 * MIB}, (48.0, 48.0)),
        ({"a": 4000 * MIB}, {"a": 20 * MIB}, (100.0, 0.0)),
        ({"b": 4000 * MIB}, {}, (0.0, 0.0)),
    ],
)
def test_images_in_a_nodes_cache_are_weighed_as_in_kubernetes(
    n1: dict[str, int], n2: dict[str, int], expected: tuple[float, float]
) -> None:
    """Bytes held x share of nodes that hold it, from 23 MiB (0) to 1000 MiB (100), rounded down."""
    snapshot = read("nodes n1 n2: cpu=4 memory=4\nqueue q:\njob q/a: 1 x cpu=1")
    (job,) = snapshot.jobs
    role = replace(job.roles[0], container_images=("a",))
    nodes = tuple(replace(n, images=held) for n, held in zip(snapshot.nodes, (n1, n2), strict=True))
    held = replace(snapshot, nodes=nodes, jobs=(replace(job, roles=(role,)),))
    others = {"leastrequested.weight": "0", "balancedresource.weight": "0"}
    plugin = PluginConfig("nodeorder", {**others, "tainttoleration.weight": "0"})

    assert tuple(scores(held, plugin).values()) == expected
