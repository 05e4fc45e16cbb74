"""Grants: rank, reach, own ground and the last admin."""

from collections.abc import Callable
from threading import Barrier, Thread

import pytest
from django.db import connection

from tenants.domain import access, grants, users
from tenants.domain.access import Verb, load_actor
from tenants.domain.errors import Conflict, Denied, DomainError, Invalid, NotFound
from tenants.models import ApiToken, AuditRow, Grant, GrantRole, OrgUnit, OutboxRow, User
from tests.people import NOW, People, make_grant, make_people, make_user

pytestmark = pytest.mark.django_db

R = GrantRole


def give(people: People, giver: User, role: GrantRole, unit: OrgUnit | None) -> Grant:
    """Give Bob a role."""
    return grants.give_grant(
        actor=people.actor(giver),
        user=people.bob,
        role=role,
        unit_id=unit.id if unit else None,
        now=NOW,
    )


def revoke(actor: User, grant: Grant) -> None:
    """Revoke a grant."""
    grants.revoke_grant(actor=load_actor(actor), grant_id=grant.id, now=NOW)


def test_give_and_revoke(people: People) -> None:
    """An admin gives a role in the tenant and takes it back; both are recorded."""
    grant = give(people, people.alice, R.VIEWER, people.speech)
    revoke(people.alice, grant)

    rows = AuditRow.objects.order_by("id").values_list("action", "subject_label", "tenant_id")
    assert list(rows) == [
        ("grant.give", "bob viewer speech", people.lab.id),
        ("grant.revoke", "bob viewer speech", people.lab.id),
    ]
    assert not people.bob.grants.filter(role="viewer").exists()


@pytest.mark.parametrize("role", [role for role in R if role != R.PLATFORM_ADMIN])
def test_org_admin_gives_every_role_of_the_tenant(people: People, role: GrantRole) -> None:
    """An org admin gives its own role and those below it."""
    assert give(people, people.alice, role, people.robots).role == role


def test_nobody_gives_above_their_own(people: People) -> None:
    """An org admin can neither make a platform admin nor give anything on the installation."""
    for role in (R.PLATFORM_ADMIN, R.AUDITOR):
        with pytest.raises(NotFound):
            give(people, people.alice, role, None)

    assert give(people, people.root, R.PLATFORM_ADMIN, None).unit_id is None


def test_rank_goes_by_the_place(people: People) -> None:
    """Somebody who administers one department is a mere viewer next door."""
    dora = make_user("dora")
    make_grant(dora, R.ORG_ADMIN, people.speech)
    make_grant(dora, R.QUEUE_MANAGER, people.vision)

    give(people, dora, R.ORG_ADMIN, people.speech)
    with pytest.raises(Denied):
        give(people, dora, R.VIEWER, people.vision)


@pytest.mark.parametrize(("who", "refusal"), [("bob", NotFound), ("charlie", NotFound)])
def test_strangers_and_members_give_nothing(
    people: People, who: str, refusal: type[DomainError]
) -> None:
    """Grants of others are invisible to members and strangers alike."""
    with pytest.raises(refusal):
        give(people, getattr(people, who), R.ORG_ADMIN, people.vision)

    assert people.bob.grants.count() == 1


@pytest.mark.parametrize(
    ("role", "unit", "code"),
    [
        (R.PLATFORM_ADMIN, "lab", "role_has_no_unit"),
        (R.VIEWER, None, "role_needs_unit"),
    ],
)
def test_role_and_place_fit(people: People, role: GrantRole, unit: str | None, code: str) -> None:
    """A platform admin has no unit; all others but auditors need one."""
    with pytest.raises(Invalid) as error:
        give(people, people.root, role, getattr(people, unit) if unit else None)

    assert [(problem.path, problem.code) for problem in error.value.problems] == [("unit", code)]


def test_twice(people: People) -> None:
    """The same grant is given once."""
    give(people, people.alice, R.VIEWER, people.lab)

    with pytest.raises(Conflict) as conflict:
        give(people, people.alice, R.VIEWER, people.lab)

    assert conflict.value.code == "grant_exists"
    assert AuditRow.objects.count() == 1


def test_not_under_own_feet(people: People) -> None:
    """Nobody takes the grant that lets them take it; with another one above, they may."""
    make_grant(people.bob, R.ORG_ADMIN, people.lab)
    low = make_grant(people.alice, R.ORG_ADMIN, people.vision)
    own = people.alice.grants.get(role=R.ORG_ADMIN, unit=people.lab)

    with pytest.raises(Denied) as refusal:
        revoke(people.alice, own)
    revoke(people.alice, low)

    assert refusal.value.code == "grant_under_own_feet"
    assert people.alice.grants.filter(role=R.ORG_ADMIN).count() == 1


def test_who_reads_grants_takes_none(people: People) -> None:
    """A queue manager sees who has which role and is told who could take it."""
    dora = make_user("dora")
    make_grant(dora, R.QUEUE_MANAGER, people.lab)

    with pytest.raises(Denied) as refusal:
        grants.revoke_grant(actor=people.actor(dora), grant_id=people.bob.grants.get().id, now=NOW)

    assert refusal.value.code == "role_lacks_verb"


def test_own_grant_of_a_member(people: People) -> None:
    """A member sees its own grant and cannot take it."""
    with pytest.raises(Denied):
        revoke(people.bob, people.bob.grants.get())


@pytest.mark.parametrize(("name", "role"), [("alice", R.ORG_ADMIN), ("root", R.PLATFORM_ADMIN)])
def test_last_admin_stays(people: People, name: str, role: GrantRole) -> None:
    """The last admin of a tenant or the installation stays, until another active one is there."""
    user: User = getattr(people, name)
    grant = user.grants.get(role=role)
    second = make_user("second", None)
    second.is_active = False
    second.save()
    make_grant(second, role, grant.unit)
    rescuer = make_user("rescuer")
    if role == R.ORG_ADMIN:
        make_grant(rescuer, R.PLATFORM_ADMIN, None)

        with pytest.raises(Conflict) as conflict:
            revoke(rescuer, grant)
    else:
        with pytest.raises(Conflict) as conflict:
            grants.keep_an_admin([grant])

    assert conflict.value.code == "last_admin"
    make_grant(rescuer, role, grant.unit) if role == R.ORG_ADMIN else None
    second.is_active = True
    second.save()
    revoke(second if role == R.PLATFORM_ADMIN else rescuer, grant)
    assert not user.grants.filter(id=grant.id).exists()


@pytest.mark.django_db(transaction=True)
def test_two_admins_remove_each_other() -> None:
    """Of two admins who remove each other at the same moment one remains."""
    people = make_people()
    make_grant(people.bob, R.ORG_ADMIN, people.lab)
    start = Barrier(2)
    refusals: list[str] = []

    def remove(actor: User, victim: User) -> None:
        loaded = load_actor(actor)
        grant = victim.grants.get(role=R.ORG_ADMIN, unit=people.lab)
        start.wait()
        try:
            grants.revoke_grant(actor=loaded, grant_id=grant.id, now=NOW)
        except Conflict as conflict:
            refusals.append(conflict.code)
        connection.close()

    threads = [
        Thread(target=remove, args=pair)
        for pair in ((people.alice, people.bob), (people.bob, people.alice))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert refusals == ["last_admin"]
    assert Grant.objects.filter(role=R.ORG_ADMIN, unit=people.lab).count() == 1


VIEWS: list[tuple[str, Callable[[People], set[str]]]] = [
    ("bob", lambda _: {"bob researcher vision"}),
    ("charlie", lambda _: {"charlie org_admin mill", "charlie researcher mill"}),
    (
        "alice",
        lambda _: {"alice org_admin lab", "alice researcher lab", "bob researcher vision"},
    ),
]


@pytest.mark.parametrize(("who", "expected"), VIEWS, ids=[name for name, _ in VIEWS])
def test_visible_grants(people: People, who: str, expected: Callable[[People], set[str]]) -> None:
    """One sees one's own grants, and an admin those of its units."""
    seen = grants.visible_grants(people.actor(getattr(people, who)))

    assert {
        f"{grant.user.username} {grant.role} {grant.unit.name if grant.unit else ''}"
        for grant in seen
    } == expected(people)


def test_right_to_edit_grants_alone_gives_nothing(
    people: People, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A role that may edit grants and stands in no row of what it may give, gives nothing."""
    dora = make_user("dora")
    make_grant(dora, R.QUEUE_MANAGER, people.lab)
    more = access.ROLES[R.QUEUE_MANAGER].plus(always={Verb.GRANT_EDIT})
    monkeypatch.setattr(access, "ROLES", {**access.ROLES, R.QUEUE_MANAGER: more})

    with pytest.raises(Denied) as refusal:
        give(people, dora, R.VIEWER, people.lab)

    assert refusal.value.code == "role_above_own"


def test_archived_unit_and_unknown_grant(people: People) -> None:
    """An archived unit gets no grants; a grant that is not there is not found."""
    people.speech.is_archived = True
    people.speech.save()

    with pytest.raises(Conflict) as conflict:
        give(people, people.alice, R.VIEWER, people.speech)
    with pytest.raises(NotFound):
        grants.revoke_grant(actor=people.actor(people.root), grant_id=people.lab.id, now=NOW)

    assert conflict.value.code == "unit_archived"


def test_system_sees_all_grants_and_nobody_none(people: People) -> None:
    """Loops see every grant; somebody whose token lacks the verb sees not even the own."""
    token = ApiToken(user=people.bob, name="t", verbs=["job.read"], expires_at=NOW)

    assert grants.visible_grants(access.SYSTEM).count() == Grant.objects.count()
    assert grants.visible_grants(load_actor(people.bob, token)).count() == 0


def test_live_pages_hear_of_rights(people: People) -> None:
    """Given and taken grants, and a disabled account, are hinted at to the user's own pages."""
    grant = give(people, people.alice, R.VIEWER, people.speech)
    revoke(people.alice, grant)
    users.disable_user(actor=people.actor(people.alice), user_id=people.bob.id, now=NOW)

    payloads = list(OutboxRow.objects.values_list("topic", "payload"))
    assert payloads == [("live", {"hints": [[f"user:{people.bob.id}", "grants"]]})] * 3
