"""The rows of the queue tree: numbers, flags and names for each viewer, at a fixed query count."""

from uuid import uuid4

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from scheduling.domain.queries import queues
from scheduling.domain.queries.queues import QueueRow
from scheduling.models import Job, Queue, QueueShare
from tenants.domain.access import load_actor
from tenants.domain.errors import NotFound
from tenants.models import ApiToken, GrantRole, User
from tests.people import NOW, People, Queues, make_grant, make_queue, make_queues, make_unit

pytestmark = pytest.mark.django_db

GPU = "nvidia.com/gpu"


@pytest.fixture
def tree(people: People) -> Queues:
    """A queue for each unit."""
    return make_queues(people)


def rows(people: People, who: str, tree: Queues) -> dict[str, QueueRow]:
    """Return what somebody sees, by name, in order."""
    user: User = getattr(people, who)
    return {row.name: row for row in queues.tree(people.actor(user), tree.cluster.id)}


def add_jobs(queue: Queue, owner: User, phase: str, count: int) -> None:
    """Write rows of jobs."""
    assert queue.unit is not None
    for _ in range(count):
        Job.objects.create(
            tenant_id=queue.unit.tenant_id,
            unit=queue.unit,
            queue=queue,
            owner=owner,
            name=uuid4().hex,
            spec={},
            phase=phase,
            min_available=1,
            created_at=NOW,
        )


@pytest.mark.parametrize(
    ("who", "seen", "path_only"),
    [
        ("root", ["root", "lab", "speech", "vision", "robots", "mill"], []),
        ("alice", ["root", "lab", "speech", "vision", "robots"], ["root"]),
        ("bob", ["root", "lab", "vision", "robots"], ["root", "lab"]),
        ("charlie", ["root", "mill"], ["root"]),
    ],
)
def test_who_sees_what(
    people: People, tree: Queues, who: str, seen: list[str], path_only: list[str]
) -> None:
    """Everyone sees their own subtree and, by name only, what lies above; nothing beside it."""
    Queue.objects.update(min={GPU: 1}, max={GPU: 2}, weight=3)
    found = rows(people, who, tree)

    assert sorted(found) == sorted(seen)
    assert [name for name, row in found.items() if row.is_path_only] == path_only
    assert {(str(row.min), row.weight) for row in found.values() if row.is_path_only} <= {
        ("{}", None)
    }
    assert {row.weight for row in found.values() if not row.is_path_only} == {3}


def test_order_and_depth(people: People, tree: Queues) -> None:
    """Parents stand before children, siblings by name."""
    found = rows(people, "root", tree)

    assert [(name, row.depth, row.is_leaf) for name, row in found.items()] == [
        ("root", 0, False),
        ("lab", 1, False),
        ("speech", 2, True),
        ("vision", 2, False),
        ("robots", 3, True),
        ("mill", 1, True),
    ]


def test_counts_and_shares(people: People, tree: Queues) -> None:
    """Jobs are summed over subtrees; shares are the last cycle's, and unknown is not zero."""
    add_jobs(tree.robots, people.bob, "Pending", 2)
    add_jobs(tree.robots, people.bob, "Running", 1)
    add_jobs(tree.robots, people.bob, "Completed", 5)
    add_jobs(tree.speech, people.alice, "Running", 3)
    QueueShare.objects.create(
        queue=tree.robots,
        deserved={GPU: 4000, "cpu": 8000, "pods": 1},
        allocated={GPU: 6000, "cpu": 1000, "pods": 9},
        requested={GPU: 9000},
        updated_at=NOW,
    )

    found = rows(people, "alice", tree)

    assert {name: (row.waiting, row.running) for name, row in found.items()} == {
        "root": (0, 0),  # a path is a name
        "lab": (2, 4),
        "speech": (0, 3),
        "vision": (2, 1),
        "robots": (2, 1),
    }
    assert found["robots"].share_ratio == 1.5
    assert found["speech"].share_ratio is None
    assert found["speech"].deserved is None


def test_weight_shares(people: People, tree: Queues) -> None:
    """A weight is shown as a part of its siblings' sum where all of them are visible."""
    Queue.objects.filter(id=tree.vision.id).update(weight=3)

    assert {name: row.weight_share for name, row in rows(people, "alice", tree).items()} == {
        "root": None,
        "lab": None,
        "speech": 0.25,
        "vision": 0.75,
        "robots": 1.0,
    }
    assert rows(people, "root", tree)["lab"].weight_share == 0.5


def flags(row: QueueRow) -> str:
    """Return the flags as letters."""
    return "".join(
        letter
        for letter, flag in (
            ("e", row.may_edit),
            ("o", row.may_open_close),
            ("c", row.may_create_below),
            ("d", row.may_delete),
            ("s", row.may_submit),
        )
        if flag
    )


def test_flags(people: People, tree: Queues) -> None:
    """Flags: numbers by the parent, queues below by the own unit, jobs in leaves."""
    make_grant(people.bob, GrantRole.QUEUE_MANAGER, people.vision)
    Queue.objects.filter(id=tree.speech.id).update(state="Closed")

    assert {name: flags(row) for name, row in rows(people, "alice", tree).items()} == {
        "root": "",
        "lab": "c",
        "speech": "eocd",
        "vision": "eocd",
        "robots": "eocds",
    }
    assert {name: flags(row) for name, row in rows(people, "bob", tree).items()} == {
        "root": "",
        "lab": "",
        "vision": "c",
        "robots": "eocds",
    }
    assert flags(rows(people, "root", tree)["root"]) == "c"


def test_token_without_the_verb_sees_no_queue(people: People, tree: Queues) -> None:
    """A token narrowed to jobs lists no queues and flags nothing that it lacks."""
    token = ApiToken(user=people.alice, name="t", verbs=["job.read"], expires_at=NOW)
    reading = ApiToken(user=people.alice, name="t", verbs=["queue.read"], expires_at=NOW)

    assert queues.tree(load_actor(people.alice, token), tree.cluster.id) == []
    seen = queues.tree(load_actor(people.alice, reading), tree.cluster.id)
    assert {flags(row) for row in seen} == {""}


@pytest.mark.parametrize("count", [1, 30])
def test_query_count(people: People, tree: Queues, count: int) -> None:
    """The tree costs five queries whatever its size; three for Root, who sees all of it."""
    for number in range(count):
        make_queue(
            tree.cluster,
            f"t{number}",
            tree.vision,
            make_unit(f"t{number}", people.vision),
        )
    for user, expected in ((people.root, 3), (people.bob, 5)):
        actor = people.actor(user)
        with CaptureQueriesContext(connection) as queries:
            queues.tree(actor, tree.cluster.id)
        assert len(queries) == expected


def test_detail(people: People, tree: Queues) -> None:
    """A queue is shown with the names above and the rows below it; invisible ones are not found."""
    detail = queues.detail(people.actor(people.bob), tree.vision.id)

    assert detail.path == ("root", "lab", "vision")
    assert [row.name for row in detail.children] == ["robots"]
    assert detail.row.unit_name == "vision"
    for queue in (tree.lab, tree.speech, tree.mill):
        with pytest.raises(NotFound):
            queues.detail(people.actor(people.bob), queue.id)


def test_by_name(people: People, tree: Queues) -> None:
    """A queue is found by name where it is visible."""
    bob = people.actor(people.bob)

    assert queues.by_name(bob, tree.cluster.id, "robots") == tree.robots
    with pytest.raises(NotFound):
        queues.by_name(bob, tree.cluster.id, "speech")


def test_where_to_submit(people: People, tree: Queues) -> None:
    """Jobs go to open leaves of one's own units."""
    Queue.objects.filter(id=tree.speech.id).update(state="Closing")

    def names(user: User) -> list[str]:
        return [queue.name for queue in queues.to_submit_to(people.actor(user), tree.cluster.id)]

    assert {user.username: names(user) for user in people.everyone} == {
        "root": ["mill", "robots"],
        "alice": ["robots"],
        "bob": ["robots"],
        "charlie": ["mill"],
    }
