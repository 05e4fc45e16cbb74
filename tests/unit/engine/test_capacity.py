"""The capacity plugin: explicit deserved amounts, flat and in a tree, and taking back."""

from __future__ import annotations

from dataclasses import replace

import pytest

from scheduling.engine.types import ActionConfig, Config, PluginConfig, Snapshot
from tests.scenarios import Outcome, cycle, read

GUARDS = (PluginConfig("gang", {"gang.wholeGangs": "true"}), PluginConfig("predicates"))


def capacity(*, level: int = 0, tree: bool = True, actions: str = "allocate") -> Config:
    """Return a configuration of gang, predicates and capacity."""
    off = frozenset() if tree else frozenset({"hierarchy"})
    own = PluginConfig("capacity", {"ancestorReclaimLevel": str(level)}, disabled=off)
    return Config(tuple(ActionConfig(name) for name in actions.split()), ((*GUARDS, own),))


def deserving(text: str, **gpus: int) -> Snapshot:
    """Return the snapshot of a text with what some queues deserve, in GPUs."""
    snapshot = read(text)
    return replace(
        snapshot,
        queues=tuple(
            replace(q, deserved={"nvidia.com/gpu": 1000 * gpus[q.name]} if q.name in gpus else None)
            for q in snapshot.queues
        ),
    )


SIXTEEN = """
    nodes  n1 n2: gpu=8
    queue  root:
    queue  A: parent=root min.gpu=2 max.gpu=12 keep_min
    queue  a1: parent=A min.gpu=2 keep_min
    queue  a2: parent=A
    queue  B: parent=root
"""


def test_a_leaf_may_borrow_up_to_what_its_parent_has_left() -> None:
    """Of twelve at most two are kept back for the idle sibling: ten may be held, not eleven."""
    text = SIXTEEN + "job a2/j: 14 x gpu=1 min=1"

    outcome = cycle(deserving(text, A=8, a1=4, a2=4, B=8), config=capacity())

    assert outcome.bound("a2/j") == 10


def test_siblings_give_back_before_strangers() -> None:
    """The sibling that holds more than it deserves goes first, though the stranger does so too."""
    text = (
        SIXTEEN
        + """
        job a2/s: 6 x gpu=1 min=1 running n1*6 phase=Running
        job B/t: 10 x gpu=1 min=1 running n1*2 n2*8 phase=Running
        job a1/new: 1 x gpu=1
    """
    )

    outcome = cycle(
        deserving(text, A=8, a1=4, a2=4, B=8), config=capacity(actions="allocate reclaim")
    )

    assert [task.rpartition("-")[0] for task in outcome.evicted] == ["a2/s"]


COUSINS = """
    nodes  n1: gpu=4
    queue  root:
    queue  A: parent=root
    queue  a: parent=A
    queue  B: parent=root
    queue  b: parent=B
    job    b/held: 4 x gpu=1 min=1 running n1*4 phase=Running
    job    a/new: 1 x gpu=1
"""


@pytest.mark.parametrize(
    ("level", "parent_deserves", "evictions"),
    [(0, 4, 1), (1, 4, 0), (1, 3, 1)],
)
def test_the_ancestors_level_asks_the_parents_too(
    level: int, parent_deserves: int, evictions: int
) -> None:
    """From level 1 a queue's tasks go only if its parent is above its share as well."""
    snapshot = deserving(COUSINS, A=1, a=1, B=parent_deserves, b=2)

    outcome = cycle(snapshot, config=capacity(level=level, actions="allocate reclaim"))

    assert len(outcome.evicted) == evictions


POOR = """
    nodes  n1: gpu=2
    queue  root:
    queue  A: parent=root
    queue  a: parent=A
    queue  b: parent=A
    job    b/held: 2 x gpu=1 min=1 running n1*2 phase=Running
    job    a/new: 1 x gpu=1
"""


@pytest.mark.parametrize(("level", "evictions"), [(0, 0), (1, 0)])
def test_siblings_that_deserve_nothing_leave_each_other_alone(level: int, evictions: int) -> None:
    """Who deserves nothing takes nothing back from who deserves nothing."""
    outcome = cycle(deserving(POOR, A=2), config=capacity(level=level, actions="allocate reclaim"))

    assert len(outcome.evicted) == evictions


def flat(**gpus: int) -> Outcome:
    """Return what becomes of ten GPUs and two queues that want all, one with a min of four."""
    text = """
        nodes  n1: gpu=10
        queue  kept: min.gpu=4 keep_min
        queue  other: max.gpu=8
        job    other/j: 10 x gpu=1 min=1
    """
    return cycle(deserving(text, **gpus), config=capacity(tree=False))


def test_flat_queues_leave_the_others_their_min() -> None:
    """Without a tree a queue may hold its max, less what is kept free for the others."""
    assert flat().bound("other/j") == 6
    assert flat(other=2).bound("other/j") == 6


def test_a_shut_queue_is_given_nothing_and_takes_nothing_back() -> None:
    """Closed says so as its reason, and nobody goes for it."""
    text = COUSINS.replace("queue  a: parent=A", "queue  a: parent=A state=Closed")

    outcome = cycle(
        deserving(text, A=1, a=1, B=3, b=2), config=capacity(actions="allocate reclaim")
    )

    assert (outcome.binds, outcome.evicted) == ({}, [])
    assert outcome.reason("a/new").params["state"] == "Closed"


@pytest.mark.parametrize("name", ["capacity", "proportion"])
def test_flat_sharing_keeps_to_the_max_of_the_levels_above(name: str) -> None:
    """Three GPUs are the department's wall, whatever its queue deserves."""
    sharing = PluginConfig(name, disabled=frozenset({"hierarchy"}))
    config = Config((ActionConfig("allocate"),), ((*GUARDS, sharing),))

    outcome = cycle(
        "nodes n: gpu=8\nqueue org: max.gpu=3\nqueue q: parent=org\njob q/a: 8 x gpu=1 min=1",
        config=config,
    )

    assert outcome.bound("q/a") == 3
