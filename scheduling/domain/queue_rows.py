"""The rows of a cluster's queue tree: locked, checked, written, and told of to who waits for them.

What `queues` and `unit_queues` have in common. Everybody locks the root of the tree first, then
queues from the root down.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import connection
from django.db.models import Sum

from scheduling.domain import topics
from scheduling.domain.deeds import Deed
from scheduling.domain.queue_changes import Tree, read_tree
from scheduling.lifecycle.queue_states import QueueView, step_queue
from scheduling.lifecycle.states import QueueState as LifecycleState
from scheduling.lifecycle.table import QueueAction
from scheduling.models import JobCount, Queue, QueueClosure
from scheduling.models.job import FINISHED_PHASES
from scheduling.models.queue import QueueState
from tenants.domain import access, notify, outbox
from tenants.domain.access import Actor, Verb
from tenants.domain.errors import Conflict
from tenants.models import OrgClosure, OrgUnit


def locked_tree(cluster_id: UUID) -> Tree:
    """Make other writers of the tree wait; rows that only refer to a queue are not held up."""
    list(
        Queue.objects.select_for_update(no_key=True).filter(
            cluster_id=cluster_id, parent__isnull=True
        )
    )
    return read_tree(cluster_id)


def hold_submissions(top: Queue, *, levels: int) -> None:
    """Wait for who is submitting to a queue or so far below it; who comes later waits for us.

    Submitters hold their queue FOR SHARE until they commit, so that the jobs counted after this are
    all there are. Locked after the tree, from the root down, like everybody who takes several.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT q.id FROM scheduling_queueclosure c"
            " JOIN scheduling_queue q ON q.id = c.descendant_id"
            " WHERE c.ancestor_id = %s AND c.depth <= %s"
            " ORDER BY c.depth, q.id FOR NO KEY UPDATE OF q",
            [top.id, levels],
        )


def require_right(actor: Actor, verb: Verb, queue: Queue) -> None:
    """Ask for a right on the unit of the queue's parent, who decides what the queue gets."""
    owner = queue.parent.unit_id if queue.parent else None
    access.require(actor, verb, owner, seen_at=queue.unit_id)


def require_version(queue: Queue, expected: int | None) -> None:
    """Refuse an edit of a queue that is another by now."""
    if expected is not None and queue.version != expected:
        raise Conflict(
            "version",
            {"queue": queue.name, "expected": expected, "version": queue.version},
            current=queue,
        )


def nearest_queue(unit: OrgUnit, tree: Tree) -> Queue:
    """Return the queue of the nearest unit above that has one; the root where none has."""
    by_unit = {queue.unit_id: queue for queue in tree.values()}
    above = (
        OrgClosure.objects.filter(descendant=unit, depth__gt=0)
        .order_by("depth")
        .values_list("ancestor_id", flat=True)
    )
    return next((by_unit[unit_id] for unit_id in above if unit_id in by_unit), by_unit[None])


def require_no_jobs(parent: Queue) -> None:
    """Refuse to make a group of a queue that has jobs: only leaves are served."""
    hold_submissions(parent, levels=0)
    jobs = jobs_left([parent.id]).get(parent.id, 0)
    if jobs:
        raise Conflict("queue_has_jobs", {"queue": parent.name, "jobs": jobs})


def jobs_left(queue_ids: Iterable[UUID]) -> dict[UUID, int]:
    """Count the jobs that have not finished, by queue."""
    counts = (
        JobCount.objects.filter(queue__in=list(queue_ids))
        .exclude(phase__in=FINISHED_PHASES)
        .values_list("queue_id")
        .annotate(jobs=Sum("amount"))
    )
    return dict(counts)


def write_states(deed: Deed, changed: Iterable[tuple[Queue, dict[str, Any]]]) -> None:
    """Write queues that were opened or closed, each with its audit row."""
    for queue, before in changed:
        after = {name: getattr(queue, name) for name in before}
        save(queue, *after)
        action = "queue.open" if queue.state == QueueState.OPEN else "queue.close"
        record(deed, action, queue, before, after)


def spread(
    action: QueueAction, queue: Queue, tree: Tree, *, is_by_parent: bool = False
) -> list[tuple[Queue, dict[str, Any]]]:
    """Put an action and what follows from it into the rows; return each changed one with its past.

    Raises:
        Conflict: the lifecycle refuses the action.
    """
    hold_submissions(queue, levels=len(tree))
    gangs = jobs_left(tree)
    by_name = {each.name: each for each in tree.values()}
    changed: list[tuple[Queue, dict[str, Any]]] = []
    waiting = [(queue.name, action, is_by_parent)]
    while waiting:
        name, each_action, by_parent = waiting.pop(0)
        row = by_name[name]
        step = step_queue(
            queue=_view(row, gangs),
            action=each_action,
            parent=_view(row.parent, gangs) if row.parent else None,
            children=[_view(child, gangs) for child in tree.values() if child.parent_id == row.id],
            by_parent=by_parent,
        )
        if step.refusal:
            code = f"queue_{step.refusal.replace('-', '_')}"
            parent = row.parent.name if row.parent else ""
            raise Conflict(code, {"queue": row.name, "parent": parent})
        before = {"state": row.state, "is_closed_by_parent": row.is_closed_by_parent}
        row.state = QueueState(step.queue.state.value)
        row.is_closed_by_parent = step.queue.closed_by_parent
        if before != {"state": row.state, "is_closed_by_parent": row.is_closed_by_parent}:
            changed.append((row, before))
        waiting += [(f.queue, f.action, f.marks_closed_by_parent) for f in step.follow_ups]
    return changed


def _view(queue: Queue, gangs: Mapping[UUID, int]) -> QueueView:
    return QueueView(
        name=queue.name,
        state=LifecycleState(queue.state),
        gangs=gangs.get(queue.id, 0),
        closed_by_parent=queue.is_closed_by_parent,
        is_root=queue.parent_id is None,
    )


def unlink(queue_id: UUID) -> None:
    """Forget who is above a subtree; what is inside it stays."""
    links = QueueClosure.objects.filter(ancestor=queue_id)
    ids = list(links.values_list("descendant_id", flat=True))
    QueueClosure.objects.filter(descendant__in=ids).exclude(ancestor__in=ids).delete()


def link(queue_id: UUID, parent_id: UUID) -> None:
    """Put a subtree below a parent: each of its queues below each at or above the parent."""
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO scheduling_queueclosure (ancestor_id, descendant_id, depth)"
            " SELECT up.ancestor_id, down.descendant_id, up.depth + down.depth + 1"
            " FROM scheduling_queueclosure up CROSS JOIN scheduling_queueclosure down"
            " WHERE up.descendant_id = %s AND down.ancestor_id = %s",
            [parent_id, queue_id],
        )


def save(queue: Queue, *fields: str) -> None:
    """Write some columns as the next version, if nobody else has written one.

    Raises:
        Conflict: somebody did, past the lock of the tree.
    """
    expected = queue.version
    queue.version += 1
    values = {name: getattr(queue, name) for name in (*fields, "version")}
    if Queue.objects.filter(id=queue.id, version=expected).update(**values) != 1:
        raise Conflict("version", {"queue": queue.name, "expected": expected, "version": "?"})


def described(queue: Queue) -> dict[str, Any]:
    """Return a queue as an audit row has it."""
    return {
        "name": queue.name,
        "parent": queue.parent_id,
        "unit": queue.unit_id,
        "min": queue.min,
        "max": queue.max,
        "weight": queue.weight,
        "priority": queue.priority,
        "lend_min": queue.lend_min,
        "reclaimable": queue.reclaimable,
        "policy": queue.policy,
        "state": queue.state,
        "version": queue.version,
    }


def record(
    deed: Deed,
    action: str,
    queue: Queue,
    before: Mapping[str, Any] | None,
    after: Mapping[str, Any] | None,
) -> None:
    """Write the audit row; the version in `after` lets a stale edit be held against its past."""
    if after is not None:
        after = {**after, "version": queue.version}
    deed.record(action, queue, before, after)


def announce(queues: Sequence[Queue], now: datetime) -> None:
    """Wake the scheduler and the pages that show these queues."""
    if not queues:
        return
    cluster_id = queues[0].cluster_id
    hints = [topics.Hint(topics.queue(queue.id), "state") for queue in queues]
    message = topics.message([*hints, topics.Hint(topics.cluster(cluster_id), "state")])
    if message is not None:
        outbox.publish_many([message], now=now)
    notify.notify(notify.SCHEDULE, str(cluster_id))
