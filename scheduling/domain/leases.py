"""Leases: the right of one loop to act, taken and checked by the database's clock and an epoch.

Taking a lease adds 1 to its epoch. A writer locks the row FOR SHARE inside its transaction and
compares: a successor cannot take the lease until that transaction has ended, and one that ended
after the successor came finds another epoch and writes nothing. A check before the transaction
would be no fence.

Beside the row a holder has an advisory lock of PostgreSQL, which goes with its connection and so
with its process. It is a hint only: who saw it held and then free need not wait until the lease
runs out. Were the hint wrong, the epoch would stop the old holder all the same.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from django.db import connection, transaction

from scheduling.domain.errors import LeaseLostError
from scheduling.models import Lease

Values = Mapping[str, str | int | float | None]

IDLE_LIMIT = "3s"
"""A holder that is paused inside a transaction loses it, so that a successor need not wait."""


def acquire(
    *, scope: str, holder: str, ttl_seconds: float, ended_epoch: int | None = None
) -> int | None:
    """Take the lease if it is free or has run out; return the new epoch, None if it is held.

    It is free, too, if the holder of `ended_epoch` still has it, whose process has ended.
    """
    statement = """
        INSERT INTO scheduling_lease AS l (scope, holder, epoch, expires_at, acquired_at, detail)
        VALUES (%(scope)s, %(holder)s, 1, clock_timestamp() + %(ttl)s * interval '1 second',
                clock_timestamp(), '{}')
        ON CONFLICT (scope) DO UPDATE
        SET holder = excluded.holder, epoch = l.epoch + 1, expires_at = excluded.expires_at,
            acquired_at = excluded.acquired_at, detail = '{}'
        WHERE l.expires_at < clock_timestamp() OR l.epoch = %(ended)s
        RETURNING epoch
    """
    values: Values = {"scope": scope, "holder": holder, "ttl": ttl_seconds, "ended": ended_epoch}
    return _one(statement, values)


def renew(*, scope: str, holder: str, epoch: int, ttl_seconds: float) -> bool:
    """Prolong the lease; False when it is somebody else's by now."""
    statement = """
        UPDATE scheduling_lease SET expires_at = clock_timestamp() + %(ttl)s * interval '1 second'
        WHERE scope = %(scope)s AND holder = %(holder)s AND epoch = %(epoch)s
        RETURNING epoch
    """
    values: Values = {"scope": scope, "holder": holder, "epoch": epoch, "ttl": ttl_seconds}
    return _one(statement, values) is not None


def release(*, scope: str, holder: str, epoch: int) -> bool:
    """Let the lease run out now, so that a successor need not wait; False if it was not held."""
    statement = """
        UPDATE scheduling_lease SET expires_at = clock_timestamp() - interval '1 millisecond'
        WHERE scope = %(scope)s AND holder = %(holder)s AND epoch = %(epoch)s
        RETURNING epoch
    """
    return _one(statement, {"scope": scope, "holder": holder, "epoch": epoch}) is not None


def check(*, scope: str, epoch: int) -> None:
    """Lock the lease FOR SHARE and compare; must run inside the transaction that it fences.

    From here on the transaction may not stay idle for longer than `IDLE_LIMIT`.

    Raises:
        LeaseLostError: the epoch is not the lease's.
    """
    if not connection.in_atomic_block:
        raise RuntimeError("a lease is checked inside the transaction that it fences")
    current = _one(
        "SELECT epoch, set_config('idle_in_transaction_session_timeout', %(limit)s, true)"
        " FROM scheduling_lease WHERE scope = %(scope)s FOR SHARE",
        {"scope": scope, "limit": IDLE_LIMIT},
    )
    if current != epoch:
        raise LeaseLostError(scope, epoch, current)


@contextmanager
def fenced(*, scope: str, epoch: int) -> Iterator[None]:
    """Run a block in one transaction that stands only while `epoch` is the lease's."""
    with transaction.atomic():
        check(scope=scope, epoch=epoch)
        yield


SIGN = "hashtext(%(scope)s), (%(epoch)s %% 2147483647)::int"


def show_life(*, scope: str, epoch: int) -> bool:
    """Hold the sign that the holder lives, for as long as this connection stands."""
    statement = f"SELECT pg_try_advisory_lock({SIGN})::int"
    return _one(statement, {"scope": scope, "epoch": epoch}) == 1


def hide_life(*, scope: str, epoch: int) -> None:
    """Give up the sign: a connection that goes back to its pool would keep it."""
    statement = f"SELECT pg_advisory_unlock({SIGN})::int"
    _one(statement, {"scope": scope, "epoch": epoch})


def life(scope: str) -> tuple[int, bool]:
    """Return the newest epoch, and whether another connection than this one holds its sign."""
    statement = """
        SELECT epoch, NOT pg_try_advisory_xact_lock_shared(
            hashtext(scope), (epoch %% 2147483647)::int)
        FROM scheduling_lease WHERE scope = %(scope)s
    """
    with connection.cursor() as cursor:
        cursor.execute(statement, {"scope": scope})
        epoch, is_alive = cursor.fetchone() or (0, False)
    return int(epoch), bool(is_alive)


def is_held(scope: str) -> bool:
    """Tell whether somebody holds the lease now."""
    statement = """
        SELECT 1 FROM scheduling_lease WHERE scope = %(scope)s AND expires_at >= clock_timestamp()
    """
    return _one(statement, {"scope": scope}) is not None


def describe(*, scope: str, epoch: int, detail: dict[str, Any]) -> None:
    """Keep what the holder says of itself, for the health page."""
    Lease.objects.filter(scope=scope, epoch=epoch).update(detail=detail)


def _one(statement: str, values: Values) -> int | None:
    with connection.cursor() as cursor:
        cursor.execute(statement, values)
        row = cursor.fetchone()
    return None if row is None else int(row[0])


def holder_of(scope: str) -> str:
    """Return who holds the lease, or held it last; empty if nobody ever did."""
    found = Lease.objects.filter(scope=scope).values_list("holder", flat=True).first()
    return found or ""


def is_anyone_else(*, prefix: str, within_seconds: float) -> bool:
    """Tell whether a holder whose name begins otherwise holds a lease, or did so until lately."""
    statement = """
        SELECT 1 FROM scheduling_lease WHERE NOT starts_with(holder, %(prefix)s)
            AND expires_at > clock_timestamp() - %(within)s * interval '1 second' LIMIT 1
    """
    return _one(statement, {"prefix": prefix, "within": within_seconds}) is not None
