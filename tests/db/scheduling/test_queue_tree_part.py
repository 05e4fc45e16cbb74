"""A large tree is read in parts: each row equals that of the whole tree, at the cost of a part."""

from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from scheduling.domain.queries import queues as queries
from scheduling.domain.queries.queues import Cut
from scheduling.models import Queue, QueueShare
from tenants.domain.access import Actor
from tests.factories.demo import make_job
from tests.people import NOW, People, Queues, make_queue, make_queues, make_unit


@pytest.fixture
def made(people: People, monkeypatch: pytest.MonkeyPatch) -> Queues:
    """Two tenants' queues, none of whose trees counts as small."""
    monkeypatch.setattr(queries, "WHOLE", 0)
    made = make_queues(people)
    for queue in (made.robots, made.speech, made.mill):
        make_job(queue, people.bob, f"job-{queue.name}", NOW)
        QueueShare.objects.create(
            queue=queue, deserved={"cpu": 1}, allocated={}, requested={}, updated_at=NOW
        )
    return made


def names(part: queries.TreePart) -> list[str]:
    return [("-" if row.is_path_only else "") + row.name for row in part.rows]


def part(people: People, made: Queues, who: str, **cut: Any) -> queries.TreePart:
    given = {name: frozenset(value) if name == "opened" else value for name, value in cut.items()}
    actor: Actor = people.actor(getattr(people, who))
    return queries.part(actor, made.cluster.id, Cut(**given))  # type: ignore[arg-type]  # a test's words


@pytest.mark.parametrize(
    ("who", "opened", "shown"),
    [
        ("root", (), ["root", "lab", "mill"]),
        ("root", ("lab",), ["root", "lab", "speech", "vision", "mill"]),
        ("root", ("lab", "vision"), ["root", "lab", "speech", "vision", "robots", "mill"]),
        ("root", ("vision",), ["root", "lab", "mill"]),
        ("alice", (), ["-root", "lab", "speech", "vision"]),
        ("bob", (), ["-root", "-lab", "vision", "robots"]),
        ("bob", ("lab", "mill", "root"), ["-root", "-lab", "vision", "robots"]),
        ("charlie", ("lab",), ["-root", "mill"]),
    ],
)
def test_what_is_open_is_shown(
    people: People, made: Queues, who: str, opened: tuple[str, ...], shown: list[str]
) -> None:
    """The top is open, what is opened shows its children, and nobody sees more by opening."""
    assert names(part(people, made, who, opened=opened)) == shown


@pytest.mark.parametrize("who", ["root", "alice", "bob", "charlie"])
@pytest.mark.parametrize("opened", [(), ("lab",), ("lab", "vision")])
def test_rows_equal_those_of_the_whole_tree(
    people: People, made: Queues, who: str, opened: tuple[str, ...]
) -> None:
    """Counts, shares, weights, depth and rights of a row do not depend on how it was read."""
    actor = people.actor(getattr(people, who))
    whole = {row.id: row for row in queries.tree(actor, made.cluster.id)}

    rows = part(people, made, who, opened=opened).rows

    assert [row for row in rows if row != whole[row.id]] == []


def test_long_rows_of_siblings_come_in_pages(
    people: People, made: Queues, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of many children the first are shown with the number of the others; the next by name."""
    monkeypatch.setattr(queries, "AT_ONCE", 2)
    for number in range(3):
        make_queue(
            made.cluster, f"team-{number}", made.speech, make_unit(f"t{number}", people.speech)
        )

    first = part(people, made, "root", focus="speech")
    second = part(people, made, "root", focus="speech", after="team-1")

    assert names(first)[-3:] == ["speech", "team-0", "team-1"]
    assert first.more == {made.speech.id: 1}
    assert names(second)[-2:] == ["speech", "team-2"]
    assert second.more == {}


def test_focus_on_what_is_not_seen_is_empty(people: People, made: Queues) -> None:
    """Charlie finds nothing under the name of another tenant's queue."""
    assert part(people, made, "charlie", focus="vision").rows == ()


def test_cost_does_not_grow_with_the_tree(people: People, made: Queues) -> None:
    """As many queries with thirty closed queues below as with none."""
    part(people, made, "root")
    with CaptureQueriesContext(connection) as few:
        part(people, made, "root")
    for number in range(30):
        make_queue(
            made.cluster, f"team-{number}", made.speech, make_unit(f"t{number}", people.speech)
        )
    with CaptureQueriesContext(connection) as many:
        part(people, made, "root")

    assert len(many) == len(few) <= 12
    assert Queue.objects.count() == 36
