"""The rules of a queue tree."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduling.spec.queue_tree import (
    DEEPEST,
    Amounts,
    QueueNode,
    check_name,
    check_tree,
    note_overcommitted,
)

GPU = "nvidia.com/gpu"


def node(
    name: str,
    parent: str | None = "root",
    *,
    least: int | None = None,
    most: int | None = None,
    deserved: int | None = None,
    weight: int = 1,
) -> QueueNode:
    """Return a queue with amounts of GPUs."""

    def gpus(amount: int | None) -> Amounts:
        return {} if amount is None else {GPU: amount * 1000}

    return QueueNode(
        name,
        parent,
        gpus(least),
        gpus(most),
        weight,
        deserved=None if deserved is None else gpus(deserved),
    )


ROOT = node("root", None)


def found(*queues: QueueNode) -> list[tuple[str, str]]:
    """Return place and code of each problem of a tree below the root."""
    return [(problem.path, problem.code) for problem in check_tree([ROOT, *queues])]


def test_sound_tree() -> None:
    """A tree that keeps all rules has no problem, on several levels and below silent parents."""
    tree = [
        node("a", least=4, most=12),
        node("a1", "a", least=2, most=12),
        node("a2", "a", least=2),
        node("b"),
        node("b1", "b", least=8),
    ]

    assert found(*tree) == []


def test_children_min_above_parent() -> None:
    """Children are guaranteed no more together than their parent, where it states a min."""
    assert found(node("a", least=3), node("a1", "a", least=2), node("a2", "a", least=2)) == [
        (f"queues[a].min[{GPU}]", "queue_children_min_above_parent")
    ]


def test_children_of_a_parent_without_min() -> None:
    """A parent that states no min forbids its children none."""
    assert found(node("a"), node("a1", "a", least=2), node("a2", "a", least=2)) == []


def test_zero_min_is_a_statement() -> None:
    """A parent with min 0 has stated one, and its children have none."""
    assert found(node("a", least=0), node("a1", "a", least=1)) == [
        (f"queues[a].min[{GPU}]", "queue_children_min_above_parent")
    ]


def test_root_binds_nobody_by_min() -> None:
    """The root mirrors the cluster: what its children are guaranteed is not compared with it."""
    assert found(node("a", least=1000)) == []


def test_max_above_the_nearest_that_sets_one() -> None:
    """A max is held against the nearest max above, past levels that set none."""
    assert found(node("a", most=4), node("b", "a"), node("c", "b", most=5)) == [
        (f"queues[c].max[{GPU}]", "queue_max_above_ancestor")
    ]
    [problem] = check_tree([ROOT, node("a", most=4), node("b", "a"), node("c", "b", most=5)])
    assert problem.params == {
        "queue": "c",
        "resource": GPU,
        "amount": 5000,
        "bound": 4000,
        "ancestor": "a",
    }


def test_min_above_own_max() -> None:
    """A queue is not guaranteed more than it may use."""
    assert found(node("a", least=5, most=4)) == [(f"queues[a].min[{GPU}]", "queue_min_above_max")]


def test_guarantees_of_a_subtree_above_a_max() -> None:
    """What the leaves are guaranteed together fits under the max of every level above."""
    tree = [node("a", most=3), node("b", "a"), node("c", "b", least=2), node("d", "b", least=2)]

    assert found(*tree) == [(f"queues[a].max[{GPU}]", "queue_children_min_above_max")]


def test_stated_deserved() -> None:
    """An imported share lies between min and max and is no less than its children's together."""
    assert found(node("a", least=3, deserved=2)) == [
        (f"queues[a].min[{GPU}]", "queue_min_above_deserved")
    ]
    assert found(node("a", most=3, deserved=4)) == [
        (f"queues[a].deserved[{GPU}]", "queue_deserved_above_max")
    ]
    assert found(node("a", deserved=3), node("a1", "a", deserved=4)) == [
        (f"queues[a].deserved[{GPU}]", "queue_children_deserved_above_parent")
    ]


@pytest.mark.parametrize("weight", [0, -1, 65_536])
def test_weight_out_of_range(weight: int) -> None:
    """A weight is 1 to 65535."""
    assert found(node("a", weight=weight)) == [("queues[a].weight", "queue_number_range")]
    assert found(node("a", weight=1), node("b", weight=65_535)) == []


@pytest.mark.parametrize("priority", [-1, 2**31])
def test_priority_out_of_range(priority: int) -> None:
    """A priority fits its column."""
    assert found(replace(node("a"), priority=priority)) == [
        ("queues[a].priority", "queue_number_range")
    ]


@pytest.mark.parametrize("amount", [-1, 2**53, 1.5, "4", True, None])
def test_no_amount(amount: object) -> None:
    """An amount is a whole number from 0 to 2^53, in min as in max."""
    for name in ("min", "max"):
        queue = replace(node("a"), **{name: {"cpu": amount}})  # type: ignore[arg-type]  # on purpose
        assert found(queue) == [(f"queues[a].{name}[cpu]", "queue_amount")]


def test_empty_resource_name() -> None:
    """A resource has a name."""
    assert found(replace(node("a"), min={"": 1})) == [("queues[a].min", "queue_resource_name")]


def test_shape() -> None:
    """Missing parents, cycles, second roots and equal names are each named."""
    assert found(node("a", "ghost")) == [("queues[a].parent", "queue_parent_missing")]
    assert found(node("a", "b"), node("b", "a")) == [
        ("queues[a].parent", "queue_cycle"),
        ("queues[b].parent", "queue_cycle"),
    ]
    assert found(node("a", "a")) == [("queues[a].parent", "queue_cycle")]
    assert found(node("again", None)) == [("queues", "queue_one_root")]
    assert found(node("a"), node("a")) == [("queues", "queue_name_twice")]


def test_depth() -> None:
    """A tree has ten levels below its root."""
    names = ["root", *(f"q{level}" for level in range(1, DEEPEST + 2))]
    chain = [node(name, parent) for parent, name in pairwise(names)]

    assert found(*chain[:-1]) == []
    assert found(*chain) == [(f"queues[q{DEEPEST + 1}].parent", "queue_too_deep")]


def test_overcommitted_cluster_is_a_note() -> None:
    """More guaranteed than there is is said, and no error: nodes may come back."""
    tree = [ROOT, node("a", least=6), node("b", least=6)]

    [note] = note_overcommitted(tree, {GPU: 8000})

    assert (note.code, note.params["amount"], note.params["bound"]) == (
        "queue_min_above_total",
        12_000,
        8000,
    )
    assert check_tree(tree) == []
    assert note_overcommitted(tree, {GPU: 12_000}) == []


@pytest.mark.parametrize(
    ("name", "is_good"),
    [
        ("team-a", True),
        ("a.b-c.d1", True),
        ("", False),
        ("Team", False),
        ("-a", False),
        ("a-", False),
        ("a..b", False),
        ("a/b", False),
        ("é", False),
        ("a" * 253, True),
        ("a" * 254, False),
        ("a\n", False),
    ],
)
def test_names(name: str, *, is_good: bool) -> None:
    """A queue's name is what Kubernetes lets a manifest write."""
    assert (check_name(name) == []) is is_good


@st.composite
def trees(draw: st.DrawFn) -> list[QueueNode]:
    """Draw up to eight queues in a random tree with small amounts."""
    names = ["root"]
    queues = [ROOT]
    for number in range(draw(st.integers(0, 7))):
        small = st.none() | st.integers(0, 3)
        queue = node(
            f"q{number}",
            draw(st.sampled_from(names)),
            least=draw(small),
            most=draw(small),
        )
        names.append(queue.name)
        queues.append(queue)
    return queues


def is_sound(queues: list[QueueNode]) -> bool:
    """Decide the same by brute force, from the sentences of the rules."""
    by_name = {queue.name: queue for queue in queues}

    def above(queue: QueueNode) -> list[QueueNode]:
        path = []
        while queue.parent is not None:
            queue = by_name[queue.parent]
            path.append(queue)
        return path

    def guaranteed(queue: QueueNode) -> int:
        children = [child for child in queues if child.parent == queue.name]
        return max(queue.min.get(GPU, 0), sum(guaranteed(child) for child in children))

    for queue in queues:
        maxima = [a.max[GPU] for a in above(queue) if GPU in a.max]
        children = [child for child in queues if child.parent == queue.name]
        if GPU in queue.max and (
            guaranteed(queue) > queue.max[GPU] or (maxima and queue.max[GPU] > maxima[0])
        ):
            return False
        total = sum(child.min.get(GPU, 0) for child in children)
        if queue.parent and children and GPU in queue.min and total > queue.min[GPU]:
            return False
    return True


@given(trees())
def test_agrees_with_brute_force(queues: list[QueueNode]) -> None:
    """A random tree has a problem exactly where the sentences of the rules say so."""
    assert (check_tree(queues) == []) is is_sound(queues)


@given(trees(), st.randoms())
def test_order_is_irrelevant(queues: list[QueueNode], random: object) -> None:
    """The same queues in another order have the same problems."""
    shuffled = list(queues)
    random.shuffle(shuffled)  # type: ignore[attr-defined]  # hypothesis gives a random.Random

    def key(problems: list[object]) -> list[str]:
        return sorted(map(str, problems))

    assert key(list(check_tree(queues))) == key(list(check_tree(shuffled)))
