"""API tokens: made once, shown once, narrowed, expiring, revoked."""

from datetime import datetime, timedelta

import pytest

from tenants.domain import tokens
from tenants.domain.access import load_actor
from tenants.domain.errors import Denied, Invalid, NotFound
from tenants.models import ApiToken, AuditRow, GrantRole, OrgUnit, User
from tests.people import NOW, People, make_grant, make_user

pytestmark = pytest.mark.django_db

DAY = timedelta(days=1)


def create(
    people: People,
    maker: User,
    user: User | None = None,
    *,
    verbs: tuple[str, ...] = (),
    unit: OrgUnit | None = None,
    expires_at: datetime = NOW + DAY,
) -> tuple[ApiToken, str]:
    """Create a token."""
    return tokens.create_token(
        actor=people.actor(maker),
        user=user or maker,
        name="ci",
        verbs=verbs,
        unit=unit,
        expires_at=expires_at,
        now=NOW,
    )


def test_secret_is_shown_once(people: People) -> None:
    """The secret works and is nowhere in the rows, the audit row included."""
    token, secret = create(people, people.bob, verbs=("job.read",), unit=people.robots)

    assert tokens.authenticate(secret, NOW) == (people.bob, token)
    assert secret.startswith(token.prefix)
    assert secret[len(token.prefix) :] not in str(list(ApiToken.objects.values()))
    assert secret[len(token.prefix) :] not in str(list(AuditRow.objects.values()))
    assert AuditRow.objects.get().tenant_id == people.lab.id


def test_wrong_secrets(people: People) -> None:
    """An unknown, altered or foreign secret stands for nobody."""
    _, secret = create(people, people.bob)

    for wrong in ("", "trc_", secret[:-1], secret + "x", secret.removeprefix("trc_")):
        assert tokens.authenticate(wrong, NOW) is None


def test_ends(people: People) -> None:
    """A token ends at its expiry, with its user, and when revoked."""
    token, secret = create(people, people.bob)
    assert tokens.authenticate(secret, NOW + DAY - timedelta(seconds=1))
    assert tokens.authenticate(secret, NOW + DAY) is None

    User.objects.filter(id=people.bob.id).update(is_active=False)
    assert tokens.authenticate(secret, NOW) is None

    User.objects.filter(id=people.bob.id).update(is_active=True)
    tokens.revoke_token(actor=people.actor(people.bob), token_id=token.id, now=NOW)
    tokens.revoke_token(actor=people.actor(people.bob), token_id=token.id, now=NOW)
    assert tokens.authenticate(secret, NOW) is None
    assert AuditRow.objects.filter(action="token.revoke").count() == 1


def test_last_use_is_written_once_a_minute(people: People) -> None:
    """Many requests within a minute are one write."""
    token, secret = create(people, people.bob)
    for seconds in (0, 1, 59, 60, 61):
        tokens.authenticate(secret, NOW + timedelta(seconds=seconds))

    token.refresh_from_db()
    assert token.last_used_at == NOW + timedelta(seconds=60)


@pytest.mark.parametrize(
    ("verbs", "lasts", "problem"),
    [
        (("job.reed",), DAY, ("verbs", "unknown_verb")),
        ((), timedelta(0), ("expires_at", "expiry")),
        ((), tokens.LONGEST_LIFE + timedelta(seconds=1), ("expires_at", "expiry")),
    ],
)
def test_unusable_fields(
    people: People, verbs: tuple[str, ...], lasts: timedelta, problem: tuple[str, str]
) -> None:
    """A verb that does not exist and a time that is over or too far off are refused."""
    with pytest.raises(Invalid) as error:
        create(people, people.bob, verbs=verbs, expires_at=NOW + lasts)

    assert [(found.path, found.code) for found in error.value.problems] == [problem]
    assert ApiToken.objects.count() == 0


def test_too_many(people: People) -> None:
    """A user has at most fifty live tokens; dead ones do not count."""
    for _ in range(tokens.MOST_TOKENS):
        create(people, people.bob)

    with pytest.raises(Invalid) as error:
        create(people, people.bob)

    assert [problem.code for problem in error.value.problems] == ["too_many_tokens"]
    ApiToken.objects.update(expires_at=NOW)
    create(people, people.bob)


def test_unit_of_strangers(people: People) -> None:
    """A token cannot be narrowed to a unit that its maker does not see."""
    with pytest.raises(NotFound):
        create(people, people.bob, unit=people.mill)


def test_for_others(people: People) -> None:
    """Nobody makes another person's token; an admin makes those of its service accounts."""
    robot = make_user("robot")
    robot.is_service, robot.home = True, people.vision
    robot.save()
    make_grant(robot, GrantRole.RESEARCHER, people.vision)

    with pytest.raises(Denied):
        create(people, people.alice, people.bob)
    with pytest.raises(Denied):
        create(people, people.charlie, robot)
    token, _ = create(people, people.alice, robot)

    assert token.user == robot


def test_no_token_makes_tokens(people: People) -> None:
    """A stolen token cannot make itself a longer life."""
    token, _ = create(people, people.bob)

    with pytest.raises(Denied) as refusal:
        tokens.create_token(
            actor=load_actor(people.bob, token),
            user=people.bob,
            name="more",
            verbs=(),
            unit=None,
            expires_at=NOW + DAY,
            now=NOW,
        )

    assert refusal.value.code == "token_by_token"


def test_who_sees_and_revokes(people: People) -> None:
    """Its owner and who administers the owner's unit revoke a token; others find none."""
    token, _ = create(people, people.bob)
    auditor = make_user("olga")
    make_grant(auditor, GrantRole.AUDITOR, people.lab)
    seen = {
        name: tokens.visible_tokens(people.actor(user)).count()
        for name, user in (
            ("bob", people.bob),
            ("alice", people.alice),
            ("root", people.root),
            ("olga", auditor),
            ("charlie", people.charlie),
        )
    }

    assert seen == {"bob": 1, "alice": 1, "root": 1, "olga": 1, "charlie": 0}
    with pytest.raises(NotFound):
        tokens.revoke_token(actor=people.actor(people.charlie), token_id=token.id, now=NOW)
    with pytest.raises(Denied):
        tokens.revoke_token(actor=people.actor(auditor), token_id=token.id, now=NOW)
    tokens.revoke_token(actor=people.actor(people.alice), token_id=token.id, now=NOW)
    token.refresh_from_db()
    assert token.revoked_at == NOW


def test_unusable_name(people: People) -> None:
    """A token has a printable name."""
    for name in ("", "x" * 101, "a\nb"):
        with pytest.raises(Invalid) as error:
            tokens.create_token(
                actor=people.actor(people.bob),
                user=people.bob,
                name=name,
                verbs=(),
                unit=None,
                expires_at=NOW + DAY,
                now=NOW,
            )
        assert [problem.path for problem in error.value.problems] == ["name"]


def test_narrowed_token_lists_no_tokens(people: People) -> None:
    """A token that lacks the verb does not even list its owner's tokens."""
    token, _ = create(people, people.bob, verbs=("job.read",))

    assert tokens.visible_tokens(load_actor(people.bob, token)).count() == 0
