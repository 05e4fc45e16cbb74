"""Requests that may be repeated: the reply is kept in the transaction of the effect."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db import connection, transaction

from tenants.domain.errors import Invalid, Problem
from tenants.models import IdempotencyKey

KEPT = timedelta(hours=24)
LONGEST_KEY = 200

Reply = Mapping[str, Any]  # a JSON object, stored and given back as it is


def run_once(
    *,
    user_id: UUID,
    key: str,
    request_hash: str,
    now: datetime,
    effect: Callable[[], tuple[int, Reply]],
) -> tuple[int, Reply, bool]:
    """Run `effect` in a transaction unless this user's `key` was used.

    Returns (status, reply, was_repeated).

    1. Insert the key. A request with the same key that is still under way makes the insert wait.
    2. Inserted: run the effect and keep its reply in the same transaction, so that both stand or
       neither does.
    3. Not inserted: the other one has committed; give its reply.

    Raises:
        Invalid: the key is empty or too long, or was used for another request.
    """
    if not 1 <= len(key) <= LONGEST_KEY:
        raise Invalid([Problem("Idempotency-Key", "idempotency_key_length", {"max": LONGEST_KEY})])
    with transaction.atomic():
        IdempotencyKey.objects.filter(user_id=user_id, key=key, created_at__lt=now - KEPT).delete()
        if not _insert(user_id, key, request_hash, now):
            return *_kept(user_id, key, request_hash), True
        status, reply = effect()
        IdempotencyKey.objects.filter(user_id=user_id, key=key).update(
            status=status, reply=dict(reply)
        )
        return status, reply, False


def forget_old(now: datetime) -> int:
    """Delete the keys whose time is over; return how many there were."""
    return IdempotencyKey.objects.filter(created_at__lt=now - KEPT).delete()[0]


def _insert(user_id: UUID, key: str, request_hash: str, now: datetime) -> bool:
    # Not get_or_create: on a conflict it would end the transaction that the effect belongs to.
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO tenants_idempotencykey (user_id, key, request_hash, created_at)"
            " VALUES (%s, %s, %s, %s) ON CONFLICT (user_id, key) DO NOTHING",
            [user_id, key, request_hash, now],
        )
        return bool(cursor.rowcount)


def _kept(user_id: UUID, key: str, request_hash: str) -> tuple[int, Reply]:
    row = IdempotencyKey.objects.get(user_id=user_id, key=key)
    if row.request_hash != request_hash:
        raise Invalid([Problem("Idempotency-Key", "idempotency_key_reused", {"key": key})])
    assert row.status is not None  # noqa: S101 - set in the transaction that wrote the row
    return row.status, row.reply or {}
