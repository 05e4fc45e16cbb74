"""Affinity, anti-affinity, spreading and wishes for nodes, each also without its plugin."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from scheduling.engine.after import apply_plan
from scheduling.engine.cycle import plan
from scheduling.engine.types import (
    ActionConfig,
    Config,
    PluginConfig,
    PodTerm,
    Requirement,
    Role,
    Snapshot,
    SpreadRule,
)
from tests.scenarios import cycle, read

LIKE = (Requirement("app", "In", ("web",)),)

CLUSTER = (
    "nodes n1 n2: cpu=4 label.zone=z1\nnodes n3: cpu=4 label.zone=z2\nnodes n4: cpu=4\nqueue q:\n"
)


def shaped(text: str, **changes: object) -> Snapshot:
    """Return a cluster of two zones whose jobs are labelled app=web; the last one has rules."""
    snapshot = read(CLUSTER + text)
    jobs = []
    for job in snapshot.jobs:
        extra = changes if job is snapshot.jobs[-1] else {}
        roles: tuple[Role, ...] = tuple(
            replace(r, labels={"app": "web"}, **extra)  # type: ignore[arg-type]
            for r in job.roles
        )
        jobs.append(replace(job, roles=roles))
    return replace(snapshot, jobs=tuple(jobs))


def nodes(snapshot: Snapshot, *plugins: str) -> list[str]:
    """Return where the tasks are placed, sorted."""
    config = Config((ActionConfig("allocate"),), (tuple(PluginConfig(p) for p in plugins),))
    return sorted(b.node for b in plan(snapshot, config).binds)


@pytest.mark.parametrize(
    ("key", "plugins", "expected"),
    [
        ("zone", ("gang", "predicates"), ["n1", "n3", "n4"]),
        ("zone", ("gang",), ["n1", "n1", "n1"]),
        ("rack", ("gang", "predicates"), ["n1", "n1", "n1"]),
    ],
)
def test_tasks_that_exclude_each_other_part(
    key: str, plugins: tuple[str, ...], expected: list[str]
) -> None:
    """One task a zone, and one on a node of none; a label that no node has parts nobody."""
    term = PodTerm(LIKE, key, is_anti=True)
    snapshot = shaped("job q/j: 3 x cpu=1", pod_terms=(term,))

    assert nodes(snapshot, *plugins) == expected


def test_gang_that_excludes_itself_starts_wholly_or_not_at_all() -> None:
    """Two zones hold two of three tasks that need a zone each, so none starts."""
    term = PodTerm(LIKE, "zone", is_anti=True)
    wish = Requirement("zone", "Exists")
    snapshot = shaped("job q/j: 3 x cpu=1", pod_terms=(term,), node_affinity=((wish,),))

    assert nodes(snapshot, "gang", "predicates") == []


def test_gang_of_tasks_that_ask_for_nothing_starts_wholly_or_not_at_all() -> None:
    """It may evict nobody's room, and with two zones for three tasks none of them starts."""
    term = PodTerm(LIKE, "zone", is_anti=True)
    wish = Requirement("zone", "Exists")
    snapshot = shaped("job q/j: 3 x role=w", pod_terms=(term,), node_affinity=((wish,),))

    assert plan(snapshot).binds == ()


def test_task_respects_those_that_want_no_neighbour() -> None:
    """A task without rules keeps away from a running one that excludes it."""
    term = PodTerm(LIKE, "zone", is_anti=True)
    snapshot = shaped("job q/j: 1 x cpu=1\njob q/old: 1 x cpu=1 running n1", pod_terms=(term,))

    assert nodes(snapshot, "gang", "predicates") == ["n3"]


def test_affinity_follows_the_others_and_lets_the_first_one_in() -> None:
    """All tasks gather in one zone; without any other the first one may choose."""
    term = PodTerm(LIKE, "zone")
    alone = shaped("job q/j: 5 x cpu=1", pod_terms=(term,))
    joining = shaped("job q/old: 1 x cpu=1 running n3\njob q/j: 1 x cpu=1", pod_terms=(term,))

    assert nodes(alone, "gang", "predicates") == ["n1", "n1", "n1", "n1", "n2"]
    assert nodes(joining, "gang", "predicates") == ["n3"]


@pytest.mark.parametrize(
    ("skew", "required", "expected"),
    [(1, True, ["n1", "n1", "n3"]), (2, True, ["n1", "n1", "n3"]), (3, True, ["n1", "n1", "n1"])],
)
def test_spread_keeps_zones_even(skew: int, required: bool, expected: list[str]) -> None:
    """No zone is ahead of the emptiest one by more than the skew."""
    rule = SpreadRule(skew, "zone", LIKE, is_required=required)
    snapshot = shaped("job q/j: 3 x cpu=1", spread=(rule,))

    assert nodes(snapshot, "gang", "predicates") == expected


@pytest.mark.parametrize(("is_anti", "expected"), [(False, {}), (True, {"q/late-0": "c"})])
def test_who_is_promised_a_place_has_yet_to_come(is_anti: bool, expected: dict[str, str]) -> None:
    """Nobody starts beside one who is only expected, nor where one is expected who must not be."""
    snapshot = read("""
        nodes  a: gpu=1 cpu=1 label.zone=z1
        nodes  b: cpu=1 label.zone=z1
        nodes  c: cpu=1 label.zone=z2
        queue  q:
        job    q/low: 1 x gpu=1 cpu=1 running a phase=Running
        job    q/high: 1 x gpu=1 cpu=1 priority=1
        job    q/late: 1 x cpu=1
    """)
    changes: tuple[dict[str, Any], ...] = (
        {},
        {"labels": {"app": "web"}},
        {"pod_terms": (PodTerm(LIKE, "zone", is_anti=is_anti),)},
    )
    low, high, late = (
        replace(job, roles=(replace(job.roles[0], **changed),))
        for job, changed in zip(snapshot.jobs, changes, strict=True)
    )
    early = cycle(replace(snapshot, jobs=(low, high)))
    assert early.pipelined("q/high") == 1

    left = apply_plan(early.snapshot, early.plan)
    outcome = cycle(replace(left, jobs=(*left.jobs, late)))

    assert outcome.pipelined("q/high") == 1
    assert outcome.binds == expected


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"preferred_affinity": ((5, (Requirement("zone", "In", ("z2",)),)),)}, "n3"),
        ({"pod_terms": (PodTerm(LIKE, "zone", is_required=False, weight=9),)}, "n1"),
        ({"pod_terms": (PodTerm(LIKE, "zone", is_anti=True, is_required=False, weight=9),)}, "n4"),
        ({"spread": (SpreadRule(1, "zone", LIKE, is_required=False),)}, "n3"),
    ],
)
def test_wishes_decide_where_all_else_is_equal(changes: dict[str, object], expected: str) -> None:
    """A wish for nodes or neighbours moves a task that balance alone would put elsewhere."""
    text = "job q/old: 4 x cpu=1 running n1 n2 n3 n4\njob q/j: 1 x cpu=1"
    if expected == "n4":
        text = "job q/old: 3 x cpu=1 running n1 n2 n3\njob q/j: 1 x cpu=1"
    if "spread" in changes or expected == "n1":
        text = "job q/old: 2 x cpu=1 running n1 n2\njob q/j: 1 x cpu=3"
    config = PluginConfig("nodeorder", {"leastrequested.weight": "0"})
    snapshot = shaped(text, **changes)

    outcome = plan(snapshot, Config((ActionConfig("allocate"),), ((PluginConfig("gang"), config),)))

    assert [b.node for b in outcome.binds] == [expected]
