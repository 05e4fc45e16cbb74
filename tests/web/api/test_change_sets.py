"""Change sets by the API: the whole way, its refusals, and who may take which step."""

from datetime import timedelta
from typing import Any

import pytest
from django.conf import LazySettings
from django.utils import timezone
from rest_framework.test import APIClient

from scheduling.models import ChangeSet, Queue
from tenants.models import GrantRole
from tests.people import make_grant, make_user
from tests.web.api.conftest import As, Site

pytestmark = pytest.mark.django_db
SETS = "/api/v1/change-sets"


def begin(client: APIClient, *queues: Queue, **numbers: Any) -> dict[str, Any]:
    """Draft the same numbers for some queues."""
    edits = [{"id": str(queue.id), "version": queue.version, **numbers} for queue in queues]
    reply = client.post(
        SETS, {"title": "Nights", "reason": "quarter end", "edits": edits}, format="json"
    )
    assert reply.status_code == 201, reply.json()
    return dict(reply.json())


def step(client: APIClient, document: dict[str, Any], name: str, **body: Any) -> Any:
    return client.post(f"{SETS}/{document['id']}/{name}", body, format="json")


def test_whole_way(site: Site, as_user: As) -> None:
    """A draft is simulated, validated, applied and reverted; each reply says where it stands."""
    client = as_user(site.people.root)
    row = begin(client, site.robots, site.vision, weight=7)

    simulated = step(client, row, "simulate").json()
    states = [step(client, row, name).json()["state"] for name in ("validate", "apply")]
    in_force = set(Queue.objects.exclude(name="mill").exclude(parent=None).values_list("weight"))
    undo = step(client, row, "revert", reason="enough").json()

    assert row["items"][0]["new"] == {"weight": 7}
    assert {"shares", "impact", "sums", "needs"} <= set(simulated)
    assert states == ["validated", "applied"]
    assert in_force == {(7,)}
    assert (undo["state"], undo["reverts_id"]) == ("applied", row["id"])
    assert client.get(f"{SETS}/{row['id']}").json()["state"] == "reverted"
    assert Queue.objects.get(id=site.vision.id).weight == 2


def test_second_person(site: Site, as_user: As, settings: LazySettings) -> None:
    """Its author is refused to approve it; a second administrator is not."""
    settings.TERRACE_CHANGE_REVIEW_GPUS = 0
    second = make_user("second")
    make_grant(second, GrantRole.PLATFORM_ADMIN, None)
    client = as_user(site.people.root)
    row = begin(client, site.robots, weight=7)
    step(client, row, "validate")
    step(client, row, "ask-review")

    own = step(client, row, "approve")
    others = step(as_user(second), row, "approve", comment="fine")

    assert (own.status_code, own.json()["code"]) == (403, "change_set_own_review")
    assert (others.json()["state"], others.json()["reviewer"]) == ("approved", "second")


def test_conflict_is_told_three_ways_and_rebased(site: Site, as_user: As) -> None:
    """412 shows what others changed; rebased with the choice of fields it can be applied."""
    client = as_user(site.people.root)
    row = begin(client, site.robots, weight=7, priority=4)
    Queue.objects.filter(id=site.robots.id).update(weight=9, version=site.robots.version + 1)

    refused = step(client, row, "validate")
    shown = client.get(f"{SETS}/{row['id']}")
    rebased = client.post(
        f"{SETS}/{row['id']}/rebase",
        {"theirs": [{"queue_id": str(site.robots.id), "field": "weight"}]},
        format="json",
        headers={"If-Match": shown["ETag"]},
    )

    told = [
        (one["field"], one["base"], one["theirs"], one["yours"])
        for one in shown.json()["difference"][0]["fields"]
    ]
    assert refused.status_code == 412
    assert told[0] == ("weight", 1, 9, 7)
    assert rebased.json()["items"][0]["new"] == {"priority": 4}


def test_schedule_and_take_back(site: Site, as_user: As) -> None:
    """A time in the future is kept; one in the past is refused at its field."""
    client = as_user(site.people.root)
    row = begin(client, site.robots, weight=7)
    step(client, row, "validate")
    at = timezone.now() + timedelta(hours=3)

    past = step(client, row, "schedule", apply_at=(at - timedelta(hours=4)).isoformat())
    ahead = step(client, row, "schedule", apply_at=at.isoformat())
    back = step(client, row, "unschedule")

    assert [one["field"] for one in past.json()["errors"]] == ["apply_at"]
    assert (ahead.json()["state"], back.json()["state"]) == ("scheduled", "validated")


def test_edit_needs_the_version_that_was_seen(site: Site, as_user: As) -> None:
    """Without If-Match 428, with an old one 412, with the right one it is edited or deleted."""
    client = as_user(site.people.root)
    row = begin(client, site.robots, weight=7)
    address = f"{SETS}/{row['id']}"
    seen = client.get(address)["ETag"]

    without = client.patch(address, {"title": "Days"}, format="json")
    edited = client.patch(address, {"title": "Days"}, format="json", headers={"If-Match": seen})
    stale = client.patch(address, {"title": "No"}, format="json", headers={"If-Match": seen})
    gone = client.delete(address, headers={"If-Match": edited["ETag"]})

    assert [one.status_code for one in (without, edited, stale, gone)] == [428, 200, 412, 204]
    assert edited.json()["title"] == "Days"
    assert not ChangeSet.objects.exists()


def test_same_key_begins_one_draft(site: Site, as_user: As) -> None:
    """A request that is sent again is answered, not repeated."""
    client = as_user(site.people.root)
    body = {"title": "Nights"}
    headers = {"Idempotency-Key": "once"}

    replies = [client.post(SETS, body, format="json", headers=headers) for _ in range(2)]

    assert replies[0].json()["id"] == replies[1].json()["id"]
    assert ChangeSet.objects.count() == 1


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "title"),
        ({"title": "x", "edits": [{"id": "nonsense", "version": 1}]}, "edits.0.id"),
        ({"title": "x", "edtis": []}, "edtis"),
        ({"title": "x" * 121}, "title"),
    ],
)
def test_wrong_drafts_are_named(site: Site, as_user: As, body: dict[str, Any], field: str) -> None:
    """Each field says for itself what is wrong."""
    reply = as_user(site.people.root).post(SETS, body, format="json")

    assert reply.status_code == 422
    assert [one["field"] for one in reply.json()["errors"]] == [field]


def test_who_sees_and_does_what(site: Site, as_user: As) -> None:
    """Bob reads what concerns his unit and takes no step; for Charlie there is nothing."""
    people = site.people
    row = begin(as_user(people.alice), site.robots, weight=7)
    names = ("validate", "ask-review", "apply", "unschedule", "approve", "reject", "revert")

    listed = {
        user.username: len(as_user(user).get(SETS).json()["items"]) for user in people.everyone
    }
    bobs = {step(as_user(people.bob), row, name).status_code for name in names}
    charlies = {step(as_user(people.charlie), row, name).status_code for name in names}
    reads = {
        user.username: as_user(user).get(f"{SETS}/{row['id']}").status_code
        for user in people.everyone
    }

    assert listed == {"root": 1, "alice": 1, "bob": 1, "charlie": 0}
    assert (bobs, charlies) == ({403}, {404})
    assert reads == {"root": 200, "alice": 200, "bob": 200, "charlie": 404}


def test_foreign_queue_cannot_be_drafted(site: Site, as_user: As) -> None:
    """Alice cannot plan for another tenant's queue, nor for her own unit's top."""
    statuses = [
        as_user(site.people.alice)
        .post(
            SETS,
            {"title": "x", "edits": [{"id": str(queue.id), "version": 1, "weight": 3}]},
            format="json",
        )
        .status_code
        for queue in (site.mill, site.vision)
    ]

    assert statuses == [404, 403]


def test_list_is_filtered_and_paged(site: Site, as_user: As) -> None:
    """A state chooses; a cursor goes on; a state that there is not is told."""
    client = as_user(site.people.root)
    for _ in range(3):
        begin(client, site.robots, weight=7)

    first = client.get(f"{SETS}?limit=2&state=draft").json()
    second = client.get(f"{SETS}?limit=2&state=draft&after={first['next']}").json()
    none = client.get(f"{SETS}?state=applied").json()
    wrong = client.get(f"{SETS}?state=lost")

    assert (len(first["items"]), len(second["items"]), second["next"]) == (2, 1, None)
    assert none["items"] == []
    assert [one["field"] for one in wrong.json()["errors"]] == ["state"]


def test_direct_edits_keep_the_policy(site: Site, as_user: As, settings: LazySettings) -> None:
    """Under a policy a direct edit that takes nothing from anybody still passes."""
    settings.TERRACE_CHANGE_REVIEW_GPUS = 0
    client = as_user(site.people.root)

    reply = client.patch(
        f"/api/v1/queues/{site.robots.id}",
        {"weight": 3},
        format="json",
        headers={"If-Match": '"v1"'},
    )

    assert reply.status_code == 200
