"""Whatever the order in which two holders take, lose and use a lease, only the newest writes."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from scheduling.domain import leases
from scheduling.domain.clock import database_now
from scheduling.domain.errors import LeaseLostError
from scheduling.models import Lease

pytestmark = pytest.mark.django_db


class Act(StrEnum):
    """What a holder may try, at any time and as often as it likes."""

    ACQUIRE = "acquire"
    OUST = "oust"
    """Take the lease in the belief that its holder has ended, right or wrong."""
    RENEW = "renew"
    RELEASE = "release"
    WRITE = "write"
    SLEEP = "sleep"
    """Nobody does anything until the lease has run out."""


STEPS = st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from(Act)), max_size=25)


@dataclass(slots=True)
class Model:
    """A lease as it is meant: who has it, under which number, and whether it has run out."""

    holder: str = ""
    epoch: int = 0
    is_over: bool = True

    def may(self, who: str, epoch: int) -> bool:
        return epoch > 0 and (self.holder, self.epoch) == (who, epoch)


class Pair:
    """Two holders at one real lease, beside the model of it."""

    def __init__(self) -> None:
        self.scope = uuid4().hex
        self.model = Model()
        self.epochs = {"a": 0, "b": 0}
        """What each believes to hold, however long ago it took it."""

    def acquire(self, who: str) -> None:
        found = leases.acquire(scope=self.scope, holder=who, ttl_seconds=600)
        if not self.model.is_over:
            assert found is None
            return
        assert found == self.model.epoch + 1
        self.model = Model(who, found, is_over=False)
        self.epochs[who] = found

    def oust(self, who: str) -> None:
        if self.model.epoch == 0:
            return
        found = leases.acquire(
            scope=self.scope, holder=who, ttl_seconds=600, ended_epoch=self.model.epoch
        )
        assert found == self.model.epoch + 1
        self.model = Model(who, found, is_over=False)
        self.epochs[who] = found

    def renew(self, who: str) -> None:
        epoch = self.epochs[who]
        done = leases.renew(scope=self.scope, holder=who, epoch=epoch, ttl_seconds=600)
        assert done == self.model.may(who, epoch)
        self.model.is_over &= not done

    def release(self, who: str) -> None:
        epoch = self.epochs[who]
        done = leases.release(scope=self.scope, holder=who, epoch=epoch)
        assert done == self.model.may(who, epoch)
        self.model.is_over |= done

    def write(self, who: str) -> None:
        epoch, wrote = self.epochs[who], False
        try:
            with leases.fenced(scope=self.scope, epoch=epoch):
                wrote = True
        except LeaseLostError:
            pass
        assert wrote == self.model.may(who, epoch)

    def sleep(self, _who: str) -> None:
        over = database_now() - timedelta(seconds=1)
        Lease.objects.filter(scope=self.scope).update(expires_at=over)
        self.model.is_over = True


@settings(
    deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(STEPS)
def test_only_the_newest_holder_writes(steps: list[tuple[str, Act]]) -> None:
    """Each try ends as the model says: one holder at a time, and no write under an old epoch."""
    pair = Pair()

    for who, act in steps:
        getattr(pair, act)(who)

    assert leases.is_held(pair.scope) == (not pair.model.is_over)
