"""The organisation tree: rights, rules, and a closure that follows every move."""

from collections.abc import Callable
from threading import Barrier, Thread
from uuid import UUID

import pytest
from django.db import connection

from tenants.domain import org
from tenants.domain.access import SYSTEM, Actor
from tenants.domain.errors import Conflict, Denied, DomainError, Invalid, NotFound
from tenants.models import AuditRow, GrantRole, OrgClosure, OrgUnit, OrgUnitKind, User
from tests.people import NOW, People, make_grant, make_unit

pytestmark = pytest.mark.django_db


def problems(error: pytest.ExceptionInfo[Invalid]) -> list[tuple[str, str]]:
    """Return place and code of each problem."""
    return [(problem.path, problem.code) for problem in error.value.problems]


def closure_by_parents() -> set[tuple[UUID, UUID, int]]:
    """Compute the closure afresh from the parents."""
    parents = dict(OrgUnit.objects.values_list("id", "parent_id"))
    links = set()
    for unit in parents:
        above: UUID | None = unit
        depth = 0
        while above is not None:
            links.add((above, unit, depth))
            above, depth = parents[above], depth + 1
    return links


def closure() -> set[tuple[UUID, UUID, int]]:
    """Return the stored closure."""
    return set(OrgClosure.objects.values_list("ancestor_id", "descendant_id", "depth"))


def create(actor: Actor, parent: OrgUnit | None, name: str) -> OrgUnit:
    """Create a team or a tenant."""
    kind = OrgUnitKind.TEAM if parent else OrgUnitKind.TENANT
    return org.create_unit(
        actor=actor, parent_id=parent.id if parent else None, name=name, kind=kind, now=NOW
    )


def move(actor: Actor, unit: OrgUnit, parent: OrgUnit) -> OrgUnit:
    """Move a unit at its present version."""
    unit.refresh_from_db()
    return org.move_unit(
        actor=actor,
        unit_id=unit.id,
        parent_id=parent.id,
        expected_version=unit.version,
        now=NOW,
    )


def test_create_under_a_parent(people: People) -> None:
    """A new team lies below its parent and all above, belongs to the tenant, and is recorded."""
    unit = create(people.actor(people.alice), people.robots, "arms")

    assert unit.tenant_id == people.lab.id
    assert closure() == closure_by_parents()
    [row] = AuditRow.objects.all()
    assert (row.action, row.actor_label, row.tenant_id, row.after) == (
        "org_unit.create",
        "alice",
        people.lab.id,
        {"name": "arms", "kind": "team", "parent": str(people.robots.id)},
    )


@pytest.mark.parametrize(
    ("who", "refusal"), [("bob", Denied), ("charlie", NotFound), ("root", None), ("alice", None)]
)
def test_who_may_create(people: People, who: str, refusal: type[DomainError] | None) -> None:
    """Admins of the parent may; a member is told whom to ask; a stranger finds nothing."""
    user: User = getattr(people, who)
    if refusal is None:
        create(people.actor(user), people.vision, "arms")
    else:
        with pytest.raises(refusal):
            create(people.actor(user), people.vision, "arms")

    assert OrgUnit.objects.filter(name="arms").count() == (refusal is None)
    assert AuditRow.objects.count() == (refusal is None)


def test_only_the_platform_makes_and_renames_tenants(people: People) -> None:
    """A tenant belongs to the installation: its own admin may not rename it."""
    create(people.actor(people.root), None, "press")
    with pytest.raises(NotFound):
        create(people.actor(people.alice), None, "press2")
    with pytest.raises(Denied):
        org.rename_unit(
            actor=people.actor(people.alice),
            unit_id=people.lab.id,
            name="labs",
            expected_version=1,
            now=NOW,
        )


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("", "length"),
        ("x" * 101, "length"),
        (" a", "not_printable"),
        ("a\u202eb", "not_printable"),
        ("a\nb", "not_printable"),
        ("speech", "taken"),
    ],
)
def test_unusable_names(people: People, name: str, code: str) -> None:
    """A name that is empty, too long, not printable or a sibling's is refused."""
    with pytest.raises(Invalid) as error:
        create(people.actor(people.alice), people.lab, name)

    assert problems(error) == [("name", code)]


def test_unicode_twins_are_one_name(people: People) -> None:
    """A letter with its accent and the two characters that look the same cannot be two siblings."""
    alice = people.actor(people.alice)
    create(alice, people.lab, "caf\u00e9")

    with pytest.raises(Invalid) as error:
        create(alice, people.lab, "cafe\u0301")

    assert problems(error) == [("name", "taken")]


def test_tenant_inside_a_tenant(people: People) -> None:
    """A unit with a parent is no tenant."""
    with pytest.raises(Invalid) as error:
        org.create_unit(
            actor=people.actor(people.root),
            parent_id=people.lab.id,
            name="x",
            kind=OrgUnitKind.TENANT,
            now=NOW,
        )

    assert problems(error) == [("kind", "tenant_is_top_level")]


def test_too_deep(people: People) -> None:
    """The tree ends at the deepest level, for what is made there and for what is moved there."""
    alice = people.actor(people.alice)
    chain = [people.lab]
    while len(chain) < org.DEEPEST:
        chain.append(make_unit(f"level{len(chain)}", chain[-1]))

    with pytest.raises(Invalid) as made:
        create(alice, chain[-1], "below")
    with pytest.raises(Invalid) as moved:
        move(alice, people.vision, chain[-2])

    assert problems(made) == problems(moved) == [("parent", "unit_too_deep")]


def test_rename(people: People) -> None:
    """A rename is a version, and before and after are recorded."""
    unit = org.rename_unit(
        actor=people.actor(people.alice),
        unit_id=people.vision.id,
        name="seeing",
        expected_version=1,
        now=NOW,
        reason="clearer",
    )

    unit.refresh_from_db()
    assert (unit.name, unit.version) == ("seeing", 2)
    [row] = AuditRow.objects.all()
    assert (row.before, row.after, row.reason) == (
        {"name": "vision"},
        {"name": "seeing"},
        "clearer",
    )


def test_stale_version(people: People) -> None:
    """Who saw an older version changes nothing and gets what is stored now."""
    with pytest.raises(Conflict) as conflict:
        org.rename_unit(
            actor=people.actor(people.alice),
            unit_id=people.vision.id,
            name="seeing",
            expected_version=7,
            now=NOW,
        )

    assert conflict.value.code == "version"
    assert conflict.value.current == people.vision
    assert AuditRow.objects.count() == 0


def test_move_takes_the_subtree_along(people: People) -> None:
    """All links to the old ancestors go, those to the new come, those inside stay."""
    move(people.actor(people.alice), people.vision, people.speech)

    assert closure() == closure_by_parents()
    assert OrgClosure.objects.get(ancestor=people.speech, descendant=people.robots).depth == 2


def test_move_under_itself(people: People) -> None:
    """A unit cannot hang below itself or its own descendant."""
    alice = people.actor(people.alice)
    for target in (people.vision, people.robots):
        with pytest.raises(Invalid) as error:
            move(alice, people.vision, target)
        assert problems(error) == [("parent", "inside_itself")]

    assert closure() == closure_by_parents()


def test_move_needs_both_parents(people: People) -> None:
    """Administering the old parent alone, or the new one alone, is not enough."""
    make_grant(people.bob, GrantRole.ORG_ADMIN, people.vision)
    with pytest.raises(NotFound):
        move(people.actor(people.bob), people.robots, people.speech)

    with pytest.raises(NotFound):
        move(people.actor(people.bob), people.speech, people.vision)

    make_grant(people.bob, GrantRole.ORG_ADMIN, people.speech)
    move(people.actor(people.bob), people.robots, people.speech)
    assert OrgUnit.objects.get(id=people.robots.id).parent_id == people.speech.id


def test_move_stays_in_the_tenant(people: People) -> None:
    """Not even Root moves a team to another tenant, or a tenant at all."""
    root = people.actor(people.root)
    for unit, target in ((people.robots, people.mill), (people.mill, people.lab)):
        with pytest.raises(Invalid) as error:
            move(root, unit, target)
        assert problems(error) == [("parent", "unit_stays_in_tenant")]


def test_archive_and_restore(people: People) -> None:
    """A unit retires after those below it, takes nothing new, and comes back below a live one."""
    alice = people.actor(people.alice)

    def set_archived(change: Callable[..., OrgUnit], unit: OrgUnit) -> OrgUnit:
        unit.refresh_from_db()
        return change(actor=alice, unit_id=unit.id, expected_version=unit.version, now=NOW)

    with pytest.raises(Conflict):
        set_archived(org.archive_unit, people.vision)
    set_archived(org.archive_unit, people.robots)
    assert set_archived(org.archive_unit, people.vision).is_archived
    with pytest.raises(Conflict):
        create(alice, people.vision, "arms")
    with pytest.raises(Conflict):
        set_archived(org.restore_unit, people.robots)
    set_archived(org.restore_unit, people.vision)
    assert not set_archived(org.restore_unit, people.robots).is_archived
    assert AuditRow.objects.count() == 4


def test_places_that_take_nothing(people: People) -> None:
    """Nothing is moved below an archived unit, and what is not there is not found."""
    alice = people.actor(people.alice)
    people.speech.is_archived = True
    people.speech.save()

    with pytest.raises(Conflict) as conflict:
        move(alice, people.vision, people.speech)
    with pytest.raises(NotFound):
        org.archive_unit(actor=alice, unit_id=UUID(int=1), expected_version=1, now=NOW)

    assert conflict.value.code == "unit_archived"


def test_name_taken_at_the_new_place(people: People) -> None:
    """A unit does not move to where its name is taken."""
    make_unit("robots", people.speech)

    with pytest.raises(Invalid) as error:
        move(people.actor(people.alice), people.robots, people.speech)

    assert problems(error) == [("parent", "name_taken_there")]


@pytest.mark.django_db(transaction=True)
def test_two_tenants_of_one_name_at_once() -> None:
    """Of two tenants with one name made at the same moment, the second is told that it is taken."""
    start = Barrier(2)
    outcomes: list[str] = []

    def make() -> None:
        start.wait()
        try:
            create(SYSTEM, None, "press")
            outcomes.append("made")
        except Invalid as error:
            outcomes.append(error.problems[0].code)
        connection.close()

    threads = [Thread(target=make) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(outcomes) == ["made", "taken"]
    assert OrgUnit.objects.filter(name="press").count() == 1
