"""Who gets in, and how little a refusal says."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.urls import URLPattern, get_resolver
from rest_framework.test import APIClient

from controlplane.api.v1.urls import urlpatterns
from tenants.domain.access import load_actor
from tenants.domain.tokens import create_token, revoke_token
from tenants.models import ApiToken
from tests.web.api.conftest import As, Site

pytestmark = pytest.mark.django_db
METHODS = ("get", "post", "put", "patch", "delete")
ID = "00000000-0000-4000-8000-000000000000"


def address(pattern: URLPattern) -> str:
    """Return an address that the pattern matches."""
    route = str(pattern.pattern)
    for name in pattern.pattern.converters:
        route = route.replace(f"<uuid:{name}>", ID)
    return f"/api/v1/{route}"


@pytest.mark.parametrize("pattern", urlpatterns, ids=lambda one: str(one.pattern))
def test_every_address_refuses_strangers(pattern: URLPattern) -> None:
    """Without a session or token no method of any address does anything."""
    client = APIClient()

    replies = [getattr(client, method)(address(pattern), {}) for method in METHODS]

    assert {reply.status_code for reply in replies} == {401}
    assert {reply["Content-Type"] for reply in replies} == {"application/problem+json"}
    assert replies[0]["WWW-Authenticate"] == 'Bearer realm="Terrace"'


def test_all_addresses_are_found() -> None:
    """The list above is the list that Django serves."""
    assert get_resolver().resolve("/api/v1/jobs:batch").route == "api/v1/jobs:batch"


def token_client(site: Site, **fields: Any) -> tuple[APIClient, ApiToken]:
    """Return a client with a token of Bob's."""
    now = datetime.now(UTC)
    given: dict[str, Any] = {
        "verbs": [],
        "unit": None,
        "expires_at": now + timedelta(days=1),
        **fields,
    }
    token, secret = create_token(
        actor=load_actor(site.people.bob), user=site.people.bob, name="ci", now=now, **given
    )
    client = APIClient()
    client.credentials(HTTP_AUTHORIZATION=f"Bearer {secret}")
    return client, token


def test_token_acts_as_its_owner(site: Site) -> None:
    """A token of Bob's sees what Bob sees."""
    client, _ = token_client(site)

    reply = client.get("/api/v1/jobs")

    assert [job["name"] for job in reply.json()["items"]] == ["bobs-training"]


def test_token_is_narrowed_to_its_verbs(site: Site, document: dict[str, object]) -> None:
    """A token that may only read jobs submits none."""
    client, _ = token_client(site, verbs=["job.read", "queue.read"])

    reply = client.post("/api/v1/jobs", document, format="json")

    assert (reply.status_code, reply.json()["code"]) == (403, "token_lacks_verb")


def test_revoked_token_is_refused_at_once(site: Site) -> None:
    """What was revoked opens nothing."""
    client, token = token_client(site)
    revoke_token(actor=load_actor(site.people.bob), token_id=token.id, now=datetime.now(UTC))

    reply = client.get("/api/v1/jobs")

    assert (reply.status_code, reply.json()["code"]) == (401, "token_refused")


def test_session_needs_the_csrf_token(site: Site, document: dict[str, object]) -> None:
    """A page of somebody else cannot submit with our cookie."""
    client = APIClient(enforce_csrf_checks=True)
    client.force_login(site.people.bob)

    reply = client.post("/api/v1/jobs", document, format="json")

    assert reply.status_code == 403
    assert site.robots.jobs.filter(name="train").count() == 0


@pytest.mark.parametrize("below", ["", "/tasks", "/logs", "/manifest", "/explain", "/files"])
def test_foreign_and_missing_read_the_same(below: str, site: Site, as_user: As) -> None:
    """What belongs to another tenant cannot be told from what is not there."""
    client = as_user(site.people.bob)

    foreign = client.get(f"/api/v1/jobs/{site.charlies.id}{below}")
    missing = client.get(f"/api/v1/jobs/{ID}{below}")

    assert foreign.status_code == missing.status_code == 404
    assert {**foreign.json(), "request_id": ""} == {**missing.json(), "request_id": ""}


def test_unknown_address_is_a_problem_document(as_user: As, site: Site) -> None:
    """The API answers in its own form where it has nothing."""
    reply = as_user(site.people.bob).get("/api/v1/nothing")

    assert (reply.status_code, reply.json()["code"]) == (404, "not_found")
