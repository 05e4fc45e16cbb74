"""The policy: the matrix itself, its reach, tokens, and what a refusal says."""

from datetime import timedelta
from uuid import UUID, uuid4

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from tenants.domain import access
from tenants.domain.access import SYSTEM, Actor, Verb, allowed, load_actor, may, require
from tenants.domain.errors import Denied, NotFound
from tenants.models import ApiToken, GrantRole, OrgUnit
from tests.people import NOW, People, make_grant, make_unit, make_user

pytestmark = pytest.mark.django_db

V = Verb


def actor_with(role: GrantRole, unit: OrgUnit | None) -> Actor:
    """Return an actor with one grant."""
    user = make_user(f"u{uuid4().hex}")
    make_grant(user, role, unit)
    return load_actor(user)


def token_of(people: People, verbs: list[str], unit: OrgUnit | None) -> ApiToken:
    """Return a token of Alice, not stored."""
    return ApiToken(
        user=people.alice, name="ci", verbs=verbs, unit=unit, expires_at=NOW + timedelta(days=1)
    )


MATRIX = {
    # verb: viewer, researcher, queue manager, org admin, auditor, platform admin;
    # x always, o own only, - never. reliability.md 2.3, row by row.
    V.ORG_READ: "xxxxxx",
    V.ORG_ADMIN: "---x-x",
    V.GRANT_READ: "ooxxxx",
    V.GRANT_EDIT: "---x-x",
    V.USER_EDIT: "---x-x",
    V.QUEUE_READ: "xxxxxx",
    V.QUEUE_CREATE: "--xx-x",
    V.QUEUE_EDIT: "--xx-x",
    V.QUEUE_STATE: "--xx-x",
    V.QUEUE_DELETE: "--xx-x",
    V.QUOTA_READ: "xxxxxx",
    V.QUOTA_EDIT: "---x-x",
    V.SECRET_READ: "---xxx",
    V.SECRET_USE: "-xxx-x",
    V.SECRET_EDIT: "-o-x-x",
    V.JOB_READ: "xxxxxx",
    V.JOB_READ_ENV: "-xxx-x",
    V.JOB_CREATE: "-x---x",
    V.JOB_EDIT: "-o-x-x",
    V.JOB_CONTROL: "-oxx-x",
    V.JOB_PRIORITY: "--xx-x",
    V.JOB_EVENTS: "xxxxxx",
    V.JOB_METRICS: "xxxx-x",
    V.JOB_LOGS: "-o-x-x",
    V.JOB_SHARED_LOGS: "xxxx-x",
    V.CLUSTER_READ: "xxxxxx",
    V.CLUSTER_ADMIN: "-----x",
    V.NODE_READ: "xxxxxx",
    V.NODE_LABELS: "--xxxx",
    V.NODE_ADMIN: "-----x",
    V.NODE_JOIN: "-----x",
    V.RUNTIME_READ: "xxxxxx",
    V.RUNTIME_ADMIN: "-----x",
    V.TOKEN_READ: "oooxxx",
    V.TOKEN_CREATE: "oooooo",
    V.TOKEN_REVOKE: "oooxox",
    V.WEBHOOK_READ: "---xxx",
    V.WEBHOOK_EDIT: "---x-x",
    V.AUDIT_READ: "-oxxxx",
    V.USAGE_READ: "xxxxxx",
    V.SETTINGS_READ: "----xx",
    V.SETTINGS_EDIT: "-----x",
}


def test_matrix() -> None:
    """Every role has exactly the verbs of the permission matrix, and no verb is missing."""
    roles = list(GrantRole)
    found = {}
    for verb in Verb:
        cells = ""
        for role in roles:
            rights = access.ROLES[role]
            cells += "x" if verb in rights.always else "o" if verb in rights.own else "-"
        found[verb] = cells

    assert found == MATRIX


def test_grant_reaches_down_only(people: People) -> None:
    """A grant holds on its unit and all below, not above, beside, or in another tenant."""
    actor = actor_with(GrantRole.RESEARCHER, people.vision)
    units = [people.lab, people.vision, people.robots, people.speech, people.mill]

    where = allowed(actor, V.JOB_CREATE, [unit.id for unit in units])

    assert where == {people.vision.id, people.robots.id}


def test_own_needs_a_grant_there(people: People) -> None:
    """Having made a job gives rights only where a grant still covers it."""
    bob = people.actor(people.bob)

    assert may(bob, V.JOB_CONTROL, people.robots.id, owner_id=people.bob.id)
    assert not may(bob, V.JOB_CONTROL, people.robots.id, owner_id=people.alice.id)
    assert not may(bob, V.JOB_CONTROL, people.speech.id, owner_id=people.bob.id)


def test_installation_things(people: People) -> None:
    """Nodes are seen by everyone with a grant; they and settings are changed by Root alone."""
    bob, root = people.actor(people.bob), people.actor(people.root)
    nobody = load_actor(make_user("nobody"))

    assert [may(who, V.NODE_READ, None) for who in (root, bob, nobody)] == [True, True, False]
    assert [may(who, V.NODE_ADMIN, None) for who in (root, bob)] == [True, False]
    with pytest.raises(Denied):
        require(bob, V.NODE_ADMIN, None)
    with pytest.raises(NotFound):
        require(bob, V.SETTINGS_EDIT, None)


def test_invisible_is_not_found(people: People) -> None:
    """Charlie cannot tell Bob's tenant from one that does not exist."""
    charlie = people.actor(people.charlie)

    with pytest.raises(NotFound) as existing:
        require(charlie, V.QUEUE_EDIT, people.lab.id)
    with pytest.raises(NotFound) as missing:
        require(charlie, V.QUEUE_EDIT, UUID(int=1))

    assert existing.value.what == missing.value.what == "queue"


def test_denied_says_whom_to_ask(people: People) -> None:
    """A refusal names the verb, the roles that would do and who has one, the nearest first."""
    dora = make_user("dora")
    make_grant(dora, GrantRole.QUEUE_MANAGER, people.vision)

    with pytest.raises(Denied) as refusal:
        require(people.actor(people.bob), V.QUEUE_EDIT, people.vision.id)

    assert refusal.value.code == "role_lacks_verb"
    assert refusal.value.params == {
        "verb": "queue.edit",
        "roles": "queue_manager, org_admin, platform_admin",
    }
    assert refusal.value.ask == ("dora", "alice")


def test_denied_without_a_near_admin_names_the_platform(people: People) -> None:
    """Where no one of the tenant may do it, the platform's admins are named."""
    with pytest.raises(Denied) as refusal:
        require(people.actor(people.alice), V.ORG_ADMIN, None, seen_at=people.lab.id)

    assert refusal.value.ask == ("root",)


def test_disabled_user_has_nothing(people: People) -> None:
    """A disabled account keeps its grants in rows and has no right."""
    people.bob.is_active = False
    people.bob.save()

    assert people.actor(people.bob).grants == ()


def test_token_narrows_verbs(people: People) -> None:
    """A token has the verbs it names, as far as its owner has them, and says what it lacks."""
    token = token_of(people, ["job.read", "queue.read", "cluster.admin"], None)
    actor = load_actor(people.alice, token)

    assert may(actor, V.JOB_READ, people.lab.id)
    assert not may(actor, V.CLUSTER_ADMIN, None)
    with pytest.raises(Denied) as refusal:
        require(actor, V.QUEUE_EDIT, people.lab.id)
    assert refusal.value.code == "token_lacks_verb"
    assert access.reads(actor, V.AUDIT_READ).readable_units == frozenset()


@pytest.mark.parametrize("place", ["vision", "lab", "mill"])
def test_token_narrows_to_a_subtree(people: People, place: str) -> None:
    """Of a token's unit and its owner's grants the smaller subtree holds; apart, none."""
    make_grant(people.bob, GrantRole.ORG_ADMIN, people.robots)
    token = token_of(people, [], getattr(people, place))
    actor = load_actor(people.bob, token)
    units = [people.lab, people.vision, people.robots, people.speech, people.mill]

    seen = allowed(actor, V.JOB_READ, [unit.id for unit in units])

    assert seen == (set() if place == "mill" else {people.vision.id, people.robots.id})


def test_token_without_a_reading_verb_is_no_scope(people: People) -> None:
    """A narrowed token, used as a scope with no verb named, reads nothing rather than too much."""
    partial = load_actor(people.root, token_of(people, ["job.read"], None))
    readers = ["org.read", "queue.read", "job.read", "job.create"]
    whole = load_actor(people.alice, token_of(people, readers, None))

    assert (partial.sees_everything, partial.readable_units) == (False, frozenset())
    assert access.reads(partial, V.JOB_READ).sees_everything
    assert whole.readable_units == {people.lab.id}


def test_token_of_a_platform_admin_stays_in_its_subtree(people: People) -> None:
    """Narrowed to a team, Root's token sees nothing of the rest and nothing of the installation."""
    token = token_of(people, [], people.robots)
    actor = load_actor(people.root, token)

    assert not actor.sees_everything
    assert may(actor, V.JOB_READ, people.robots.id)
    assert not may(actor, V.JOB_READ, people.vision.id)
    assert not may(actor, V.SETTINGS_EDIT, None)


def test_token_follows_its_owner(people: People) -> None:
    """What the owner loses, the token loses at the next use."""
    token = token_of(people, [], None)
    assert may(load_actor(people.alice, token), V.GRANT_EDIT, people.lab.id)

    people.alice.grants.all().delete()

    assert not may(load_actor(people.alice, token), V.GRANT_EDIT, people.lab.id)


def test_system_may_everything(people: People) -> None:
    """Loops and bootstrap act everywhere; only tokens are personal."""
    places = [people.lab.id, people.mill.id, None]
    refused = {verb for verb in Verb if allowed(SYSTEM, verb, places) != set(places)}

    assert refused == {V.TOKEN_CREATE}


@pytest.mark.parametrize("count", [1, 40])
def test_allowed_asks_once(people: People, count: int) -> None:
    """Many units cost one query, like one."""
    units = [make_unit(f"t{i}", people.lab).id for i in range(count)]
    alice = people.actor(people.alice)

    with CaptureQueriesContext(connection) as queries:
        assert allowed(alice, V.QUEUE_EDIT, units) == set(units)

    assert len(queries) == 1


def test_path_shows_names_of_ancestors(people: People) -> None:
    """Bob sees the names above his department and cannot ask for a unit beside it."""
    bob = people.actor(people.bob)

    assert [unit.name for unit in access.visible_path(bob, people.robots.id)] == [
        "lab",
        "vision",
        "robots",
    ]
    with pytest.raises(NotFound):
        access.visible_path(bob, people.speech.id)


def test_small_questions(people: People) -> None:
    """Platform admins are known as such; the setting of a queue decides which verb logs need."""
    assert [people.actor(user).is_platform_admin for user in people.everyone] == [
        True,
        False,
        False,
        False,
    ]
    assert access.logs_verb(are_logs_shared=True) == V.JOB_SHARED_LOGS
    assert access.logs_verb(are_logs_shared=False) == V.JOB_LOGS
