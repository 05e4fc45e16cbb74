"""Previews of the organisation: what they tell, to whom, and that they leave nothing behind."""

from __future__ import annotations

from datetime import timedelta

import pytest

from scheduling.domain import org_preview
from scheduling.domain.deeds import Deed
from scheduling.domain.org_preview import UnitChange, UnitEffect, UnitRequest, UserChange
from scheduling.models import Job, Queue
from tenants.domain.errors import Conflict, Denied, DomainError, NotFound
from tenants.models import (
    AccountLink,
    AuditRow,
    BrowserSession,
    Grant,
    GrantRole,
    OrgClosure,
    OrgUnit,
    OutboxRow,
    User,
)
from tests.db.scheduling.test_queues import make_job
from tests.factories.demo import make_job as make_demo_job
from tests.people import NOW, People, Queues, make_grant, make_queues, make_unit, make_user

pytestmark = pytest.mark.django_db

R = GrantRole


@pytest.fixture
def tree(people: People) -> Queues:
    """A queue for each unit."""
    return make_queues(people)


def preview(
    people: People,
    who: User,
    change: UnitChange,
    unit: OrgUnit,
    target: OrgUnit | None = None,
    name: str = "",
) -> UnitEffect:
    """Preview a change of a unit as somebody."""
    return org_preview.preview_unit(
        deed=Deed(people.actor(who), NOW),
        wanted=UnitRequest(change, unit.id, unit.version, name, target.id if target else None),
    )


def rows() -> tuple[object, ...]:
    """Return all that a preview could leave behind."""
    models = (OrgUnit, OrgClosure, Queue, Grant, AuditRow, OutboxRow, AccountLink, BrowserSession)
    users = User.objects.order_by("id").values_list("id", "is_active", "version", "password")
    return (*(list(model.objects.order_by("pk").values()) for model in models), list(users))


@pytest.mark.parametrize("change", list(UnitChange))
def test_nothing_is_left_behind(people: People, tree: Queues, change: UnitChange) -> None:
    """Rows, record and messages are as before, whether the change would work or not."""
    before = rows()
    target = people.speech if change in {UnitChange.MOVE, UnitChange.MERGE} else None

    try:
        preview(people, people.alice, change, people.robots, target, name="rovers")
    except Conflict:
        assert change == UnitChange.ARCHIVE  # its queue is open

    assert rows() == before


def test_move_tells_who_sees_it_and_what_moves(people: People, tree: Queues) -> None:
    """Those with roles above the old place lose sight, those above the new one gain it."""
    dora = make_user("dora")
    make_grant(dora, R.VIEWER, people.speech)
    make_demo_job(tree.robots, people.bob, "waits", NOW)
    runs = make_demo_job(tree.robots, people.bob, "runs", NOW)
    Job.objects.filter(id=runs.id).update(phase="Running")

    effect = preview(people, people.alice, UnitChange.MOVE, people.robots, people.speech)

    assert [(one.username, one.before, one.after) for one in effect.people] == [
        ("bob", ("researcher",), ()),
        ("dora", (), ("viewer",)),
    ]
    [queue] = effect.queues
    assert (queue.queue, queue.parent_before, queue.parent_after) == ("robots", "vision", "speech")
    assert (queue.waiting, queue.running) == (1, 1)
    assert [one.cluster for one in effect.clusters] == ["main"]


def test_people_of_others_are_not_named(people: People) -> None:
    """Who administers two departments, and not what is above them, reads no name from there."""
    inner, other = make_unit("inner", people.vision), make_unit("other", people.speech)
    team = make_unit("team", inner)
    dora = make_user("dora")
    make_grant(dora, R.ORG_ADMIN, inner)
    make_grant(dora, R.ORG_ADMIN, other)

    effect = preview(people, dora, UnitChange.MOVE, team, other)

    assert [(one.username, one.is_loss) for one in effect.people] == [("", True)]


def test_merge_tells_of_both_sides(people: People, tree: Queues) -> None:
    """What goes over is seen by the other unit's people, and the other unit by this one's."""
    erik = make_user("erik")
    make_grant(erik, R.VIEWER, people.speech)

    effect = preview(people, people.alice, UnitChange.MERGE, people.speech, people.robots)

    assert [(one.username, one.after) for one in effect.people] == [("bob", ("researcher",))]
    assert [(one.username, one.after) for one in effect.people_of_target] == [("erik", ("viewer",))]
    assert [(one.queue, one.is_deleted) for one in effect.queues] == [("speech", True)]


@pytest.mark.parametrize(
    ("who", "refusal"), [("bob", Denied), ("charlie", NotFound), ("alice", None)]
)
def test_preview_is_refused_as_the_change_is(
    people: People, tree: Queues, who: str, refusal: type[DomainError] | None
) -> None:
    """Whoever may not change learns nothing by previewing."""
    user: User = getattr(people, who)
    if refusal is None:
        assert preview(people, user, UnitChange.MERGE, people.robots, people.speech).units == 1
        return

    with pytest.raises(refusal):
        preview(people, user, UnitChange.MERGE, people.robots, people.speech)


@pytest.mark.parametrize("change", list(UserChange))
def test_account_tells_what_would_end(people: People, tree: Queues, change: UserChange) -> None:
    """Roles, sessions and jobs are counted, and all is as before."""
    make_job(tree.robots, people.bob)
    BrowserSession.objects.create(
        session_key="s" * 32, session_data="", expire_date=NOW + timedelta(days=1), user=people.bob
    )
    before = rows()

    effect = org_preview.preview_user(
        actor=people.actor(people.alice), user_id=people.bob.id, change=change, now=NOW
    )

    assert (len(effect.grants), effect.sessions, effect.running) == (1, 1, 1)
    assert rows() == before


def test_last_admin_is_refused_in_the_preview(people: People) -> None:
    """What the change would refuse, the preview refuses."""
    with pytest.raises(Conflict) as error:
        org_preview.preview_user(
            actor=people.actor(people.root),
            user_id=people.alice.id,
            change=UserChange.DISABLE,
            now=NOW,
        )

    assert error.value.code == "last_admin"


def test_grant_that_adds_nothing_says_so(people: People, tree: Queues) -> None:
    """A role that another one covers already shows nothing new."""
    effect = org_preview.preview_grant(
        actor=people.actor(people.alice),
        user=people.bob,
        role=R.VIEWER,
        unit_id=people.robots.id,
        now=NOW,
    )

    assert (effect.verbs, effect.sight) == ((), ())


def test_long_lists_are_cut_with_their_number(people: People) -> None:
    """The first names are told, and how many more there are."""
    for number in range(10):
        make_unit(f"team-{number}", people.speech)

    effect = org_preview.preview_grant(
        actor=people.actor(people.alice),
        user=people.bob,
        role=R.VIEWER,
        unit_id=people.speech.id,
        now=NOW,
    )

    [units] = [one for one in effect.sight if one.what == "unit"]
    assert (units.count, len(units.names), units.more) == (11, 6, 5)
