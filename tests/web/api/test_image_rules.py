"""The table of images and runtimes by the API: who reads, who replaces, and from which version."""

from typing import Any

import pytest

from scheduling.domain import images
from scheduling.domain.images import RuleEdit
from scheduling.models import ImageRule
from tenants.domain.access import load_actor
from tenants.models import AuditRow, User
from tests.people import NOW
from tests.web.api.conftest import As, Site

pytestmark = pytest.mark.django_db

PYTHON = {"pattern": "docker.io/library/python:*", "runtime": "python"}
TORCH = {"pattern": "*/pytorch:*", "runtime": "torch"}


def address(site: Site) -> str:
    return f"/api/v1/clusters/{site.cluster.id}/image-rules"


def put(site: Site, as_user: As, user: User, rules: list[dict[str, Any]], **headers: str) -> Any:
    """Replace the table, as somebody who saw its first version (Any: a test client's reply)."""
    given = {"If-Match": '"v1"'} | headers
    body = {"rules": rules, "reason": "new image"}
    return as_user(user).put(address(site), body, format="json", headers=given)


def test_root_replaces_the_table(site: Site, as_user: As) -> None:
    """The new rules stand in the order given, with the next version's tag and an audit row."""
    unit = site.people.vision
    rules = [PYTHON, {**TORCH, "unit_id": str(unit.id)}]

    reply = put(site, as_user, site.people.root, rules)
    read = as_user(site.people.root).get(address(site))

    assert (reply.status_code, reply["ETag"], read["ETag"]) == (200, '"v2"', '"v2"')
    assert read.json() == reply.json()
    assert read.json()["items"] == [
        {"position": 1, **PYTHON, "unit_id": None, "unit_name": None},
        {"position": 2, **TORCH, "unit_id": str(unit.id), "unit_name": "vision"},
    ]
    assert AuditRow.objects.get(action="cluster.image_rules").reason == "new image"


def test_others_read_and_do_not_replace(site: Site, as_user: As) -> None:
    """Alice and Bob get the table; only Root may put another in its place."""
    people = site.people

    found = [
        (
            as_user(user).get(address(site)).status_code,
            put(site, as_user, user, [PYTHON]).status_code,
        )
        for user in (people.alice, people.bob, people.charlie, people.root)
    ]

    assert found == [(200, 403), (200, 403), (200, 403), (200, 200)]


def test_rules_of_foreign_units_are_not_told(site: Site, as_user: As) -> None:
    """Bob reads rules for all, his tenant and a team below him; none of a sibling or stranger."""
    people = site.people
    units = (None, people.lab, people.robots, people.speech, people.mill)
    edits = [
        RuleEdit(f"image-{n}", "python", unit.id if unit else None) for n, unit in enumerate(units)
    ]
    images.replace_rules(
        actor=load_actor(people.root),
        cluster_id=site.cluster.id,
        edits=edits,
        expected_version=1,
        now=NOW,
    )

    found = {
        user.username: [
            item["unit_name"] for item in as_user(user).get(address(site)).json()["items"]
        ]
        for user in (people.root, people.bob, people.charlie)
    }

    assert found == {
        "root": [None, "lab", "robots", "speech", "mill"],
        "bob": [None, "lab", "robots"],
        "charlie": [None, "mill"],
    }


def test_older_version_gets_the_current_table(site: Site, as_user: As) -> None:
    """A PUT from a version that is no longer in force changes nothing and shows what is."""
    put(site, as_user, site.people.root, [PYTHON])

    reply = put(site, as_user, site.people.root, [TORCH])

    assert (reply.status_code, reply.json()["code"]) == (412, "version_conflict")
    assert reply["Content-Type"] == "application/problem+json"
    assert reply.json()["current"] == [{**PYTHON, "unit_id": None}]
    assert reply.json()["params"] == {"expected": 1, "version": 2}
    assert ImageRule.objects.get().runtime == "python"


def test_version_must_be_named(site: Site, as_user: As) -> None:
    """Without If-Match nothing is replaced."""
    body = {"rules": [PYTHON]}

    reply = as_user(site.people.root).put(address(site), body, format="json")

    assert (reply.status_code, reply.json()["code"]) == (428, "if_match_required")
    assert ImageRule.objects.count() == 0


def test_every_wrong_rule_is_named_by_its_place(site: Site, as_user: As) -> None:
    """An empty pattern, a unit that is not there and a repeated pattern are told at once."""
    stranger = "00000000-0000-4000-8000-000000000000"
    rules = [{"pattern": "", "runtime": "x"}, PYTHON, {**PYTHON, "runtime": "y"}]

    reply = put(site, as_user, site.people.root, [*rules, {**TORCH, "unit_id": stranger}])

    assert reply.status_code == 422
    assert [(error["field"], error["code"]) for error in reply.json()["errors"]] == [
        ("rules[0].pattern", "required"),
        ("rules[2].pattern", "rule_repeated"),
        ("rules[3].unit_id", "unit_missing"),
    ]


@pytest.mark.parametrize("method", ["get", "put"])
def test_cluster_that_is_not_there(method: str, site: Site, as_user: As) -> None:
    """An unknown cluster is 404, even for Root."""
    client = as_user(site.people.root)

    reply = getattr(client, method)(
        "/api/v1/clusters/00000000-0000-4000-8000-000000000000/image-rules",
        {"rules": []},
        format="json",
        headers={"If-Match": '"v1"'},
    )

    assert (reply.status_code, reply.json()["code"]) == (404, "not_found")
