"""The rows of a change set: what it wants of which queue, locked, checked and written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any
from uuid import UUID

from django.db import transaction

from scheduling.domain.deeds import Deed
from scheduling.domain.queries import change_sets as reading
from scheduling.domain.queue_changes import (
    QueueDifference,
    QueueEdit,
    QueueNumbers,
    Tree,
    difference,
    read_tree,
    require_editable,
    require_once_and_no_root,
)
from scheduling.models import ChangeItem, ChangeSet, Queue
from scheduling.models.change_set import ChangeSetState as State
from tenants.domain.access import Actor
from tenants.domain.errors import Conflict, Invalid, NotFound, Problem
from tenants.models import OrgUnit

MOST_ITEMS = 1000
FIELDS = tuple(field.name for field in fields(QueueNumbers))


def seen_of(queue: Queue) -> dict[str, Any]:
    """Return all fields of a queue that a change set can change, as they are now."""
    return {name: getattr(queue, name) for name in FIELDS}


def edits_of(row: ChangeSet) -> list[QueueEdit]:
    """Return what a change set wants of the queues that are still there."""
    return [edit_of(item) for item in row.items.all() if item.queue_id is not None]


def edit_of(item: ChangeItem) -> QueueEdit:
    """Return an item as an edit of its queue as it was seen."""
    assert item.queue_id is not None  # noqa: S101 - callers leave deleted queues out
    return QueueEdit(
        queue_id=item.queue_id, expected_version=item.expected_version, base=item.old, **item.new
    )


def differences(row: ChangeSet) -> list[QueueDifference]:
    """Return the items whose queue somebody changed since it was seen, field by field."""
    items = [item for item in row.items.all() if item.queue_id is not None]
    now = Queue.objects.in_bulk([item.queue_id for item in items if item.queue_id])
    return [
        difference(edit_of(item), now[item.queue_id])
        for item in items
        if item.queue_id in now and now[item.queue_id].version != item.expected_version
    ]


def items_of(deed: Deed, row: ChangeSet, edits: Sequence[QueueEdit]) -> list[ChangeItem]:
    """Turn edits into items, with the right to make them; note whom the change set concerns."""
    if len(edits) > MOST_ITEMS:
        raise Invalid([Problem("edits", "change_set_too_many", {"max": MOST_ITEMS})])
    tree = read_tree(row.cluster_id) if edits else {}
    chosen = require_editable(deed.actor, [one.queue_id for one in edits], tree)
    require_once_and_no_root(chosen)
    row.unit = _common_unit(chosen, tree)
    items = []
    for queue, one in zip(chosen, edits, strict=True):
        # What the caller says it saw is not believed: a revert would write it.
        seen = seen_of(queue)
        if queue.version != one.expected_version:
            known = difference(replace(one, base=None), queue)
            seen |= {each.field: each.base for each in known.fields}
        wanted = {name: value for name, value in one.given().items() if value != seen[name]}
        if wanted:
            items.append(item_of(row, queue, one.expected_version, seen, wanted))
    return items


def item_of(
    row: ChangeSet, queue: Queue, version: int, seen: Mapping[str, Any], new: Mapping[str, Any]
) -> ChangeItem:
    """Return the item that wants other values of a queue as it was seen."""
    return ChangeItem(
        change_set=row,
        queue=queue,
        queue_name=queue.name,
        expected_version=version,
        old=dict(seen),
        new=dict(new),
    )


def _common_unit(chosen: Sequence[Queue], tree: Tree) -> OrgUnit | None:
    """Return the unit of the lowest queue above all of these; None: the root's."""
    lines = []
    for queue in chosen:
        above: list[UUID] = []
        parent = queue.parent
        while parent is not None:
            above.insert(0, parent.id)
            parent = parent.parent
        lines.append(above)
    common: UUID | None = None
    for level in zip(*lines, strict=False):
        if len(set(level)) != 1:
            break
        common = level[0]
    return tree[common].unit if common else None


def wanted_by(items: Iterable[ChangeItem]) -> dict[str, Any]:
    """Return what the items want, by queue, as an audit row has it."""
    return {"queues": {item.queue_name: item.new for item in items}}


def rows() -> Any:
    """Return change sets to be locked, not held up by rows that refer to them."""
    return ChangeSet.objects.select_for_update(of=("self",), no_key=True)


def lock(actor: Actor, change_set_id: UUID, expected_version: int | None = None) -> ChangeSet:
    """Lock a change set that the actor may see.

    Raises:
        NotFound: it is gone or invisible.
        Conflict: it is another version by now.
    """
    reading.load(actor, change_set_id)
    row: ChangeSet | None = rows().filter(id=change_set_id).first()
    if row is None:
        raise NotFound("change set")
    if expected_version is not None and row.version != expected_version:
        raise Conflict("version", {"expected": expected_version, "version": row.version})
    return row


def require_right(actor: Actor, row: ChangeSet, items: Sequence[ChangeItem]) -> None:
    """Ask for the right to change all its queues; an empty draft is its author's."""
    queue_ids = [item.queue_id for item in items if item.queue_id is not None]
    if queue_ids:
        require_editable(actor, queue_ids, read_tree(row.cluster_id))
    elif row.author_id != actor.user_id:
        raise NotFound("change set")


def require_state(row: ChangeSet, allowed: Iterable[str], action: str) -> None:
    """Refuse a step that its state does not allow."""
    if row.state not in set(allowed):
        step = action.partition(".")[2].replace("_", " ")
        raise Conflict("change_set_state", {"title": row.title, "state": row.state, "action": step})


def begin_again(row: ChangeSet, *, state: str = State.DRAFT) -> None:
    """Forget what was said of a change set that wants something else now."""
    row.state = state
    row.impact = row.impact_at = row.reviewer = row.reviewed_at = None
    row.review_comment, row.problems = "", []


def take(
    deed: Deed, change_set_id: UUID, allowed: Iterable[str], end: State, action: str
) -> ChangeSet:
    """Do a step that needs nothing but the right and the state."""
    with transaction.atomic():
        row = lock(deed.actor, change_set_id)
        require_right(deed.actor, row, list(row.items.all()))
        require_state(row, allowed, action)
        step(deed, row, end, action)
    return row


def step(deed: Deed, row: ChangeSet, end: State, action: str, **more: Any) -> None:
    """Write the next state and the audit row of the step."""
    before, row.state = row.state, end
    save(row)
    deed.record(action, row, {"state": before}, {"state": end, **more})


def save(row: ChangeSet) -> None:
    """Write the row as its next version."""
    row.version += 1
    row.save()
