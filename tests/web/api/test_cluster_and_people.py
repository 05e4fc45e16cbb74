"""Nodes, the organisation, tokens and the record by the API; health, metrics, the description."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.core.management import call_command
from django.test import Client
from prometheus_client.parser import text_string_to_metric_families

from tenants.models import ApiToken, AuditRow, Grant, IdempotencyKey
from tests.web.api.conftest import As, Site

pytestmark = pytest.mark.django_db
ROOT = Path(__file__).resolve().parents[3]


def test_machines_are_cordoned_by_those_who_run_them(site: Site, as_user: As) -> None:
    """Root cordons; Alice sees the machine and may not."""
    address = f"/api/v1/nodes/{site.node.id}/cordon"

    statuses = [
        as_user(user).post(address, {"reason": "fan"}, format="json").status_code
        for user in (site.people.alice, site.people.root)
    ]

    site.node.refresh_from_db()
    assert (statuses, site.node.is_cordoned) == ([403, 200], True)


def test_labels_are_for_managers(site: Site, as_user: As) -> None:
    """A researcher reads capacity, not how machines are labelled."""
    found = [
        as_user(user).get("/api/v1/nodes").json()["items"][0]["labels"]
        for user in (site.people.bob, site.people.root)
    ]

    assert found == [None, site.node.labels]


def test_labels_and_taints_are_replaced_as_they_were_seen(site: Site, as_user: As) -> None:
    """What is given is replaced, the rest stays; who comes second overwrites nothing."""
    client = as_user(site.people.root)
    address = f"/api/v1/nodes/{site.node.id}"
    seen = {"If-Match": client.get(address)["ETag"]}
    taints = [{"key": "team", "value": "vision"}, {"key": "old", "effect": "PreferNoSchedule"}]

    saved = client.patch(address, {"taints": taints}, format="json", headers=seen)
    late = client.patch(address, {"labels": {}}, format="json", headers=seen)
    seen = {"If-Match": saved["ETag"]}
    again = client.patch(address, {"labels": {"rack": "r1"}}, format="json", headers=seen)

    assert (saved.status_code, late.status_code, again.status_code) == (200, 412, 200)
    assert again.json()["labels"] == {"rack": "r1"}
    assert [(one["key"], one["effect"]) for one in again.json()["taints"]] == [
        ("team", "NoSchedule"),
        ("old", "PreferNoSchedule"),
    ]
    assert AuditRow.objects.filter(action="node.marks").count() == 2


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"labels": {"a b": "x"}}, "labels.a b"),
        ({"labels": {"rack": "no value!"}}, "labels.rack"),
        ({"taints": [{"key": "a", "effect": "Never"}]}, "taints[0].effect"),
        ({"taints": [{"key": "a"}, {"key": "a", "value": "b"}]}, "taints[0]"),
        ({"labels": {f"l{i}": "x" for i in range(101)}}, "labels"),
    ],
)
def test_marks_that_cannot_be_are_refused(
    site: Site, as_user: As, body: dict[str, Any], field: str
) -> None:
    """Each is named by its place; nothing is changed."""
    client = as_user(site.people.root)
    address = f"/api/v1/nodes/{site.node.id}"

    reply = client.patch(
        address, body, format="json", headers={"If-Match": client.get(address)["ETag"]}
    )

    assert (reply.status_code, reply.json()["errors"][0]["field"]) == (422, field)
    assert not AuditRow.objects.filter(action="node.marks").exists()


@pytest.mark.parametrize(
    ("address", "body"),
    [("/api/v1/nodes/join-tokens", {}), ("/api/v1/tokens", {"name": "ci"})],
)
def test_secret_is_shown_once_and_never_kept(
    address: str, body: dict[str, str], site: Site, as_user: As
) -> None:
    """The first reply has the secret; its repetition and the stored reply do not."""
    client = as_user(site.people.root)
    headers = {"Idempotency-Key": "once"}

    first = client.post(address, body, format="json", headers=headers)
    again = client.post(address, body, format="json", headers=headers)

    assert (first.status_code, again.status_code) == (201, 201), first.json()
    assert first.json()["secret"]
    assert "secret" not in again.json()
    assert first.json()["secret"] not in str(IdempotencyKey.objects.get().reply)


def test_revoked_token_stays_in_the_list(site: Site, as_user: As) -> None:
    """DELETE revokes; the row says when."""
    client = as_user(site.people.bob)
    made = client.post("/api/v1/tokens", {"name": "ci"}, format="json").json()

    gone = client.delete(f"/api/v1/tokens/{made['id']}")

    assert gone.status_code == 204
    assert ApiToken.objects.get(id=made["id"]).revoked_at is not None


def test_nobody_gives_a_role_above_their_own(site: Site, as_user: As) -> None:
    """Alice gives Bob a role in her tenant, no platform role, and none in Charlie's."""
    client = as_user(site.people.alice)

    def give(role: str, unit: Any) -> int:
        body = {"user_id": str(site.people.bob.id), "role": role, "unit_id": unit and str(unit.id)}
        return client.post("/api/v1/grants", body, format="json").status_code

    statuses = [
        give("viewer", site.people.speech),
        give("platform_admin", None),
        give("viewer", site.people.mill),
    ]

    assert statuses[0] == 201
    assert set(statuses[1:]) <= {403, 404, 422}
    assert Grant.objects.filter(user=site.people.bob).count() == 2


def test_units_are_renamed_as_they_were_seen(site: Site, as_user: As) -> None:
    """A unit is renamed under its version; a second writer is told."""
    client = as_user(site.people.alice)
    address = f"/api/v1/units/{site.people.speech.id}"
    headers = {"If-Match": client.get(address)["ETag"]}

    statuses = [
        client.patch(address, {"name": name}, format="json", headers=headers).status_code
        for name in ("voice", "sound")
    ]

    assert statuses == [200, 412]


@pytest.mark.parametrize("what", ["units", "users", "grants", "tokens", "audit"])
def test_nothing_of_another_tenant_is_listed(what: str, site: Site, as_user: As) -> None:
    """No list of Bob's names Charlie or the mill."""
    as_user(site.people.charlie).post("/api/v1/tokens", {"name": "charlies"}, format="json")

    text = as_user(site.people.bob).get(f"/api/v1/{what}").content.decode()

    assert "charlie" not in text
    assert "mill" not in text
    assert '"items"' in text


def test_me_says_who_i_am(site: Site, as_user: As) -> None:
    """Name and grants; no token, so no narrowing."""
    told = as_user(site.people.bob).get("/api/v1/me").json()

    assert (told["username"], told["token_verbs"]) == ("bob", None)
    assert [one["role"] for one in told["grants"]] == ["researcher"]


def test_health_needs_no_sign_in() -> None:
    """The process lives; the database has this version's tables."""
    client = Client()

    assert client.get("/healthz").content == b"ok\n"
    assert client.get("/readyz").json() == {"is_ready": True}


def test_metrics_are_for_operators_and_bounded(site: Site, as_user: As) -> None:
    """Strangers and researchers get nothing; no label names a job or a person."""
    reply = as_user(site.people.root).get("/metrics")
    refused = [Client().get("/metrics"), as_user(site.people.bob).get("/metrics")]

    families = {one.name: one for one in text_string_to_metric_families(reply.content.decode())}
    labels = {name for one in families.values() for each in one.samples for name in each.labels}
    weights = {
        each.labels["queue_name"]: each.value for each in families["volcano_queue_weight"].samples
    }
    assert [one.status_code for one in refused] == [401, 401]
    assert labels <= {"phase", "state", "queue_name", "resource", "scope", "cluster", "part"}
    assert weights["vision"] == 2.0


def test_description_is_committed(tmp_path: Path) -> None:
    """docs/openapi.yaml is what the code describes; make it anew when this fails.

    `python manage.py spectacular --validate --fail-on-warn --file docs/openapi.yaml`
    """
    fresh = tmp_path / "openapi.yaml"

    call_command("spectacular", "--validate", "--fail-on-warn", file=str(fresh))

    committed = (ROOT / "docs" / "openapi.yaml").read_text(encoding="utf-8")
    assert yaml.safe_load(fresh.read_text(encoding="utf-8")) == yaml.safe_load(committed)


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/api/v1/nodes", "state"),
        ("/api/v1/jobs", "tab"),
        ("/api/v1/jobs/{job}/files", "purpose"),
        ("/api/v1/jobs/{job}/manifest", "form"),
        ("/api/v1/jobs/{job}/logs", "stream"),
        ("/api/v1/audit:export", "form"),
    ],
)
def test_a_word_that_is_no_choice_is_refused(site: Site, as_user: As, path: str, name: str) -> None:
    """A misspelt filter is named with what would do, and not answered with an empty list."""
    address = path.format(job=site.bobs.id)

    reply = as_user(site.people.root).get(f"{address}?{name}=bogus")

    assert reply.status_code == 422
    assert [(one["field"], one["code"]) for one in reply.json()["errors"]] == [
        (name, "invalid_choice")
    ]


@pytest.mark.parametrize("query", ["nodes?cluster=%00", "jobs?queue=a%00", "grants?user=%00"])
def test_what_no_column_holds_is_refused(site: Site, as_user: As, query: str) -> None:
    """NUL in a filter is a fault of the request, told as such, and not one of the server."""
    reply = as_user(site.people.root).get(f"/api/v1/{query}")

    assert reply.status_code == 400
    assert "NUL" in reply.json()["detail"]


def test_expiry_beyond_the_longest_is_refused(site: Site, as_user: As) -> None:
    """A token lives a bounded time."""
    far = (datetime.now(UTC) + timedelta(days=4000)).isoformat()

    reply = as_user(site.people.bob).post(
        "/api/v1/tokens", {"name": "x", "expires_at": far}, format="json"
    )

    assert [one["field"] for one in reply.json()["errors"]] == ["expires_at"]
