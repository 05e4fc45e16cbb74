"""Saved views, notifications and templates by the API: one's own alone, and the pages' own rows."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from rest_framework.test import APIClient

from scheduling.models import JobTemplate
from tenants.domain import tokens
from tenants.domain.access import Verb, load_actor
from tenants.models import NotificationChoice, SavedView, User
from tests.factories.demo import make_job
from tests.web.api.conftest import As, Site

pytestmark = pytest.mark.django_db


def with_token(user: User, *verbs: Verb) -> APIClient:
    now = datetime.now(UTC)
    _, secret = tokens.create_token(
        actor=load_actor(user),
        user=user,
        name="ci",
        verbs=verbs,
        unit=None,
        expires_at=now + timedelta(days=1),
        now=now,
    )
    client = APIClient()
    client.credentials(HTTP_AUTHORIZATION=f"Bearer {secret}")
    return client


# --- saved views ----------------------------------------------------------------------------------


def test_view_that_was_kept_is_the_tab_of_the_page(site: Site, as_user: As) -> None:
    """The filters come back as they were given, and the page reads the same address."""
    client = as_user(site.people.bob)
    filters = {"tab": "failed", "queue": "robots", "owner": "me", "text": "a&b=c"}

    made = client.post("/api/v1/me/views", {"name": "Mine", "filters": filters}, format="json")
    listed = client.get("/api/v1/me/views").json()["items"]
    page = client.get("/jobs/").content.decode()

    assert made.status_code == 201
    assert (made.json()["name"], made.json()["filters"]) == ("Mine", filters)
    assert listed == [made.json()]
    assert "state=failed&amp;q=a%26b%3Dc&amp;queue=robots&amp;user=me" in page


def test_view_of_a_page_is_read_and_replaced_by_its_name(site: Site, as_user: As) -> None:
    """What the page kept is listed; the same name again leaves one."""
    client = as_user(site.people.bob)
    kept = {"name": "Mine", "query": "state=running&group=queue"}
    client.post("/jobs/views/", kept, format="multipart")

    seen = client.get("/api/v1/me/views").json()["items"]
    client.post("/api/v1/me/views", {"name": "Mine", "filters": {"tab": "all"}}, format="json")
    after = client.get("/api/v1/me/views").json()["items"]

    assert [one["filters"] for one in seen] == [{"tab": "running", "group": "queue"}]
    assert [(one["name"], one["filters"]) for one in after] == [("Mine", {})]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"name": "x", "filters": {"state": "failed"}}, "filters.state"),
        ({"name": "x", "filters": {"tab": "lost"}}, "filters.tab"),
        ({"name": " ", "filters": {}}, "name"),
        ({"filters": {}}, "name"),
    ],
)
def test_view_that_cannot_be_is_refused_at_its_field(
    site: Site, as_user: As, body: dict[str, Any], field: str
) -> None:
    """The error names the field, and nothing is kept."""
    reply = as_user(site.people.bob).post("/api/v1/me/views", body, format="json")

    assert reply.status_code == 422
    assert [one["field"] for one in reply.json()["errors"]] == [field]
    assert not SavedView.objects.exists()


def test_view_is_forgotten_by_its_owner_alone(site: Site, as_user: As) -> None:
    """For anybody else there is none of that id."""
    client = as_user(site.people.bob)
    made = client.post("/api/v1/me/views", {"name": "Mine", "filters": {}}, format="json").json()
    address = f"/api/v1/me/views/{made['id']}"

    others = as_user(site.people.root).delete(address).status_code
    own = [client.delete(address).status_code for _ in range(2)]

    assert (others, own) == (404, [204, 404])


# --- notifications --------------------------------------------------------------------------------


def test_notifications_follow_the_choice_and_what_was_read(site: Site, as_user: As) -> None:
    """An ended job is told until it is read; what was chosen away is not told at all."""
    now = datetime.now(UTC)
    make_job(site.robots, site.people.bob, "done", now, phase="Completed", finished_at=now)
    make_job(site.mill, site.people.charlie, "other", now, phase="Completed", finished_at=now)
    client = as_user(site.people.bob)

    told = client.get("/api/v1/me/notifications").json()["items"]
    read = client.post("/api/v1/me/notifications/read", {}, format="json")
    after = client.get("/api/v1/me/notifications").json()["items"]
    chosen = client.patch(
        "/api/v1/me/notifications/choice", {"wants_ended": False}, format="json"
    ).json()
    nothing = client.get("/api/v1/me/notifications").json()["items"]

    assert [(one["job_name"], one["state"], one["is_unread"]) for one in told] == [
        ("done", "Completed", True)
    ]
    assert read.status_code == 204
    assert [one["is_unread"] for one in after] == [False]
    assert (chosen["wants_ended"], chosen["wants_failed"], nothing) == (False, True, [])
    assert client.get("/api/v1/me/notifications/choice").json() == chosen


def test_reading_does_not_reach_beyond_now(site: Site, as_user: As) -> None:
    """A moment in the future counts as now, or later events would never be news."""
    client = as_user(site.people.bob)
    later = (datetime.now(UTC) + timedelta(days=9)).isoformat()

    client.post("/api/v1/me/notifications/read", {"until": later}, format="json")

    read_at = NotificationChoice.objects.get(user=site.people.bob).read_at
    assert read_at is not None
    assert read_at <= datetime.now(UTC)


def test_token_reads_notifications_and_changes_no_preference(site: Site) -> None:
    """Choosing and reading are refused to a token, as all preferences are."""
    client = with_token(site.people.bob, Verb.JOB_READ)

    replies = [
        client.get("/api/v1/me/notifications"),
        client.patch("/api/v1/me/notifications/choice", {"wants_failed": False}, format="json"),
        client.post("/api/v1/me/notifications/read", {}, format="json"),
    ]

    assert [one.status_code for one in replies] == [200, 403, 403]
    assert not NotificationChoice.objects.exists()


# --- templates ------------------------------------------------------------------------------------


def test_template_is_kept_shown_submitted_and_forgotten(
    site: Site, as_user: As, document: dict[str, object]
) -> None:
    """What `GET` shows is what `POST /jobs` takes; the page lists the same template."""
    client = as_user(site.people.bob)

    made = client.post("/api/v1/templates", document, format="json")
    shown = client.get(f"/api/v1/templates/{made.json()['id']}").json()
    submitted = client.post("/api/v1/jobs", shown["text"], content_type="application/yaml")
    page = client.get("/templates/").content.decode()
    gone = client.delete(f"/api/v1/templates/{made.json()['id']}")

    assert (made.status_code, made.json()["name"], submitted.status_code) == (201, "train", 201)
    assert submitted.json()["roles"][0]["replicas"] == 2
    assert "train" in page
    assert (gone.status_code, JobTemplate.objects.count()) == (204, 0)
    assert client.get("/api/v1/templates").json() == {"items": []}


def test_template_in_yaml_stays_as_it_was_written(site: Site, as_user: As) -> None:
    """Comments and order are its owner's; one of the same name is replaced."""
    text = "# mine\nname: t\nqueue: robots\nroles: [{name: w, command: echo 1}]\n"
    client = as_user(site.people.bob)

    for _ in range(2):
        reply = client.post("/api/v1/templates", text, content_type="application/yaml")

    assert reply.status_code == 201
    assert reply.json()["text"] == text
    assert [one["name"] for one in client.get("/api/v1/templates").json()["items"]] == ["t"]


def test_template_that_is_no_job_is_refused_at_its_field(site: Site, as_user: As) -> None:
    """The errors are those of a submission."""
    reply = as_user(site.people.bob).post("/api/v1/templates", {"name": "x"}, format="json")

    assert reply.status_code == 422
    assert "roles" in {one["field"] for one in reply.json()["errors"]}
    assert not JobTemplate.objects.exists()


def test_template_is_hidden_from_others(
    site: Site, as_user: As, document: dict[str, object]
) -> None:
    """Not even who sees everything reads or forgets it."""
    made = as_user(site.people.bob).post("/api/v1/templates", document, format="json").json()
    address = f"/api/v1/templates/{made['id']}"
    root = as_user(site.people.root)

    assert (root.get(address).status_code, root.delete(address).status_code) == (404, 404)
    assert root.get("/api/v1/templates").json() == {"items": []}


def test_token_needs_the_verb_of_what_it_asks(site: Site, document: dict[str, object]) -> None:
    """A token for queues reads no template, whose variables may be secrets."""
    client = with_token(site.people.bob, Verb.QUEUE_READ)

    replies = [
        client.get("/api/v1/templates"),
        client.post("/api/v1/templates", document, format="json"),
        client.get("/api/v1/me/views"),
    ]

    assert [(one.status_code, one.json()["code"]) for one in replies] == [
        (403, "token_lacks_verb")
    ] * 3
