"""The table that maps images to runtimes."""

import pytest

from scheduling.domain import images
from scheduling.domain.images import RuleEdit
from scheduling.models import Cluster
from tenants.domain.errors import Conflict, Denied, Invalid
from tenants.models import AuditRow
from tests.people import NOW, People, Queues, make_people, make_queues

EDITS = [
    RuleEdit("docker.io/library/python:*", "python"),
    RuleEdit("*/pytorch:*", "torch"),
]


@pytest.fixture
def people(db: None) -> People:
    """Two tenants."""
    del db
    return make_people()


@pytest.fixture
def queues(people: People) -> Queues:
    """One cluster."""
    return make_queues(people)


def test_the_table_is_replaced_as_a_whole(people: People, queues: Queues) -> None:
    """New rules stand in the order given, the old ones are gone, and one audit row says both."""
    root = people.actor(people.root)
    cluster = queues.cluster
    images.replace_rules(
        actor=root, cluster_id=cluster.id, edits=EDITS, expected_version=1, now=NOW
    )

    images.replace_rules(
        actor=root, cluster_id=cluster.id, edits=EDITS[::-1], expected_version=2, now=NOW
    )

    rows = images.rules(actor=root, cluster_id=cluster.id)
    assert [(row.position, row.pattern) for row in rows] == [
        (1, "*/pytorch:*"),
        (2, "docker.io/library/python:*"),
    ]
    row = AuditRow.objects.filter(action="cluster.image_rules").latest("id")
    assert row.before is not None
    assert row.after is not None
    assert row.before["rules"][0]["runtime"] == "python"
    assert row.after["rules"][0]["runtime"] == "torch"


def test_a_second_editor_is_told_of_the_first(people: People, queues: Queues) -> None:
    """An edit from an old version changes nothing and shows the table that is in force."""
    root = people.actor(people.root)
    cluster = queues.cluster
    images.replace_rules(
        actor=root, cluster_id=cluster.id, edits=EDITS[:1], expected_version=1, now=NOW
    )

    with pytest.raises(Conflict) as refused:
        images.replace_rules(
            actor=root, cluster_id=cluster.id, edits=EDITS, expected_version=1, now=NOW
        )

    assert refused.value.current == [
        {"pattern": "docker.io/library/python:*", "runtime": "python", "unit_id": None}
    ]
    assert Cluster.objects.get(id=cluster.id).version == 2


def test_only_who_administers_runtimes_may_edit(people: People, queues: Queues) -> None:
    """An org admin sees the table and may not change it."""
    alice = people.actor(people.alice)

    assert images.rules(actor=alice, cluster_id=queues.cluster.id) == []
    with pytest.raises(Denied):
        images.replace_rules(
            actor=alice, cluster_id=queues.cluster.id, edits=EDITS, expected_version=1, now=NOW
        )


def test_every_wrong_rule_is_named(people: People, queues: Queues) -> None:
    """An empty pattern, a too long runtime and a repeated pattern are listed with their places."""
    edits = [RuleEdit("", "python"), RuleEdit("a", "r" * 101), RuleEdit("a", "python")]

    with pytest.raises(Invalid) as refused:
        images.replace_rules(
            actor=people.actor(people.root),
            cluster_id=queues.cluster.id,
            edits=edits,
            expected_version=1,
            now=NOW,
        )

    assert [(problem.path, problem.code) for problem in refused.value.problems] == [
        ("rules[0].pattern", "required"),
        ("rules[1].runtime", "too_long"),
        ("rules[2].pattern", "rule_repeated"),
    ]
