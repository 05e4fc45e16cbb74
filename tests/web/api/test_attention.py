"""What wants somebody by the API: the lines of the Operations page, seen and taken by the same."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from rest_framework.test import APIClient

from scheduling.models import AttentionMark, Lease, Node, QueueShare
from tenants.domain.access import Verb
from tenants.models import AuditRow
from tests.web.api.conftest import As, Site
from tests.web.api.test_mine import with_token

pytestmark = pytest.mark.django_db
GPU = "nvidia.com/gpu"
NOW = datetime.now(UTC)
STARVED = {"kind": "queue_starved", "subject": "robots"}


@pytest.fixture(autouse=True)
def _starved(site: Site) -> None:
    """Only the queue `robots` of the tenant wants somebody, and a node of everybody's."""
    for scope in ("relay", "reconcile", f"scheduler:{site.cluster.id}"):
        Lease.objects.create(
            scope=scope, epoch=1, acquired_at=NOW, expires_at=NOW + timedelta(days=1)
        )
    site.bobs.reason_code = "nodes_unfit"
    site.bobs.created_at = NOW - timedelta(days=1)
    site.bobs.save(update_fields=["reason_code", "created_at"])
    QueueShare.objects.create(
        queue=site.robots,
        deserved={GPU: 2000},
        allocated={GPU: 0},
        requested={GPU: 4000},
        updated_at=NOW,
    )
    Node.objects.filter(id=site.node.id).update(state="NotReady")


def lines(client: APIClient) -> dict[tuple[str, str], dict[str, Any]]:
    """Return the lines by kind and subject."""
    reply = client.get("/api/v1/attention")
    assert reply.status_code == 200
    return {(line["kind"], line["subject"]): line for line in reply.json()["items"]}


def test_lines_are_those_of_the_page(site: Site, as_user: As) -> None:
    """Each is told what the page tells: another tenant's starved queue is not there."""
    told = {
        user.username: set(lines(as_user(user)))
        for user in (site.people.root, site.people.bob, site.people.charlie)
    }

    node = ("node_silent", site.node.name)
    starved = ("queue_starved", "robots")
    assert told["root"] == told["bob"] == {node, starved}
    assert told["charlie"] == {node}


def test_line_is_taken_and_given_back(site: Site, as_user: As) -> None:
    """Everybody who sees the line sees who looks after it; each step has an audit row."""
    alice, root = as_user(site.people.alice), as_user(site.people.root)

    taken = alice.post("/api/v1/attention/assign", STARVED, format="json")
    seen = lines(root)["queue_starved", "robots"]["mark"]
    given = root.post("/api/v1/attention/give-back", STARVED, format="json")

    assert (taken.status_code, given.status_code) == (200, 204)
    assert taken.json() == seen
    assert seen["assignee"] == "alice"
    assert lines(alice)["queue_starved", "robots"]["mark"] is None
    rows = AuditRow.objects.filter(action__startswith="attention.").order_by("id")
    assert [row.action for row in rows] == ["attention.assign", "attention.give_back"]


def test_line_that_somebody_looks_after_comes_last(site: Site, as_user: As) -> None:
    """As on the page, what nobody looks after stands first."""
    root = as_user(site.people.root)
    before = list(lines(root))

    root.post(
        "/api/v1/attention/assign",
        {"kind": "node_silent", "subject": site.node.name},
        format="json",
    )

    assert before == [("node_silent", site.node.name), ("queue_starved", "robots")]
    assert list(lines(root)) == before[::-1]


@pytest.mark.parametrize("what", ["assign", "give-back"])
def test_line_is_hidden_from_strangers_and_closed_to_those_who_may_not(
    site: Site, as_user: As, what: str
) -> None:
    """A stranger's line is not there; who only reads it is refused; nothing is written."""
    AttentionMark.objects.create(
        kind="queue_starved", subject="robots", assignee=site.people.alice, at=NOW
    )

    codes = [
        as_user(user).post(f"/api/v1/attention/{what}", STARVED, format="json").status_code
        for user in (site.people.charlie, site.people.bob)
    ]

    assert codes == [404, 403]
    assert AttentionMark.objects.get().assignee == site.people.alice
    assert lines(as_user(site.people.bob))["queue_starved", "robots"]["may_mark"] is False


def test_line_is_given_to_nobody_who_may_not(site: Site, as_user: As) -> None:
    """The field is named, and nothing is kept."""
    root = as_user(site.people.root)

    reply = root.post("/api/v1/attention/assign", {**STARVED, "assignee": "bob"}, format="json")

    assert reply.status_code == 422
    assert [one["field"] for one in reply.json()["errors"]] == ["assignee"]
    assert not AttentionMark.objects.exists()


def test_token_sees_the_lines_of_its_verbs(site: Site) -> None:
    """One for queues reads no node, and takes nothing."""
    client = with_token(site.people.root, Verb.QUEUE_READ)

    told = set(lines(client))
    reply = client.post("/api/v1/attention/assign", STARVED, format="json")

    assert told == {("queue_starved", "robots")}
    assert reply.status_code == 403
