"""What Redis does to messages must not end a worker, nor keep it from its work when it is back."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import redis
from django.conf import settings

from tests.process.loop_processes import OwnRedis
from worker.app import LOOPS_QUEUE, app
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


@pytest.mark.django_db
def test_starts_that_nobody_takes_do_not_pile_up() -> None:
    """While no worker is there each loop is queued once, however many ticks go by."""
    broker = redis.Redis.from_url(settings.REDIS_URL)
    broker.delete(LOOPS_QUEUE)

    start_missing_loops()
    queued = broker.llen(LOOPS_QUEUE)
    for _ in range(3):
        start_missing_loops()

    assert queued == 2  # relay and reconcile: there is no cluster
    assert broker.llen(LOOPS_QUEUE) == queued
    broker.delete(LOOPS_QUEUE)
