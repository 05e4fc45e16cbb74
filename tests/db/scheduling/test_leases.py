"""A lease belongs to one holder by the database's clock, and its epoch fences every write."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import transaction

from scheduling.domain import leases
from scheduling.domain.clock import database_now
from scheduling.domain.errors import LeaseLostError
from scheduling.models import Lease

pytestmark = pytest.mark.django_db


def take(holder: str = "a", seconds: float = 60) -> int | None:
    return leases.acquire(scope="s", holder=holder, ttl_seconds=seconds)


def lapse() -> None:
    Lease.objects.update(expires_at=database_now() - timedelta(seconds=1))


def test_second_holder_waits() -> None:
    """While a lease is held nobody else gets it."""
    assert take("a") == 1
    assert take("b") is None
    assert leases.holder_of("s") == "a"


def test_lapsed_lease_is_taken_with_the_next_epoch() -> None:
    """A lease that ran out goes to the next who asks, under a new epoch."""
    take("a")
    lapse()

    assert not leases.is_held("s")
    assert take("b") == 2


def test_holder_that_has_ended_is_succeeded_at_once() -> None:
    """Who saw a holder end gets its lease before it runs out, but not its successor's."""
    take("a")

    assert leases.acquire(scope="s", holder="b", ttl_seconds=60, ended_epoch=1) == 2
    assert leases.acquire(scope="s", holder="c", ttl_seconds=60, ended_epoch=1) is None


def test_old_holder_cannot_renew_or_release() -> None:
    """Who lost a lease changes nothing of it."""
    take("a")
    lapse()
    take("b")

    assert not leases.renew(scope="s", holder="a", epoch=1, ttl_seconds=60)
    assert not leases.release(scope="s", holder="a", epoch=1)
    assert leases.is_held("s")


def test_renewal_prolongs() -> None:
    """A renewed lease is held for its whole time again."""
    take("a", seconds=1)

    assert leases.renew(scope="s", holder="a", epoch=1, ttl_seconds=600)

    assert Lease.objects.get().expires_at > database_now() + timedelta(seconds=500)


def test_released_lease_is_free_at_once() -> None:
    """A successor need not wait for a lease that was given back."""
    take("a")
    leases.release(scope="s", holder="a", epoch=1)

    assert take("b") == 2


def test_fence_lets_the_holder_pass_and_stops_the_old_one() -> None:
    """A fenced block runs under the epoch in force only."""
    take("a")
    with leases.fenced(scope="s", epoch=1):
        pass
    lapse()
    take("b")

    with pytest.raises(LeaseLostError) as caught, leases.fenced(scope="s", epoch=1):
        pytest.fail("the block must not run")

    assert (caught.value.epoch, caught.value.current) == (1, 2)


@pytest.mark.django_db(transaction=True)
def test_check_outside_a_transaction_is_no_fence() -> None:
    """A check that fences nothing is refused."""
    take("a")

    with pytest.raises(RuntimeError, match="inside the transaction"):
        leases.check(scope="s", epoch=1)
    with transaction.atomic():
        leases.check(scope="s", epoch=1)
