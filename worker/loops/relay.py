"""The relay: carries outbox messages out, seals audit rows, folds counters, settles queues.

Live hints go to Redis; one that cannot be delivered is dropped, since pages look at the rows by
themselves when hints stay out. Everything else is tried again, later after each failure.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Sequence

import redis
import structlog
from celery import current_app
from django.conf import settings
from kombu.exceptions import OperationalError

from scheduling.domain import counters, events, leases, queues, topics
from scheduling.domain.clock import database_now
from tenants.domain import audit, idempotency, notify, outbox, webhooks
from tenants.models import OutboxRow
from worker.loops.base import HeldLease
from worker.loops.stopping import STOPPING

log = structlog.get_logger(__name__)

SCOPE = "relay"
GATHER_SECONDS = 0.04
"""After a wake-up, wait so long for its like: pages draw no more than 4 frames a second anyway."""
CLAIM_LIMIT = 500
HOUSEKEEPING_SECONDS = 1.0
DELIVER = "worker.tasks.deliver_webhook"
"""By name, since the tasks import the loops."""
DELIVER_EXPIRES_SECONDS = 50
"""A message that nobody took by then is worth nothing: the outbox offers the delivery again."""


class RelayLoop:
    """Delivers what the outbox holds for anybody but a node."""

    scope = SCOPE

    def __init__(self) -> None:
        """Open nothing yet."""
        self._listener: notify.Listener | None = None
        self._redis: redis.Redis | None = None
        self._kept_house_at = 0.0
        self._is_more = False

    def prepare(self) -> None:
        """Have nothing to read ahead."""

    def begin(self, lease: HeldLease) -> None:
        """Listen for messages."""
        del lease
        self._listener = notify.Listener(notify.OUTBOX)
        self._redis = redis.Redis.from_url(
            settings.REDIS_URL, socket_timeout=1.0, socket_connect_timeout=1.0
        )

    def end(self) -> None:
        """Close both connections."""
        if self._listener is not None:
            self._listener.close()
        if self._redis is not None:
            self._redis.close()

    def wait(self, seconds: float) -> None:
        """Wait for a message, unless more than one batch was due."""
        if self._listener is not None and not self._is_more and self._listener.wait(seconds):
            STOPPING.wait(GATHER_SECONDS)

    def turn(self, lease: HeldLease) -> None:
        """Deliver one batch, and keep house once a second."""
        now = database_now()
        due = outbox.due(CLAIM_LIMIT, now)
        self._is_more = len(due) == CLAIM_LIMIT
        live = [row for row in due if row.topic == topics.OUTBOX_TOPIC]
        if live:
            self._publish(live)
            with leases.fenced(scope=lease.scope, epoch=lease.epoch):
                outbox.done(row.id for row in live)
        if len(live) < len(due):
            self._carry_out(lease)
        self._keep_house(lease)

    def _carry_out(self, lease: HeldLease) -> None:
        """Deliver what is more than a hint: claimed before, so that a failed try counts."""
        rows = outbox.claim(CLAIM_LIMIT, database_now())
        live = [row for row in rows if row.topic == topics.OUTBOX_TOPIC]
        self._publish([outbox.Due(row.id, row.topic, row.payload) for row in live])
        others = [row for row in rows if row.topic != topics.OUTBOX_TOPIC]
        delivered = [row for row in others if self._deliver(row, lease)]
        with leases.fenced(scope=lease.scope, epoch=lease.epoch):
            outbox.done(row.id for row in (*live, *delivered))

    def _publish(self, rows: Sequence[outbox.Due]) -> None:
        """Publish hints, each topic and kind of the batch once, under its newest number."""
        latest = dict(_hints(rows))
        if not latest or self._redis is None:
            return
        pipeline = self._redis.pipeline(transaction=False)
        for (topic, kind), seq in latest.items():
            text = json.dumps({"topic": topic, "seq": seq, "kind": kind}, separators=(",", ":"))
            pipeline.publish(topics.LIVE_CHANNEL, text)
        try:
            pipeline.execute()
        except redis.RedisError as error:
            log.warning("hints_dropped", count=len(latest), error=str(error))

    def _deliver(self, row: OutboxRow, lease: HeldLease) -> bool:
        """Hand over a message that is no hint; tell whether it is done with.

        A delivery to a webhook becomes a short task, which reports to the outbox by itself.
        """
        if row.topic == webhooks.TOPIC:
            self._hand_over(row)
            return False
        with leases.fenced(scope=lease.scope, epoch=lease.epoch):
            outbox.failed(row, f"nobody takes the topic {row.topic}", database_now())
        return False

    def _hand_over(self, row: OutboxRow) -> None:
        try:
            current_app.send_task(DELIVER, args=(row.id,), expires=DELIVER_EXPIRES_SECONDS)
        except OperationalError as error:  # Redis is away: due again when the claim ends
            log.warning("delivery_not_queued", row=row.id, error=str(error))

    def _keep_house(self, lease: HeldLease) -> None:
        if time.monotonic() - self._kept_house_at < HOUSEKEEPING_SECONDS:
            return
        self._kept_house_at = time.monotonic()
        with leases.fenced(scope=lease.scope, epoch=lease.epoch):
            audit.seal(database_now())
            counters.fold()
            idempotency.forget_old(database_now())
            events.queue_deliveries(database_now())
        with leases.fenced(scope=lease.scope, epoch=lease.epoch):
            queues.settle_closing(database_now())  # waits for who edits the tree: on its own
        leases.describe(
            scope=lease.scope, epoch=lease.epoch, detail={"outbox": counters.outbox_state()}
        )


def _hints(rows: Iterable[outbox.Due]) -> Iterable[tuple[tuple[str, str], int]]:
    for row in sorted(rows, key=lambda row: row.id):
        for topic, kind in row.payload["hints"]:
            yield (topic, kind), row.id
