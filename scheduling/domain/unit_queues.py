"""Queues that follow their org units: a unit is moved, merged into another or archived.

The tree of queues stays a picture of the tree of units in every cluster, in one transaction with
the change of the unit itself.
"""

from __future__ import annotations

from collections.abc import Collection
from uuid import UUID

from django.db import IntegrityError, transaction

from scheduling.domain.deeds import Deed
from scheduling.domain.queue_changes import (
    Tree,
    known_problems,
    require_no_new_problems,
)
from scheduling.domain.queue_rows import (
    announce,
    described,
    hold_submissions,
    jobs_left,
    link,
    locked_tree,
    nearest_queue,
    record,
    require_no_jobs,
    require_right,
    save,
    spread,
    unlink,
    write_states,
)
from scheduling.lifecycle.table import QueueAction
from scheduling.models import Job, Queue
from scheduling.models.queue import QueueState
from tenants.domain import access, grants, org
from tenants.domain.access import Verb
from tenants.domain.errors import Conflict
from tenants.models import OrgClosure, OrgUnit


def move_unit(
    *,
    deed: Deed,
    unit_id: UUID,
    parent_id: UUID,
    expected_version: int,
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
            actor=deed.actor,
            unit_id=unit_id,
            parent_id=parent_id,
            expected_version=expected_version,
            now=deed.now,
            reason=deed.reason,
            request_id=deed.request_id,
        )
        inside = _inside(unit)
        clusters = Queue.objects.filter(unit__in=inside).values_list("cluster_id", flat=True)
        for cluster_id in sorted(set(clusters)):
            _move_queues(deed, cluster_id, unit, inside)
    return unit


def archive_unit(
    *,
    deed: Deed,
    unit_id: UUID,
    expected_version: int,
) -> OrgUnit:
    """Retire an org unit once its queues are closed and their jobs have ended.

    Raises:
        NotFound, Denied: the unit is invisible, or its parent is not administered.
        Conflict: a queue of it is not closed, a unit below is in use, or it was changed since.
    """
    with transaction.atomic():
        unit = org.archive_unit(
            actor=deed.actor,
            unit_id=unit_id,
            expected_version=expected_version,
            now=deed.now,
            reason=deed.reason,
            request_id=deed.request_id,
        )
        in_use = Queue.objects.filter(unit=unit).exclude(state=QueueState.CLOSED).first()
        if in_use is not None:
            params = {"unit": unit.name, "queue": in_use.name, "state": in_use.state}
            raise Conflict("unit_queue_in_use", params)
    return unit


def merge_unit(
    *,
    deed: Deed,
    unit_id: UUID,
    into_id: UUID,
    expected_version: int,
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
    with transaction.atomic():
        unit, into = org.units_to_merge(
            actor=deed.actor, unit_id=unit_id, into_id=into_id, expected_version=expected_version
        )
        given = grants.repeat_grants(
            actor=deed.actor,
            from_unit=unit,
            to_unit=into,
            now=deed.now,
            reason=deed.reason,
            request_id=deed.request_id,
        )
        handed_over = _hand_over_queues(deed, unit, into)
        moved = list(unit.children.order_by("name", "id"))
        for child in moved:
            move_unit(
                deed=deed, unit_id=child.id, parent_id=into.id, expected_version=child.version
            )
        _give_up_queues(deed, unit)
        org.record_merge(
            actor=deed.actor,
            unit=unit,
            into=into,
            now=deed.now,
            parts={
                "units": [child.name for child in moved],
                "queues": handed_over,
                "grants": [str(grant.id) for grant in given],
            },
            reason=deed.reason,
            request_id=deed.request_id,
        )
        archive_unit(deed=deed, unit_id=unit.id, expected_version=unit.version)
    return into


def _move_queues(deed: Deed, cluster_id: UUID, unit: OrgUnit, inside: Collection[UUID]) -> None:
    """Hang the topmost queues of a moved subtree of units below the queue of its new place."""
    tree = locked_tree(cluster_id)
    known = known_problems(tree.values())
    target = nearest_queue(unit, tree)
    tops = [
        queue
        for queue in tree.values()
        if queue.unit_id in inside and queue.parent and queue.parent.unit_id not in inside
    ]
    moving = [queue for queue in tops if queue.parent_id != target.id]
    if not moving:
        return
    access.require(deed.actor, Verb.QUEUE_EDIT, target.unit_id, seen_at=target.unit_id or unit.id)
    require_no_jobs(target)
    before = {queue.id: queue.parent_id for queue in moving}
    for queue in moving:
        require_right(deed.actor, Verb.QUEUE_EDIT, queue)
        queue.parent = target
    require_no_new_problems(tree.values(), known)
    for queue in moving:
        save(queue, "parent")
        unlink(queue.id)
        link(queue.id, target.id)
        record(deed, "queue.move", queue, {"parent": before[queue.id]}, {"parent": target.id})
        write_states(deed, spread(QueueAction.SYNC, queue, tree))
    announce(moving, deed.now)


def _hand_over_queues(deed: Deed, unit: OrgUnit, into: OrgUnit) -> list[str]:
    """Give a unit's queue, with all its jobs, to another that has none there; return the names."""
    taken = set(Queue.objects.filter(unit=into).values_list("cluster_id", flat=True))
    names = []
    for queue in Queue.objects.filter(unit=unit).exclude(cluster__in=taken).order_by("id"):
        tree = locked_tree(queue.cluster_id)
        row = tree[queue.id]
        target = nearest_queue(into, tree)
        below = _inside(into) - _inside(unit) - {into.id}
        if any(other.unit_id in below for other in tree.values()):
            params = {"unit": into.name, "cluster": row.cluster.name, "queue": row.name}
            raise Conflict("merge_needs_queue", params)
        require_right(deed.actor, Verb.QUEUE_EDIT, row)
        row.unit = into
        if target.id not in (row.id, row.parent_id):
            _hang_below(deed, row, target, tree)
        save(row, "unit")
        hold_submissions(row, levels=0)
        try:
            with transaction.atomic():
                Job.objects.filter(queue=row).update(unit=into)
        except IntegrityError as error:
            raise Conflict("merge_job_names", {"unit": into.name, "queue": row.name}) from error
        record(deed, "queue.hand_over", row, {"unit": unit.id}, {"unit": into.id})
        announce([row], deed.now)
        names.append(row.name)
    return names


def _inside(unit: OrgUnit) -> set[UUID]:
    """Return the ids of a unit and of all below it."""
    return set(OrgClosure.objects.filter(ancestor=unit).values_list("descendant_id", flat=True))


def _hang_below(deed: Deed, queue: Queue, target: Queue, tree: Tree) -> None:
    """Move one queue, with what is below it, under another."""
    access.require(deed.actor, Verb.QUEUE_EDIT, target.unit_id, seen_at=target.unit_id)
    known = known_problems(tree.values())
    require_no_jobs(target)
    before, queue.parent = queue.parent_id, target
    require_no_new_problems(tree.values(), known)
    save(queue, "parent")
    unlink(queue.id)
    link(queue.id, target.id)
    record(deed, "queue.move", queue, {"parent": before}, {"parent": target.id})
    write_states(deed, spread(QueueAction.SYNC, queue, tree))


def _give_up_queues(deed: Deed, unit: OrgUnit) -> None:
    """Delete or close the queues that a merged unit still has: those whose jobs are over."""
    for queue in Queue.objects.filter(unit=unit).order_by("id"):
        tree = locked_tree(queue.cluster_id)
        row = tree[queue.id]
        require_right(deed.actor, Verb.QUEUE_DELETE, row)
        hold_submissions(row, levels=0)
        jobs = jobs_left([row.id]).get(row.id, 0)
        if jobs:
            raise Conflict("merge_queue_has_jobs", {"queue": row.name, "jobs": jobs})
        if Job.objects.filter(queue=row).exists():
            if row.state != QueueState.CLOSED:
                write_states(deed, spread(QueueAction.CLOSE, row, tree))
        else:
            record(deed, "queue.delete", row, described(row), None)
            row.delete()
        announce([row], deed.now)
