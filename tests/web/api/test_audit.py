"""The record by API and page: its filters, its files, and what each reader gets of it."""

from __future__ import annotations

import csv
import io
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import transaction
from django.test import Client

from controlplane.audit_export import csv_lines
from tenants.domain import audit
from tenants.domain.access import SYSTEM, load_actor
from tenants.models import AuditRow, OrgUnit, User
from tests.people import People
from tests.web.api.conftest import As

pytestmark = pytest.mark.django_db
START = datetime(2026, 11, 20, 12, tzinfo=UTC)


def record(
    action: str, unit: OrgUnit | None, *, actor: User | None = None, days: int = 0, **fields: Any
) -> None:
    """Write one row (Any: fields of the record)."""
    fields.setdefault("before", None)
    fields.setdefault("after", {"x": 1})
    subject = audit.Subject("queue", fields.pop("id", "q1"), fields.pop("label", "vision"))
    with transaction.atomic():
        audit.record(
            actor=load_actor(actor) if actor else SYSTEM,
            action=action,
            subject=subject,
            unit=unit,
            now=START + timedelta(days=days),
            **fields,
        )


@pytest.fixture
def rows(people: People) -> None:
    record("queue.update", people.vision, actor=people.alice, request_id="r-1", reason="=1+1")
    record("queue.close", people.robots, actor=people.bob, days=1, label="robots")
    record("job.cancel", people.mill, actor=people.charlie, days=2, label="mill-job", id="j9")
    record("installation.bootstrap", None, days=3)


def actions(reply: Any) -> list[str]:
    return [item["action"] for item in reply.json()["items"]]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", ["installation.bootstrap", "job.cancel", "queue.close", "queue.update"]),
        ("action=queue.", ["queue.close", "queue.update"]),
        ("person=Alice", ["queue.update"]),
        ("person=system", ["installation.bootstrap"]),
        ("subject=robo", ["queue.close"]),
        ("subject=j9", ["job.cancel"]),
        ("request_id=r-1", ["queue.update"]),
        ("since=2026-11-21&until=2026-11-22", ["job.cancel", "queue.close"]),
        ("since=2026-11-23T11:59:59Z", ["installation.bootstrap"]),
    ],
)
def test_filters_narrow_the_record(
    people: People, rows: None, as_user: As, query: str, expected: list[str]
) -> None:
    """Each filter alone, by the same names for page, file and API."""
    del rows

    reply = as_user(people.root).get(f"/api/v1/audit?{query}")
    lines = as_user(people.root).get(f"/api/v1/audit:export?{query}").getvalue().decode()

    assert actions(reply) == expected
    assert [json.loads(line)["action"] for line in lines.splitlines()] == expected


def test_unit_filter_takes_what_lies_below(people: People, rows: None, as_user: As) -> None:
    """The department's record is that of its teams too."""
    del rows

    reply = as_user(people.root).get(f"/api/v1/audit?unit={people.vision.id}")

    assert actions(reply) == ["queue.close", "queue.update"]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("alice", ["queue.close", "queue.update"]),
        ("bob", ["queue.close"]),
        ("charlie", ["job.cancel"]),
    ],
)
@pytest.mark.parametrize("form", ["csv", "jsonl"])
def test_file_holds_what_the_list_shows(
    people: People, rows: None, as_user: As, name: str, expected: list[str], form: str
) -> None:
    """Whoever downloads gets the rows that the list gives them, and none besides."""
    del rows
    client = as_user(getattr(people, name))

    text = client.get(f"/api/v1/audit:export?form={form}").getvalue().decode()

    if form == "csv":
        found = [row["action"] for row in csv.DictReader(io.StringIO(text))]
    else:
        found = [json.loads(line)["action"] for line in text.splitlines()]
    assert found == expected == actions(client.get("/api/v1/audit"))


def test_pages_of_the_list_follow_one_another(people: People, rows: None, as_user: As) -> None:
    """Two rows a page: the cursor goes on where the page ended, whatever comes meanwhile."""
    del rows
    client = as_user(people.root)
    first = client.get("/api/v1/audit?limit=2")
    record("queue.open", people.vision, days=9)

    second = client.get(f"/api/v1/audit?limit=2&after={first.json()['next']}")

    assert actions(first) + actions(second) == [
        "installation.bootstrap",
        "job.cancel",
        "queue.close",
        "queue.update",
    ]
    assert second.json()["next"] is None


def test_file_of_many_pages_is_whole(
    people: People, as_user: As, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file longer than one query holds every row once."""
    monkeypatch.setattr("controlplane.audit_export.ROWS_AT_ONCE", 3)
    for number in range(8):
        record("queue.update", people.vision, id=str(number))

    text = as_user(people.root).get("/api/v1/audit:export?form=jsonl").getvalue().decode()

    ids = [json.loads(line)["subject_id"] for line in text.splitlines()]
    assert ids == [str(number) for number in reversed(range(8))]


@pytest.mark.parametrize("cell", ["=1+1", "+1", "-1", "@x", "\t=1", " =1", "\r=1", "\n=1"])
def test_formulas_are_inert_in_csv(cell: str) -> None:
    """What a spreadsheet would run begins with an apostrophe; plain text and numbers stay."""
    (row,) = csv.reader(io.StringIO(csv_lines([(cell, "plain", 5)]), newline=""))

    assert row == [f"'{cell}", "plain", "5"]


@pytest.mark.parametrize("query", ["since=yesterday", "unit=x", "until=2026-13-40"])
def test_wrong_filter_is_refused_with_its_place(people: People, as_user: As, query: str) -> None:
    """A filter that cannot be read is an error in the API, never silently everything."""
    reply = as_user(people.root).get(f"/api/v1/audit?{query}")

    assert reply.status_code == 422
    assert [one["field"] for one in reply.json()["errors"]] == [query.partition("=")[0]]


def test_page_shows_before_after_and_keeps_filters_in_its_links(
    people: People, rows: None, client: Client
) -> None:
    """The page tells the change whole, and its files have the same filters."""
    del rows
    client.force_login(people.root)

    body = client.get("/activity/?action=queue.&person=alice").content.decode()

    assert "r-1" in body
    assert "=1+1" in body
    assert "queue.close" not in body
    assert "/activity/export/csv/?action=queue.&amp;person=alice" in body


def test_page_names_a_day_that_it_cannot_read(people: People, client: Client) -> None:
    """A broken link filters nothing and says so beside the field."""
    client.force_login(people.root)

    body = client.get("/activity/?since=yesterday").content.decode()

    assert 'aria-describedby="f-since-error"' in body


def test_page_without_a_match_offers_the_way_back(people: People, client: Client) -> None:
    """Nothing found is not the same as nothing recorded."""
    client.force_login(people.root)

    assert "Nothing matches" in client.get("/activity/?person=nobody").content.decode()


def test_files_of_the_page_are_scoped(people: People, rows: None, client: Client) -> None:
    """Charlie's file has Charlie's tenant and nothing of another; unknown forms are not there."""
    del rows
    client.force_login(people.charlie)

    text = b"".join(client.get("/activity/export/jsonl/").streaming_content).decode()  # type: ignore[attr-defined]

    assert [json.loads(line)["action"] for line in text.splitlines()] == ["job.cancel"]
    assert client.get("/activity/export/xml/").status_code == 404


@pytest.mark.parametrize(
    ("sent", "is_taken"), [("proxy-17", True), ("", False), ("x" * 65, False), ("a b\n", False)]
)
def test_change_is_recorded_with_the_id_of_its_request(
    people: People, client: Client, sent: str, is_taken: bool
) -> None:
    """By page and by API the row has the id that the reply names; a damaged one is not taken."""
    client.force_login(people.alice)
    unit = {"parent_id": str(people.lab.id), "kind": "team"}
    headers = {"X-Request-ID": sent.strip("\n")}

    api = client.post(
        "/api/v1/units", {**unit, "name": "one"}, content_type="application/json", headers=headers
    )
    page = client.post("/admin/quotas/edit/", _quota(people), headers=headers)

    created, limited = AuditRow.objects.order_by("id")
    assert (created.request_id, limited.request_id) == (api["X-Request-ID"], page["X-Request-ID"])
    assert (api["X-Request-ID"] == sent) is is_taken
    assert 1 <= len(limited.request_id) <= 64


def _quota(people: People) -> dict[str, str]:
    return {"unit": str(people.vision.id), "scope": "unit", "version": "0", "gpu": "1"}
