"""Change sets: drafted, checked, reviewed, applied or timed, reverted; each step on the record."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from time import monotonic
from typing import Any

import pytest
from django.conf import LazySettings
from django.db import IntegrityError, transaction

from scheduling.domain import change_set_rows, change_sets, leases, queues
from scheduling.domain.change_sets import Need, need_of
from scheduling.domain.clock import database_now
from scheduling.domain.queries import change_sets as reading
from scheduling.domain.queue_changes import QueueEdit
from scheduling.domain.queue_preview import Impact
from scheduling.models import ChangeItem, ChangeSet, Queue
from scheduling.models.change_set import ChangeSetState as State
from tenants.domain import access
from tenants.domain.access import Actor, Verb
from tenants.domain.errors import Conflict, Denied, Invalid, NotFound
from tenants.models import AuditRow, Grant, GrantRole, User
from tests.factories.rivals import Rivals
from worker.loops.base import HeldLease
from worker.loops.reconcile import ReconcileLoop

GPU = "nvidia.com/gpu"


@dataclass(slots=True)
class Desk:
    """A manager of both departments who plans changes, and a second one."""

    rivals: Rivals
    manager: Actor
    second: Actor

    def edit(self, queue: Queue, **numbers: Any) -> QueueEdit:
        queue.refresh_from_db()
        return QueueEdit(queue_id=queue.id, expected_version=queue.version, **numbers)

    def draft(self, *edits: QueueEdit, title: str = "More for speech") -> ChangeSet:
        return change_sets.create(
            actor=self.manager,
            cluster_id=self.rivals.site.cluster.id,
            title=title,
            edits=edits,
            reason="quarter end",
            now=self.rivals.site.now,
        )

    def plan(self, **numbers: Any) -> ChangeSet:
        """Draft an edit of speech and validate it."""
        row = self.draft(self.edit(self.rivals.speech, **numbers))
        self.take(change_sets.validate, row)
        row.refresh_from_db()
        return row

    def take(self, step: Callable[..., Any], row: ChangeSet, **more: Any) -> Any:
        actor = more.pop("actor", self.manager)
        return step(actor=actor, change_set_id=row.id, now=self.rivals.site.now, **more)

    def weight(self, queue: Queue | None = None) -> int:
        return Queue.objects.get(id=(queue or self.rivals.speech).id).weight


@pytest.fixture
def desk(rivals: Rivals) -> Desk:
    assert rivals.vision.unit is not None
    tenant = rivals.vision.unit.tenant
    return Desk(
        rivals,
        rivals.actor(tenant, GrantRole.QUEUE_MANAGER, "first"),
        rivals.actor(tenant, GrantRole.QUEUE_MANAGER, "second"),
    )


def actions(row: ChangeSet) -> list[str]:
    rows = AuditRow.objects.filter(subject_type="changeset", subject_id=str(row.id))
    return list(rows.order_by("id").values_list("action", flat=True))


def test_draft_keeps_old_and_new_and_changes_nothing(desk: Desk) -> None:
    """A draft holds each field as it was seen and as it is wanted; the queues stay as they are."""
    row = desk.draft(desk.edit(desk.rivals.speech, weight=3, priority=0))

    item = row.items.get()
    assert (row.state, row.author_id) == (State.DRAFT, desk.manager.user_id)
    assert (item.old["weight"], item.new) == (1, {"weight": 3})
    assert row.unit == desk.rivals.site.queue.unit
    assert desk.weight() == 1


def test_whole_way_is_on_the_record(desk: Desk, settings: LazySettings) -> None:
    """Each step from draft to revert has its audit row, with who, what and why."""
    settings.TERRACE_CHANGE_REVIEW_GPUS = 1
    row = desk.plan(weight=3)
    desk.take(change_sets.ask_review, row)
    desk.take(change_sets.approve, row, actor=desk.second, comment="seen with both teams")
    desk.take(change_sets.apply, row)
    in_force = desk.weight()
    undo = desk.take(change_sets.revert, row, reason="too much")

    row.refresh_from_db()
    assert in_force == 3
    assert desk.weight() == 1
    assert (row.state, undo.state, undo.reverts_id) == (State.REVERTED, State.APPLIED, row.id)
    assert actions(row) == [
        "change_set.create",
        "change_set.validate",
        "change_set.ask_review",
        "change_set.approve",
        "change_set.apply",
        "change_set.reverted",
    ]
    edits = AuditRow.objects.filter(action="queue.update").order_by("id")
    assert [(one.before, (one.after or {})["weight"], one.reason) for one in edits] == [
        ({"weight": 1}, 3, "quarter end"),
        ({"weight": 3}, 1, "too much"),
    ]


def test_validating_keeps_what_it_would_do(desk: Desk) -> None:
    """The sums of the simulation are kept: 2 GPUs become reclaimable and 2 tasks would start."""
    row = desk.plan(weight=3)

    assert row.state == State.VALIDATED
    assert change_sets.impact_of(row) == Impact(
        reclaimable_tasks=2,
        reclaimable_gpu_milli=2000,
        evicted_tasks=2,
        evicted_gpu_milli=2000,
        started_tasks=2,
    )


def test_broken_tree_is_refused_and_nothing_moves(desk: Desk) -> None:
    """A set that breaks a rule can be drafted, not validated, and never reaches the queues."""
    vision = desk.edit(desk.rivals.vision, max={GPU: 1000})
    robots = desk.edit(desk.rivals.robots, min={GPU: 4000})
    row = desk.draft(vision, robots)

    with pytest.raises(Invalid):
        desk.take(change_sets.validate, row)
    with pytest.raises(Conflict, match="change_set_state"):
        desk.take(change_sets.ask_review, row)

    assert ChangeSet.objects.get().state == State.DRAFT
    assert Queue.objects.get(id=desk.rivals.vision.id).max == {}


def test_order_of_edits_does_not_matter(desk: Desk) -> None:
    """A parent and its child are lowered in one set, judged by the tree that comes out."""
    Queue.objects.filter(id=desk.rivals.vision.id).update(min={GPU: 4000})
    Queue.objects.filter(id=desk.rivals.robots.id).update(min={GPU: 4000})
    row = desk.draft(
        desk.edit(desk.rivals.vision, min={GPU: 1000}),
        desk.edit(desk.rivals.robots, min={GPU: 1000}),
    )

    _row, preview = desk.take(change_sets.validate, row)
    desk.take(change_sets.apply, row)

    below = [(one.queue, one.before, one.after, one.bound) for one in preview.sums]
    assert ("vision", 4000, 1000, 1000) in below
    assert not any(one.is_broken for one in preview.sums)
    assert Queue.objects.get(id=desk.rivals.robots.id).min == {GPU: 1000}


def test_second_person_is_needed_where_policy_says_so(desk: Desk, settings: LazySettings) -> None:
    """Above the limit only an approved set is applied, and its author cannot approve it."""
    settings.TERRACE_CHANGE_REVIEW_GPUS = 1
    row = desk.plan(weight=3)

    with pytest.raises(Conflict, match="change_set_needs_review"):
        desk.take(change_sets.apply, row, confirmation=row.title)
    with pytest.raises(Conflict, match="change_set_needed"):
        change_sets.edit_now(
            actor=desk.manager,
            edits=[desk.edit(desk.rivals.speech, weight=3)],
            now=desk.rivals.site.now,
        )
    desk.take(change_sets.ask_review, row)
    with pytest.raises(Denied, match="change_set_own_review"):
        desk.take(change_sets.approve, row)
    assert desk.weight() == 1

    desk.take(change_sets.approve, row, actor=desk.second)
    desk.take(change_sets.apply, row)

    assert desk.weight() == 3


def test_approval_does_not_cover_what_grew(desk: Desk, settings: LazySettings) -> None:
    """An approval given for two GPUs is not good for four; asked again it is."""
    settings.TERRACE_CHANGE_REVIEW_GPUS = 1
    row = desk.plan(weight=3)
    desk.take(change_sets.ask_review, row)
    desk.take(change_sets.approve, row, actor=desk.second)
    row.refresh_from_db()
    smaller = {**(row.impact or {}), "reclaimable_gpu_milli": 1000, "evicted_gpu_milli": 1000}
    ChangeSet.objects.filter(id=row.id).update(impact=smaller)

    with pytest.raises(Conflict, match="change_set_grew"):
        desk.take(change_sets.apply, row)
    desk.take(change_sets.validate, row)
    row.refresh_from_db()

    assert (row.state, row.reviewer_id) == (State.VALIDATED, None)
    assert desk.weight() == 1


def test_small_edits_pass_at_once_under_a_policy(desk: Desk, settings: LazySettings) -> None:
    """Who stays below the limit edits directly; without a policy everybody does."""
    settings.TERRACE_CHANGE_REVIEW_GPUS = 2
    now = desk.rivals.site.now

    change_sets.edit_now(
        actor=desk.manager, edits=[desk.edit(desk.rivals.speech, weight=3)], now=now
    )
    settings.TERRACE_CHANGE_REVIEW_GPUS = -1
    change_sets.edit_now(
        actor=desk.manager, edits=[desk.edit(desk.rivals.speech, weight=30)], now=now
    )

    assert desk.weight() == 30


def test_big_one_wants_its_title_typed(desk: Desk, settings: LazySettings) -> None:
    """Without a second person, what takes many GPUs is applied only with its title typed."""
    settings.TERRACE_CHANGE_CONFIRM_GPUS = 1
    row = desk.plan(weight=3)

    with pytest.raises(Conflict, match="change_set_needs_confirmation"):
        desk.take(change_sets.apply, row, confirmation="yes")
    desk.take(change_sets.apply, row, confirmation=" More for speech ")

    assert desk.weight() == 3


@pytest.mark.parametrize(
    ("review", "confirm", "gpus", "need"),
    [
        (-1, -1, 900, Need.NOTHING),
        (-1, 8, 8, Need.NOTHING),
        (-1, 8, 9, Need.CONFIRMATION),
        (16, 8, 16, Need.CONFIRMATION),
        (16, 8, 17, Need.REVIEW),
        (0, 8, 0, Need.NOTHING),
        (0, 8, 1, Need.REVIEW),
    ],
)
def test_policy_goes_by_gpus_taken(
    settings: LazySettings, review: int, confirm: int, gpus: int, need: Need
) -> None:
    """The limits are exceeded above them, and a second person outranks typing."""
    settings.TERRACE_CHANGE_REVIEW_GPUS = review
    settings.TERRACE_CHANGE_CONFIRM_GPUS = confirm

    assert need_of(Impact(reclaimable_gpu_milli=gpus * 1000)) == need
    assert need_of(Impact(evicted_gpu_milli=gpus * 1000)) == need


def test_conflict_shows_three_ways_and_rebase_settles_it(desk: Desk) -> None:
    """Somebody else's change is not overwritten; what to keep is chosen field by field."""
    speech, robots = desk.rivals.speech, desk.rivals.robots
    row = desk.draft(
        desk.edit(speech, weight=3, priority=5), desk.edit(robots, weight=2), title="Two queues"
    )
    queues.edit_queues(
        actor=desk.second, edits=[desk.edit(speech, weight=7)], now=desk.rivals.site.now
    )

    with pytest.raises(Conflict, match="version"):
        desk.take(change_sets.validate, row)
    found = change_set_rows.differences(reading.load(desk.manager, row.id))
    told = [
        (one.field, one.base, one.theirs, one.yours, one.is_contested) for one in found[0].fields
    ]
    desk.take(change_sets.rebase, row, expected_version=row.version, theirs=[(speech.id, "weight")])
    desk.take(change_sets.validate, row)
    desk.take(change_sets.apply, row)

    assert told == [("weight", 1, 7, 3, True), ("priority", 0, 0, 5, False)]
    speech.refresh_from_db()
    assert (speech.weight, speech.priority, desk.weight(robots)) == (7, 5, 2)


def test_edit_takes_an_approval_away(desk: Desk) -> None:
    """Other numbers make it a draft again, of who typed them."""
    row = desk.plan(weight=2)
    desk.take(change_sets.ask_review, row)
    desk.take(change_sets.approve, row, actor=desk.second)
    row.refresh_from_db()

    change_sets.edit(
        actor=desk.second,
        change_set_id=row.id,
        expected_version=row.version,
        edits=[desk.edit(desk.rivals.speech, weight=9)],
        now=desk.rivals.site.now,
    )

    row.refresh_from_db()
    assert (row.state, row.author_id, row.reviewer_id) == (State.DRAFT, desk.second.user_id, None)
    with pytest.raises(Conflict, match="change_set_state"):
        desk.take(change_sets.apply, row)


def test_edit_of_a_stale_version_is_refused(desk: Desk) -> None:
    """Of two who edit the same draft the second is told."""
    row = desk.plan(weight=2)

    with pytest.raises(Conflict, match="version"):
        desk.take(change_sets.edit, row, expected_version=row.version - 1, title="Other")


def test_rejected_one_can_be_taken_up_again(desk: Desk) -> None:
    """A reviewer sends it back with words; edited it is a draft."""
    row = desk.plan(weight=3)
    desk.take(change_sets.ask_review, row)
    desk.take(change_sets.reject, row, actor=desk.second, comment="robots needs them")
    row.refresh_from_db()
    told = (row.state, row.review_comment)

    desk.take(
        change_sets.edit,
        row,
        expected_version=row.version,
        edits=[desk.edit(desk.rivals.speech, weight=2)],
    )

    row.refresh_from_db()
    assert told == (State.REJECTED, "robots needs them")
    assert row.state == State.DRAFT


def test_scheduled_one_is_applied_when_its_time_comes(desk: Desk) -> None:
    """Before its time it is not due; then it is applied once, with its scheduler's rights."""
    row = desk.plan(weight=2)
    site = desk.rivals.site
    at = site.now + timedelta(hours=8)
    desk.take(change_sets.schedule, row, apply_at=at)
    with pytest.raises(Conflict, match="change_set_state"):
        desk.take(change_sets.edit, row, expected_version=row.version + 1, title="Other")

    early = change_sets.due(at - timedelta(seconds=1), limit=10)
    due = change_sets.due(at, limit=10)
    done = [change_sets.apply_due(change_set_id=row.id, now=at) for _ in range(2)]

    assert (early, due, done) == ([], [row.id], [True, False])
    assert desk.weight() == 2
    assert AuditRow.objects.filter(action="queue.update").get().actor_id == desk.manager.user_id


@pytest.mark.parametrize("hours", [-1, 0, 24 * 400])
def test_time_is_ahead_and_not_too_far(desk: Desk, hours: int) -> None:
    """A time that is past, or years ahead, is refused."""
    row = desk.plan(weight=2)

    with pytest.raises(Invalid, match="apply_at"):
        desk.take(change_sets.schedule, row, apply_at=desk.rivals.site.now + timedelta(hours=hours))


def test_time_can_be_taken_away(desk: Desk) -> None:
    """An unscheduled one is validated again, an approved one approved."""
    row = desk.plan(weight=2)
    at = desk.rivals.site.now + timedelta(hours=1)
    desk.take(change_sets.schedule, row, apply_at=at)
    desk.take(change_sets.unschedule, row)
    first = ChangeSet.objects.get(id=row.id).state
    desk.take(change_sets.ask_review, row)
    desk.take(change_sets.approve, row, actor=desk.second)
    desk.take(change_sets.schedule, row, apply_at=at)
    desk.take(change_sets.unschedule, row)

    assert (first, ChangeSet.objects.get(id=row.id).state) == (State.VALIDATED, State.APPROVED)
    assert change_sets.due(at, limit=10) == []


def _break_tree(desk: Desk) -> None:
    queues.edit_queues(
        actor=desk.rivals.site.admin,
        edits=[desk.edit(desk.rivals.site.queue, max={GPU: 2000})],
        now=desk.rivals.site.now,
    )


def _change_meanwhile(desk: Desk) -> None:
    queues.edit_queues(
        actor=desk.second,
        edits=[desk.edit(desk.rivals.speech, weight=7)],
        now=desk.rivals.site.now,
    )


def _take_right(desk: Desk) -> None:
    Grant.objects.filter(user__username=desk.manager.label).delete()


def _disable(desk: Desk) -> None:
    User.objects.filter(username=desk.manager.label).update(is_active=False)


@pytest.mark.parametrize(
    ("meanwhile", "code"),
    [
        (_break_tree, "queue_max_above_ancestor"),
        (_change_meanwhile, "version"),
        (_take_right, "change_set_queue_gone"),
        (_disable, "change_set_queue_gone"),
    ],
)
def test_what_cannot_be_applied_at_its_time_fails_and_says_why(
    desk: Desk, meanwhile: Callable[[Desk], None], code: str
) -> None:
    """The tree in force stays, and the change set keeps the reason for those who look."""
    row = desk.draft(desk.edit(desk.rivals.speech, max={GPU: 4000}))
    desk.take(change_sets.validate, row)
    at = desk.rivals.site.now + timedelta(hours=1)
    desk.take(change_sets.schedule, row, apply_at=at)
    meanwhile(desk)

    is_applied = change_sets.apply_due(change_set_id=row.id, now=at)

    row.refresh_from_db()
    assert (is_applied, row.state) == (False, State.FAILED)
    assert [one["code"] for one in row.problems] == [code]
    assert Queue.objects.get(id=desk.rivals.speech.id).max == {}
    assert actions(row)[-1] == "change_set.fail"
    admin = desk.rivals.site.admin
    assert reading.refused(admin, desk.rivals.site.cluster.id) == [row]


def test_revert_brings_back_exactly_what_was(desk: Desk) -> None:
    """All fields of all queues are as before; other fields that changed since stay."""
    speech, robots = desk.rivals.speech, desk.rivals.robots
    before = {
        queue.id: change_set_rows.seen_of(Queue.objects.get(id=queue.id))
        for queue in (speech, robots)
    }
    row = desk.draft(
        desk.edit(speech, weight=3, lend_min=False, policy="fifo", max={GPU: 8000}),
        desk.edit(robots, priority=9, reclaimable=False),
    )
    desk.take(change_sets.validate, row)
    desk.take(change_sets.apply, row)
    queues.edit_queues(
        actor=desk.second, edits=[desk.edit(robots, weight=5)], now=desk.rivals.site.now
    )

    undo = desk.take(change_sets.revert, row)

    after = {
        queue_id: change_set_rows.seen_of(Queue.objects.get(id=queue_id)) for queue_id in before
    }
    assert undo.state == State.APPLIED
    assert after == before | {robots.id: before[robots.id] | {"weight": 5}}


def test_contested_revert_is_left_as_a_draft(desk: Desk) -> None:
    """What somebody changed since is not overwritten: the revert waits with the three values."""
    row = desk.plan(weight=3)
    desk.take(change_sets.apply, row)
    queues.edit_queues(
        actor=desk.second,
        edits=[desk.edit(desk.rivals.speech, weight=7)],
        now=desk.rivals.site.now,
    )

    undo = desk.take(change_sets.revert, row)

    row.refresh_from_db()
    found = change_set_rows.differences(reading.load(desk.manager, undo.id))
    assert [(one.base, one.theirs, one.yours) for one in found[0].fields] == [(3, 7, 1)]
    assert (undo.state, row.state, desk.weight()) == (State.DRAFT, State.APPLIED, 7)

    desk.take(change_sets.rebase, undo, expected_version=undo.version)
    desk.take(change_sets.validate, undo)
    desk.take(change_sets.apply, undo)

    row.refresh_from_db()
    assert (row.state, desk.weight()) == (State.REVERTED, 1)


def test_revert_of_what_is_back_already_does_nothing(desk: Desk) -> None:
    """Where others brought the old values back, the change set counts as reverted."""
    row = desk.plan(weight=3)
    desk.take(change_sets.apply, row)
    queues.edit_queues(
        actor=desk.second,
        edits=[desk.edit(desk.rivals.speech, weight=1)],
        now=desk.rivals.site.now,
    )
    updates = AuditRow.objects.filter(action="queue.update").count()

    desk.take(change_sets.revert, row)

    row.refresh_from_db()
    assert row.state == State.REVERTED
    assert AuditRow.objects.filter(action="queue.update").count() == updates
    with pytest.raises(Conflict, match="change_set_state"):
        desk.take(change_sets.revert, row)


def test_old_revert_goes_the_ordinary_way(desk: Desk, settings: LazySettings) -> None:
    """A day later going back is a change like any other, with its review."""
    row = desk.plan(weight=3)
    desk.take(change_sets.apply, row)
    settings.TERRACE_CHANGE_REVIEW_GPUS = 0
    ChangeSet.objects.filter(id=row.id).update(
        applied_at=desk.rivals.site.now - timedelta(hours=25)
    )

    undo = desk.take(change_sets.revert, row)

    assert (undo.state, desk.weight()) == (State.DRAFT, 3)


def test_revert_needs_no_second_person_at_once(desk: Desk, settings: LazySettings) -> None:
    """Right after applying, going back to what was in force waits for nobody."""
    row = desk.plan(weight=3)
    desk.take(change_sets.apply, row)
    settings.TERRACE_CHANGE_REVIEW_GPUS = 0

    undo = desk.take(change_sets.revert, row)

    assert (undo.state, desk.weight()) == (State.APPLIED, 1)


def test_only_the_manager_of_the_parents_takes_part(desk: Desk) -> None:
    """A researcher sees a set and may take no step; who misses one of its queues sees nothing."""
    rivals = desk.rivals
    assert rivals.vision.unit is not None
    viewer = rivals.actor(rivals.vision.unit.tenant, GrantRole.RESEARCHER, "viewer")
    one_sided = rivals.actor(rivals.vision.unit, GrantRole.ORG_ADMIN, "one-sided")
    row = desk.draft(desk.edit(rivals.speech, weight=3), desk.edit(rivals.robots, weight=2))
    desk.take(change_sets.validate, row)

    for step in (
        change_sets.validate,
        change_sets.ask_review,
        change_sets.apply,
        change_sets.revert,
        change_sets.unschedule,
    ):
        with pytest.raises(Denied):
            desk.take(step, row, actor=viewer)
        with pytest.raises(NotFound):
            desk.take(step, row, actor=one_sided)
    for versioned in (change_sets.edit, change_sets.discard):
        with pytest.raises(Denied):
            desk.take(versioned, row, actor=viewer, expected_version=2)
    assert [one.id for one in reading.list_change_sets(viewer).rows] == [row.id]
    assert reading.list_change_sets(one_sided).rows == ()
    assert reading.counts(one_sided)["open"] == 0


def test_researcher_drafts_nothing(desk: Desk) -> None:
    """Who manages no queue cannot begin a change set, with edits or without."""
    unit = desk.rivals.speech.unit
    viewer = desk.rivals.actor(unit, GrantRole.RESEARCHER, "viewer")
    site = desk.rivals.site

    for edits in ([], [desk.edit(desk.rivals.speech, weight=3)]):
        with pytest.raises(Denied):
            change_sets.create(
                actor=viewer, cluster_id=site.cluster.id, title="Mine", edits=edits, now=site.now
            )


def test_own_numbers_are_not_ones_own_to_edit(desk: Desk) -> None:
    """The manager of a queue alone cannot plan for it: its numbers belong to the parent's."""
    unit = desk.rivals.speech.unit
    manager = desk.rivals.actor(unit, GrantRole.QUEUE_MANAGER, "of-speech")

    with pytest.raises(Denied):
        change_sets.create(
            actor=manager,
            cluster_id=desk.rivals.site.cluster.id,
            title="Mine",
            edits=[desk.edit(desk.rivals.speech, weight=3)],
            now=desk.rivals.site.now,
        )


def test_empty_draft_is_its_authors(desk: Desk) -> None:
    """An empty draft is seen by its author alone, wants an edit before it is checked, can go."""
    row = desk.draft()

    with pytest.raises(NotFound):
        reading.load(desk.second, row.id)
    with pytest.raises(Invalid, match="change_set_empty"):
        desk.take(change_sets.validate, row)
    desk.take(change_sets.discard, row, expected_version=row.version)

    assert not ChangeSet.objects.exists()


@pytest.mark.parametrize("title", ["", "   ", "x" * 121, "a\nb", "a\u202eb"])
def test_title_is_short_and_printable(desk: Desk, title: str) -> None:
    """A title is one printable line of at most 120 characters."""
    with pytest.raises(Invalid, match="title"):
        desk.draft(title=title)


def test_root_and_twice_are_refused(desk: Desk) -> None:
    """The root is nobody's to plan for, and a queue comes once."""
    rivals = desk.rivals
    twice = [desk.edit(rivals.speech, weight=2), desk.edit(rivals.speech, weight=3)]

    with pytest.raises(Invalid, match="queue_edited_twice"):
        desk.draft(*twice)
    with pytest.raises(Invalid, match="queue_root_protected"):
        change_sets.create(
            actor=rivals.site.admin,
            cluster_id=rivals.site.cluster.id,
            title="Root",
            edits=[desk.edit(rivals.site.root, weight=2)],
            now=rivals.site.now,
        )


def test_deleted_queue_leaves_its_history(desk: Desk) -> None:
    """A queue that is gone leaves its item by name, and nothing that could be reverted."""
    row = desk.plan(weight=3)
    desk.take(change_sets.apply, row)
    ChangeItem.objects.filter(change_set=row).update(queue=None)

    desk.take(change_sets.revert, row)

    assert reading.load(desk.manager, row.id).items.get().queue_name == "speech"
    assert desk.weight() == 3
    with pytest.raises(NotFound):
        reading.load(desk.second, row.id)


def test_a_queue_comes_once_in_the_table_too(desk: Desk) -> None:
    """The database itself refuses a second item of a queue."""
    row = desk.plan(weight=3)
    item = row.items.get()
    item.pk = None

    with pytest.raises(IntegrityError), transaction.atomic():
        item.save(force_insert=True)


def test_list_is_paged_and_filtered(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """The newest come first, page by page; a tab shows its states only."""
    monkeypatch.setattr(reading, "PAGE_SIZE", 2)
    rows = []
    for number in range(3):
        desk.rivals.site.later(1)
        rows.append(desk.draft(desk.edit(desk.rivals.speech, weight=3), title=f"Plan {number}"))

    first = reading.list_change_sets(desk.manager)
    second = reading.list_change_sets(desk.manager, before=first.rows[-1].created_at)

    assert [one.title for one in first.rows] == ["Plan 2", "Plan 1"]
    assert [one.title for one in second.rows] == ["Plan 0"]
    assert (first.next_cursor != "", second.next_cursor) == (True, "")
    assert reading.list_change_sets(desk.manager, states=[State.APPLIED]).rows == ()
    assert reading.counts(desk.manager)["open"] == 3


def test_reading_right_of_a_token_counts(desk: Desk) -> None:
    """A token that may not read queues finds no change set, its owner's neither."""
    row = desk.draft(desk.edit(desk.rivals.speech, weight=3))
    blind = Actor(
        desk.manager.user_id,
        "token",
        grants=desk.manager.grants,
        verbs=frozenset({Verb.JOB_READ}),
    )

    with pytest.raises(NotFound):
        reading.load(blind, row.id)
    assert access.reads(blind, Verb.QUEUE_READ).readable_units == frozenset()


def test_loop_applies_what_is_due(desk: Desk) -> None:
    """A change set whose time has come is put in force by the loop, from the database alone."""
    row = desk.plan(weight=2)
    desk.take(change_sets.schedule, row, apply_at=desk.rivals.site.now + timedelta(hours=1))
    ChangeSet.objects.filter(id=row.id).update(apply_at=database_now() - timedelta(seconds=1))
    epoch = leases.acquire(scope="reconcile", holder="test", ttl_seconds=600)
    assert epoch is not None

    ReconcileLoop().turn(HeldLease("reconcile", "test", epoch, 600.0, monotonic()))

    row.refresh_from_db()
    assert (row.state, desk.weight()) == (State.APPLIED, 2)
