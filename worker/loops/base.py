"""What every loop does around its own work: stand by, lead under a lease, hand over, step down.

A loop is a long Celery task. It stands by until the lease is free, leads with the epoch it got,
and every write of a turn checks that epoch inside its transaction (`leases.fenced`). A thread
renews the lease; a holder that could not renew for two thirds of the time stops by its own
monotonic clock, before anybody else can have the lease. When its process ends, its connection to
the database does too, which whoever stands by notices within a quarter of a second. After some
minutes it hands over, if the broker answers: the lease is released and the same loop queued again,
so that workers can be replaced and memory is given back. With Redis away it goes on for good.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol
from uuid import uuid4

import redis
import structlog
from django.conf import settings
from django.db import DatabaseError, InterfaceError, close_old_connections, connection
from psycopg.errors import LockNotAvailable

from scheduling.domain import leases
from scheduling.domain.errors import LeaseLostError
from worker.loops.stopping import STOPPING

log = structlog.get_logger(__name__)

STANDBY_SECONDS = 300.0
"""How long a loop that found another holder waits; then it ends and beat starts a fresh one."""
STANDBY_LOOK_SECONDS = 0.25
STANDBY_PREPARE_SECONDS = 2.0
LONELY_SECONDS = 60.0
"""So long after it heard of another worker for the last time, a worker takes itself to be alone."""
PAUSE_AFTER_ERROR_SECONDS = 0.5
STANDBY_PREFIX = "standby:"
ALONE_KEY = "terrace:loops:alone"
"""In Redis while the only worker for loops holds all of them: nobody could stand by."""
ALONE_SECONDS = 10


class Outcome(StrEnum):
    """How a run of a loop ended; only one that handed over is queued again."""

    NOT_NEEDED = "not_needed"
    HANDED_OVER = "handed_over"
    STOPPED = "stopped"
    LOST = "lost"


class Loop(Protocol):
    """The work of one loop."""

    scope: str

    def prepare(self) -> None:
        """Read ahead while somebody else leads; called every few seconds."""

    def begin(self, lease: HeldLease) -> None:
        """Begin to lead: listen, and forget what another holder may have made untrue."""

    def turn(self, lease: HeldLease) -> None:
        """Do what is due; every transaction of it is fenced by the lease."""

    def wait(self, seconds: float) -> None:
        """Wait until something happens, `seconds` at most."""

    def end(self) -> None:
        """Close what `begin` opened."""


def worker_name() -> str:
    """Return what all processes of one Celery worker share: host and parent process."""
    return f"{socket.gethostname()}:{os.getppid()}"


@dataclass(slots=True)
class HeldLease:
    """A lease that this process holds, with the monotonic time of its last confirmed renewal."""

    scope: str
    holder: str
    epoch: int
    ttl_seconds: float
    confirmed_at: float
    _is_lost: threading.Event = field(default_factory=threading.Event)

    @classmethod
    def acquire(
        cls, scope: str, ttl_seconds: float, *, ended_epoch: int | None = None
    ) -> HeldLease | None:
        """Take the lease if it is free, or held under an epoch whose holder has ended."""
        holder = f"{worker_name()}:{os.getpid()}:{uuid4().hex[:8]}"
        asked_at = time.monotonic()
        epoch = leases.acquire(
            scope=scope, holder=holder, ttl_seconds=ttl_seconds, ended_epoch=ended_epoch
        )
        return None if epoch is None else cls(scope, holder, epoch, ttl_seconds, asked_at)

    def renew(self) -> None:
        """Prolong the lease; note it as lost when it is somebody else's."""
        asked_at = time.monotonic()
        is_ours = leases.renew(
            scope=self.scope, holder=self.holder, epoch=self.epoch, ttl_seconds=self.ttl_seconds
        )
        if is_ours:
            self.confirmed_at = asked_at
        else:
            self._is_lost.set()

    def require_safe(self) -> None:
        """Stop by this machine's own clock, before the database's could give the lease away.

        Raises:
            LeaseLostError: the last confirmed renewal is too long ago, or the lease is gone.
        """
        age = time.monotonic() - self.confirmed_at
        if self._is_lost.is_set() or age > self.ttl_seconds * 2 / 3:
            raise LeaseLostError(self.scope, self.epoch, None)

    def release(self) -> None:
        """Give the lease back."""
        leases.release(scope=self.scope, holder=self.holder, epoch=self.epoch)


class Renewer(threading.Thread):
    """Renews a lease at a third of its time, and shows that the holder lives.

    It does so on a connection of its own, which nothing but the end of the process takes away.
    """

    def __init__(self, lease: HeldLease) -> None:
        """Start nothing yet."""
        super().__init__(name=f"renew {lease.scope}", daemon=True)
        self.lease = lease
        self._end = threading.Event()
        self._is_shown = False

    def run(self) -> None:
        """Renew until told to end; an error is tried again, the holder's clock limits it."""
        try:
            while True:
                try:
                    self._renew()
                except (DatabaseError, InterfaceError) as error:
                    log.warning("lease_not_renewed", scope=self.lease.scope, error=str(error))
                    connection.close()
                    self._is_shown = False
                if self._end.wait(self.lease.ttl_seconds / 3):
                    break
            self._hide()
        finally:
            connection.close()

    def _renew(self) -> None:
        if not self._is_shown:
            self._is_shown = leases.show_life(scope=self.lease.scope, epoch=self.lease.epoch)
        self.lease.renew()

    def _hide(self) -> None:
        if self._is_shown:
            with suppress(DatabaseError, InterfaceError):  # then it is gone with the connection
                leases.hide_life(scope=self.lease.scope, epoch=self.lease.epoch)

    def stop(self) -> None:
        """End the thread."""
        self._end.set()
        self.join(timeout=self.lease.ttl_seconds)


class Watch:
    """Notices that the holder of a lease has ended before its time is over.

    Only a sign of life that was seen is missed: who has just begun may not have shown it yet.
    """

    def __init__(self, scope: str) -> None:
        """Have seen nobody yet."""
        self.scope = scope
        self._seen: int | None = None

    def ended_epoch(self) -> int | None:
        """Look once; return the newest epoch if its holder was alive before and is not now."""
        epoch, is_alive = leases.life(self.scope)
        if is_alive:
            self._seen = epoch
            return None
        return epoch if epoch == self._seen else None

    def forget(self) -> None:
        """Have seen nobody: where this connection broke, the holder's may have broken too."""
        self._seen = None


def run(loop: Loop) -> Outcome:
    """Stand by for a loop's lease and lead while it is held; say how it ended."""
    while not STOPPING.is_set():
        try:
            lease = stand_by(loop.scope, loop.prepare)
        except (DatabaseError, InterfaceError) as error:
            _pause_without_database(loop.scope, error)
            continue
        if lease is None:
            return Outcome.STOPPED if STOPPING.is_set() else Outcome.NOT_NEEDED
        outcome = _lead(loop, lease)
        if outcome is not Outcome.LOST:
            return outcome
    return Outcome.STOPPED


def stand_by(scope: str, prepare: Callable[[], None] = lambda: None) -> HeldLease | None:
    """Wait for the lease, cheaply: at most one stands by, and not beside the holder itself.

    1. Take the lease if it is free. 2. Else take the lease of the one who stands by; if that is
    held too, or the holder runs in this very worker, there is nothing to do here. 3. Look again
    until the lease is free or the time is over; without a broker nobody could be started anew, so
    the time is then never over.
    """
    ttl = float(settings.TERRACE_LEASE_SECONDS)
    lease = _acquire(scope, ttl)
    if lease is not None:
        return lease
    own = f"{worker_name()}:"
    if leases.holder_of(scope).startswith(own):
        if not leases.is_anyone_else(prefix=own, within_seconds=LONELY_SECONDS):
            _note_alone()
        return None
    place = _acquire(STANDBY_PREFIX + scope, ttl)
    if place is None:
        return None
    log.info("loop_stands_by", scope=scope)
    renewer = Renewer(place)
    renewer.start()
    try:
        return _wait_for(scope, ttl, prepare)
    finally:
        renewer.stop()
        _give_back(place)


def _wait_for(scope: str, ttl: float, prepare: Callable[[], None]) -> HeldLease | None:
    until = time.monotonic() + STANDBY_SECONDS
    prepare_at = time.monotonic()
    watch = Watch(scope)
    while True:
        lease = _acquire(scope, ttl, watch)
        if lease is not None:
            return lease
        if time.monotonic() >= prepare_at:
            _prepare(scope, prepare)
            prepare_at = time.monotonic() + STANDBY_PREPARE_SECONDS
        is_over = time.monotonic() > until and broker_answers()
        if is_over or STOPPING.wait(STANDBY_LOOK_SECONDS):
            return None


def _prepare(scope: str, prepare: Callable[[], None]) -> None:
    """Let the loop read ahead; what fails there is met again, and counts, once it leads."""
    try:
        prepare()
    except Exception:
        log.exception("standby_not_prepared", scope=scope)
        connection.close()


def _acquire(scope: str, ttl: float, watch: Watch | None = None) -> HeldLease | None:
    try:
        ended = watch.ended_epoch() if watch is not None else None
        return HeldLease.acquire(scope, ttl, ended_epoch=ended)
    except (DatabaseError, InterfaceError) as error:
        # The database restarts, or the old holder is just ending a transaction.
        if watch is not None and not isinstance(error.__cause__, LockNotAvailable):
            watch.forget()
        _pause_without_database(scope, error)
        return None


def _pause_without_database(scope: str, error: Exception) -> None:
    log.warning("lease_not_asked", scope=scope, error=str(error))
    connection.close()
    STOPPING.wait(PAUSE_AFTER_ERROR_SECONDS)


def _lead(loop: Loop, lease: HeldLease) -> Outcome:
    log.info("loop_leads", scope=lease.scope, epoch=lease.epoch)
    renewer = Renewer(lease)
    renewer.start()
    try:
        outcome = _turns(loop, lease)
    except LeaseLostError as error:
        log.warning("loop_steps_down", scope=lease.scope, epoch=lease.epoch, error=str(error))
        outcome = Outcome.LOST
    finally:
        renewer.stop()
        loop.end()
    # Also after a step down: if it is still ours, nobody need wait until it runs out.
    _give_back(lease)
    log.info("loop_ended", scope=lease.scope, epoch=lease.epoch, outcome=outcome)
    return outcome


def _give_back(lease: HeldLease) -> None:
    """Release a lease; where the database is away it runs out by itself."""
    try:
        lease.release()
    except (DatabaseError, InterfaceError) as error:
        log.warning("lease_not_released", scope=lease.scope, error=str(error))
        connection.close()


def _turns(loop: Loop, lease: HeldLease) -> Outcome:
    hand_over_at = time.monotonic() + settings.TERRACE_HAND_OVER_SECONDS
    has_begun = False
    while not STOPPING.is_set():
        lease.require_safe()
        close_old_connections()
        try:
            if not has_begun:
                loop.begin(lease)
                has_begun = True
            loop.turn(lease)
            loop.wait(1.0)
        except LeaseLostError:
            raise
        except Exception:  # the top of a loop: log, count, go on
            log.exception("loop_turn_failed", scope=lease.scope, epoch=lease.epoch)
            connection.close()
            STOPPING.wait(PAUSE_AFTER_ERROR_SECONDS)
        if time.monotonic() > hand_over_at and broker_answers():
            return Outcome.HANDED_OVER
    return Outcome.STOPPED


def _note_alone() -> None:
    """Tell beat that there is no second worker, so that it need not send starts in vain."""
    try:
        with broker() as client:
            client.set(ALONE_KEY, worker_name(), ex=ALONE_SECONDS)
    except redis.RedisError as error:
        log.info("alone_not_noted", error=str(error))


def forget_alone() -> None:
    """Let beat send starts again at once: a worker has come, and may stand by."""
    try:
        with broker() as client:
            client.delete(ALONE_KEY)
    except redis.RedisError as error:  # it runs out by itself
        log.info("alone_not_forgotten", error=str(error))


def broker() -> redis.Redis:
    """Return a client of Redis that waits a second at most; close it after use."""
    return redis.Redis.from_url(settings.REDIS_URL, socket_timeout=1.0, socket_connect_timeout=1.0)


def broker_answers() -> bool:
    """Tell whether Redis takes a message now."""
    try:
        with broker() as client:
            return bool(client.ping())
    except redis.RedisError:
        return False
