"""Volcano's admission of single queues."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest

from scheduling.spec.problems import Problem
from scheduling.spec.queue_admission import (
    AdmissionConfig,
    QueueRecord,
    check_create,
    check_delete,
    check_update,
)

CONFIG = AdmissionConfig(max_depth=2, blocks_delete_with_pods=True, protects_root=True)


def cpu(amount: float) -> dict[str, Decimal]:
    """Make an amount of CPU."""
    return {"cpu": Decimal(amount)}


def found(problems: list[Problem]) -> list[tuple[str, str]]:
    """Return place and code of each."""
    return [(problem.path, problem.code) for problem in problems]


TEAM = QueueRecord("team", min=cpu(4), max=cpu(10), deserved=cpu(8))
CHILD = QueueRecord("child", parent="team", min=cpu(1), max=cpu(5), deserved=cpu(2))
BUSY = QueueRecord("busy", allocated_pods=3)
STORED = (TEAM, CHILD, BUSY)


@pytest.mark.parametrize(
    ("queue", "expected"),
    [
        (QueueRecord("x"), []),
        (QueueRecord("x", weight=0), [("weight", "weight_out_of_range")]),
        (QueueRecord("x", state="Closing"), [("state", "invalid_state")]),
        (QueueRecord("x", dequeue_strategy="lifo"), [("dequeue_strategy", "not_in_list")]),
        (QueueRecord("x", max=cpu(-1)), [("max.cpu", "negative_amount")]),
        (QueueRecord("x", min=cpu(2), max=cpu(1)), [("min.cpu", "min_above_max")]),
        (QueueRecord("x", min=cpu(2), deserved=cpu(1)), [("deserved.cpu", "deserved_below_min")]),
        (QueueRecord("x", deserved=cpu(2), max=cpu(1)), [("deserved.cpu", "deserved_above_max")]),
        (QueueRecord("x", parent="x"), [("parent", "self_parent")]),
        (QueueRecord("x", parent="ghost"), [("parent", "parent_not_found")]),
        (QueueRecord("x", parent="child"), [("parent", "too_deep")]),
        (QueueRecord("x", parent="busy"), [("parent", "parent_has_pods")]),
        (QueueRecord("x", parent="team", max=cpu(11)), [("max.cpu", "max_above_ancestor")]),
        (QueueRecord("x", parent="team", min=cpu(4)), [("min", "children_min_above_parent")]),
        (
            QueueRecord("x", parent="team", deserved=cpu(7)),
            [("deserved", "children_deserved_above_parent")],
        ),
        (
            QueueRecord("x", hierarchy_path="root/a", hierarchy_weights="1/0"),
            [("hierarchy.weights", "weight_not_positive")],
        ),
        (
            QueueRecord("x", hierarchy_path="root/a", hierarchy_weights="x"),
            [("hierarchy.weights", "length_mismatch"), ("hierarchy.weights", "weight_not_number")],
        ),
    ],
)
def test_making_a_queue(queue: QueueRecord, expected: list[tuple[str, str]]) -> None:
    """Alone and against those that are there."""
    renamed = [(path, "queue_depth" if code == "too_deep" else code) for path, code in expected]

    assert found(check_create(queue, STORED, CONFIG)) == renamed


def test_a_queue_on_the_way_to_another_is_refused() -> None:
    """An older style's path must end in a leaf."""
    stored = [QueueRecord("leaf", hierarchy_path="root/a/b", hierarchy_weights="1/1/1")]
    inner = QueueRecord("x", hierarchy_path="root/a", hierarchy_weights="1/1")

    assert found(check_create(inner, stored, CONFIG)) == [
        ("hierarchy.path", "inner_node_of_other_path")
    ]


def test_lowering_a_max_is_compared_with_all_below() -> None:
    """Through queues that set none."""
    between = QueueRecord("between", parent="top")
    deep = QueueRecord("deep", parent="between", max=cpu(9))
    top = QueueRecord("top", max=cpu(10))

    lowered = check_update(top, replace(top, max=cpu(8)), [top, between, deep], CONFIG)

    assert found(lowered) == [("max.cpu", "max_below_descendant")]


def test_an_update_without_new_limits_asks_no_other_queue() -> None:
    """Even where the tree is broken already."""
    wrong = replace(CHILD, max=cpu(99))

    assert check_update(wrong, replace(wrong, weight=5), [TEAM, wrong], CONFIG) == []


def test_the_roots_limits_are_protected() -> None:
    """They mirror the cluster."""
    root = QueueRecord("root", max=cpu(10))

    assert found(check_update(root, replace(root, max=cpu(20)), [root], CONFIG)) == [
        ("max", "root_limits_protected")
    ]


@pytest.mark.parametrize(
    ("name", "codes"),
    [
        ("default", ["protected_queue"]),
        ("ghost", ["queue_not_found"]),
        ("team", ["has_children"]),
        ("busy", ["has_allocated_pods"]),
        ("child", []),
    ],
)
def test_removing_a_queue(name: str, codes: list[str]) -> None:
    """Built-in, missing, inner and busy ones stay."""
    assert [problem.code for problem in check_delete(name, STORED, CONFIG)] == codes


def test_a_loop_among_stored_queues_ends_the_walk() -> None:
    """What is broken already is not walked round and round."""
    a, b = QueueRecord("a", parent="b"), QueueRecord("b", parent="a")

    problems = check_create(QueueRecord("x", parent="a", max=cpu(1)), [a, b], CONFIG)

    assert found(problems) == [("parent", "queue_depth")]
