"""Accounts: made with a grant, disabled by who administers all of their units."""

from threading import Event, Thread

import pytest
from django.db import connection, transaction

from tenants.domain import users
from tenants.domain.errors import Conflict, Denied, DomainError, Invalid, NotFound
from tenants.models import AuditRow, GrantRole, User
from tests.people import NOW, PASSWORD, People, make_grant, make_people, make_user

pytestmark = pytest.mark.django_db

R = GrantRole


def create(people: People, maker: User, username: str = "dora", **more: str) -> User:
    """Create a researcher in the department of vision."""
    return users.create_user(
        actor=people.actor(maker),
        username=username,
        role=R.RESEARCHER,
        unit_id=people.vision.id,
        now=NOW,
        **more,  # type: ignore[arg-type]  # texts only
    )


def disable(people: People, actor: User, user: User) -> User:
    """Disable an account."""
    return users.disable_user(actor=people.actor(actor), user_id=user.id, now=NOW)


def test_create_with_a_first_grant(people: People) -> None:
    """A new account has its grant, must change a password given to it, and both are recorded."""
    dora = create(people, people.alice, email="dora@terrace.test", password=PASSWORD)

    dora.refresh_from_db()
    assert dora.check_password(PASSWORD)
    assert dora.must_change_password
    assert [(grant.role, grant.unit) for grant in dora.grants.all()] == [
        (R.RESEARCHER, people.vision)
    ]
    assert list(AuditRow.objects.order_by("id").values_list("action", flat=True)) == [
        "user.create",
        "grant.give",
    ]
    assert PASSWORD not in str(list(AuditRow.objects.values()))


@pytest.mark.parametrize(("who", "refusal"), [("bob", NotFound), ("charlie", NotFound)])
def test_who_may_not_create(people: People, who: str, refusal: type[DomainError]) -> None:
    """Members and strangers make no accounts."""
    with pytest.raises(refusal):
        create(people, getattr(people, who))

    assert not User.objects.filter(username="dora").exists()


@pytest.mark.parametrize(
    ("more", "path"),
    [
        ({"username": "no spaces"}, "username"),
        ({"email": "nobody"}, "email"),
        ({"password": "12345"}, "password"),
        ({"first_name": "x" * 151}, "first_name"),
    ],
)
def test_unusable_fields(people: People, more: dict[str, str], path: str) -> None:
    """Each unusable field is named, and nothing is written."""
    with pytest.raises(Invalid) as error:
        create(people, people.alice, **more)

    assert {problem.path for problem in error.value.problems} == {path}
    assert User.objects.count() == 4


def test_name_taken(people: People) -> None:
    """A name in other letters' case is the same name."""
    with pytest.raises(Conflict) as conflict:
        create(people, people.alice, username="BOB")

    assert conflict.value.code == "username_taken"


def test_disable_and_enable(people: People) -> None:
    """A disabled account has no rights; enabled again it has its old ones."""
    disable(people, people.alice, people.bob)
    people.bob.refresh_from_db()
    assert people.actor(people.bob).grants == ()

    users.enable_user(actor=people.actor(people.alice), user_id=people.bob.id, now=NOW)
    people.bob.refresh_from_db()
    assert people.actor(people.bob).grants == ((R.RESEARCHER, people.vision.id),)
    assert list(AuditRow.objects.order_by("id").values_list("action", "tenant_id")) == [
        ("user.disable", people.lab.id),
        ("user.enable", people.lab.id),
    ]


def test_disable_needs_every_unit(people: People) -> None:
    """Somebody who also works for another tenant can be disabled by the platform alone."""
    make_grant(people.bob, R.VIEWER, people.mill)

    with pytest.raises(Denied):
        disable(people, people.alice, people.bob)
    disable(people, people.root, people.bob)

    people.bob.refresh_from_db()
    assert not people.bob.is_active
    assert AuditRow.objects.get().tenant_id is None


def test_strangers_do_not_exist(people: People) -> None:
    """Charlie cannot tell Bob's account from one that is not there."""
    with pytest.raises(NotFound):
        disable(people, people.charlie, people.bob)


def test_not_oneself_and_not_the_last_admin(people: People) -> None:
    """Nobody disables the own account or the only admin of a tenant."""
    dora = make_user("dora")
    make_grant(dora, R.PLATFORM_ADMIN, None)

    with pytest.raises(Denied):
        disable(people, people.root, people.root)
    with pytest.raises(Conflict) as conflict:
        disable(people, people.root, people.alice)

    assert conflict.value.code == "last_admin"


def test_own_password(people: People) -> None:
    """One's own new password needs no change at the next sign-in; one set by an admin does."""
    users.set_password(
        actor=people.actor(people.bob), user_id=people.bob.id, password=PASSWORD, now=NOW
    )
    people.bob.refresh_from_db()
    own = (people.bob.check_password(PASSWORD), people.bob.must_change_password)
    users.set_password(
        actor=people.actor(people.alice), user_id=people.bob.id, password=PASSWORD + "!", now=NOW
    )
    people.bob.refresh_from_db()

    assert own == (True, False)
    assert people.bob.must_change_password
    with pytest.raises(NotFound):
        users.set_password(
            actor=people.actor(people.bob), user_id=people.alice.id, password=PASSWORD, now=NOW
        )


def test_preferences(people: People) -> None:
    """A person sets the own zone and language; a value too long is named."""
    bob = people.actor(people.bob)
    users.set_preferences(actor=bob, time_zone="Asia/Shanghai", language="zh-hans", now=NOW)

    people.bob.refresh_from_db()
    assert (people.bob.time_zone, people.bob.language) == ("Asia/Shanghai", "zh-hans")
    with pytest.raises(Invalid) as error:
        users.set_preferences(actor=bob, time_zone="UTC", language="x" * 17, now=NOW)
    assert {problem.path for problem in error.value.problems} == {"language"}


def test_unknown_account(people: People) -> None:
    """An account that is not there is not found."""
    with pytest.raises(NotFound):
        users.enable_user(actor=people.actor(people.root), user_id=people.lab.id, now=NOW)


@pytest.mark.django_db(transaction=True)
def test_two_admins_disable_each_other() -> None:
    """Of two platform admins who disable each other at the same moment one remains."""
    people = make_people()
    make_grant(people.bob, R.PLATFORM_ADMIN, None)
    outcomes: list[str] = []
    first_is_done = Event()
    first_has_locked = Event()
    second_waits = Event()

    def first() -> None:
        with transaction.atomic():
            disable(people, people.root, people.bob)
            first_has_locked.set()
            second_waits.wait(5)
            until_blocked(1)
        first_is_done.set()
        connection.close()

    def second() -> None:
        actor = people.actor(people.bob)
        first_has_locked.wait(30)
        second_waits.set()
        try:
            users.disable_user(actor=actor, user_id=people.root.id, now=NOW)
            outcomes.append("disabled")
        except Conflict as conflict:
            outcomes.append(conflict.code)
        connection.close()

    threads = [Thread(target=first), Thread(target=second)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert first_is_done.is_set()
    assert outcomes == ["last_admin"]
    assert User.objects.get(id=people.root.id).is_active


def until_blocked(sessions: int) -> None:
    """Return when so many sessions wait for a lock, or never would within five seconds."""
    for _ in range(500):
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT count(*) FROM pg_stat_activity"
                " WHERE wait_event_type = 'Lock' AND datname = current_database()"
            )
            if cursor.fetchone()[0] >= sessions:
                return
            cursor.execute("SELECT pg_sleep(0.01)")
