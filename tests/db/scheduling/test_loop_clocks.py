"""Who leads a loop goes by the database's clock and its own monotonic one, never by the wall's."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import connection

from scheduling.domain import leases
from scheduling.domain.errors import LeaseLostError
from worker.loops import base
from worker.loops.base import HeldLease, Outcome, Watch
from worker.loops.stopping import Stopping

pytestmark = pytest.mark.django_db

SCOPE = "some-loop"


class Faltering:
    """A loop that finds its lease lost in its first turn, and ends in its second."""

    scope = SCOPE

    def __init__(self, stopping: Stopping) -> None:
        self.epochs: list[int] = []
        self._stopping = stopping

    def prepare(self) -> None:
        """Have nothing to read ahead."""

    def begin(self, lease: HeldLease) -> None:
        self.epochs.append(lease.epoch)

    def turn(self, lease: HeldLease) -> None:
        if len(self.epochs) == 1:
            raise LeaseLostError(lease.scope, lease.epoch, None)
        self._stopping.set()

    def wait(self, seconds: float) -> None:
        """Wait for nothing."""

    def end(self) -> None:
        """Have nothing to close."""


def held() -> HeldLease:
    lease = HeldLease.acquire(SCOPE, 60.0)
    assert lease is not None
    return lease


def test_holder_that_could_not_renew_stops_by_its_own_clock() -> None:
    """After two thirds of its time without a renewal it acts no more; a renewal lets it go on."""
    lease = held()
    lease.confirmed_at -= 41.0

    with pytest.raises(LeaseLostError):
        lease.require_safe()
    lease.renew()

    lease.require_safe()


@pytest.mark.parametrize("hours", [-1, 1])
def test_wrong_clock_gives_no_lease_away(monkeypatch: pytest.MonkeyPatch, hours: int) -> None:
    """A machine whose clock is an hour off neither takes a held lease nor loses its own."""
    lease = held()
    wall = time.time
    monkeypatch.setattr(time, "time", lambda: wall() + 3600 * hours)

    assert HeldLease.acquire(SCOPE, 60.0) is None
    lease.renew()
    lease.require_safe()
    assert leases.is_held(SCOPE)


@pytest.mark.django_db(transaction=True)  # a loop closes old connections, as between two requests
def test_who_steps_down_gives_back_what_is_still_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits until the lease of a holder that no longer acts runs out."""
    stopping = Stopping()
    monkeypatch.setattr(base, "STOPPING", stopping)
    loop = Faltering(stopping)

    outcome = base.run(loop)

    assert outcome is Outcome.STOPPED
    assert loop.epochs == [1, 2]
    assert not leases.is_held(SCOPE)


@pytest.mark.django_db(transaction=True)  # another connection has to see the lease
def test_holder_whose_sign_of_life_is_gone_has_ended() -> None:
    """Only a sign that was seen is missed, and only while it could be seen."""
    lease, watch = held(), Watch(SCOPE)
    never_shown = watch.ended_epoch()

    with ThreadPoolExecutor(1) as elsewhere:
        shown = elsewhere.submit(leases.show_life, scope=SCOPE, epoch=lease.epoch)
        assert shown.result()
        alive = watch.ended_epoch()
        elsewhere.submit(leases.hide_life, scope=SCOPE, epoch=lease.epoch).result()
        ended = watch.ended_epoch()
        elsewhere.submit(lambda: connection.close()).result()  # noqa: PLW0108 -- of that thread

    assert (never_shown, alive, ended) == (None, None, lease.epoch)
    watch.forget()
    assert watch.ended_epoch() is None


@pytest.mark.django_db(transaction=True)  # the place of who stands by is renewed by a thread
def test_who_stands_by_reads_ahead_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading ahead that fails is tried again, and ends nobody's standing by."""
    monkeypatch.setattr(base, "STANDBY_PREPARE_SECONDS", 0.0)
    leases.acquire(scope=SCOPE, holder="elsewhere", ttl_seconds=600)
    tries: list[int] = []

    def prepare() -> None:
        tries.append(len(tries))
        if len(tries) == 1:
            raise LookupError("half of the rows")
        leases.release(scope=SCOPE, holder="elsewhere", epoch=1)

    lease = base.stand_by(SCOPE, prepare)

    assert lease is not None
    assert (lease.epoch, tries) == (2, [0, 1])
    assert not leases.is_held(base.STANDBY_PREFIX + SCOPE)
