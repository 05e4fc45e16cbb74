"""What Redis does to messages must not end a worker, nor keep it from its work when it is back."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import redis
from django.conf import settings

from scheduling.domain import leases
from tests.process.loop_processes import OwnRedis
from worker.app import LOOPS_QUEUE, app
from worker.loops.base import ALONE_KEY, forget_alone, stand_by, worker_name
from worker.tasks import start_missing_loops


@pytest.fixture
def own() -> Iterator[OwnRedis]:
    broker = OwnRedis()
    broker.start()
    yield broker
    broker.close()


@pytest.mark.parametrize("end", ["ack", "reject", "requeue"])
def test_message_of_a_lost_connection_is_let_go(own: OwnRedis, end: str) -> None:
    """What was done while the connection broke is done again; saying so is no error."""
    connection = app.connection_for_read(own.server.url)
    queue = connection.SimpleQueue("some")
    queue.put({"a": 1})
    message = queue.get(timeout=10)

    own.kill()
    connection.close()
    getattr(message, end)()

    assert message.acknowledged


@pytest.fixture
def queue() -> Iterator[redis.Redis]:
    """The broker of the tests without any start or note in it."""
    broker = redis.Redis.from_url(settings.REDIS_URL)
    broker.delete(LOOPS_QUEUE, ALONE_KEY)
    yield broker
    broker.delete(LOOPS_QUEUE, ALONE_KEY)


@pytest.mark.django_db
def test_starts_that_nobody_takes_do_not_pile_up(queue: redis.Redis) -> None:
    """While no worker is there each loop is queued once, however many ticks go by."""
    start_missing_loops()
    queued = queue.llen(LOOPS_QUEUE)
    for _ in range(3):
        start_missing_loops()

    assert queued == 2  # relay and reconcile: there is no cluster
    assert queue.llen(LOOPS_QUEUE) == queued


def hold(scope: str, holder: str) -> None:
    assert leases.acquire(scope=scope, holder=holder, ttl_seconds=60) is not None


@pytest.mark.django_db
def test_lonely_worker_is_sent_nobody_to_stand_by(queue: redis.Redis) -> None:
    """Once the only worker has declined, beat waits until another one comes."""
    for scope in ("relay", "reconcile"):
        hold(scope, f"{worker_name()}:1")

    declined = stand_by("relay")
    start_missing_loops()
    sent_in_vain = queue.llen(LOOPS_QUEUE)
    forget_alone()
    start_missing_loops()

    assert (declined, sent_in_vain, queue.llen(LOOPS_QUEUE)) == (None, 0, 4)


@pytest.mark.django_db
def test_lonely_worker_is_sent_what_is_missing(queue: redis.Redis) -> None:
    """That nobody can stand by keeps no loop from being started."""
    hold("relay", f"{worker_name()}:1")
    stand_by("relay")

    start_missing_loops()

    assert queue.llen(LOOPS_QUEUE) == 1


@pytest.mark.django_db
def test_worker_beside_another_does_not_say_that_it_is_alone(queue: redis.Redis) -> None:
    """A start that came to the holder's own worker is sent again with the next tick."""
    hold("relay", f"{worker_name()}:1")
    hold("reconcile", "elsewhere:1:1")

    stand_by("relay")
    start_missing_loops()

    assert queue.llen(LOOPS_QUEUE) == 4
