"""Accounts that grants alone do not place: removed, without a role, of a service; and versions."""

from __future__ import annotations

from datetime import timedelta

import pytest
from allauth.mfa.models import Authenticator

from tenants.domain import grants, tokens, users
from tenants.domain.access import load_actor
from tenants.domain.errors import Conflict, Denied, Invalid, NotFound
from tenants.models import ApiToken, AuditRow, BrowserSession, Grant, GrantRole, User
from tests.people import NOW, People, make_grant, make_user

pytestmark = pytest.mark.django_db

R = GrantRole


def names(people: People, who: User) -> set[str]:
    """Return the names of the accounts that somebody may list."""
    return set(users.visible_users(people.actor(who)).values_list("username", flat=True))


def make_token(user: User) -> ApiToken:
    """Make a token of a user."""
    return tokens.create_token(
        actor=load_actor(user),
        user=user,
        name="ci",
        verbs=[],
        unit=None,
        expires_at=NOW + timedelta(days=1),
        now=NOW,
    )[0]


def test_removed_account_has_nothing_to_act_with(people: People) -> None:
    """Grants, tokens, sessions and second factor are gone; the record says what there was."""
    bob = people.bob
    token = make_token(bob)
    Authenticator.objects.create(user=bob, type="totp", data={})
    BrowserSession.objects.create(
        session_key="s" * 32, session_data="", expire_date=NOW + timedelta(days=1), user=bob
    )

    users.remove_user(actor=people.actor(people.alice), user_id=bob.id, now=NOW, reason="left")

    bob.refresh_from_db()
    token.refresh_from_db()
    assert (bob.is_active, bob.removed_at, bob.home) == (False, NOW, people.vision)
    assert token.revoked_at == NOW
    assert not Grant.objects.filter(user=bob).exists()
    assert not Authenticator.objects.filter(user=bob).exists()
    assert not BrowserSession.objects.filter(user=bob).exists()
    row = AuditRow.objects.get(action="user.remove")
    assert row.before is not None
    assert (row.reason, row.unit, row.before["tokens"]) == ("left", people.vision, 1)


def test_removed_account_is_found_by_its_unit(people: People) -> None:
    """Who looked after it lists it and takes it back; strangers still see nothing."""
    alice = people.actor(people.alice)
    users.remove_user(actor=alice, user_id=people.bob.id, now=NOW)

    with pytest.raises(NotFound):
        users.enable_user(actor=people.actor(people.charlie), user_id=people.bob.id, now=NOW)
    with pytest.raises(Conflict):
        grants.give_grant(
            actor=alice, user=User.objects.get(id=people.bob.id), role=R.VIEWER,
            unit_id=people.vision.id, now=NOW,
        )  # fmt: skip
    back = users.enable_user(actor=alice, user_id=people.bob.id, now=NOW)

    assert (back.is_active, back.removed_at) == (True, None)
    assert "bob" in names(people, people.alice)
    assert "bob" not in names(people, people.charlie)


def test_last_role_leaves_a_trace(people: People) -> None:
    """Whoever loses the last grant is found where it was; with a new one, there."""
    grant = Grant.objects.get(user=people.bob)
    grants.revoke_grant(actor=people.actor(people.alice), grant_id=grant.id, now=NOW)

    assert "bob" in names(people, people.alice)
    assert names(people, people.charlie) == {"charlie"}
    make_grant(people.bob, R.VIEWER, people.mill)
    assert "bob" not in names(people, people.alice)
    assert "bob" in names(people, people.charlie)


def test_last_admin_is_not_removed(people: People) -> None:
    """A tenant keeps somebody who administers it."""
    with pytest.raises(Conflict) as error:
        users.remove_user(actor=people.actor(people.root), user_id=people.alice.id, now=NOW)

    assert error.value.code == "last_admin"
    assert Grant.objects.filter(user=people.alice).count() == 2


def test_nobody_removes_themselves(people: People) -> None:
    """One's own account is for another administrator."""
    make_grant(people.bob, R.ORG_ADMIN, people.lab)

    with pytest.raises(Denied) as error:
        users.remove_user(actor=people.actor(people.alice), user_id=people.alice.id, now=NOW)

    assert error.value.code == "own_account"


def make_service(people: People) -> User:
    """Make a service account of vision."""
    return users.create_user(
        actor=people.actor(people.alice),
        username="ci",
        role=R.RESEARCHER,
        unit_id=people.vision.id,
        is_service=True,
        now=NOW,
    )


def test_service_account_belongs_to_its_unit(people: People) -> None:
    """Its unit keeps it without a grant; it gets none outside, and has no password."""
    robot = make_service(people)
    alice = people.actor(people.alice)
    Grant.objects.filter(user=robot).delete()

    with pytest.raises(Invalid) as error:
        grants.give_grant(actor=alice, user=robot, role=R.VIEWER, unit_id=people.speech.id, now=NOW)
    with pytest.raises(Conflict):
        users.set_password(actor=alice, user_id=robot.id, password="x" * 20, now=NOW)
    grants.give_grant(actor=alice, user=robot, role=R.VIEWER, unit_id=people.robots.id, now=NOW)

    assert [one.code for one in error.value.problems] == ["service_outside_home"]
    assert robot.home == people.vision
    assert users.grant_units(robot) == {people.vision.id, people.robots.id}


@pytest.mark.parametrize(
    ("unit", "password", "paths"),
    [
        (False, None, {"unit"}),
        (True, "x" * 20, {"password"}),
        (False, "x" * 20, {"unit", "password"}),
    ],
)
def test_service_account_needs_a_unit_and_no_password(
    people: People, unit: bool, password: str | None, paths: set[str]
) -> None:
    """What does not fit a program's account is named."""
    with pytest.raises(Invalid) as error:
        users.create_user(
            actor=people.actor(people.root),
            username="ci",
            role=R.AUDITOR,
            unit_id=people.vision.id if unit else None,
            password=password,
            is_service=True,
            now=NOW,
        )

    assert {problem.path for problem in error.value.problems} == paths


@pytest.mark.parametrize("change", [users.disable_user, users.enable_user, users.remove_user])
def test_stale_version_is_refused(people: People, change: object) -> None:
    """Two admins notice each other."""
    assert callable(change)
    users.edit_user(
        actor=people.actor(people.alice),
        user_id=people.bob.id,
        email="b@terrace.test",
        first_name="B",
        last_name="",
        now=NOW,
        expected_version=1,
    )

    with pytest.raises(Conflict) as error:
        change(actor=people.actor(people.alice), user_id=people.bob.id, now=NOW, expected_version=1)

    assert error.value.params == {"expected": 1, "version": 2}


def test_everybody_lists_themselves(people: People) -> None:
    """Somebody without any role still sees their own account, and nobody else's."""
    loner = make_user("loner")

    assert names(people, loner) == {"loner"}
    assert "loner" in names(people, people.root)
