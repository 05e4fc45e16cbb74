"""Queues: made, edited together, opened, closed, moved with their units, deleted.

The numbers of a queue belong to its parent: whoever manages the parent's unit decides them, since
they change what the siblings get. Writers of one cluster's tree wait for one another on the row of
its root; what runs and waits goes on meanwhile. Each change wakes the scheduler.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID, uuid4

from django.db import IntegrityError, connection, transaction
from django.db.models import Sum

from scheduling.domain import topics
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
    read_tree,
    require_no_new_problems,
)
from scheduling.domain.queue_preview import preview_edits
from scheduling.lifecycle.queue_states import QueueView, step_queue
from scheduling.lifecycle.states import QueueState as LifecycleState
from scheduling.lifecycle.table import QueueAction
from scheduling.models import Job, JobCount, Queue, QueueClosure
from scheduling.models.job import FINISHED_PHASES
from scheduling.models.queue import QueueState
from scheduling.spec import queue_tree
from tenants.domain import access, audit, grants, notify, org, outbox
from tenants.domain.access import SYSTEM, Actor, Verb
from tenants.domain.errors import Conflict, Invalid, NotFound, Problem
from tenants.models import OrgClosure, OrgUnit

__all__ = [
    "QueueEdit",
    "QueueNumbers",
    "archive_unit",
    "close_queue",
    "create_queue",
    "delete_queue",
    "edit_queues",
    "merge_unit",
    "move_unit",
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
        tree = _locked_tree(cluster_of(parent_id))
        parent = tree[parent_id]
        access.require(actor, Verb.QUEUE_CREATE, parent.unit_id, seen_at=parent.unit_id or unit_id)
        access.require(actor, Verb.ORG_READ, unit_id, what="org unit")
        unit = OrgUnit.objects.get(id=unit_id)
        known = known_problems(tree.values())
        _require_place(unit, parent, tree)
        _require_name(name, tree)
        _require_no_jobs(parent)
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
        _link(queue.id, parent.id)
        deed = Deed(actor, now, reason, request_id)
        _record(deed, "queue.create", queue, None, _described(queue))
        _announce([queue], now)
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
        tree = _locked_tree(cluster_of(edits[0].queue_id))
        changes = apply_in_memory(actor=actor, edits=edits, tree=tree)
        for queue_id, change in changes.items():
            _save(tree[queue_id], *change)
            before = {name: before for name, (before, _) in change.items()}
            after = {name: after for name, (_, after) in change.items()}
            _record(deed, "queue.update", tree[queue_id], before, after)
        _announce([tree[queue_id] for queue_id in changes], now)
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
    _require_right(actor, Verb.QUEUE_STATE, queue)


def settle_closing(now: datetime) -> int:
    """Say Closed of every Closing queue whose jobs are over; return how many there were.

    Called by the relay every few seconds; one query where there is nothing to do.
    """
    closing = Queue.objects.filter(state=QueueState.CLOSING)
    settled = 0
    for cluster_id in set(closing.values_list("cluster_id", flat=True)):
        with transaction.atomic():
            tree = _locked_tree(cluster_id)
            waiting = [queue for queue in tree.values() if queue.state == QueueState.CLOSING]
            gangs = _gangs(queue.id for queue in waiting)
            done = [queue for queue in waiting if not gangs.get(queue.id)]
            for queue in done:
                before, queue.state = queue.state, QueueState.CLOSED
                _save(queue, "state")
                change = ({"state": before}, {"state": queue.state})
                _record(Deed(SYSTEM, now), "queue.settle", queue, *change)
            _announce(done, now)
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
        tree = _locked_tree(cluster_of(queue_id))
        queue = tree[queue_id]
        _require_right(actor, Verb.QUEUE_DELETE, queue)
        _require_version(queue, expected_version)
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
        _record(deed, "queue.delete", queue, _described(queue), None)
        _announce([queue], now)
        queue.delete()


def move_unit(  # noqa: PLR0913 - by keyword
    *,
    actor: Actor,
    unit_id: UUID,
    parent_id: UUID,
    expected_version: int,
    now: datetime,
    reason: str = "",
    request_id: str = "",
) -> OrgUnit:
    """Move an org unit, and its queues in every cluster below those of its new place.

    Raises:
        NotFound, Denied: a unit is invisible, or not both parents are administered, of the unit and
            of each queue that moves.
        Invalid: the org tree or a queue tree would break a rule.
        Conflict: the unit was changed since, or a queue that would get children has jobs.
    """
    with transaction.atomic():
        unit = org.move_unit(
            actor=actor,
            unit_id=unit_id,
            parent_id=parent_id,
            expected_version=expected_version,
            now=now,
            reason=reason,
            request_id=request_id,
        )
        inside = _inside(unit)
        clusters = Queue.objects.filter(unit__in=inside).values_list("cluster_id", flat=True)
        for cluster_id in sorted(set(clusters)):
            _move_queues(Deed(actor, now, reason, request_id), cluster_id, unit, inside)
    return unit


def archive_unit(
    *,
    actor: Actor,
    unit_id: UUID,
    expected_version: int,
    now: datetime,
    reason: str = "",
    request_id: str = "",
) -> OrgUnit:
    """Retire an org unit once its queues are closed and their jobs have ended.

    Raises:
        NotFound, Denied: the unit is invisible, or its parent is not administered.
        Conflict: a queue of it is not closed, a unit below is in use, or it was changed since.
    """
    with transaction.atomic():
        unit = org.archive_unit(
            actor=actor,
            unit_id=unit_id,
            expected_version=expected_version,
            now=now,
            reason=reason,
            request_id=request_id,
        )
        in_use = Queue.objects.filter(unit=unit).exclude(state=QueueState.CLOSED).first()
        if in_use is not None:
            params = {"unit": unit.name, "queue": in_use.name, "state": in_use.state}
            raise Conflict("unit_queue_in_use", params)
    return unit


def merge_unit(  # noqa: PLR0913 - by keyword
    *,
    actor: Actor,
    unit_id: UUID,
    into_id: UUID,
    expected_version: int,
    now: datetime,
    reason: str = "",
    request_id: str = "",
) -> OrgUnit:
    """Put all that a unit has into another of its tenant and archive it; return the other.

    1. The people get the same roles on the other unit, and keep those here: they cover the history.
    2. The queue goes over with its jobs in each cluster where the other unit has none. Where both
       have one, this unit's must have no job left; it is deleted, or closed if it ever had one.
    3. The units below go below the other, with their queues.

    Raises:
        NotFound, Denied: a unit is invisible, or the actor administers not both and their parents.
        Invalid: the units are one, the other lies inside it, a name is taken there, or a tree
            would break a rule.
        Conflict: the unit was changed since, the other is archived, or a queue still has jobs.
    """
    deed = Deed(actor, now, reason, request_id)
    with transaction.atomic():
        unit, into = org.units_to_merge(
            actor=actor, unit_id=unit_id, into_id=into_id, expected_version=expected_version
        )
        given = grants.repeat_grants(
            actor=actor,
            from_unit=unit,
            to_unit=into,
            now=now,
            reason=reason,
            request_id=request_id,
        )
        handed_over = _hand_over_queues(deed, unit, into)
        moved = list(unit.children.order_by("name", "id"))
        for child in moved:
            move_unit(
                actor=actor,
                unit_id=child.id,
                parent_id=into.id,
                expected_version=child.version,
                now=now,
                reason=reason,
                request_id=request_id,
            )
        _give_up_queues(deed, unit)
        org.record_merge(
            actor=actor,
            unit=unit,
            into=into,
            now=now,
            parts={
                "units": [child.name for child in moved],
                "queues": handed_over,
                "grants": [str(grant.id) for grant in given],
            },
            reason=reason,
            request_id=request_id,
        )
        archive_unit(
            actor=actor,
            unit_id=unit.id,
            expected_version=unit.version,
            now=now,
            reason=reason,
            request_id=request_id,
        )
    return into


# --- the tree in memory --------------------------------------------------------------------------


def _locked_tree(cluster_id: UUID) -> Tree:
    """Make other writers of the tree wait; rows that only refer to a queue are not held up."""
    list(
        Queue.objects.select_for_update(no_key=True).filter(
            cluster_id=cluster_id, parent__isnull=True
        )
    )
    return read_tree(cluster_id)


def _hold_submissions(top: Queue, *, levels: int) -> None:
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


def _require_right(actor: Actor, verb: Verb, queue: Queue) -> None:
    owner = queue.parent.unit_id if queue.parent else None
    access.require(actor, verb, owner, seen_at=queue.unit_id)


def _require_version(queue: Queue, expected: int | None) -> None:
    if expected is not None and queue.version != expected:
        raise Conflict(
            "version",
            {"queue": queue.name, "expected": expected, "version": queue.version},
            current=queue,
        )


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
    nearest = _nearest_queue(unit, tree)
    if nearest.id != parent.id:
        params = {"unit": unit.name, "queue": parent.name, "nearest": nearest.name}
        raise Invalid([Problem("parent", "queue_parent_not_nearest", params)])
    below = OrgClosure.objects.filter(ancestor=unit).values_list("descendant_id", flat=True)
    inside = sorted(by_unit[unit_id].name for unit_id in below if unit_id in by_unit)
    if inside:
        params = {"unit": unit.name, "queue": inside[0]}
        raise Invalid([Problem("unit", "queue_below_exists", params)])


def _nearest_queue(unit: OrgUnit, tree: Tree) -> Queue:
    """Return the queue of the nearest unit above that has one; the root where none has."""
    by_unit = {queue.unit_id: queue for queue in tree.values()}
    above = (
        OrgClosure.objects.filter(descendant=unit, depth__gt=0)
        .order_by("depth")
        .values_list("ancestor_id", flat=True)
    )
    return next((by_unit[unit_id] for unit_id in above if unit_id in by_unit), by_unit[None])


def _require_no_jobs(parent: Queue) -> None:
    """Refuse to make a group of a queue that has jobs: only leaves are served."""
    _hold_submissions(parent, levels=0)
    jobs = _gangs([parent.id]).get(parent.id, 0)
    if jobs:
        raise Conflict("queue_has_jobs", {"queue": parent.name, "jobs": jobs})


def _gangs(queue_ids: Iterable[UUID]) -> dict[UUID, int]:
    """Count the jobs that have not finished, by queue."""
    counts = (
        JobCount.objects.filter(queue__in=list(queue_ids))
        .exclude(phase__in=FINISHED_PHASES)
        .values_list("queue_id")
        .annotate(jobs=Sum("amount"))
    )
    return dict(counts)


# --- opening and closing --------------------------------------------------------------------------


def _act(deed: Deed, action: QueueAction, queue_id: UUID, expected_version: int | None) -> Queue:
    with transaction.atomic():
        tree = _locked_tree(cluster_of(queue_id))
        queue = tree[queue_id]
        _require_right(deed.actor, Verb.QUEUE_STATE, queue)
        _require_version(queue, expected_version)
        changed = _spread(action, queue, tree)
        _write_states(deed, changed)
        _announce([each for each, _ in changed], deed.now)
    return queue


def _write_states(deed: Deed, changed: Iterable[tuple[Queue, dict[str, Any]]]) -> None:
    for queue, before in changed:
        after = {name: getattr(queue, name) for name in before}
        _save(queue, *after)
        action = "queue.open" if queue.state == QueueState.OPEN else "queue.close"
        _record(deed, action, queue, before, after)


def _spread(
    action: QueueAction, queue: Queue, tree: Tree, *, is_by_parent: bool = False
) -> list[tuple[Queue, dict[str, Any]]]:
    """Put an action and what follows from it into the rows; return each changed one with its past.

    Raises:
        Conflict: the lifecycle refuses the action.
    """
    _hold_submissions(queue, levels=len(tree))
    gangs = _gangs(tree)
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


# --- moving ---------------------------------------------------------------------------------------


def _move_queues(deed: Deed, cluster_id: UUID, unit: OrgUnit, inside: Collection[UUID]) -> None:
    """Hang the topmost queues of a moved subtree of units below the queue of its new place."""
    tree = _locked_tree(cluster_id)
    known = known_problems(tree.values())
    target = _nearest_queue(unit, tree)
    tops = [
        queue
        for queue in tree.values()
        if queue.unit_id in inside and queue.parent and queue.parent.unit_id not in inside
    ]
    moving = [queue for queue in tops if queue.parent_id != target.id]
    if not moving:
        return
    access.require(deed.actor, Verb.QUEUE_EDIT, target.unit_id, seen_at=target.unit_id or unit.id)
    _require_no_jobs(target)
    before = {queue.id: queue.parent_id for queue in moving}
    for queue in moving:
        _require_right(deed.actor, Verb.QUEUE_EDIT, queue)
        queue.parent = target
    require_no_new_problems(tree.values(), known)
    for queue in moving:
        _save(queue, "parent")
        _unlink(queue.id)
        _link(queue.id, target.id)
        _record(deed, "queue.move", queue, {"parent": before[queue.id]}, {"parent": target.id})
        _write_states(deed, _spread(QueueAction.SYNC, queue, tree))
    _announce(moving, deed.now)


def _hand_over_queues(deed: Deed, unit: OrgUnit, into: OrgUnit) -> list[str]:
    """Give a unit's queue, with all its jobs, to another that has none there; return the names."""
    taken = set(Queue.objects.filter(unit=into).values_list("cluster_id", flat=True))
    names = []
    for queue in Queue.objects.filter(unit=unit).exclude(cluster__in=taken).order_by("id"):
        tree = _locked_tree(queue.cluster_id)
        row = tree[queue.id]
        target = _nearest_queue(into, tree)
        below = _inside(into) - _inside(unit) - {into.id}
        if any(other.unit_id in below for other in tree.values()):
            params = {"unit": into.name, "cluster": row.cluster.name, "queue": row.name}
            raise Conflict("merge_needs_queue", params)
        _require_right(deed.actor, Verb.QUEUE_EDIT, row)
        row.unit = into
        if target.id not in (row.id, row.parent_id):
            _hang_below(deed, row, target, tree)
        _save(row, "unit")
        _hold_submissions(row, levels=0)
        try:
            with transaction.atomic():
                Job.objects.filter(queue=row).update(unit=into)
        except IntegrityError as error:
            raise Conflict("merge_job_names", {"unit": into.name, "queue": row.name}) from error
        _record(deed, "queue.hand_over", row, {"unit": unit.id}, {"unit": into.id})
        _announce([row], deed.now)
        names.append(row.name)
    return names


def _inside(unit: OrgUnit) -> set[UUID]:
    """Return the ids of a unit and of all below it."""
    return set(OrgClosure.objects.filter(ancestor=unit).values_list("descendant_id", flat=True))


def _hang_below(deed: Deed, queue: Queue, target: Queue, tree: Tree) -> None:
    """Move one queue, with what is below it, under another."""
    access.require(deed.actor, Verb.QUEUE_EDIT, target.unit_id, seen_at=target.unit_id)
    known = known_problems(tree.values())
    _require_no_jobs(target)
    before, queue.parent = queue.parent_id, target
    require_no_new_problems(tree.values(), known)
    _save(queue, "parent")
    _unlink(queue.id)
    _link(queue.id, target.id)
    _record(deed, "queue.move", queue, {"parent": before}, {"parent": target.id})
    _write_states(deed, _spread(QueueAction.SYNC, queue, tree))


def _give_up_queues(deed: Deed, unit: OrgUnit) -> None:
    """Delete or close the queues that a merged unit still has: those whose jobs are over."""
    for queue in Queue.objects.filter(unit=unit).order_by("id"):
        tree = _locked_tree(queue.cluster_id)
        row = tree[queue.id]
        _require_right(deed.actor, Verb.QUEUE_DELETE, row)
        _hold_submissions(row, levels=0)
        jobs = _gangs([row.id]).get(row.id, 0)
        if jobs:
            raise Conflict("merge_queue_has_jobs", {"queue": row.name, "jobs": jobs})
        if Job.objects.filter(queue=row).exists():
            if row.state != QueueState.CLOSED:
                _write_states(deed, _spread(QueueAction.CLOSE, row, tree))
        else:
            _record(deed, "queue.delete", row, _described(row), None)
            row.delete()
        _announce([row], deed.now)


def _unlink(queue_id: UUID) -> None:
    """Forget who is above a subtree; what is inside it stays."""
    links = QueueClosure.objects.filter(ancestor=queue_id)
    ids = list(links.values_list("descendant_id", flat=True))
    QueueClosure.objects.filter(descendant__in=ids).exclude(ancestor__in=ids).delete()


def _link(queue_id: UUID, parent_id: UUID) -> None:
    """Put a subtree below a parent: each of its queues below each at or above the parent."""
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO scheduling_queueclosure (ancestor_id, descendant_id, depth)"
            " SELECT up.ancestor_id, down.descendant_id, up.depth + down.depth + 1"
            " FROM scheduling_queueclosure up CROSS JOIN scheduling_queueclosure down"
            " WHERE up.descendant_id = %s AND down.ancestor_id = %s",
            [parent_id, queue_id],
        )


# --- rows -----------------------------------------------------------------------------------------


def _save(queue: Queue, *fields: str) -> None:
    """Write some columns as the next version, if nobody else has written one.

    Raises:
        Conflict: somebody did, past the lock of the tree.
    """
    expected = queue.version
    queue.version += 1
    values = {name: getattr(queue, name) for name in (*fields, "version")}
    if Queue.objects.filter(id=queue.id, version=expected).update(**values) != 1:
        raise Conflict("version", {"queue": queue.name, "expected": expected, "version": "?"})


def _described(queue: Queue) -> dict[str, Any]:
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


def _record(
    deed: Deed,
    action: str,
    queue: Queue,
    before: Mapping[str, Any] | None,
    after: Mapping[str, Any] | None,
) -> None:
    """Write the audit row; the version in `after` lets a stale edit be held against its past."""
    audit.record(
        actor=deed.actor,
        action=action,
        subject=queue,
        before=before,
        after=None if after is None else {**after, "version": queue.version},
        unit=queue.unit,
        now=deed.now,
        reason=deed.reason,
        request_id=deed.request_id,
    )


def _announce(queues: Sequence[Queue], now: datetime) -> None:
    """Wake the scheduler and the pages that show these queues."""
    if not queues:
        return
    cluster_id = queues[0].cluster_id
    hints = [topics.Hint(topics.queue(queue.id), "state") for queue in queues]
    message = topics.message([*hints, topics.Hint(topics.cluster(cluster_id), "state")])
    if message is not None:
        outbox.publish_many([message], now=now)
    notify.notify(notify.SCHEDULE, str(cluster_id))
