"""The outbox: written with its cause, delivered at least once, one receiver at a time."""

import asyncio
from datetime import datetime, timedelta
from threading import Thread
from uuid import UUID, uuid4

import pytest
from django.db import connection, transaction

from tenants.domain import notify, outbox
from tenants.models import OutboxRow
from tests.people import NOW

pytestmark = pytest.mark.django_db


def publish(
    key: str, *, node_id: UUID | None = None, not_before: datetime | None = None
) -> OutboxRow:
    """Write one message."""
    return outbox.publish(
        topic="attempt.launch",
        key=key,
        payload={},
        now=NOW,
        node_id=node_id,
        not_before=not_before,
    )


@pytest.mark.django_db(transaction=True)
def test_publish_outside_a_transaction() -> None:
    """A message without the transaction of its cause is refused."""
    with pytest.raises(transaction.TransactionManagementError):
        publish("a")

    assert OutboxRow.objects.count() == 0


def test_claim_oldest_first() -> None:
    """Due messages come in order; later ones and those for nodes stay."""
    publish("first")
    publish("second")
    publish("later", not_before=NOW + timedelta(seconds=1))
    publish("for a node", node_id=uuid4())

    claimed = outbox.claim(10, NOW)

    assert [row.key for row in claimed] == ["first", "second"]


def test_claim_again_after_its_time() -> None:
    """What was claimed and never reported as done is due again, and counts as another try."""
    publish("a")

    outbox.claim(10, NOW)
    assert outbox.claim(10, NOW + outbox.CLAIM - timedelta(seconds=1)) == []
    again = outbox.claim(10, NOW + outbox.CLAIM)

    assert [(row.key, row.attempts) for row in again] == [("a", 2)]


def test_done_deletes() -> None:
    """A delivered message is gone."""
    row = publish("a")

    assert outbox.done([row.id]) == 1
    assert OutboxRow.objects.count() == 0


def test_failed_waits_longer_each_time_and_dies() -> None:
    """The pause doubles up to five minutes; after the last try the message is kept as dead."""
    row = publish("a")
    pauses = []
    now = NOW
    for _ in range(outbox.LAST_TRY):
        [row] = outbox.claim(1, now)
        outbox.failed(row, "no route", now)
        row.refresh_from_db()
        pauses.append((row.not_before - now).total_seconds())
        now = row.not_before

    assert pauses[:4] == [2, 4, 8, 16]
    assert pauses[-1] == 300
    assert row.is_dead
    assert row.last_error == "no route"
    assert outbox.claim(1, now + timedelta(days=1)) == []
    assert outbox.revive([row.id], now) == 1
    assert [again.key for again in outbox.claim(1, now)] == ["a"]


def test_node_commands_by_node_in_order() -> None:
    """A gateway gets the commands of its nodes alone, in order, and again at a new session."""
    ours, others = uuid4(), uuid4()
    publish("1", node_id=ours)
    publish("2", node_id=ours)
    publish("3", node_id=others)

    claimed = outbox.claim_node_commands([ours], 10, NOW)

    assert {node: [row.key for row in rows] for node, rows in claimed.items()} == {ours: ["1", "2"]}
    assert outbox.claim_node_commands([ours], 10, NOW) == {}
    assert outbox.release_node_commands(ours, NOW) == 2
    again = outbox.claim_node_commands([ours], 10, NOW)
    assert [row.key for row in again[ours]] == ["1", "2"]


@pytest.mark.django_db(transaction=True)
def test_two_relays_share() -> None:
    """A message locked by one relay is passed over by the other."""
    with transaction.atomic():
        publish("a")
        publish("b")
    seen: list[str] = []

    def other() -> None:
        seen.extend(row.key for row in outbox.claim(10, NOW))
        connection.close()

    with transaction.atomic():
        list(OutboxRow.objects.select_for_update().filter(key="a"))
        thread = Thread(target=other)
        thread.start()
        thread.join()

    assert seen == ["b"]


@pytest.mark.django_db(transaction=True)
def test_wake_up_travels_with_the_transaction() -> None:
    """Who listens hears of a committed message and never of one that was rolled back."""
    node = uuid4()
    with notify.Listener(notify.OUTBOX) as relay, notify.Listener(notify.NODE) as gateway:
        with transaction.atomic():
            publish("undone")
            transaction.set_rollback(True)
        unheard = relay.wait(0.2)
        with transaction.atomic():
            publish("a")
            publish("b", node_id=node)

        assert unheard == []
        assert relay.wait(5) == [""]
        assert gateway.wait(5) == [str(node)]


@pytest.mark.django_db(transaction=True)
def test_listener_survives_a_lost_connection() -> None:
    """A killed connection costs what was sent meanwhile; the next wait listens again."""
    with notify.Listener(notify.OUTBOX) as listener:
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query = %s",
                ['LISTEN "terrace_outbox"'],
            )
        assert listener.wait(0.1) == []
        assert listener.wait(0.1) == []
        notify.notify(notify.OUTBOX)

        assert listener.wait(5) == [""]


@pytest.mark.django_db(transaction=True)
async def test_listener_on_an_event_loop() -> None:
    """The asynchronous listener hears the same."""
    listener = notify.AsyncListener(notify.NODE)
    await listener.connect()

    def send() -> None:
        notify.notify(notify.NODE, "n1")
        connection.close()

    thread = Thread(target=send)
    thread.start()
    heard = await listener.wait(5)
    thread.join()
    await listener.close()

    assert heard == ["n1"]


@pytest.mark.django_db(transaction=True)
async def test_asynchronous_listener_survives_a_lost_connection() -> None:
    """The same holds on an event loop; closing twice is harmless."""
    listener = notify.AsyncListener(notify.NODE)
    await listener.connect()

    def act(statement: str, *parameters: str) -> None:
        with connection.cursor() as cursor:
            cursor.execute(statement, parameters)
        connection.close()

    await asyncio.to_thread(
        act,
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query = %s",
        'LISTEN "terrace_node"',
    )
    lost = [await listener.wait(0.1), await listener.wait(0.1)]
    await asyncio.to_thread(act, "SELECT pg_notify(%s, %s)", notify.NODE, "n2")
    heard = await listener.wait(5)
    await listener.close()
    await listener.close()

    assert (lost, heard) == ([[], []], ["n2"])
