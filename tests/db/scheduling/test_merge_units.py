"""Merging units: people, queues, jobs and units go over; what stands in the way is said."""

import pytest

from scheduling.domain import unit_queues
from scheduling.domain.deeds import Deed
from scheduling.models import Job, Queue
from tenants.domain.errors import Conflict, Denied, DomainError, Invalid, NotFound
from tenants.models import AuditRow, Grant, GrantRole, OrgClosure, OrgUnit, User
from tests.db.scheduling.test_queues import closure, closure_by_parents, make_job
from tests.people import NOW, People, Queues, make_grant, make_queues, make_unit

pytestmark = pytest.mark.django_db


@pytest.fixture
def tree(people: People) -> Queues:
    """A queue for each unit."""
    return make_queues(people)


def merge(people: People, who: str, unit: OrgUnit, into: OrgUnit) -> OrgUnit:
    """Merge as somebody."""
    return unit_queues.merge_unit(
        deed=Deed(people.actor(getattr(people, who)), NOW, "one team now"),
        unit_id=unit.id,
        into_id=into.id,
        expected_version=unit.version,
    )


def roles(user: User) -> set[tuple[str, str]]:
    """Return role and unit of each grant."""
    held = Grant.objects.filter(user=user).values_list("role", "unit__name")
    return {(role, unit or "") for role, unit in held}


def test_all_goes_over(people: People, tree: Queues) -> None:
    """Units below and their queues go to the other unit; people have their roles there too."""
    merge(people, "alice", people.vision, people.speech)

    people.vision.refresh_from_db()
    people.robots.refresh_from_db()
    tree.robots.refresh_from_db()
    assert people.vision.is_archived
    assert people.robots.parent == people.speech
    assert tree.robots.parent == tree.speech
    assert roles(people.bob) == {("researcher", "vision"), ("researcher", "speech")}
    assert not Queue.objects.filter(name="vision").exists()  # it never had a job
    assert closure() == closure_by_parents()
    row = AuditRow.objects.get(action="org_unit.merge")
    assert row.after is not None
    assert (row.reason, row.after["units"], row.after["queues"]) == ("one team now", ["robots"], [])


def test_queue_goes_over_with_its_jobs_where_the_other_has_none(people: People) -> None:
    """A unit without a queue takes over the other's, and the jobs in it are its own then."""
    tree = make_queues(people)
    job = make_job(tree.speech, people.bob)
    sound = make_unit("sound", people.lab)

    merge(people, "alice", people.speech, sound)

    tree.speech.refresh_from_db()
    job.refresh_from_db()
    assert (tree.speech.unit, tree.speech.parent, tree.speech.state) == (sound, tree.lab, "Open")
    assert (job.unit, job.queue) == (sound, tree.speech)
    assert Job.objects.filter(unit=people.speech).count() == 0


def test_handed_over_queue_hangs_where_its_new_unit_does(people: People, tree: Queues) -> None:
    """The tree of queues stays a picture of the organisation."""
    Queue.objects.filter(id=tree.robots.id).delete()
    sound = make_unit("sound", people.vision)

    merge(people, "alice", people.speech, sound)

    tree.speech.refresh_from_db()
    assert tree.speech.parent == tree.vision
    assert closure() == closure_by_parents()


def test_live_jobs_keep_two_queues_apart(people: People, tree: Queues) -> None:
    """Jobs change no queue unasked: while some are left, nothing at all is merged."""
    make_job(tree.speech, people.bob)

    with pytest.raises(Conflict) as error:
        merge(people, "alice", people.speech, people.robots)

    assert (error.value.code, error.value.params["jobs"]) == ("merge_queue_has_jobs", 1)
    assert roles(people.bob) == {("researcher", "vision")}
    assert not OrgUnit.objects.get(id=people.speech.id).is_archived


def test_queue_with_history_stays_closed(people: People, tree: Queues) -> None:
    """What ran in it refers to it."""
    make_job(tree.speech, people.bob, "Completed")

    merge(people, "alice", people.speech, people.robots)

    tree.speech.refresh_from_db()
    assert (tree.speech.state, tree.speech.unit) == ("Closed", people.speech)


def test_accounts_and_tokens_follow(people: People) -> None:
    """A service account of the merged unit belongs to the other one."""
    User.objects.filter(id=people.bob.id).update(home=people.speech, is_service=True)

    merge(people, "alice", people.speech, people.robots)

    people.bob.refresh_from_db()
    assert people.bob.home == people.robots


def test_into_its_parent(people: People, tree: Queues) -> None:
    """A level of the organisation is taken out."""
    merge(people, "alice", people.vision, people.lab)

    people.robots.refresh_from_db()
    tree.robots.refresh_from_db()
    assert (people.robots.parent, tree.robots.parent) == (people.lab, tree.lab)
    above = OrgClosure.objects.filter(descendant=people.robots).values_list("ancestor_id", "depth")
    assert set(above) == {(people.robots.id, 0), (people.lab.id, 1)}


@pytest.mark.parametrize(
    ("who", "unit", "into", "refusal"),
    [
        ("bob", "speech", "robots", Denied),
        ("bob", "robots", "speech", Denied),
        ("charlie", "speech", "robots", NotFound),
        ("alice", "lab", "mill", Denied),
        ("root", "lab", "mill", Invalid),
        ("alice", "vision", "robots", Invalid),
        ("alice", "vision", "vision", Invalid),
        ("alice", "speech", "mill", NotFound),
    ],
)
def test_who_and_what_may_not(
    people: People, who: str, unit: str, into: str, refusal: type[DomainError]
) -> None:
    """Both places are administered, lie in one tenant and not inside each other."""
    if who == "bob":
        make_grant(people.bob, GrantRole.VIEWER, people.lab)
        make_grant(people.bob, GrantRole.ORG_ADMIN, people.vision)

    with pytest.raises(refusal):
        merge(people, who, getattr(people, unit), getattr(people, into))

    assert AuditRow.objects.count() == 0


def test_stale_version(people: People) -> None:
    """Whoever saw another state of the unit is told."""
    OrgUnit.objects.filter(id=people.speech.id).update(version=5)

    with pytest.raises(Conflict) as error:
        merge(people, "alice", people.speech, people.robots)

    assert error.value.code == "version"
