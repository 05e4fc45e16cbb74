"""What is wanted of queues, held against the tree as it is: rights, versions, rules, differences.

Shared by applying (`queues.edit_queues`) and by showing the effect first (`queue_preview`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any
from uuid import UUID

from scheduling.models import Queue
from scheduling.models.queue import QueuePolicy
from scheduling.spec import queue_tree
from scheduling.spec.queue_tree import QueueNode
from tenants.domain import access
from tenants.domain.access import Actor, Verb
from tenants.domain.errors import Conflict, Invalid, NotFound, Problem
from tenants.models import AuditRow

Amounts = Mapping[str, int]
Tree = dict[UUID, Queue]
"""All queues of one cluster; each row's `parent` is the row of the same tree."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueNumbers:
    """What the manager of the parent decides of a queue; None: as it is."""

    min: Amounts | None = None
    max: Amounts | None = None
    weight: int | None = None
    priority: int | None = None
    lend_min: bool | None = None
    reclaimable: bool | None = None
    policy: str | None = None
    are_logs_shared: bool | None = None

    def given(self) -> dict[str, Any]:
        """Return the fields that are stated."""
        named = ((field.name, getattr(self, field.name)) for field in fields(QueueNumbers))
        return {name: value for name, value in named if value is not None}


UNCHANGED = QueueNumbers()


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueEdit(QueueNumbers):
    """A change of one queue as somebody saw it at `expected_version`."""

    queue_id: UUID
    expected_version: int
    base: Mapping[str, Any] | None = None
    """The values that the person saw; without them the audit trail says what they were."""


@dataclass(frozen=True, slots=True)
class FieldDifference:
    """One field three ways: as it was, as somebody else made it, as is wanted now."""

    field: str
    base: Any
    theirs: Any
    yours: Any

    @property
    def is_contested(self) -> bool:
        """Whether both sides changed it, and not to the same."""
        return self.theirs not in (self.base, self.yours)


@dataclass(frozen=True, slots=True)
class QueueDifference:
    """What stands between an edit and the queue as it is now."""

    queue: Queue
    fields: tuple[FieldDifference, ...]


def cluster_of(queue_id: UUID) -> UUID:
    """Return the cluster of a queue.

    Raises:
        NotFound: there is no such queue.
    """
    cluster_id = Queue.objects.filter(id=queue_id).values_list("cluster_id", flat=True).first()
    if cluster_id is None:
        raise NotFound("queue")
    return cluster_id


def read_tree(cluster_id: UUID) -> Tree:
    """Read all queues of a cluster; one object a queue, so that all see its changes."""
    rows = Queue.objects.filter(cluster_id=cluster_id).select_related("unit").order_by("name")
    tree = {queue.id: queue for queue in rows}
    for queue in tree.values():
        if queue.parent_id is not None:
            queue.parent = tree[queue.parent_id]
    return tree


def apply_in_memory(
    *, actor: Actor, edits: Sequence[QueueEdit], tree: Tree
) -> dict[UUID, dict[str, tuple[Any, Any]]]:
    """Put the edits into the rows of the tree, unsaved; return queue -> field -> (before, after).

    `tree` is the whole tree of one cluster. Only fields that really change are returned.

    Raises:
        NotFound, Denied: a queue is invisible, or its parent is not managed by the actor.
        Conflict: a queue was changed since; `current` lists a `QueueDifference` for each.
        Invalid: the root or one queue twice is edited, or the tree would break a rule that it
            keeps now.
    """
    queues = require_editable(actor, [edit.queue_id for edit in edits], tree)
    require_once_and_no_root(queues)
    _require_versions(edits, tree)
    problems = set(_places(check(tree.values())))
    changes = {}
    for edit in edits:
        queue = tree[edit.queue_id]
        given = edit.given()
        _check_policy(queue.name, given)
        changes[queue.id] = {
            name: (getattr(queue, name), value)
            for name, value in given.items()
            if getattr(queue, name) != value
        }
        for name, value in given.items():
            setattr(queue, name, value)
    require_no_new_problems(tree.values(), problems)
    return {queue_id: change for queue_id, change in changes.items() if change}


def require_editable(
    actor: Actor, queue_ids: Sequence[UUID], tree: Mapping[UUID, Queue]
) -> list[Queue]:
    """Return the queues if the actor manages the parent of each: one query for all.

    Raises:
        NotFound: a queue is not there or not to be seen.
        Denied: the actor sees it and does not manage its parent.
    """
    queues = [tree[queue_id] for queue_id in queue_ids if queue_id in tree]
    if len(queues) != len(queue_ids):
        raise NotFound("queue")
    units = {_parent_unit(queue) for queue in queues}
    managed = access.allowed(actor, Verb.QUEUE_EDIT, units)
    for queue in queues:
        if _parent_unit(queue) not in managed:
            access.require(actor, Verb.QUEUE_EDIT, _parent_unit(queue), seen_at=queue.unit_id)
    return queues


def _parent_unit(queue: Queue) -> UUID | None:
    """Return whom the numbers of a queue belong to; the root's belong to the installation."""
    return queue.parent.unit_id if queue.parent else None


def require_once_and_no_root(queues: Sequence[Queue]) -> None:
    """Refuse edits of the root and two of one queue.

    Raises:
        Invalid: with each of them.
    """
    problems = [
        Problem(f"queues[{queue.name}]", "queue_root_protected", {"queue": queue.name})
        for queue in queues
        if queue.parent_id is None
    ]
    names = [queue.name for queue in queues]
    problems += [
        Problem(f"queues[{name}]", "queue_edited_twice", {"queue": name})
        for name in sorted(set(names))
        if names.count(name) > 1
    ]
    if problems:
        raise Invalid(problems)


def _require_versions(edits: Iterable[QueueEdit], tree: Mapping[UUID, Queue]) -> None:
    stale = [edit for edit in edits if tree[edit.queue_id].version != edit.expected_version]
    if stale:
        first = tree[stale[0].queue_id]
        raise Conflict(
            "version",
            {
                "queue": first.name,
                "expected": stale[0].expected_version,
                "version": first.version,
                "queues": len(stale),
            },
            current=[difference(edit, tree[edit.queue_id]) for edit in stale],
        )


def difference(edit: QueueEdit, queue: Queue) -> QueueDifference:
    """Hold an edit against the queue as it is now, field by field."""
    given = edit.given()
    base = edit.base if edit.base is not None else _base_from_audit(queue, edit.expected_version)
    return QueueDifference(
        queue,
        tuple(
            FieldDifference(name, base.get(name, getattr(queue, name)), getattr(queue, name), yours)
            for name, yours in given.items()
        ),
    )


def _base_from_audit(queue: Queue, version: int) -> dict[str, Any]:
    """Undo what the audit trail has of this queue since `version`; unknown fields are left out."""
    rows = AuditRow.objects.filter(
        subject_type="queue", subject_id=str(queue.id), after__version__gt=version
    ).order_by("-id")
    base: dict[str, Any] = {}
    for before in rows.values_list("before", flat=True):
        base |= before or {}
    return base


def _check_policy(queue: str, given: Mapping[str, Any]) -> None:
    policy = given.get("policy")
    if policy is not None and policy not in QueuePolicy.values:
        params = {"queue": queue, "policy": str(policy), "allowed": ", ".join(QueuePolicy.values)}
        raise Invalid([Problem(f"queues[{queue}].policy", "queue_policy", params)])


def node(queue: Queue) -> QueueNode:
    """Return a row as the rules see it."""
    return QueueNode(
        name=queue.name,
        parent=queue.parent.name if queue.parent else None,
        min=queue.min,
        max=queue.max,
        weight=queue.weight,
        priority=queue.priority,
        deserved=queue.deserved,
    )


def check(queues: Iterable[Queue]) -> list[Problem]:
    """Return what is wrong with a tree, as problems of this package."""
    found = queue_tree.check_tree([node(queue) for queue in queues])
    return [Problem(problem.path, problem.code, problem.params) for problem in found]


def require_no_new_problems(queues: Iterable[Queue], known: set[tuple[str, str]]) -> None:
    """Refuse a tree that breaks a rule at a place where it did not before.

    Raises:
        Invalid: with each new problem; an imported tree may have old ones, which stand in no way.
    """
    new = [problem for problem in check(queues) if (problem.path, problem.code) not in known]
    if new:
        raise Invalid(new)


def _places(problems: Iterable[Problem]) -> Iterable[tuple[str, str]]:
    return ((problem.path, problem.code) for problem in problems)


def known_problems(queues: Iterable[Queue]) -> set[tuple[str, str]]:
    """Return where a tree breaks which rule now."""
    return set(_places(check(queues)))
