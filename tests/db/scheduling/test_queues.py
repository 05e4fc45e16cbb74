"""Queues: who may change what, several at once, conflicts, opening, moving, deleting."""

from threading import Thread
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection

from scheduling.domain import queue_rows, queues, unit_queues
from scheduling.domain.deeds import Deed
from scheduling.domain.queue_changes import QueueDifference, QueueEdit, QueueNumbers
from scheduling.models import Cluster, Job, Queue, QueueClosure
from tenants.domain import notify
from tenants.domain.errors import Conflict, Denied, DomainError, Invalid, NotFound
from tenants.models import AuditRow, GrantRole, OrgUnit, OutboxRow, User
from tests.people import (
    NOW,
    People,
    Queues,
    make_grant,
    make_people,
    make_queue,
    make_queues,
    make_unit,
)

pytestmark = pytest.mark.django_db

GPU = "nvidia.com/gpu"


@pytest.fixture
def tree(people: People) -> Queues:
    """A queue for each unit."""
    return make_queues(people)


def make_job(queue: Queue, owner: User, phase: str = "Running") -> Job:
    """Write a job's row."""
    assert queue.unit is not None
    return Job.objects.create(
        tenant_id=queue.unit.tenant_id,
        unit=queue.unit,
        queue=queue,
        owner=owner,
        name=f"j{uuid4().hex[:8]}",
        spec={},
        phase=phase,
        min_available=1,
        created_at=NOW,
    )


def edit(people: People, who: str, *edits: QueueEdit) -> list[Queue]:
    """Edit as somebody."""
    user: User = getattr(people, who)
    return queues.edit_queues(actor=people.actor(user), edits=edits, now=NOW, reason="because")


def wanted(queue: Queue, version: int = 1, **numbers: Any) -> QueueEdit:
    """Return an edit of a queue."""
    return QueueEdit(queue_id=queue.id, expected_version=version, **numbers)


def problems(error: pytest.ExceptionInfo[Invalid]) -> list[tuple[str, str]]:
    """Return place and code of each problem."""
    return [(problem.path, problem.code) for problem in error.value.problems]


def only_difference(conflict: Conflict) -> QueueDifference:
    """Return the one queue that a stale edit is held against."""
    assert isinstance(conflict.current, list)
    [difference] = conflict.current
    assert isinstance(difference, QueueDifference)
    return difference


def closure_by_parents() -> set[tuple[object, object, int]]:
    """Compute the closure afresh from the parents."""
    parents = dict(Queue.objects.values_list("id", "parent_id"))
    links: set[tuple[object, object, int]] = set()
    for queue in parents:
        above, depth = queue, 0
        while above is not None:
            links.add((above, queue, depth))
            above, depth = parents[above], depth + 1
    return links


def closure() -> set[tuple[object, object, int]]:
    """Return the stored closure."""
    return set(QueueClosure.objects.values_list("ancestor_id", "descendant_id", "depth"))


# --- editing --------------------------------------------------------------------------------------


def test_edit_writes_all_that_belongs_to_it(people: People, tree: Queues) -> None:
    """An edit is a new version, one audit row with before and after, and a hint to live pages."""
    [queue] = edit(people, "alice", wanted(tree.vision, weight=3, min={GPU: 4000}))

    queue.refresh_from_db()
    assert (queue.weight, queue.min, queue.version) == (3, {GPU: 4000}, 2)
    [row] = AuditRow.objects.all()
    assert (row.action, row.actor_label, row.reason, row.tenant_id) == (
        "queue.update",
        "alice",
        "because",
        people.lab.id,
    )
    assert row.before == {"weight": 1, "min": {}}
    assert row.after == {"weight": 3, "min": {GPU: 4000}, "version": 2}
    [message] = OutboxRow.objects.all()
    assert message.payload == {
        "hints": [[f"queue:{tree.vision.id}", "state"], [f"cluster:{tree.cluster.id}", "state"]]
    }


@pytest.mark.parametrize(
    ("who", "name", "refusal"),
    [
        ("root", "lab", None),
        ("alice", "lab", Denied),  # the numbers of a tenant's queue belong to the installation
        ("bob", "lab", NotFound),  # of what is above him he sees the name only
        ("charlie", "lab", NotFound),
        ("root", "vision", None),
        ("alice", "vision", None),
        ("bob", "vision", Denied),
        ("charlie", "vision", NotFound),
        ("bob", "robots", Denied),
        ("charlie", "mill", Denied),
    ],
)
def test_numbers_belong_to_the_parent(
    people: People, tree: Queues, who: str, name: str, refusal: type[DomainError] | None
) -> None:
    """A queue is edited by who manages its parent; others are refused, strangers see nothing."""
    if refusal is None:
        edit(people, who, wanted(getattr(tree, name), weight=2))
    else:
        with pytest.raises(refusal):
            edit(people, who, wanted(getattr(tree, name), weight=2))

    assert AuditRow.objects.count() == (refusal is None)
    assert Queue.objects.filter(weight=2).count() == (refusal is None)


def test_manager_of_a_department(people: People, tree: Queues) -> None:
    """A queue manager of a department decides about its teams and not about the department."""
    make_grant(people.bob, GrantRole.QUEUE_MANAGER, people.vision)

    edit(people, "bob", wanted(tree.robots, weight=2))
    with pytest.raises(Denied) as refusal:
        edit(people, "bob", wanted(tree.vision, weight=2))

    assert refusal.value.ask == ("alice",)


def test_one_forbidden_queue_stops_all(people: People, tree: Queues) -> None:
    """Of several edits all are made or none."""
    with pytest.raises(Denied):
        edit(people, "alice", wanted(tree.vision, weight=2), wanted(tree.lab, weight=2))

    assert not Queue.objects.filter(weight=2).exists()


def test_several_are_judged_by_what_comes_out(people: People, tree: Queues) -> None:
    """Parent and child are lowered in one go, in whatever order they are named."""
    edit(people, "alice", wanted(tree.vision, max={GPU: 8000}), wanted(tree.speech, weight=5))
    edit(people, "alice", wanted(tree.robots, max={GPU: 8000}))

    with pytest.raises(Invalid) as error:
        edit(people, "alice", wanted(tree.vision, 2, max={GPU: 4000}))
    edit(
        people,
        "alice",
        wanted(tree.vision, 2, max={GPU: 4000}),
        wanted(tree.robots, 2, max={GPU: 4000}),
    )

    assert problems(error) == [(f"queues[robots].max[{GPU}]", "queue_max_above_ancestor")]
    assert Queue.objects.get(id=tree.robots.id).max == {GPU: 4000}


@pytest.mark.parametrize(
    ("numbers", "problem"),
    [
        ({"weight": 0}, ("queues[vision].weight", "queue_number_range")),
        ({"weight": 65_536}, ("queues[vision].weight", "queue_number_range")),
        ({"min": {GPU: -1}}, (f"queues[vision].min[{GPU}]", "queue_amount")),
        ({"min": {GPU: 2}, "max": {GPU: 1}}, (f"queues[vision].min[{GPU}]", "queue_min_above_max")),
        ({"policy": "random"}, ("queues[vision].policy", "queue_policy")),
    ],
)
def test_broken_rules_are_named(
    people: People, tree: Queues, numbers: dict[str, Any], problem: tuple[str, str]
) -> None:
    """Each broken rule is named at its field, and nothing is changed."""
    with pytest.raises(Invalid) as error:
        edit(people, "alice", wanted(tree.vision, **numbers))

    assert problems(error) == [problem]
    assert AuditRow.objects.count() == 0


def test_old_faults_stand_in_no_way(people: People, tree: Queues) -> None:
    """An imported tree that breaks a rule elsewhere can still be edited, and made worse nowhere."""
    Queue.objects.filter(id=tree.speech.id).update(min={GPU: 2000}, max={GPU: 1000})

    edit(people, "alice", wanted(tree.vision, weight=2))
    edit(people, "alice", wanted(tree.speech, weight=2))
    with pytest.raises(Invalid) as error:
        edit(people, "alice", wanted(tree.vision, 2, min={GPU: 2}, max={GPU: 1}))

    assert problems(error) == [(f"queues[vision].min[{GPU}]", "queue_min_above_max")]


def test_root_is_protected(people: People, tree: Queues) -> None:
    """Not even Root edits the queue that mirrors the cluster."""
    with pytest.raises(Invalid) as error:
        edit(people, "root", wanted(tree.root, weight=2))

    assert problems(error) == [("queues[root]", "queue_root_protected")]


def test_one_queue_twice(people: People, tree: Queues) -> None:
    """Two edits of one queue in one call contradict each other."""
    with pytest.raises(Invalid) as error:
        edit(people, "alice", wanted(tree.vision, weight=2), wanted(tree.vision, weight=3))

    assert problems(error) == [("queues[vision]", "queue_edited_twice")]


def test_no_change_is_no_version(people: People, tree: Queues) -> None:
    """What already is as wanted gets no version and no audit row."""
    [queue] = edit(people, "alice", wanted(tree.vision, weight=1, min={}))

    assert queue.version == 1
    assert AuditRow.objects.count() == OutboxRow.objects.count() == 0
    assert edit(people, "alice") == []


def test_conflict_shows_three_sides(people: People, tree: Queues) -> None:
    """A stale edit changes nothing and gets base, theirs and yours, contested or not."""
    edit(people, "root", wanted(tree.vision, weight=3, min={GPU: 1000}))
    mine = QueueEdit(
        queue_id=tree.vision.id,
        expected_version=1,
        weight=5,
        min={GPU: 1000},
        priority=7,
        base={"weight": 1, "min": {}, "priority": 0},
    )

    with pytest.raises(Conflict) as conflict:
        edit(people, "alice", mine)

    difference = only_difference(conflict.value)
    assert difference.queue.version == 2
    assert [
        (field.field, field.base, field.theirs, field.yours, field.is_contested)
        for field in difference.fields
    ] == [
        ("min", {}, {GPU: 1000}, {GPU: 1000}, False),
        ("weight", 1, 3, 5, True),
        ("priority", 0, 0, 7, False),
    ]
    assert Queue.objects.get(id=tree.vision.id).weight == 3
    assert conflict.value.params == {"queue": "vision", "expected": 1, "version": 2, "queues": 1}


def test_conflict_without_a_base_asks_the_trail(people: People, tree: Queues) -> None:
    """A client that only has an ETag gets the base from the audit trail, across several edits."""
    for number in (1, 2, 3):
        edit(people, "root", wanted(tree.vision, number, weight=number + 1, priority=number))

    with pytest.raises(Conflict) as conflict:
        edit(people, "alice", wanted(tree.vision, 2, weight=9, priority=9, min={GPU: 1}))

    difference = only_difference(conflict.value)
    assert [(field.field, field.base, field.theirs) for field in difference.fields] == [
        ("min", {}, {}),
        ("weight", 2, 4),
        ("priority", 1, 3),
    ]


@pytest.mark.django_db(transaction=True)
def test_two_at_once() -> None:
    """Of two edits from the same version at the same moment one is made, one gets the conflict."""
    people = make_people()
    tree = make_queues(people)
    outcomes: list[str] = []

    def change(weight: int) -> None:
        try:
            edit(people, "alice", wanted(tree.vision, weight=weight))
            outcomes.append("done")
        except Conflict as conflict:
            outcomes.append(conflict.code)
        connection.close()

    threads = [Thread(target=change, args=[weight]) for weight in (2, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(outcomes) == ["done", "version"]
    assert Queue.objects.get(id=tree.vision.id).version == 2
    assert AuditRow.objects.count() == 1


@pytest.mark.django_db(transaction=True)
def test_edit_wakes_the_scheduler() -> None:
    """The scheduler of the cluster hears of a change, and nothing of a refused one."""
    people = make_people()
    tree = make_queues(people)
    with notify.Listener(notify.SCHEDULE) as listener:
        with pytest.raises(Invalid):
            edit(people, "alice", wanted(tree.vision, weight=0))
        unheard = listener.wait(0.2)
        edit(people, "alice", wanted(tree.vision, weight=2))

        assert unheard == []
        assert listener.wait(5) == [str(tree.cluster.id)]


# --- creating and deleting ------------------------------------------------------------------------


def create(
    people: People, who: str, parent: Queue, unit: OrgUnit, name: str = "new", **numbers: object
) -> Queue:
    """Create a queue as somebody."""
    user: User = getattr(people, who)
    return queues.create_queue(
        actor=people.actor(user),
        parent_id=parent.id,
        unit_id=unit.id,
        name=name,
        now=NOW,
        numbers=QueueNumbers(**numbers),  # type: ignore[arg-type]  # as given
    )


def test_create_below_the_nearest(people: People, tree: Queues) -> None:
    """A new team's queue hangs below its department's, with closure and audit row."""
    unit = make_unit("arms", people.vision)

    queue = create(people, "alice", tree.vision, unit, weight=2, max={GPU: 1000})

    assert (queue.parent_id, queue.weight, queue.state) == (tree.vision.id, 2, "Open")
    assert closure() == closure_by_parents()
    row = AuditRow.objects.get(action="queue.create")
    assert row.after is not None
    assert (row.after["weight"], row.after["max"], row.tenant_id) == (
        2,
        {GPU: 1000},
        people.lab.id,
    )


@pytest.mark.parametrize(
    ("who", "refusal"), [("bob", Denied), ("charlie", NotFound), ("root", None)]
)
def test_who_may_create(
    people: People, tree: Queues, who: str, refusal: type[DomainError] | None
) -> None:
    """Queues are made by who manages the parent."""
    unit = make_unit("arms", people.vision)
    if refusal is None:
        create(people, who, tree.vision, unit)
    else:
        with pytest.raises(refusal):
            create(people, who, tree.vision, unit)

    assert Queue.objects.filter(name="new").count() == (refusal is None)


def test_tenant_queues_are_the_platforms(people: People, tree: Queues) -> None:
    """A tenant's own queue is made by Root; its admin is told so."""
    Queue.objects.filter(id=tree.mill.id).delete()

    with pytest.raises(Denied):
        create(people, "charlie", tree.root, people.mill)
    create(people, "root", tree.root, people.mill)

    assert closure() == closure_by_parents()


def test_place_must_picture_the_org_tree(people: People, tree: Queues) -> None:
    """A queue hangs below the nearest unit's queue, one to a unit, none pushed in between."""
    arms = make_unit("arms", people.robots)
    between = make_unit("between", people.lab)
    make_queue(tree.cluster, "deep", tree.lab, make_unit("deep", between))
    found = {}
    for name, parent, unit in (
        ("not nearest", tree.lab, arms),
        ("second", tree.lab, people.speech),
        ("between", tree.lab, between),
        ("other tenant", tree.mill, arms),
    ):
        with pytest.raises(Invalid) as error:
            create(people, "root", parent, unit)
        found[name] = problems(error)

    assert found == {
        "not nearest": [("parent", "queue_parent_not_nearest")],
        "second": [("unit", "queue_of_unit_exists")],
        "between": [("unit", "queue_below_exists")],
        "other tenant": [("parent", "queue_parent_not_nearest")],
    }


@pytest.mark.parametrize(
    ("name", "code"), [("Upper", "queue_name"), ("speech", "queue_name_taken")]
)
def test_unusable_names(people: People, tree: Queues, name: str, code: str) -> None:
    """A name that a manifest could not write, or that another queue has, is refused."""
    with pytest.raises(Invalid) as error:
        create(people, "alice", tree.vision, make_unit("arms", people.vision), name)

    assert problems(error) == [("name", code)]


def test_leaf_with_jobs_becomes_no_group(people: People, tree: Queues) -> None:
    """A queue that has jobs gets no queues below it until they are over."""
    job = make_job(tree.robots, people.bob)
    unit = make_unit("arms", people.robots)

    with pytest.raises(Conflict) as conflict:
        create(people, "alice", tree.robots, unit)
    Job.objects.filter(id=job.id).update(phase="Completed")
    create(people, "alice", tree.robots, unit)

    assert conflict.value.params == {"queue": "robots", "jobs": 1}


def test_below_a_closed_parent(people: People, tree: Queues) -> None:
    """A queue made below a closed one is closed with it."""
    close(people, "alice", tree.vision)

    queue = create(people, "alice", tree.vision, make_unit("arms", people.vision))

    assert (queue.state, queue.is_closed_by_parent) == ("Closed", True)


def delete(people: People, who: str, queue: Queue) -> None:
    """Delete a queue at its present version."""
    queue.refresh_from_db()
    user: User = getattr(people, who)
    queues.delete_queue(
        actor=people.actor(user), queue_id=queue.id, expected_version=queue.version, now=NOW
    )


def test_delete_only_what_is_closed_and_empty(people: People, tree: Queues) -> None:
    """An open queue, one with queues below or one with a past stays; a closed, empty one goes."""
    codes = []
    job = make_job(tree.speech, people.bob, "Completed")
    for queue in (tree.robots, tree.vision, tree.speech):
        with pytest.raises(Conflict) as conflict:
            delete(people, "alice", queue)
        codes.append(conflict.value.code)
    close(people, "alice", tree.robots)
    delete(people, "alice", tree.robots)

    assert codes == ["queue_not_closed", "queue_not_empty", "queue_not_empty"]
    assert job.queue_id == tree.speech.id
    assert not Queue.objects.filter(id=tree.robots.id).exists()
    assert closure() == closure_by_parents()
    row = AuditRow.objects.get(action="queue.delete")
    assert row.before is not None
    assert (row.before["name"], row.after) == ("robots", None)


def test_who_may_delete(people: People, tree: Queues) -> None:
    """Root and default queues stay; members and strangers delete nothing."""
    with pytest.raises(Conflict):
        delete(people, "root", tree.root)
    default = make_queue(tree.cluster, "default", tree.root, make_unit("default"), state="Closed")
    with pytest.raises(Conflict) as protected:
        delete(people, "root", default)
    with pytest.raises(Denied):
        delete(people, "bob", tree.robots)
    with pytest.raises(NotFound):
        delete(people, "charlie", tree.robots)

    assert protected.value.code == "queue_protected"


# --- opening and closing --------------------------------------------------------------------------


def close(people: People, who: str, queue: Queue) -> Queue:
    """Close a queue as somebody."""
    user: User = getattr(people, who)
    return queues.close_queue(actor=people.actor(user), queue_id=queue.id, now=NOW)


def reopen(people: People, who: str, queue: Queue) -> Queue:
    """Open a queue as somebody."""
    user: User = getattr(people, who)
    return queues.open_queue(actor=people.actor(user), queue_id=queue.id, now=NOW)


def states() -> dict[str, tuple[str, bool]]:
    """Return state and mark of the queues of lab."""
    rows = Queue.objects.filter(name__in=["lab", "vision", "robots", "speech"])
    return {queue.name: (queue.state, queue.is_closed_by_parent) for queue in rows}


def test_closing_spreads_and_opening_undoes_it(people: People, tree: Queues) -> None:
    """Closing a queue closes the open ones below; opening it opens exactly those again."""
    close(people, "alice", tree.speech)
    close(people, "root", tree.lab)
    closed = states()
    reopen(people, "root", tree.lab)

    assert closed == {
        "lab": ("Closed", False),
        "vision": ("Closed", True),
        "robots": ("Closed", True),
        "speech": ("Closed", False),
    }
    assert states() == {
        "lab": ("Open", False),
        "vision": ("Open", False),
        "robots": ("Open", False),
        "speech": ("Closed", False),
    }
    actions = list(AuditRow.objects.order_by("id").values_list("action", "subject_label"))
    assert actions == [
        ("queue.close", "speech"),
        ("queue.close", "lab"),
        ("queue.close", "vision"),
        ("queue.close", "robots"),
        ("queue.open", "lab"),
        ("queue.open", "vision"),
        ("queue.open", "robots"),
    ]


def test_closing_waits_for_jobs(people: People, tree: Queues) -> None:
    """A queue with jobs is Closing until the last is over; then the relay says Closed."""
    jobs = [make_job(tree.robots, people.bob, phase) for phase in ("Running", "Pending")]
    done = make_job(tree.robots, people.bob, "Completed")

    assert close(people, "alice", tree.robots).state == "Closing"
    assert queues.settle_closing(NOW) == 0
    Job.objects.filter(id__in=[job.id for job in jobs]).update(phase="Failed")
    assert queues.settle_closing(NOW) == 1
    assert queues.settle_closing(NOW) == 0

    assert done.phase == "Completed"
    assert states()["robots"] == ("Closed", False)
    row = AuditRow.objects.get(action="queue.settle")
    assert (row.actor_label, row.before) == ("system", {"state": "Closing"})


def test_refused_openings_and_closings(people: People, tree: Queues) -> None:
    """The root stays open, a child opens after its parent, members and strangers do neither."""
    close(people, "alice", tree.vision)
    with pytest.raises(Conflict) as below_closed:
        reopen(people, "alice", tree.robots)
    with pytest.raises(Conflict) as root:
        close(people, "root", tree.root)
    with pytest.raises(Denied):
        reopen(people, "bob", tree.vision)
    with pytest.raises(NotFound):
        close(people, "charlie", tree.speech)

    assert (below_closed.value.code, root.value.code) == (
        "queue_parent_not_open",
        "queue_root_protected",
    )


def test_stale_close(people: People, tree: Queues) -> None:
    """A close with an old version is refused."""
    edit(people, "alice", wanted(tree.vision, weight=2))

    with pytest.raises(Conflict):
        queues.close_queue(
            actor=people.actor(people.alice), queue_id=tree.vision.id, now=NOW, expected_version=1
        )


# --- moving ---------------------------------------------------------------------------------------


def move(people: People, who: str, unit: OrgUnit, parent: OrgUnit) -> OrgUnit:
    """Move a unit with its queues as somebody."""
    unit.refresh_from_db()
    user: User = getattr(people, who)
    return unit_queues.move_unit(
        deed=Deed(people.actor(user), NOW),
        unit_id=unit.id,
        parent_id=parent.id,
        expected_version=unit.version,
    )


def test_queues_follow_their_units(people: People, tree: Queues) -> None:
    """A department that moves takes its queue and those below along, in every cluster."""
    move(people, "alice", people.vision, people.speech)

    tree.vision.refresh_from_db()
    assert tree.vision.parent_id == tree.speech.id
    assert closure() == closure_by_parents()
    assert list(AuditRow.objects.order_by("id").values_list("action", flat=True)) == [
        "org_unit.move",
        "queue.move",
    ]


def test_move_below_a_closed_queue(people: People, tree: Queues) -> None:
    """What moves below a closed queue is closed with it, and opens with it."""
    close(people, "alice", tree.speech)
    move(people, "alice", people.vision, people.speech)
    moved = states()
    reopen(people, "alice", tree.speech)

    assert (moved["vision"], moved["robots"]) == (("Closed", True), ("Closed", True))
    assert {state for state, _ in states().values()} == {"Open"}


def test_move_that_breaks_a_rule(people: People, tree: Queues) -> None:
    """A move into a smaller max, or below a queue with jobs, moves nothing at all."""
    edit(people, "alice", wanted(tree.vision, max={GPU: 8000}))
    edit(people, "alice", wanted(tree.speech, max={GPU: 4000}))
    with pytest.raises(Invalid) as error:
        move(people, "alice", people.vision, people.speech)
    make_job(tree.robots, people.bob)
    with pytest.raises(Conflict) as conflict:
        move(people, "alice", people.speech, people.robots)

    assert problems(error) == [(f"queues[vision].max[{GPU}]", "queue_max_above_ancestor")]
    assert conflict.value.code == "queue_has_jobs"
    assert OrgUnit.objects.get(id=people.vision.id).parent_id == people.lab.id
    assert closure() == closure_by_parents()


def test_archive_after_the_queues(people: People, tree: Queues) -> None:
    """A unit is retired when its queue is closed and its jobs have ended, not before."""
    job = make_job(tree.robots, people.bob)

    def archive() -> OrgUnit:
        return unit_queues.archive_unit(
            deed=Deed(people.actor(people.alice), NOW), unit_id=people.robots.id, expected_version=1
        )

    for _ in range(2):  # open first, then closing
        with pytest.raises(Conflict) as conflict:
            archive()
        assert conflict.value.code == "unit_queue_in_use"
        close(people, "alice", tree.robots)
    Job.objects.filter(id=job.id).update(phase="Completed")
    queues.settle_closing(NOW)

    assert archive().is_archived
    assert AuditRow.objects.filter(action="org_unit.archive").count() == 1


def test_move_needs_rights_on_the_queues(people: People, tree: Queues) -> None:
    """Who may move the unit and not decide about the queue of its new place moves nothing."""
    hall = make_unit("hall", people.lab)
    org_admin_of_both = people.bob
    for unit in (people.vision, hall):
        make_grant(org_admin_of_both, GrantRole.ORG_ADMIN, unit)

    with pytest.raises(NotFound):
        move(people, "bob", people.robots, hall)
    move(people, "alice", people.robots, hall)

    tree.robots.refresh_from_db()
    assert tree.robots.parent_id == tree.lab.id


def test_things_that_are_not_there(people: People, tree: Queues) -> None:
    """Unknown queues, and queues of another cluster in one change, are not found."""
    elsewhere = Cluster.objects.create(name="other", created_at=NOW)
    foreign = make_queue(elsewhere, "root2")
    ghost = QueueEdit(queue_id=uuid4(), expected_version=1, weight=2)

    for edits in ([ghost], [wanted(tree.vision, weight=2), ghost]):
        with pytest.raises(NotFound):
            edit(people, "root", *edits)
    with pytest.raises(NotFound):
        edit(people, "root", wanted(tree.vision, weight=2), wanted(foreign, weight=2))


def test_no_queue_for_an_archived_unit(people: People, tree: Queues) -> None:
    """A retired unit gets no queue."""
    unit = make_unit("old", people.vision)
    unit.is_archived = True
    unit.save()

    with pytest.raises(Conflict) as conflict:
        create(people, "alice", tree.vision, unit)

    assert conflict.value.code == "unit_archived"


def test_move_that_keeps_the_parent_queue(people: People, tree: Queues) -> None:
    """A unit that moves below the same queue leaves the queues as they are."""
    hall = make_unit("hall", people.lab)

    move(people, "alice", people.vision, hall)

    tree.vision.refresh_from_db()
    assert (tree.vision.parent_id, tree.vision.version) == (tree.lab.id, 1)
    assert not AuditRow.objects.filter(action="queue.move").exists()


def test_write_past_the_lock(tree: Queues) -> None:
    """A version that changed under the lock, by somebody who did not take it, is a conflict."""
    row = Queue.objects.get(id=tree.vision.id)
    Queue.objects.filter(id=row.id).update(version=9)

    with pytest.raises(Conflict):
        queue_rows.save(row, "weight")
