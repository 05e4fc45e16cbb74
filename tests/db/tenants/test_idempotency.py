"""Repeated requests: one effect, one reply, whoever is faster."""

from collections.abc import Mapping
from datetime import timedelta
from threading import Barrier, Thread

import pytest
from django.db import connection

from tenants.domain import idempotency
from tenants.domain.errors import Invalid
from tenants.models import IdempotencyKey, OrgUnit, User
from tests.people import NOW, People, make_unit, make_user

pytestmark = pytest.mark.django_db


def run(
    user: User, key: str, name: str, request_hash: str = "h"
) -> tuple[int, Mapping[str, object], bool]:
    """Create a tenant once."""

    def effect() -> tuple[int, Mapping[str, object]]:
        return 201, {"id": str(make_unit(name).id)}

    return idempotency.run_once(
        user_id=user.id, key=key, request_hash=request_hash, now=NOW, effect=effect
    )


def test_repeated_gets_the_same_reply(people: People) -> None:
    """The second request has no effect and the first one's reply."""
    first = run(people.bob, "k", "a")
    second = run(people.bob, "k", "b")

    assert second == (*first[:2], True)
    assert OrgUnit.objects.filter(name__in="ab").count() == 1


def test_keys_belong_to_users(people: People) -> None:
    """Another user's equal key is another key."""
    assert run(people.bob, "k", "a")[2] is False
    assert run(people.alice, "k", "b")[2] is False


def test_other_request_with_the_key(people: People) -> None:
    """The same key for another body is refused, and nothing happens."""
    run(people.bob, "k", "a")

    with pytest.raises(Invalid) as error:
        run(people.bob, "k", "b", request_hash="other")

    assert error.value.problems[0].code == "idempotency_key_reused"
    assert not OrgUnit.objects.filter(name="b").exists()


@pytest.mark.parametrize("key", ["", "k" * 201])
def test_unusable_key(people: People, key: str) -> None:
    """A key has 1 to 200 characters."""
    with pytest.raises(Invalid):
        run(people.bob, key, "a")


def test_failed_effect_frees_the_key(people: People) -> None:
    """What raised had no effect, so the same request may be tried again."""

    def broken() -> tuple[int, Mapping[str, object]]:
        make_unit("half")
        raise ValueError

    with pytest.raises(ValueError):  # noqa: PT011 - raised three lines above
        idempotency.run_once(
            user_id=people.bob.id, key="k", request_hash="h", now=NOW, effect=broken
        )

    assert not OrgUnit.objects.filter(name="half").exists()
    assert run(people.bob, "k", "a")[2] is False


def test_forgotten_after_a_day(people: People) -> None:
    """After 24 hours the key is free, and old ones are cleaned up."""
    run(people.bob, "k", "a")
    IdempotencyKey.objects.update(created_at=NOW - idempotency.KEPT - timedelta(seconds=1))
    assert run(people.bob, "k", "b")[2] is False

    IdempotencyKey.objects.update(created_at=NOW - idempotency.KEPT - timedelta(seconds=1))
    assert idempotency.forget_old(NOW) == 1


@pytest.mark.django_db(transaction=True)
def test_eight_at_once() -> None:
    """Of eight equal requests at the same moment one acts and all get its reply."""
    user = make_user("bob")
    start = Barrier(8)
    replies = []

    def request(number: int) -> None:
        start.wait()
        replies.append(run(user, "k", f"t{number}"))
        connection.close()

    threads = [Thread(target=request, args=[number]) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(replies) == 8
    assert len({str(reply) for _, reply, _ in replies}) == 1
    assert [was_repeated for _, _, was_repeated in replies].count(False) == 1
    assert OrgUnit.objects.count() == 1
