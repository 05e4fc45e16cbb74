"""Queues: made, edited together, opened, closed, deleted.

The numbers of a queue belong to its parent: whoever manages the parent's unit decides them, since
they change what the siblings get. Writers of one cluster's tree wait for one another on the row of
its root; what runs and waits goes on meanwhile. Each change wakes the scheduler.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID, uuid4

from django.db import transaction

from scheduling.domain.bootstrap import DEFAULT
from scheduling.domain.deeds import Deed
from scheduling.domain.queue_changes import (
    UNCHANGED,
    QueueEdit,
    QueueNumbers,
    Tree,
    apply_in_memory,
    cluster_of,
    known_problems,
    require_no_new_problems,
)
from scheduling.domain.queue_preview import preview_edits
from scheduling.domain.queue_rows import (
    announce,
    described,
    jobs_left,
    link,
    locked_tree,
    nearest_queue,
    record,
    require_no_jobs,
    require_right,
    require_version,
    save,
    spread,
    write_states,
)
from scheduling.lifecycle.table import QueueAction
from scheduling.models import Job, Queue, QueueClosure
from scheduling.models.queue import QueueState
from scheduling.spec import queue_tree
from tenants.domain import access
from tenants.domain.access import SYSTEM, Actor, Verb
from tenants.domain.errors import Conflict, Invalid, NotFound, Problem
from tenants.models import OrgClosure, OrgUnit

__all__ = [
    "QueueEdit",
    "QueueNumbers",
    "close_queue",
    "create_queue",
    "delete_queue",
    "edit_queues",
    "open_queue",
    "preview_edits",
    "require_state_right",
    "settle_closing",
]


def create_queue(  # noqa: PLR0913 - by keyword
    *,
    actor: Actor,
    parent_id: UUID,
    unit_id: UUID,
    name: str,
    now: datetime,
    numbers: QueueNumbers = UNCHANGED,
    reason: str = "",
    request_id: str = "",
) -> Queue:
    """Give an org unit a queue below the queue of the nearest unit above it that has one.

    Raises:
        NotFound, Denied: the parent or the unit is invisible, or the parent is not managed.
        Invalid: the name, a number or the place breaks a rule.
        Conflict: the parent still has jobs of its own, or the unit is archived.
    """
    with transaction.atomic():
        tree = locked_tree(cluster_of(parent_id))
        parent = tree[parent_id]
        access.require(actor, Verb.QUEUE_CREATE, parent.unit_id, seen_at=parent.unit_id or unit_id)
        access.require(actor, Verb.ORG_READ, unit_id, what="org unit")
        unit = OrgUnit.objects.get(id=unit_id)
        known = known_problems(tree.values())
        _require_place(unit, parent, tree)
        _require_name(name, tree)
        require_no_jobs(parent)
        queue = Queue(
            id=uuid4(),
            cluster_id=parent.cluster_id,
            parent=parent,
            unit=unit,
            name=name,
            created_at=now,
            **numbers.given(),
        )
        require_no_new_problems([*tree.values(), queue], known)
        if parent.state != QueueState.OPEN:
            queue.state, queue.is_closed_by_parent = QueueState.CLOSED, True
        queue.save(force_insert=True)
        QueueClosure.objects.create(ancestor=queue, descendant=queue, depth=0)
        link(queue.id, parent.id)
        deed = Deed(actor, now, reason, request_id)
        record(deed, "queue.create", queue, None, described(queue))
        announce([queue], now)
    return queue


def edit_queues(
    *,
    actor: Actor,
    edits: Sequence[QueueEdit],
    now: datetime,
    reason: str = "",
    request_id: str = "",
) -> list[Queue]:
    """Change several queues of one cluster at once, judged by the tree that comes out.

    Return the queues in the order of the edits; one that already was as wanted keeps its version.

    Raises:
        NotFound, Denied: a queue is invisible, or its parent is not managed by the actor.
        Invalid: a broken rule for each field, with its numbers.
        Conflict: a queue was changed since; `current` lists a `QueueDifference` for each.
    """
    if not edits:
        return []
    deed = Deed(actor, now, reason, request_id)
    with transaction.atomic():
        tree = locked_tree(cluster_of(edits[0].queue_id))
        changes = apply_in_memory(actor=actor, edits=edits, tree=tree)
        for queue_id, change in changes.items():
            save(tree[queue_id], *change)
            before = {name: before for name, (before, _) in change.items()}
            after = {name: after for name, (_, after) in change.items()}
            record(deed, "queue.update", tree[queue_id], before, after)
        announce([tree[queue_id] for queue_id in changes], now)
    return [tree[edit.queue_id] for edit in edits]


def open_queue(
    *,
    actor: Actor,
    queue_id: UUID,
    now: datetime,
    expected_version: int | None = None,
    reason: str = "",
    request_id: str = "",
) -> Queue:
    """Let a queue take jobs again, and with it the queues below that were closed along with it.

    Raises:
        NotFound, Denied: the queue is invisible, or its parent is not managed.
        Conflict: its parent is closed, or somebody changed it since `expected_version`.
    """
    deed = Deed(actor, now, reason, request_id)
    return _act(deed, QueueAction.OPEN, queue_id, expected_version)


def close_queue(
    *,
    actor: Actor,
    queue_id: UUID,
    now: datetime,
    expected_version: int | None = None,
    reason: str = "",
    request_id: str = "",
) -> Queue:
    """Let a queue and all below it take no new jobs; those that it has go on to their end.

    It is Closing while it has jobs, then Closed (`settle_closing`).

    Raises:
        NotFound, Denied: the queue is invisible, or its parent is not managed.
        Conflict: it is the root, or somebody changed it since `expected_version`.
    """
    deed = Deed(actor, now, reason, request_id)
    return _act(deed, QueueAction.CLOSE, queue_id, expected_version)


def require_state_right(actor: Actor, queue_id: UUID) -> None:
    """Return if the actor may open and close the queue.

    Raises:
        NotFound, Denied: the queue is invisible, or its parent is not managed.
    """
    queue = Queue.objects.select_related("parent").filter(id=queue_id).first()
    if queue is None:
        raise NotFound("queue")
    require_right(actor, Verb.QUEUE_STATE, queue)


def settle_closing(now: datetime) -> int:
    """Say Closed of every Closing queue whose jobs are over; return how many there were.

    Called by the relay every few seconds; one query where there is nothing to do.
    """
    closing = Queue.objects.filter(state=QueueState.CLOSING)
    settled = 0
    for cluster_id in set(closing.values_list("cluster_id", flat=True)):
        with transaction.atomic():
            tree = locked_tree(cluster_id)
            waiting = [queue for queue in tree.values() if queue.state == QueueState.CLOSING]
            gangs = jobs_left(queue.id for queue in waiting)
            done = [queue for queue in waiting if not gangs.get(queue.id)]
            for queue in done:
                before, queue.state = queue.state, QueueState.CLOSED
                save(queue, "state")
                change = ({"state": before}, {"state": queue.state})
                record(Deed(SYSTEM, now), "queue.settle", queue, *change)
            announce(done, now)
            settled += len(done)
    return settled


def delete_queue(
    *,
    actor: Actor,
    queue_id: UUID,
    expected_version: int,
    now: datetime,
    reason: str = "",
    request_id: str = "",
) -> None:
    """Delete a queue that is closed, has no queue below and never had a job.

    One that had jobs stays, closed, since their history refers to it.

    Raises:
        NotFound, Denied: the queue is invisible, or its parent is not managed.
        Conflict: it is the root or the default queue, open, not empty, or changed since.
    """
    with transaction.atomic():
        tree = locked_tree(cluster_of(queue_id))
        queue = tree[queue_id]
        require_right(actor, Verb.QUEUE_DELETE, queue)
        require_version(queue, expected_version)
        children = sum(other.parent_id == queue.id for other in tree.values())
        jobs = Job.objects.filter(queue=queue).count()
        if queue.parent_id is None or queue.name == DEFAULT:
            raise Conflict("queue_protected", {"queue": queue.name})
        if children or jobs:
            raise Conflict(
                "queue_not_empty", {"queue": queue.name, "children": children, "jobs": jobs}
            )
        if queue.state != QueueState.CLOSED:
            raise Conflict("queue_not_closed", {"queue": queue.name, "state": queue.state})
        deed = Deed(actor, now, reason, request_id)
        record(deed, "queue.delete", queue, described(queue), None)
        announce([queue], now)
        queue.delete()


def _require_name(name: str, tree: Tree) -> None:
    problems = [
        Problem(problem.path, problem.code, problem.params)
        for problem in queue_tree.check_name(name)
    ]
    if any(queue.name == name for queue in tree.values()):
        problems.append(Problem("name", "queue_name_taken", {"queue": name}))
    if problems:
        raise Invalid(problems)


def _require_place(unit: OrgUnit, parent: Queue, tree: Tree) -> None:
    """Keep the tree of queues a picture of the tree of units."""
    if unit.is_archived:
        raise Conflict("unit_archived", {"unit": unit.name})
    by_unit = {queue.unit_id: queue for queue in tree.values()}
    if unit.id in by_unit:
        params = {"unit": unit.name, "queue": by_unit[unit.id].name}
        raise Invalid([Problem("unit", "queue_of_unit_exists", params)])
    nearest = nearest_queue(unit, tree)
    if nearest.id != parent.id:
        params = {"unit": unit.name, "queue": parent.name, "nearest": nearest.name}
        raise Invalid([Problem("parent", "queue_parent_not_nearest", params)])
    below = OrgClosure.objects.filter(ancestor=unit).values_list("descendant_id", flat=True)
    inside = sorted(by_unit[unit_id].name for unit_id in below if unit_id in by_unit)
    if inside:
        params = {"unit": unit.name, "queue": inside[0]}
        raise Invalid([Problem("unit", "queue_below_exists", params)])


def _act(deed: Deed, action: QueueAction, queue_id: UUID, expected_version: int | None) -> Queue:
    with transaction.atomic():
        tree = locked_tree(cluster_of(queue_id))
        queue = tree[queue_id]
        require_right(deed.actor, Verb.QUEUE_STATE, queue)
        require_version(queue, expected_version)
        changed = spread(action, queue, tree)
        write_states(deed, changed)
        announce([each for each, _ in changed], deed.now)
    return queue
