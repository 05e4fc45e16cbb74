"""One-use links: whoever has one chooses a password, once, within its time."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from tenants.domain import account_links, users
from tenants.domain.errors import Conflict, Denied, DomainError, Invalid, NotFound
from tenants.models import AccountLink, AuditRow, BrowserSession, GrantRole, User
from tests.people import NOW, PASSWORD, People, make_grant, make_user

pytestmark = pytest.mark.django_db

R = GrantRole


def invite(people: People, who: User, now: datetime = NOW) -> tuple[AccountLink, str]:
    """Invite dora as a researcher of vision."""
    return account_links.invite_user(
        actor=people.actor(who),
        username="dora",
        email="dora@terrace.test",
        role=R.RESEARCHER,
        unit_id=people.vision.id,
        now=now,
    )


def test_link_is_used_once(people: People) -> None:
    """A password is chosen; the link is of no use any more; the secret is nowhere."""
    link, secret = invite(people, people.alice)

    user = account_links.use_link(secret=secret, password=PASSWORD, now=NOW)

    assert user == link.user
    assert user.check_password(PASSWORD)
    assert not user.must_change_password
    with pytest.raises(NotFound):
        account_links.use_link(secret=secret, password=PASSWORD, now=NOW)
    row = AuditRow.objects.get(action="user.choose_password")
    assert (row.actor, row.unit) == (user, people.vision)
    assert secret not in str([list(AccountLink.objects.values()), list(AuditRow.objects.values())])


def test_weak_password_leaves_the_link_in_force(people: People) -> None:
    """Whoever chose too weak a password tries again with the same link."""
    _, secret = invite(people, people.alice)

    with pytest.raises(Invalid):
        account_links.use_link(secret=secret, password="12345", now=NOW)

    assert account_links.find_link(secret, NOW).user.username == "dora"


@pytest.mark.parametrize("days", [6, 8])
def test_link_ends_with_its_time(people: People, days: int) -> None:
    """An invitation holds for seven days."""
    _, secret = invite(people, people.alice)
    later = NOW + timedelta(days=days)

    if days < 7:
        assert account_links.find_link(secret, later).purpose == "invite"
    else:
        with pytest.raises(NotFound):
            account_links.find_link(secret, later)


def test_newer_link_replaces_the_older(people: People) -> None:
    """Only the last link that was made opens the account."""
    link, first = invite(people, people.alice)
    _, second = account_links.invite_again(
        actor=people.actor(people.alice), user_id=link.user_id, now=NOW
    )

    with pytest.raises(NotFound):
        account_links.find_link(first, NOW)
    assert account_links.find_link(second, NOW).user == link.user


@pytest.mark.parametrize("what", ["disable", "remove"])
def test_link_ends_with_the_account(people: People, what: str) -> None:
    """Who was disabled or removed cannot come in by an old link."""
    link, secret = invite(people, people.alice)
    change = users.disable_user if what == "disable" else users.remove_user

    change(actor=people.actor(people.alice), user_id=link.user_id, now=NOW)

    with pytest.raises(NotFound):
        account_links.find_link(secret, NOW)


def test_reset_takes_the_password_at_once(people: People) -> None:
    """The old password and the sessions are gone before the link is used."""
    bob = people.bob
    bob.set_password(PASSWORD)
    bob.save()
    BrowserSession.objects.create(
        session_key="s" * 32, session_data="", expire_date=NOW + timedelta(days=1), user=bob
    )

    link, secret = account_links.reset_password(
        actor=people.actor(people.alice), user_id=bob.id, now=NOW
    )

    bob.refresh_from_db()
    assert not bob.has_usable_password()
    assert not BrowserSession.objects.filter(user=bob).exists()
    assert link.expires_at == NOW + timedelta(days=1)
    assert account_links.use_link(secret=secret, password=PASSWORD, now=NOW) == bob


@pytest.mark.parametrize(
    ("who", "whom", "refusal"),
    [
        ("charlie", "bob", NotFound),
        ("bob", "alice", NotFound),
        ("alice", "alice", Denied),
        ("alice", "root", NotFound),
    ],
)
def test_who_may_not_reset(people: People, who: str, whom: str, refusal: type[DomainError]) -> None:
    """Strangers, members, and admins of less than the account's units do not; nobody their own."""
    user: User = getattr(people, whom)

    with pytest.raises(refusal):
        account_links.reset_password(
            actor=people.actor(getattr(people, who)), user_id=user.id, now=NOW
        )

    assert not AccountLink.objects.exists()


def test_admin_of_a_part_resets_nothing(people: People) -> None:
    """Somebody who also works elsewhere is not taken over by the admin of one of their units."""
    make_grant(people.bob, R.VIEWER, people.mill)

    with pytest.raises(Denied) as error:
        account_links.reset_password(
            actor=people.actor(people.alice), user_id=people.bob.id, now=NOW
        )

    assert error.value.code == "account_of_others_too"


@pytest.mark.parametrize(("is_service", "code"), [(True, "service_has_no_password"), (False, "")])
def test_service_accounts_have_no_link(people: People, is_service: bool, code: str) -> None:
    """A service account signs in by token; a person without password is invited again."""
    robot = make_user("robot")
    robot.is_service, robot.home = is_service, people.vision
    robot.save()
    make_grant(robot, R.RESEARCHER, people.vision)
    actor = people.actor(people.alice)

    if code:
        with pytest.raises(Conflict) as error:
            account_links.invite_again(actor=actor, user_id=robot.id, now=NOW)
        assert error.value.code == code
    else:
        assert account_links.invite_again(actor=actor, user_id=robot.id, now=NOW)


def test_who_has_a_password_is_not_invited_again(people: People) -> None:
    """A second invitation would let its maker take the account over unseen."""
    people.bob.set_password(PASSWORD)
    people.bob.save()

    with pytest.raises(Conflict) as error:
        account_links.invite_again(actor=people.actor(people.alice), user_id=people.bob.id, now=NOW)

    assert error.value.code == "already_joined"
