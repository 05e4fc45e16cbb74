"""The stream of events: in an order that nothing slips into, scoped, and posted to webhooks."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from django.db import connection
from pytest_django import Settings

from scheduling.domain import events
from scheduling.domain.clock import database_now
from scheduling.domain.events import Cursor
from scheduling.models import History
from tenants.domain import outbox, webhooks
from tenants.domain.access import Actor
from tenants.domain.errors import Conflict, Denied, Invalid, NotFound
from tenants.domain.webhooks import NewWebhook
from tenants.models import AuditRow, OrgUnit, OutboxRow, Webhook
from tests.factories.cluster import Site
from tests.people import People
from tests.webhook_receiver import Receiver, is_signed
from worker.tasks.webhooks import deliver_webhook

pytestmark = pytest.mark.django_db(transaction=True)


def other_connection() -> psycopg.Connection[tuple[Any, ...]]:
    settings = connection.settings_dict
    return psycopg.connect(
        dbname=settings["NAME"],
        user=settings["USER"],
        password=settings["PASSWORD"],
        host=settings["HOST"],
        port=settings["PORT"],
    )


COPY_OF_ROW = """
INSERT INTO scheduling_history
    (job_id, seq, subject, event, from_state, to_state, at, reason_code, params, actor_label)
SELECT job_id, %s, 'job', 'late', '', 'Pending', now(), '', '{}', '' FROM scheduling_history LIMIT 1
RETURNING id
"""


def all_of(actor: Actor, after: Cursor | None = None, limit: int = 200) -> list[events.Event]:
    found: list[events.Event] = []
    after = after or Cursor()
    while True:
        page = events.read(actor=actor, after=after, limit=limit)
        found += page.events
        if page.is_end:
            return found
        after = page.cursor


def test_late_commit_is_not_missed(site: Site) -> None:
    """A row that was numbered early and committed late is read in its turn, once."""
    site.submit()
    before = events.newest()
    with other_connection() as slow:
        slow.execute(COPY_OF_ROW, [9_001])
        site.submit()  # numbered later, committed first
        meanwhile = events.read(actor=site.admin, after=before)
        slow.commit()
    afterwards = events.read(actor=site.admin, after=meanwhile.cursor)

    assert meanwhile.events == ()
    assert [one.row.event for one in afterwards.events].count("late") == 1
    assert {one.row.id for one in all_of(site.admin)} == set(
        History.objects.values_list("id", flat=True)
    )


def test_pages_continue_where_the_last_one_ended(site: Site) -> None:
    """However small the pages, every event comes once and in order."""
    for _ in range(3):
        site.submit()
    site.cycle()

    whole = all_of(site.admin)
    small = all_of(site.admin, limit=2)

    assert [one.cursor for one in small] == [one.cursor for one in whole]
    assert [one.cursor for one in whole] == sorted(one.cursor for one in whole)


def test_restored_database_goes_on(site: Site) -> None:
    """After a restore transactions count anew: readers go on by the ids, and nothing is lost."""
    site.submit()
    seen = events.newest()
    future = Cursor(seen.xid + 10**9, seen.id)
    with connection.cursor() as cursor:
        cursor.execute("UPDATE scheduling_history SET written_xid = %s", [future.xid])

    events.queue_deliveries(database_now())  # the relay's housekeeping notices
    job = site.submit()

    assert {one.row.job_id for one in all_of(site.admin, after=future)} == {job.id}


def unit_of(site: Site) -> OrgUnit:
    unit = site.queue.unit
    assert unit is not None
    return unit


def make_hook(
    site: Site, unit: OrgUnit, actor: Actor, url: str, **more: Any
) -> tuple[Webhook, str]:
    return webhooks.create_webhook(
        actor=actor,
        unit_id=unit.id,
        new=NewWebhook(more.pop("name", "ci"), url, more.pop("subjects", ("job",))),
        cursor=str(events.newest()),
        now=site.now,
    )


@pytest.fixture
def receiver(settings: Settings) -> Iterator[Receiver]:
    settings.TERRACE_WEBHOOK_ALLOWED = ["127.0.0.0/8"]
    with Receiver() as listening:
        yield listening


def deliver_all() -> None:
    for row in outbox.claim(100, database_now()):
        if row.topic == webhooks.TOPIC:
            deliver_webhook(row.id)


def test_webhook_is_told_signed_and_once(site: Site, receiver: Receiver) -> None:
    """What happens below its unit is posted in order, by a signature that its secret checks."""
    site.submit()  # before the webhook was made
    hook, secret = make_hook(site, unit_of(site), site.admin, receiver.url)
    first, second = site.submit(), site.submit()

    assert events.queue_deliveries(database_now()) == 1
    assert events.queue_deliveries(database_now()) == 0  # it waits for the first answer
    deliver_all()
    events.queue_deliveries(database_now())
    deliver_all()

    ((headers, body),) = receiver.taken
    assert is_signed(headers, body, secret)
    told = json.loads(body)
    assert told["webhook"] == str(hook.id)
    assert [one["job"]["id"] for one in told["events"]] == [str(first.id), str(second.id)]
    assert not OutboxRow.objects.filter(topic=webhooks.TOPIC).exists()
    hook.refresh_from_db()
    assert (hook.last_error, hook.last_delivered_at is not None) == ("", True)


@pytest.mark.parametrize(("status", "words"), [(500, "status 500"), (302, "status 302")])
def test_refused_delivery_is_tried_again_then_put_aside(
    status: int, words: str, site: Site, receiver: Receiver
) -> None:
    """Errors and redirects are no success; after the last try it is put aside, visibly."""
    hook, _ = make_hook(site, unit_of(site), site.admin, receiver.url)
    receiver.status = status
    site.submit()
    events.queue_deliveries(database_now())

    deliver_all()
    row = OutboxRow.objects.get(topic=webhooks.TOPIC)
    assert row.not_before > database_now() + timedelta(seconds=1)
    row.attempts = outbox.LAST_TRY
    webhooks.not_delivered(row, "status 500", database_now())

    hook.refresh_from_db()
    assert words in row.last_error
    assert hook.last_error == "status 500"
    assert webhooks.dead_deliveries([hook.id]).count() == 1
    site.submit()
    assert events.queue_deliveries(database_now()) == 1  # the stream goes on
    receiver.status = 200
    assert webhooks.retry_dead(actor=site.admin, webhook_id=hook.id, now=site.now) == 1
    deliver_all()
    assert not OutboxRow.objects.filter(topic=webhooks.TOPIC).exists()
    assert len(receiver.taken) == 3


def test_address_that_became_private_is_not_posted_to(
    site: Site, receiver: Receiver, settings: Settings
) -> None:
    """The address is looked at when it is posted to, not only when it was written."""
    hook, _ = make_hook(site, unit_of(site), site.admin, receiver.url)
    site.submit()
    events.queue_deliveries(database_now())
    settings.TERRACE_WEBHOOK_ALLOWED = []

    deliver_all()

    hook.refresh_from_db()
    assert "not a public address" in hook.last_error
    assert receiver.taken == []


def test_webhook_hears_of_its_own_unit_only(site: Site, people: People, receiver: Receiver) -> None:
    """What happens elsewhere is not told, and its cursor passes over it."""
    hook, _ = make_hook(site, people.mill, people.actor(people.charlie), receiver.url)
    site.submit()

    assert events.queue_deliveries(database_now()) == 0

    hook.refresh_from_db()
    assert hook.cursor == str(events.newest())


def test_switched_off_webhook_waits(site: Site, receiver: Receiver) -> None:
    """What happens while it is off is told when it is on again; a new secret signs it."""
    hook, secret = make_hook(site, unit_of(site), site.admin, receiver.url)
    act = {"actor": site.admin, "webhook_id": hook.id, "now": site.now}
    webhooks.set_active(**act, is_active=False, expected_version=1)  # type: ignore[arg-type]  # three plain arguments
    site.submit()
    assert events.queue_deliveries(database_now()) == 0

    webhooks.set_active(**act, is_active=True, expected_version=2)  # type: ignore[arg-type]  # three plain arguments
    _, renewed = webhooks.renew_secret(**act, expected_version=3)  # type: ignore[arg-type]  # three plain arguments
    assert events.queue_deliveries(database_now()) == 1
    with pytest.raises(Conflict, match="version"):
        webhooks.remove_webhook(**act, expected_version=3)  # type: ignore[arg-type]  # three plain arguments
    webhooks.remove_webhook(**act, expected_version=4)  # type: ignore[arg-type]  # three plain arguments

    assert renewed != secret
    assert not OutboxRow.objects.filter(topic=webhooks.TOPIC).exists()
    actions = AuditRow.objects.filter(action__startswith="webhook.").order_by("id")
    assert [row.action for row in actions] == [
        "webhook.create", "webhook.switch", "webhook.switch", "webhook.renew_secret",
        "webhook.remove",
    ]  # fmt: skip
    shown = str(list(actions.values()))
    assert secret not in shown
    assert renewed not in shown


def test_only_administrators_of_the_unit_make_webhooks(site: Site, people: People) -> None:
    """A researcher is told whom to ask; another tenant's unit does not exist."""
    with pytest.raises(Denied):
        make_hook(site, people.vision, people.actor(people.bob), "https://example.com/")
    with pytest.raises(NotFound):
        make_hook(site, people.lab, people.actor(people.charlie), "https://example.com/")
    made, _ = make_hook(site, people.vision, people.actor(people.alice), "https://example.com/")
    seen = [webhooks.visible_to(people.actor(one)).count() for one in people.everyone]

    assert seen == [1, 1, 0, 0]
    with pytest.raises(NotFound):
        webhooks.retry_dead(actor=people.actor(people.charlie), webhook_id=made.id, now=site.now)


@pytest.mark.parametrize(
    ("name", "url", "subjects", "code"),
    [
        ("", "https://example.com/", ("job",), "length"),
        ("ci", "http://10.0.0.1/", ("job",), "webhook_url"),
        ("ci", "https://example.com/", ("pod",), "invalid_choice"),
        ("ci", "https://example.com/", (), "invalid_choice"),
    ],
)
def test_webhook_that_cannot_be(
    name: str, url: str, subjects: tuple[str, ...], code: str, site: Site
) -> None:
    """What cannot be a webhook is refused with its field."""
    with pytest.raises(Invalid) as refused:
        make_hook(site, unit_of(site), site.admin, url, name=name, subjects=subjects)

    assert [one.code for one in refused.value.problems] == [code]


def test_name_and_number_are_limited(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """A unit has no two webhooks of one name, and not more than it may have."""
    monkeypatch.setattr(webhooks, "MOST_OF_A_UNIT", 2)
    make_hook(site, unit_of(site), site.admin, "https://example.com/")

    with pytest.raises(Invalid, match="taken"):
        make_hook(site, unit_of(site), site.admin, "https://example.com/")
    make_hook(site, unit_of(site), site.admin, "https://example.com/", name="second")
    with pytest.raises(Invalid, match="too_many_webhooks"):
        make_hook(site, unit_of(site), site.admin, "https://example.com/", name="third")
