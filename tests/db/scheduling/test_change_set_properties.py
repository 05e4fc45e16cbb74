"""Whatever is planned: a set is applied if its preview found it good, and undone exactly."""

from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from scheduling.domain import change_sets
from scheduling.domain.change_set_rows import seen_of
from scheduling.domain.queue_changes import QueueEdit, check, read_tree
from scheduling.models import ChangeItem, Queue
from tenants.domain.access import SYSTEM
from tenants.domain.errors import Invalid
from tests.people import NOW, People, Queues, make_queues

GPU = "nvidia.com/gpu"
AMOUNTS = st.dictionaries(st.sampled_from([GPU, "cpu"]), st.integers(0, 9000), max_size=2)
NUMBERS = st.fixed_dictionaries(
    {},
    optional={
        "min": AMOUNTS,
        "max": AMOUNTS,
        "weight": st.integers(0, 70_000),
        "priority": st.integers(0, 9),
        "lend_min": st.booleans(),
        "reclaimable": st.booleans(),
        "policy": st.sampled_from(["priority", "fifo", "fair", "sla"]),
    },
)
NAMES = ("lab", "vision", "robots", "speech", "mill")
PLANS = st.lists(
    st.dictionaries(st.sampled_from(NAMES), NUMBERS, min_size=1, max_size=5),
    min_size=1,
    max_size=4,
)


@pytest.fixture
def made(people: People) -> Queues:
    return make_queues(people)


def _tree(made: Queues) -> dict[UUID, dict[str, Any]]:
    return {queue.id: seen_of(queue) for queue in Queue.objects.filter(cluster=made.cluster)}


def _plan(made: Queues, plan: dict[str, dict[str, Any]]) -> UUID:
    by_name = {queue.name: queue for queue in Queue.objects.filter(cluster=made.cluster)}
    edits = [
        QueueEdit(queue_id=by_name[name].id, expected_version=by_name[name].version, **numbers)
        for name, numbers in plan.items()
    ]
    row = change_sets.create(
        actor=SYSTEM, cluster_id=made.cluster.id, title="Plan", edits=edits, now=NOW
    )
    return row.id


@given(plans=PLANS)
@settings(
    max_examples=30,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_applied_is_what_was_valid_and_reverted_is_what_was(
    made: Queues, plans: list[dict[str, dict[str, Any]]]
) -> None:
    """Sets one after the other: the tree in force is never broken, and undoing them restores it."""
    start = _tree(made)
    past = []
    for plan in plans:
        before = _tree(made)
        set_id = _plan(made, plan)
        wanted = {item.queue_id: item.new for item in _items(set_id)}
        try:
            change_sets.validate(actor=SYSTEM, change_set_id=set_id, now=NOW)
        except Invalid:
            assert _tree(made) == before
            continue
        change_sets.apply(actor=SYSTEM, change_set_id=set_id, now=NOW)

        after = _tree(made)
        assert check(read_tree(made.cluster.id).values()) == []
        assert after == {
            queue_id: seen | wanted.get(queue_id, {}) for queue_id, seen in before.items()
        }
        past.append((set_id, before))

    for set_id, before in reversed(past):
        change_sets.revert(actor=SYSTEM, change_set_id=set_id, now=NOW)
        assert _tree(made) == before
    assert _tree(made) == start


def _items(set_id: UUID) -> Any:
    return ChangeItem.objects.filter(change_set_id=set_id)
