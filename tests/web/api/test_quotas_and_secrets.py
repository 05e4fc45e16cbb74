"""Quotas and secrets by the API: versions, rights, refusals with numbers, and no value back."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest
from pytest_django.fixtures import Settings

from scheduling.models import Quota
from tenants.domain import secrets
from tenants.domain.sealing import Keyring
from tenants.models import AuditRow, IdempotencyKey, Secret
from tests.people import NOW
from tests.web.api.conftest import As, Site

pytestmark = pytest.mark.django_db
CANARY = "canary-3141-never-shown"


@pytest.fixture(autouse=True)
def keyring(settings: Settings) -> None:
    settings.TERRACE_SECRETS_KEYRING = Keyring([os.urandom(32)])


# --- quotas ---------------------------------------------------------------------------------------


def quota(site: Site, **limits: int) -> dict[str, Any]:
    """Return the body of a quota of everybody in vision (Any: a JSON document)."""
    return {"unit_id": str(site.people.vision.id), "scope": "each_user", "limits": limits}


def test_quota_is_made_changed_and_deleted_by_version(site: Site, as_user: As) -> None:
    """Each change names the version that was seen; the replies have limits and use."""
    client = as_user(site.people.alice)
    made = client.post("/api/v1/quotas", quota(site, gpu_milli=4000), format="json")
    address = f"/api/v1/quotas/{made.json()['id']}"

    stale = client.put(
        address, {"limits": {"gpu_milli": 1}}, format="json", headers={"If-Match": '"v9"'}
    )
    changed = client.put(
        address,
        {"limits": {"queued_jobs": 3}, "reason": "fair"},
        format="json",
        headers={"If-Match": '"v1"'},
    )
    gone = client.delete(address, headers={"If-Match": '"v2"'})

    assert (made.status_code, stale.status_code, changed.status_code) == (201, 412, 200)
    assert made.json()["limits"] == {"gpu_milli": 4000}
    assert changed.json()["limits"] == {"queued_jobs": 3}
    assert (changed["ETag"], gone.status_code) == ('"v2"', 204)
    assert not Quota.objects.exists()
    actions = AuditRow.objects.filter(subject_type="quota").order_by("id")
    assert list(actions.values_list("action", "reason")) == [
        ("quota.set", ""),
        ("quota.set", "fair"),
        ("quota.remove", ""),
    ]


@pytest.mark.parametrize(
    ("name", "expected"), [("root", (201, 1)), ("alice", (201, 1)), ("bob", (403, 0))]
)
def test_who_sets_quotas(site: Site, as_user: As, name: str, expected: tuple[int, int]) -> None:
    """Administrators do; a researcher sees the unit and is denied."""
    client = as_user(getattr(site.people, name))

    made = client.post("/api/v1/quotas", quota(site, gpu_milli=1), format="json")

    listed = as_user(site.people.bob).get("/api/v1/quotas").json()["items"]
    assert (made.status_code, len(listed)) == expected


def test_other_tenant_finds_neither_unit_nor_quota(site: Site, as_user: As) -> None:
    """For Charlie there is no such unit and no such quota."""
    made = as_user(site.people.alice).post(
        "/api/v1/quotas", quota(site, gpu_milli=1), format="json"
    )
    client = as_user(site.people.charlie)
    address = f"/api/v1/quotas/{made.json()['id']}"

    refused = client.post("/api/v1/quotas", quota(site, gpu_milli=2), format="json")

    assert refused.status_code == 404
    assert client.get("/api/v1/quotas").json()["items"] == []
    assert client.get(address).status_code == 404
    assert client.delete(address, headers={"If-Match": '"v1"'}).status_code == 404


@pytest.mark.parametrize(
    "body",
    [
        {"limits": {}},
        {"limits": {"gpu_milli": -1}},
        {"limits": {"gpu_milli": 2**53 + 1}},
        {"limits": {"gpus": 1}},
        {"limits": {"gpu_milli": 1}, "scope": "user"},
        {"limits": {"gpu_milli": 1}, "scope": "user", "username": "nobody"},
        {"limits": {"gpu_milli": 1}, "scope": "unit", "username": "bob"},
    ],
)
def test_quota_that_cannot_be_is_refused(site: Site, as_user: As, body: dict[str, Any]) -> None:
    """422 with the field; nothing is set."""
    document = {**quota(site), **body}

    reply = as_user(site.people.alice).post("/api/v1/quotas", document, format="json")

    assert reply.status_code == 422
    assert not Quota.objects.exists()


def test_refused_submission_names_quota_level_limit_use_and_way_out(
    site: Site, as_user: As, document: dict[str, Any]
) -> None:
    """The sentence has the unit, both numbers and who can raise it; the code is stable."""
    client = as_user(site.people.alice)
    client.post("/api/v1/quotas", quota(site, queued_jobs=0), format="json")

    reply = as_user(site.people.bob).post("/api/v1/jobs", document, format="json")

    assert reply.status_code == 422
    (error,) = reply.json()["errors"]
    assert error["code"] == "quota_queued_of_user"
    for words in ("1 of your jobs", "“vision”", "lets 0 wait", "an administrator of “vision”"):
        assert words in error["message"]


# --- secrets --------------------------------------------------------------------------------------


def secret(site: Site, **fields: Any) -> dict[str, Any]:
    """Return the body of a secret of vision (Any: a JSON document)."""
    given = {"unit_id": str(site.people.vision.id), "name": "wandb", "values": {"K": CANARY}}
    return {**given, **fields}


def test_secret_is_written_and_no_reply_has_its_value(site: Site, as_user: As) -> None:
    """Made, replaced, read, listed, revoked: names, versions and times, and never a value."""
    client = as_user(site.people.bob)
    replies = [
        client.post(
            "/api/v1/secrets", secret(site), format="json", headers={"Idempotency-Key": "k1"}
        )
    ]
    address = f"/api/v1/secrets/{replies[0].json()['id']}"
    replies += [
        client.get(address),
        client.get("/api/v1/secrets"),
        client.put(
            address,
            {"values_base64": {"OTHER": "Y2FuYXJ5"}},
            format="json",
            headers={"If-Match": '"v1"'},
        ),
        client.delete(address, headers={"If-Match": '"v2"'}),
        client.get("/api/v1/audit"),
    ]

    assert [reply.status_code for reply in replies] == [201, 200, 200, 200, 200, 200]
    assert all(CANARY not in reply.content.decode() for reply in replies)
    assert (replies[0].json()["keys"], replies[3].json()["keys"]) == (["K"], ["OTHER"])
    assert replies[4].json()["revoked_at"] is not None
    kept = IdempotencyKey.objects.get()
    assert CANARY not in str(kept.reply)


def test_value_is_what_was_sent(site: Site, as_user: As) -> None:
    """Spaces at the ends and line breaks are part of a value."""
    text = "  two\nlines \n"
    as_user(site.people.bob).post(
        "/api/v1/secrets", secret(site, values={"K": text}), format="json"
    )

    row = Secret.objects.get()
    assert secrets.values_for([row], NOW)[row.id] == {"K": text.encode()}


@pytest.mark.parametrize(
    "fields",
    [
        {"values": {}},
        {"values": {"1bad": CANARY}},
        {"values": {"K": "\ud800"}},
        {"values": {}, "values_base64": {"K": "%%%"}},
        {"name": "../x"},
        {"kind": "registry"},
        {"kind": "other"},
    ],
)
def test_secret_that_cannot_be_is_refused_without_its_value(
    site: Site, as_user: As, fields: dict[str, Any]
) -> None:
    """422 with the place; the value is not in the refusal."""
    body = json.dumps(secret(site, **fields))  # escapes what the test client would not send

    reply = as_user(site.people.bob).post("/api/v1/secrets", body, content_type="application/json")

    assert reply.status_code == 422
    assert CANARY not in reply.content.decode()
    assert not Secret.objects.exists()


@pytest.mark.parametrize(("name", "status"), [("bob", 201), ("alice", 201), ("charlie", 404)])
def test_who_makes_secrets(site: Site, as_user: As, name: str, status: int) -> None:
    """Who submits or administers there; another tenant has no such unit."""
    client = as_user(getattr(site.people, name))

    reply = client.post("/api/v1/secrets", secret(site), format="json")

    assert reply.status_code == status


def test_own_secret_is_hidden_from_the_other_tenant(site: Site, as_user: As) -> None:
    """Charlie neither lists, reads, replaces nor revokes what Bob keeps."""
    made = as_user(site.people.bob).post(
        "/api/v1/secrets", secret(site, is_shared=False), format="json"
    )
    client = as_user(site.people.charlie)
    address = f"/api/v1/secrets/{made.json()['id']}"
    match = {"If-Match": '"v1"'}

    put = client.put(address, {"values": {"K": "x"}}, format="json", headers=match)

    assert client.get("/api/v1/secrets").json()["items"] == []
    statuses = (client.get(address), put, client.delete(address, headers=match))
    assert [reply.status_code for reply in statuses] == [404, 404, 404]
