"""Queues by the API: the tree, safe changes, and what a change would do."""

from typing import Any
from uuid import UUID

import pytest
from rest_framework.test import APIClient

from scheduling.models import Queue
from tenants.models import AuditRow
from tests.factories.demo import GIB, GPU
from tests.web.api.conftest import As, Site

pytestmark = pytest.mark.django_db
QUEUES = "/api/v1/queues"


def test_tree_is_cut_to_the_readers_units(site: Site, as_user: As) -> None:
    """Bob sees his queues with numbers, what lies above by name only, and nothing of the mill."""
    rows = as_user(site.people.bob).get(QUEUES).json()["items"]

    assert {(row["name"], row["is_path_only"]) for row in rows} == {
        ("root", True),
        ("vision", False),
        ("robots", False),
    }


def test_change_needs_the_version_that_was_seen(site: Site, as_user: As) -> None:
    """Without If-Match nothing is changed, and the reply says what to send."""
    reply = as_user(site.people.root).patch(
        f"{QUEUES}/{site.robots.id}", {"weight": 3}, format="json"
    )

    assert (reply.status_code, reply.json()["code"]) == (428, "if_match_required")


def test_change_gives_a_new_tag(site: Site, as_user: As) -> None:
    """What was seen is changed, and the reply carries the version of now."""
    client = as_user(site.people.root)
    address = f"{QUEUES}/{site.robots.id}"
    seen = client.get(address)["ETag"]

    reply = client.patch(address, {"weight": 3}, format="json", headers={"If-Match": seen})

    assert (reply.status_code, reply.json()["weight"]) == (200, 3)
    assert reply["ETag"] == client.get(address)["ETag"] != seen


def test_conflict_shows_the_difference_and_overwrites_nothing(site: Site, as_user: As) -> None:
    """412 says what it was, what somebody else made it, and what was wanted."""
    client = as_user(site.people.root)
    address = f"{QUEUES}/{site.robots.id}"
    seen = client.get(address)["ETag"]
    client.patch(address, {"weight": 3}, format="json", headers={"If-Match": seen})

    reply = client.patch(address, {"weight": 9}, format="json", headers={"If-Match": seen})

    told = reply.json()
    assert (reply.status_code, told["code"]) == (412, "version_conflict")
    assert [
        (one["field"], one["base"], one["theirs"], one["yours"], one["is_contested"])
        for one in told["difference"][0]["fields"]
    ] == [("weight", 1, 3, 9, True)]
    assert Queue.objects.get(id=site.robots.id).weight == 3


def test_numbers_belong_to_the_manager_of_the_parent(site: Site, as_user: As) -> None:
    """A researcher sees a queue and may not change it; a stranger sees none."""
    address = f"{QUEUES}/{site.robots.id}"
    headers = {"If-Match": '"v1"'}

    statuses = [
        as_user(user).patch(address, {"weight": 3}, format="json", headers=headers).status_code
        for user in (site.people.bob, site.people.charlie)
    ]

    assert statuses == [403, 404]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"weight": 0}, "weight"),
        ({"weight": 65_536}, "weight"),
        ({"min": {"cpu": -1}}, "min.cpu"),
        ({"max": {"cpu": 2**60}}, "max.cpu"),
        ({"wieght": 2}, "wieght"),
        ({"name": "other"}, "name"),
    ],
)
def test_wrong_numbers_are_named(
    body: dict[str, object], field: str, site: Site, as_user: As
) -> None:
    """Each field says for itself what is wrong; a field that cannot be set is not dropped."""
    reply = as_user(site.people.root).patch(
        f"{QUEUES}/{site.robots.id}", body, format="json", headers={"If-Match": '"v1"'}
    )

    assert reply.status_code == 422
    assert [one["field"] for one in reply.json()["errors"]] == [field]


def test_several_are_changed_together_or_not_at_all(site: Site, as_user: As) -> None:
    """One stale version keeps all of a change set back."""
    edits = [
        {"id": str(site.vision.id), "version": site.vision.version, "weight": 7},
        {"id": str(site.robots.id), "version": 99, "weight": 7},
    ]
    client = as_user(site.people.root)

    refused = client.patch("/api/v1/queues:tree", {"edits": edits}, format="json")
    edits[1]["version"] = site.robots.version
    accepted = client.patch("/api/v1/queues:tree", {"edits": edits}, format="json")

    assert (refused.status_code, accepted.status_code) == (412, 200)
    weights = Queue.objects.filter(name__in=["vision", "robots"]).values_list("weight", flat=True)
    assert set(weights) == {7}


def test_preview_changes_nothing(site: Site, as_user: As) -> None:
    """The effect is told before it happens."""
    edit = {"id": str(site.vision.id), "version": site.vision.version, "weight": 7}

    reply = as_user(site.people.root).post(
        "/api/v1/queues:preview", {"edits": [edit]}, format="json"
    )

    assert reply.status_code == 200, reply.json()
    assert set(reply.json()) == {
        "shares",
        "reclaimable",
        "starts",
        "evictions",
        "warnings",
        "sums",
        "missed",
        "impact",
    }
    assert Queue.objects.get(id=site.vision.id).weight == 2


def test_queue_is_closed_and_opened(site: Site, as_user: As) -> None:
    """A queue with jobs is closing until they are done, and can be opened again."""
    client = as_user(site.people.root)

    states = [
        client.post(f"{QUEUES}/{site.robots.id}/{act}", {}, format="json").json()["state"]
        for act in ("close", "open")
    ]

    assert states == ["Closing", "Open"]


def test_queue_is_drained_with_a_choice(site: Site, as_user: As) -> None:
    """Its waiting job is cancelled and the queue closes; who may not is refused."""
    address = f"{QUEUES}/{site.robots.id}/drain"
    refused = [
        as_user(user).post(address, {"waiting": "cancel"}, format="json").status_code
        for user in (site.people.bob, site.people.charlie)
    ]

    reply = as_user(site.people.alice).post(address, {"waiting": "cancel"}, format="json")

    assert refused == [403, 404]
    assert reply.json() == {"done": 1, "left": 0, "refused": []}
    assert Queue.objects.get(id=site.robots.id).state in {"Closing", "Closed"}


def test_placement_is_stated_and_read(site: Site, as_user: As) -> None:
    """Groups, limits and stated amounts come back; the queue has another version and a record."""
    client = as_user(site.people.root)
    address = f"{QUEUES}/{site.robots.id}/placement"
    seen = client.get(address)
    body = {
        "node_groups": {"required": ["fast"], "limits": {"fast": {"cpu": 4000}}},
        "stated_deserved": {"cpu": 2000},
    }

    reply = client.put(address, body, format="json", headers={"If-Match": seen["ETag"]})
    late = client.put(address, body, format="json", headers={"If-Match": seen["ETag"]})

    assert seen.json()["stated_deserved"] is None
    assert (reply.status_code, reply.json()["stated_deserved"]) == (200, {"cpu": 2000})
    assert reply.json()["node_groups"]["limits"] == {"fast": {"cpu": 4000}}
    assert late.status_code == 412
    after = AuditRow.objects.values_list("after", flat=True).get(action="queue.placement")
    assert after is not None
    assert after["node_groups"]["required"] == ["fast"]


def test_amounts_are_read_as_forms_and_manifests_write_them(site: Site, as_user: As) -> None:
    """A text is an amount with its unit, a number counts the API's; what is neither is refused."""
    client = as_user(site.people.root)
    body = {
        "stated_deserved": {"cpu": "2500m", "memory": "4Gi", GPU: 2000},
        "node_groups": {"limits": {"fast": {GPU: "3"}}},
    }

    placed = _put_placement(client, site.robots.id, body).json()
    queue = Queue.objects.get(id=site.robots.id)
    numbers = {"max": {"memory": "16Gi"}}
    address = f"{QUEUES}/{queue.id}"
    edited = client.patch(
        address, numbers, format="json", headers={"If-Match": client.get(address)["ETag"]}
    ).json()
    refused = _put_placement(client, site.robots.id, {"stated_deserved": {"memory": "much"}}).json()

    assert placed["stated_deserved"] == {"cpu": 2500, "memory": 4 * GIB, GPU: 2000}
    assert placed["node_groups"]["limits"] == {"fast": {GPU: 3000}}
    assert edited["max"] == {"memory": 16 * GIB}
    assert refused["errors"] == [
        {
            "field": "stated_deserved.memory",
            "code": "not_a_quantity",
            "message": '"much" is not an amount of memory. Write cores and GPUs like 2 or 500m,'
            " memory like 512Mi or 4Gi.",
            "hint": "",
        }
    ]


def _put_placement(client: APIClient, queue_id: UUID, body: dict[str, object]) -> Any:
    address = f"{QUEUES}/{queue_id}/placement"
    tag = client.get(address)["ETag"]
    return client.put(address, body, format="json", headers={"If-Match": tag})


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"node_groups": {"required": ["no group!"]}}, "node_groups.required"),
        ({"node_groups": {"preferred": ["a"], "forbidden": ["a"]}}, "node_groups.forbidden"),
        ({"node_groups": {"limits": {"a": {"cpu": -1}}}}, "node_groups.limits.a.cpu"),
        ({"stated_deserved": {"cpu": -1}}, "stated_deserved.cpu"),
        ({"stated_deserved": {"cpu": 2.5}}, "stated_deserved.cpu"),
        ({"stated_deserved": {"memory": "much"}}, "stated_deserved.memory"),
        ({"stated_deserved": {"memory": 2**60}}, "stated_deserved.memory"),
    ],
)
def test_placement_that_cannot_be_is_refused(
    site: Site, as_user: As, body: dict[str, object], field: str
) -> None:
    """Each is named by its field, and nothing is changed."""
    reply = _put_placement(as_user(site.people.root), site.robots.id, body)

    assert (reply.status_code, [one["field"] for one in reply.json()["errors"]]) == (422, [field])
    assert Queue.objects.get(id=site.robots.id).annotations == {}
