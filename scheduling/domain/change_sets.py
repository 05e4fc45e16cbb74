"""Change sets: edits of several queues drafted, checked, reviewed, applied or timed, reverted.

draft -> validated -> (in review -> approved) -> (scheduled) -> applied -> reverted; or rejected by
a reviewer, or failed when its time came and it could not be applied. Nothing of a change set is in
force before it is applied, and then all of it: applying is `queues.edit_queues`, with its rights,
versions and rules, in the transaction of the step. So an invalid tree never reaches the scheduler.

The numbers of a queue belong to the manager of its parent: whoever drafts, reviews, applies or
reverts must manage the parents of all queues concerned, at that moment.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any
from uuid import UUID, uuid4

from django.conf import settings
from django.db import transaction

from scheduling.domain import queues
from scheduling.domain.change_set_rows import (
    begin_again,
    edit_of,
    edits_of,
    item_of,
    items_of,
    lock,
    require_right,
    require_state,
    rows,
    save,
    seen_of,
    step,
    take,
    wanted_by,
)
from scheduling.domain.deeds import Deed
from scheduling.domain.queries import change_sets as reading
from scheduling.domain.queue_changes import (
    QueueEdit,
    read_tree,
)
from scheduling.domain.queue_preview import Impact, Preview, preview_edits
from scheduling.models import ChangeItem, ChangeSet, Queue
from scheduling.models.change_set import ChangeSetState as State
from tenants.domain import access, audit
from tenants.domain.access import Actor, Verb
from tenants.domain.errors import Conflict, Denied, DomainError, Invalid, Param, Problem
from tenants.models import User

LONGEST_TITLE = 120
LONGEST_AHEAD = timedelta(days=366)
REVERT_FREELY = timedelta(hours=24)
"""So long after applying, going back needs neither a second person nor a confirmation."""
EDITABLE = frozenset(
    {State.DRAFT, State.VALIDATED, State.IN_REVIEW, State.APPROVED, State.REJECTED, State.FAILED}
)
"""Changing what it wants makes it a draft again, whoever had approved it before."""


class Need(StrEnum):
    """What a change set needs besides the right to make it."""

    NOTHING = "nothing"
    CONFIRMATION = "confirmation"
    """Its title typed again."""
    REVIEW = "review"
    """The approval of a second person."""


# --- drafting -------------------------------------------------------------------------------------


def create(  # noqa: PLR0913 - by keyword
    *,
    actor: Actor,
    cluster_id: UUID,
    title: str,
    now: datetime,
    edits: Sequence[QueueEdit] = (),
    reason: str = "",
    request_id: str = "",
) -> ChangeSet:
    """Begin a draft, empty or with edits of queues as they were seen.

    Raises:
        NotFound, Denied: a queue is invisible, or its parent is not managed by the actor; without
            edits: the actor manages no queue at all.
        Invalid: no title, the root or one queue twice is edited.
    """
    _require_title(title)
    if not edits and not reading.manages_any(actor):
        raise access.refusal(actor, Verb.QUEUE_EDIT, None)
    deed = Deed(actor, now, reason, request_id)
    with transaction.atomic():
        row = ChangeSet(
            id=uuid4(),
            cluster_id=cluster_id,
            author_id=actor.user_id,
            title=title.strip(),
            reason=_short(reason),
            created_at=now,
        )
        items = items_of(deed, row, edits)
        row.save(force_insert=True)
        ChangeItem.objects.bulk_create(items)
        deed.record("change_set.create", row, None, {"title": row.title, **wanted_by(items)})
    return row


def edit(  # noqa: PLR0913 - by keyword
    *,
    actor: Actor,
    change_set_id: UUID,
    expected_version: int,
    now: datetime,
    edits: Sequence[QueueEdit] | None = None,
    title: str | None = None,
    reason: str | None = None,
    request_id: str = "",
) -> ChangeSet:
    """Put other edits, another title or reason in the place of those it has.

    Other edits make it a draft of the actor's again: nobody approved these numbers.

    Raises:
        NotFound, Denied, Invalid: as `create`.
        Conflict: somebody changed it since, or it is applied or scheduled.
    """
    if title is not None:
        _require_title(title)
    deed = Deed(actor, now, "", request_id)
    with transaction.atomic():
        row = lock(actor, change_set_id, expected_version)
        require_state(row, EDITABLE, "change_set.edit")
        old = list(row.items.all())
        require_right(actor, row, old)
        before: dict[str, Any] = {"title": row.title, "reason": row.reason, **wanted_by(old)}
        row.title = row.title if title is None else title.strip()
        row.reason = row.reason if reason is None else _short(reason)
        items = old
        if edits is not None:
            items = items_of(deed, row, edits)
            row.author_id = actor.user_id
            begin_again(row)
            ChangeItem.objects.filter(change_set=row).delete()
            ChangeItem.objects.bulk_create(items)
        after = {"title": row.title, "reason": row.reason, **wanted_by(items)}
        save(row)
        if before != after:
            deed.record("change_set.edit", row, before, after)
    return row


def discard(
    *, actor: Actor, change_set_id: UUID, expected_version: int, now: datetime, request_id: str = ""
) -> None:
    """Delete a change set that never was in force.

    Raises:
        NotFound, Denied: it is invisible, or not the actor's to edit.
        Conflict: it is applied or scheduled, or was changed since.
    """
    with transaction.atomic():
        row = lock(actor, change_set_id, expected_version)
        require_state(row, EDITABLE, "change_set.discard")
        items = list(row.items.all())
        require_right(actor, row, items)
        before = {"title": row.title, "state": row.state, **wanted_by(items)}
        Deed(actor, now, "", request_id).record("change_set.discard", row, before, None)
        row.delete()


def rebase(
    *,
    actor: Actor,
    change_set_id: UUID,
    expected_version: int,
    now: datetime,
    theirs: Iterable[tuple[UUID, str]] = (),
    request_id: str = "",
) -> ChangeSet:
    """Take the queues as they are now as what was seen; keep what is wanted of them.

    `theirs` names the fields, as (queue, field), that shall stay as others made them. An item that
    wants nothing any more is left out, and so is one whose queue is gone.

    Raises:
        NotFound, Denied, Invalid, Conflict: as `edit`.
    """
    given_up = set(theirs)
    row = reading.load(actor, change_set_id)
    tree = read_tree(row.cluster_id)
    edits = []
    for item in row.items.all():
        queue = tree.get(item.queue_id) if item.queue_id else None
        if queue is None:
            continue
        wanted = {
            name: value
            for name, value in item.new.items()
            if (queue.id, name) not in given_up and getattr(queue, name) != value
        }
        if wanted:
            edits.append(
                QueueEdit(
                    queue_id=queue.id,
                    expected_version=queue.version,
                    base=seen_of(queue),
                    **wanted,
                )
            )
    return edit(
        actor=actor,
        change_set_id=change_set_id,
        expected_version=expected_version,
        now=now,
        edits=edits,
        request_id=request_id,
    )


# --- checking and review --------------------------------------------------------------------------


def simulate(*, actor: Actor, change_set_id: UUID, now: datetime) -> Preview:
    """Say what applying it now would do; nothing is written. Cost: two cycles of the engine.

    Raises:
        NotFound, Denied, Invalid, Conflict: as applying it would.
    """
    row = reading.load(actor, change_set_id)
    return preview_edits(actor=actor, edits=edits_of(row), now=now)


def validate(
    *, actor: Actor, change_set_id: UUID, now: datetime, request_id: str = ""
) -> tuple[ChangeSet, Preview]:
    """Hold a draft against rights, versions, rules and the live cluster; keep what it would do.

    An approval is gone with it: it was given for what the change would have done then.

    Raises:
        NotFound, Denied: it is invisible, or a parent is not managed.
        Invalid: it wants nothing, or the tree would break a rule.
        Conflict: a queue was changed since; `current` lists a `QueueDifference` for each.
    """
    row = reading.load(actor, change_set_id)
    found = _simulated(actor, row, now)
    deed = Deed(actor, now, "", request_id)
    with transaction.atomic():
        row = lock(actor, change_set_id, row.version)
        require_state(row, {State.DRAFT, State.VALIDATED, State.APPROVED}, "change_set.validate")
        begin_again(row, state=row.state)
        _note_impact(row, found.impact, now)
        step(deed, row, State.VALIDATED, "change_set.validate", impact=row.impact)
    return row, found


def ask_review(
    *, actor: Actor, change_set_id: UUID, now: datetime, request_id: str = ""
) -> ChangeSet:
    """Ask a second person to look at it.

    Raises:
        NotFound, Denied: it is invisible, or a parent is not managed.
        Conflict: it is not validated.
    """
    deed = Deed(actor, now, "", request_id)
    return take(deed, change_set_id, {State.VALIDATED}, State.IN_REVIEW, "change_set.ask_review")


def approve(
    *, actor: Actor, change_set_id: UUID, now: datetime, comment: str = "", request_id: str = ""
) -> ChangeSet:
    """Let it be applied, as a second person who could have made it.

    Raises:
        NotFound, Denied: it is invisible, a parent is not managed, or it is the actor's own.
        Conflict: nobody asked for a review.
    """
    return _review(actor, change_set_id, now, comment, request_id, State.APPROVED)


def reject(
    *, actor: Actor, change_set_id: UUID, now: datetime, comment: str = "", request_id: str = ""
) -> ChangeSet:
    """Send it back; its author may edit it and ask again.

    Raises:
        NotFound, Denied, Conflict: as `approve`.
    """
    return _review(actor, change_set_id, now, comment, request_id, State.REJECTED)


def _review(
    actor: Actor, change_set_id: UUID, now: datetime, comment: str, request_id: str, end: State
) -> ChangeSet:
    action = "change_set.approve" if end == State.APPROVED else "change_set.reject"
    deed = Deed(actor, now, _short(comment), request_id)
    with transaction.atomic():
        row = lock(actor, change_set_id)
        require_right(actor, row, list(row.items.all()))
        if actor.user_id is None or row.author_id == actor.user_id:
            raise Denied("change_set_own_review", {"title": row.title})
        require_state(row, {State.IN_REVIEW}, action)
        row.reviewer_id, row.reviewed_at = actor.user_id, now
        row.review_comment = deed.reason
        step(deed, row, end, action)
    return row


# --- in force -------------------------------------------------------------------------------------


def apply(
    *,
    actor: Actor,
    change_set_id: UUID,
    now: datetime,
    confirmation: str = "",
    request_id: str = "",
) -> ChangeSet:
    """Put it in force now, all of it or nothing.

    It is simulated once more first, since the cluster goes on: whether it needs a second person or
    its title as `confirmation` is decided by what it would take from whom at this moment.

    Raises:
        NotFound, Denied: it is invisible, or a parent is not managed.
        Invalid: the tree would break a rule.
        Conflict: a queue was changed since (`current` lists a `QueueDifference` for each), it is
            not validated, or it needs a review or a confirmation.
    """
    row = reading.load(actor, change_set_id)
    found = _simulated(actor, row, now)
    _require_need(row, found.impact, now, confirmation)
    deed = Deed(actor, now, row.reason or row.title, request_id)
    with transaction.atomic():
        row = lock(actor, change_set_id, row.version)
        require_state(row, {State.VALIDATED, State.APPROVED}, "change_set.apply")
        _note_impact(row, found.impact, now)
        _put_in_force(deed, row)
    return row


def schedule(
    *,
    actor: Actor,
    change_set_id: UUID,
    apply_at: datetime,
    now: datetime,
    confirmation: str = "",
    request_id: str = "",
) -> ChangeSet:
    """Let it be put in force at a time, with the actor's rights as they are then.

    Raises:
        NotFound, Denied, Conflict: as `apply`.
        Invalid: the time is past or more than a year ahead, or the tree would break a rule.
    """
    if not now < apply_at <= now + LONGEST_AHEAD:
        raise Invalid([Problem("apply_at", "change_set_time", {"days": LONGEST_AHEAD.days})])
    row = reading.load(actor, change_set_id)
    found = _simulated(actor, row, now)
    _require_need(row, found.impact, now, confirmation)
    deed = Deed(actor, now, "", request_id)
    with transaction.atomic():
        row = lock(actor, change_set_id, row.version)
        require_state(row, {State.VALIDATED, State.APPROVED}, "change_set.schedule")
        _note_impact(row, found.impact, now)
        row.apply_at, row.scheduled_by_id = apply_at, actor.user_id
        step(deed, row, State.SCHEDULED, "change_set.schedule", apply_at=apply_at.isoformat())
    return row


def unschedule(
    *, actor: Actor, change_set_id: UUID, now: datetime, request_id: str = ""
) -> ChangeSet:
    """Take the time away; an approval stands.

    Raises:
        NotFound, Denied: it is invisible, or a parent is not managed.
        Conflict: it is not scheduled (any more).
    """
    deed = Deed(actor, now, "", request_id)
    with transaction.atomic():
        row = lock(actor, change_set_id)
        require_right(actor, row, list(row.items.all()))
        require_state(row, {State.SCHEDULED}, "change_set.unschedule")
        row.apply_at = row.scheduled_by = None
        end = State.APPROVED if row.reviewer_id else State.VALIDATED
        step(deed, row, end, "change_set.unschedule")
    return row


def due(now: datetime, *, limit: int) -> list[UUID]:
    """Return the change sets whose time has come, the earliest first."""
    rows = ChangeSet.objects.filter(state=State.SCHEDULED, apply_at__lte=now)
    return list(rows.order_by("apply_at", "id").values_list("id", flat=True)[:limit])


def apply_due(*, change_set_id: UUID, now: datetime) -> bool:
    """Put one in force whose time has come; False if it could not be, and why stands in its row.

    Rights are those of who scheduled it, as they are now. What was in force before stays in force
    when it fails. Safe to repeat: only a scheduled one is taken.
    """
    with transaction.atomic():
        row = rows().filter(id=change_set_id, state=State.SCHEDULED, apply_at__lte=now).first()
        if row is None:
            return False
        user = User.objects.filter(id=row.scheduled_by_id).first()
        actor = access.load_actor(user) if user else Actor(None, "nobody")
        deed = Deed(actor, now, row.reason or row.title)
        try:
            with transaction.atomic():
                _put_in_force(deed, row)
        except DomainError as error:
            row.refresh_from_db()
            row.problems = [_stored(one) for one in _problems_of(error)]
            step(deed, row, State.FAILED, "change_set.fail", problems=row.problems)
            return False
    return True


def revert(
    *, actor: Actor, change_set_id: UUID, now: datetime, reason: str = "", request_id: str = ""
) -> ChangeSet:
    """Bring back what an applied change set replaced; return the change set that does it.

    It is applied at once where nobody touched these fields since and applying was less than
    `REVERT_FREELY` ago. Otherwise it is left as a draft: with contested fields to choose from, or
    to go the ordinary way.

    Raises:
        NotFound, Denied: it is invisible, or a parent is not managed.
        Invalid: the tree of now plus the old values would break a rule.
        Conflict: it is not applied, or reverted already.
    """
    deed = Deed(actor, now, _short(reason), request_id)
    with transaction.atomic():
        original = lock(actor, change_set_id)
        items = list(original.items.all())
        require_right(actor, original, items)
        require_state(original, {State.APPLIED}, "change_set.revert")
        row, is_contested = _reverting(deed, original, items)
        is_fresh = original.applied_at is not None and now - original.applied_at <= REVERT_FREELY
        if is_fresh and not is_contested and row.items.exists():
            _put_in_force(deed, row)
        elif not row.items.exists():
            # Others have brought all of it back already: nothing is left to do.
            step(deed, original, State.REVERTED, "change_set.reverted")
            step(deed, row, State.APPLIED, "change_set.apply")
    return row


def _reverting(
    deed: Deed, original: ChangeSet, items: Sequence[ChangeItem]
) -> tuple[ChangeSet, bool]:
    """Write the draft that undoes a change set; say whether somebody changed its fields since."""
    tree = read_tree(original.cluster_id)
    row = ChangeSet.objects.create(
        cluster_id=original.cluster_id,
        unit_id=original.unit_id,
        author_id=deed.actor.user_id,
        title=f"Revert: {original.title}"[:LONGEST_TITLE],
        reason=deed.reason,
        reverts=original,
        created_at=deed.now,
    )
    is_contested = False
    made = []
    for item in items:
        queue = tree.get(item.queue_id) if item.queue_id else None
        if queue is None or item.applied_version is None:
            continue
        wanted = {name: item.old[name] for name in item.new if name in item.old}
        others = {name for name in wanted if getattr(queue, name) != item.new[name]}
        if any(getattr(queue, name) != wanted[name] for name in others):
            is_contested = True
            made.append(item_of(row, queue, item.applied_version, item.old | item.new, wanted))
            continue
        left = {name: value for name, value in wanted.items() if getattr(queue, name) != value}
        if left:
            made.append(item_of(row, queue, queue.version, seen_of(queue), left))
    ChangeItem.objects.bulk_create(made)
    after = {"title": row.title, "reverts": str(original.id), **wanted_by(made)}
    deed.record("change_set.create", row, None, after)
    return row, is_contested


def _put_in_force(deed: Deed, row: ChangeSet) -> None:
    """Edit the queues and say so, in the caller's transaction; the row is locked."""
    items = [item for item in row.items.all() if item.queue_id is not None]
    if not items:
        raise Invalid([Problem("edits", "change_set_empty", {"title": row.title})])
    # Locked before the tree, as `revert` does, so that the two never wait for each other.
    original = rows().filter(id=row.reverts_id, state=State.APPLIED).first()
    changed = queues.edit_queues(
        actor=deed.actor,
        edits=[edit_of(item) for item in items],
        now=deed.now,
        reason=deed.reason,
        request_id=deed.request_id,
    )
    versions = {queue.id: queue.version for queue in changed}
    for item in items:
        item.applied_version = versions[item.queue_id] if item.queue_id else None
    ChangeItem.objects.bulk_update(items, ["applied_version"])
    row.applied_at, row.problems = deed.now, []
    step(deed, row, State.APPLIED, "change_set.apply")
    if original is not None:
        step(deed, original, State.REVERTED, "change_set.reverted")


# --- direct edits ---------------------------------------------------------------------------------


def edit_now(
    *,
    actor: Actor,
    edits: Sequence[QueueEdit],
    now: datetime,
    reason: str = "",
    request_id: str = "",
) -> list[Queue]:
    """Change queues at once, without a change set, where no policy asks for a second person.

    Raises:
        NotFound, Denied, Invalid, Conflict: as `queues.edit_queues`.
        Conflict: `change_set_needed`: it would take so much from others that a second person has to
            look at it.
    """
    if edits and settings.TERRACE_CHANGE_REVIEW_GPUS >= 0:
        impact = preview_edits(actor=actor, edits=edits, now=now).impact
        if need_of(impact) == Need.REVIEW:
            raise Conflict("change_set_needed", _gpus(impact))
    return queues.edit_queues(
        actor=actor, edits=edits, now=now, reason=reason, request_id=request_id
    )


# --- policy ---------------------------------------------------------------------------------------


def need_of(impact: Impact) -> Need:
    """Say what a change of this effect needs, by the installation's policy."""
    gpus = impact.gpu_milli / 1000
    review, confirm = settings.TERRACE_CHANGE_REVIEW_GPUS, settings.TERRACE_CHANGE_CONFIRM_GPUS
    if 0 <= review < gpus:
        return Need.REVIEW
    if 0 <= confirm < gpus:
        return Need.CONFIRMATION
    return Need.NOTHING


def impact_of(row: ChangeSet) -> Impact | None:
    """Return the sums of the last simulation, None before the first."""
    return None if row.impact is None else Impact(**row.impact)


def _require_need(row: ChangeSet, impact: Impact, now: datetime, confirmation: str) -> None:
    need = need_of(impact)
    if need == Need.NOTHING or _is_fresh_revert(row, now):
        return
    if row.state == State.APPROVED:
        seen = impact_of(row) or Impact()
        allowed = max(seen.gpu_milli, settings.TERRACE_CHANGE_REVIEW_GPUS * 1000)
        if need == Need.REVIEW and impact.gpu_milli > allowed:
            raise Conflict("change_set_grew", {**_gpus(impact), "approved": _whole(seen.gpu_milli)})
        return
    if need == Need.REVIEW:
        raise Conflict("change_set_needs_review", {**_gpus(impact), "title": row.title})
    if confirmation.strip() != row.title:
        raise Conflict("change_set_needs_confirmation", {**_gpus(impact), "title": row.title})


def _is_fresh_revert(row: ChangeSet, now: datetime) -> bool:
    original = row.reverts
    if original is None or original.applied_at is None:
        return False
    wanted = {item.queue_id: item.new for item in row.items.all()}
    old = {item.queue_id: item.old for item in original.items.all()}
    is_exact = all(
        value == old.get(queue_id, {}).get(name)
        for queue_id, new in wanted.items()
        for name, value in new.items()
    )
    return is_exact and now - original.applied_at <= REVERT_FREELY


def _gpus(impact: Impact) -> dict[str, Param]:
    return {"gpus": _whole(impact.gpu_milli), "limit": _limit()}


def _limit() -> int:
    review: int = settings.TERRACE_CHANGE_REVIEW_GPUS
    confirm: int = settings.TERRACE_CHANGE_CONFIRM_GPUS
    return review if review >= 0 else confirm


def _whole(milli: int) -> float | int:
    return milli // 1000 if milli % 1000 == 0 else milli / 1000


def _require_title(title: str) -> None:
    text = title.strip()
    if not 1 <= len(text) <= LONGEST_TITLE:
        raise Invalid([Problem("title", "length", {"min": 1, "max": LONGEST_TITLE})])
    if not text.isprintable():
        raise Invalid([Problem("title", "not_printable")])


def _short(reason: str) -> str:
    audit.check_reason(reason)
    return reason.strip()


def _simulated(actor: Actor, row: ChangeSet, now: datetime) -> Preview:
    edits = edits_of(row)
    if not edits:
        raise Invalid([Problem("edits", "change_set_empty", {"title": row.title})])
    return preview_edits(actor=actor, edits=edits, now=now)


def _note_impact(row: ChangeSet, impact: Impact, now: datetime) -> None:
    row.impact, row.impact_at = asdict(impact), now


def _problems_of(error: DomainError) -> list[Problem]:
    if isinstance(error, Invalid):
        return list(error.problems)
    if isinstance(error, (Conflict, Denied)):
        return [Problem("", error.code, error.params)]
    return [Problem("", "change_set_queue_gone", {})]


def _stored(problem: Problem) -> dict[str, Any]:
    return {"path": problem.path, "code": problem.code, "params": dict(problem.params)}
