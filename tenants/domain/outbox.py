"""The transactional outbox: what must happen outside the database, written with its cause.

Delivery is at least once: a message is claimed for a while, and due again unless it was reported
as done. `key` is what makes its effect happen once.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

from django.db import connection, transaction
from django.db.models import F, QuerySet

from tenants.domain import notify
from tenants.models import OutboxRow

LIVE = "live"
"""The topic of hints to live pages: `{"hints": [[what, kind], ...]}`."""
CLAIM = timedelta(seconds=60)
"""How long the relay may take to deliver what it claimed before it is due again."""
NODE_CLAIM = timedelta(seconds=10)
"""How long an agent may take to confirm a command before it is sent again."""
LONGEST_PAUSE = timedelta(minutes=5)
LAST_TRY = 20
"""After so many failures a message is dead: kept, shown on the health page, not tried again."""


@dataclass(frozen=True, slots=True)
class Message:
    """One thing to deliver; with `node_id`, a command for that node's agent."""

    topic: str
    key: str
    payload: Mapping[str, object]
    node_id: UUID | None = None
    not_before: datetime | None = None


def publish(
    *,
    topic: str,
    key: str,
    payload: Mapping[str, object],
    now: datetime,
    node_id: UUID | None = None,
    not_before: datetime | None = None,
) -> OutboxRow:
    """Write one message in the current transaction and wake who delivers it at commit."""
    return publish_many([Message(topic, key, payload, node_id, not_before)], now=now)[0]


def publish_many(messages: Sequence[Message], *, now: datetime) -> list[OutboxRow]:
    """Write messages in the current transaction: one statement, one wake-up for each receiver.

    Raises:
        TransactionManagementError: outside a transaction a message could exist without its cause.
    """
    if not connection.in_atomic_block:
        raise transaction.TransactionManagementError(
            "outbox.publish must be called in the transaction of what it announces"
        )
    rows = OutboxRow.objects.bulk_create(
        OutboxRow(
            topic=message.topic,
            key=message.key,
            payload=dict(message.payload),
            node=message.node_id,
            created_at=now,
            not_before=message.not_before or now,
        )
        for message in messages
    )
    if any(message.node_id is None for message in messages):
        notify.notify(notify.OUTBOX)
    for node_id in sorted({message.node_id for message in messages if message.node_id}):
        notify.notify(notify.NODE, str(node_id))
    return rows


def hint(what: str, kind: str, *, now: datetime) -> None:
    """Tell live pages that something changed: `user:<id>` (`grants`), `tenant:<id>` (`state`)."""
    publish(topic=LIVE, key="", payload={"hints": [[what, kind]]}, now=now)


class Due(NamedTuple):
    """A message that is due, only looked at."""

    id: int
    topic: str
    payload: Mapping[str, Any]


def due(limit: int, now: datetime) -> list[Due]:
    """Return up to `limit` due messages for the relay, oldest first, without taking them.

    Enough for hints: one relay at a time holds the lease, and a hint heard twice does no harm.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT id, topic, payload FROM tenants_outboxrow"
            " WHERE node IS NULL AND NOT is_dead AND not_before <= %s"
            " ORDER BY not_before, id LIMIT %s",
            [now, limit],
        )
        return [Due(row, topic, json.loads(payload)) for row, topic, payload in cursor.fetchall()]


def claim(limit: int, now: datetime) -> list[OutboxRow]:
    """Take up to `limit` due messages for the relay, oldest first; each counts as one try.

    Two relays never take the same one at the same time.
    """
    due = OutboxRow.objects.filter(node__isnull=True, is_dead=False, not_before__lte=now).order_by(
        "not_before", "id"
    )
    return _claim(due, limit, until=now + CLAIM)


def claim_node_commands(
    node_ids: Collection[UUID], limit: int, now: datetime
) -> dict[UUID, list[OutboxRow]]:
    """Take up to `limit` due commands for these nodes, by node and in order of writing.

    What is not confirmed by `done` within `NODE_CLAIM` is due again.
    """
    due = OutboxRow.objects.filter(node__in=node_ids, is_dead=False, not_before__lte=now).order_by(
        "id"
    )
    commands: defaultdict[UUID, list[OutboxRow]] = defaultdict(list)
    for row in _claim(due, limit, until=now + NODE_CLAIM):
        assert row.node is not None  # noqa: S101 - filtered by it
        commands[row.node].append(row)
    return dict(commands)


def release_node_commands(node_id: UUID, now: datetime) -> int:
    """Make all commands of a node due at once, as its agent has just opened a new session."""
    return (
        OutboxRow.objects.filter(node=node_id, is_dead=False, not_before__gt=now)
        .exclude(attempts=0)
        .update(not_before=now)
    )


def done(ids: Iterable[int]) -> int:
    """Delete delivered messages; return how many there were."""
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM tenants_outboxrow WHERE id = ANY(%s)", [list(ids)])
        return int(cursor.rowcount)


def failed(row: OutboxRow, error: str, now: datetime) -> None:
    """Put a message back after a failed try: later after each, dead after the last."""
    pause = min(timedelta(seconds=2 ** min(row.attempts, 16)), LONGEST_PAUSE)
    OutboxRow.objects.filter(id=row.id).update(
        not_before=now + pause,
        last_error=error[:500],
        is_dead=row.attempts >= LAST_TRY,
    )


def revive(ids: Collection[int], now: datetime) -> int:
    """Try dead messages again, once their cause is removed; return how many there were."""
    revived = OutboxRow.objects.filter(id__in=ids, is_dead=True).update(
        is_dead=False, attempts=0, not_before=now
    )
    notify.notify(notify.OUTBOX)
    return revived


def _claim(due: QuerySet[OutboxRow], limit: int, *, until: datetime) -> list[OutboxRow]:
    with transaction.atomic():
        rows = list(due.select_for_update(skip_locked=True)[:limit])
        claimed = OutboxRow.objects.filter(id__in=[row.id for row in rows])
        claimed.update(attempts=F("attempts") + 1, not_before=until)
    for row in rows:
        row.attempts += 1
        row.not_before = until
    return rows
