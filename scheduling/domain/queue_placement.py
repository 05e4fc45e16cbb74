"""Where the jobs of a queue may run, and what it is stated to deserve: what some plugins read.

`nodegroup` reads the groups of nodes, `capacity` the stated amounts. Both belong, like a queue's
numbers, to whoever manages the parent.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any
from uuid import UUID

from django.db import transaction

from scheduling.domain.deeds import Deed
from scheduling.domain.network_tiers import LABEL_VALUE
from scheduling.domain.queue_changes import (
    cluster_of,
    known_problems,
    require_editable,
    require_no_new_problems,
    require_once_and_no_root,
)
from scheduling.domain.queue_rows import announce, locked_tree, record, require_version, save
from scheduling.engine.shapes import QUEUE_AFFINITY, QUEUE_GROUP_LIMITS
from scheduling.models import Queue
from scheduling.spec.queue_tree import MOST_AMOUNT
from tenants.domain.access import Actor
from tenants.domain.errors import Invalid, Problem

Amounts = Mapping[str, int]
KINDS = ("required", "preferred", "avoided", "forbidden")
MOST_GROUPS = 100


@dataclass(frozen=True, slots=True)
class NodeGroups:
    """Groups of nodes, by the value of their label `volcano.sh/nodegroup-name`."""

    required: tuple[str, ...] = ()
    """Its jobs run on these first, on the preferred and the avoided ones, and nowhere else."""
    preferred: tuple[str, ...] = ()
    """In this order where the plugin's `enablePreferredOrder` is on."""
    avoided: tuple[str, ...] = ()
    """Allowed, and taken last."""
    forbidden: tuple[str, ...] = ()
    limits: Mapping[str, Amounts] = field(default_factory=dict)
    """Group -> what all its jobs together may hold there."""

    def allowed(self) -> set[str]:
        """Return the groups on which jobs may run at all, as `nodegroup` reads it."""
        return {*self.required, *self.preferred, *self.avoided} - {*self.forbidden}

    def named(self) -> set[str]:
        """Return every group that is spoken of."""
        return {*self.required, *self.preferred, *self.avoided, *self.forbidden, *self.limits}


@dataclass(frozen=True, slots=True)
class Placement:
    """What is stated about a queue beside its numbers."""

    node_groups: NodeGroups
    stated_deserved: Amounts | None
    version: int

    @property
    def is_empty(self) -> bool:
        """Whether nothing is stated."""
        return not self.node_groups.named() and not self.stated_deserved


def placement_of(queue: Queue) -> Placement:
    """Return what is stated about a queue."""
    rules = json.loads(queue.annotations.get(QUEUE_AFFINITY, "{}"))
    likes, dislikes = rules.get("affinity", {}), rules.get("anti_affinity", {})
    groups = NodeGroups(
        required=tuple(likes.get("required", ())),
        preferred=tuple(likes.get("preferred", ())),
        avoided=tuple(dislikes.get("preferred", ())),
        forbidden=tuple(dislikes.get("required", ())),
        limits=json.loads(queue.annotations.get(QUEUE_GROUP_LIMITS, "{}")),
    )
    return Placement(groups, queue.deserved, queue.version)


def require_editor(actor: Actor, queue: Queue) -> None:
    """Refuse who may not state anything of a queue, and the root, of which nothing is stated.

    Raises:
        NotFound, Denied: the queue is invisible, or its parent is not managed by the actor.
        Invalid: it is the root.
    """
    require_editable(actor, [queue.id], {queue.id: queue})
    require_once_and_no_root([queue])


def edit(
    *,
    deed: Deed,
    queue_id: UUID,
    node_groups: NodeGroups,
    stated_deserved: Amounts | None,
    expected_version: int,
) -> Queue:
    """State anew where a queue's jobs may run and what it deserves; from the next cycle on.

    Raises:
        NotFound, Denied: the queue is invisible, or its parent is not managed by the actor.
        Invalid: a group's name is none, or stands where it contradicts; min <= deserved <= max.
        Conflict: the queue was changed since `expected_version` was read.
    """
    with transaction.atomic():
        tree = locked_tree(cluster_of(queue_id))
        (queue,) = require_editable(deed.actor, [queue_id], tree)
        require_once_and_no_root([queue])
        require_version(queue, expected_version)
        problems = problems_of(node_groups)
        if problems:
            raise Invalid(problems)
        known = known_problems(tree.values())
        before = _described(queue)
        queue.annotations = _with_groups(queue.annotations, node_groups)
        queue.deserved = stated_deserved
        require_no_new_problems(tree.values(), known)
        if _described(queue) != before:
            save(queue, "annotations", "deserved")
            record(deed, "queue.placement", queue, before, _described(queue))
            announce([queue], deed.now)
    return queue


def problems_of(groups: NodeGroups) -> list[Problem]:
    """Return what is wrong with groups; paths begin with `node_groups`."""
    problems: list[Problem] = []
    named = {kind: getattr(groups, kind) for kind in KINDS} | {"limits": tuple(groups.limits)}
    for kind, names in named.items():
        path = f"node_groups.{kind}"
        if len(names) > MOST_GROUPS:
            params = {"count": len(names), "limit": MOST_GROUPS}
            problems.append(Problem(path, "too_many", params))
        problems += [
            Problem(path, "node_group_name", {"name": name[:63]})
            for name in names
            if not LABEL_VALUE.fullmatch(name)
        ]
    problems += [
        Problem(
            f"node_groups.limits.{group}.{resource}",
            "number_too_large",
            {"value": amount, "limit": MOST_AMOUNT},
        )
        for group, amounts in groups.limits.items()
        for resource, amount in amounts.items()
        if amount > MOST_AMOUNT
    ]
    wanted = {*groups.required, *groups.preferred}
    problems += [
        Problem("node_groups.forbidden", "node_group_twice", {"name": name})
        for name in sorted(wanted & {*groups.forbidden, *groups.avoided})
    ]
    return problems


def _with_groups(annotations: Mapping[str, str], groups: NodeGroups) -> dict[str, str]:
    """Return annotations with these groups, as the engine reads them."""
    rules = {
        "affinity": {"required": groups.required, "preferred": groups.preferred},
        "anti_affinity": {"required": groups.forbidden, "preferred": groups.avoided},
    }
    written = {key: value for key, value in annotations.items() if key not in _KEYS}
    if any(getattr(groups, kind) for kind in KINDS):
        written[QUEUE_AFFINITY] = json.dumps(rules)
    if groups.limits:
        written[QUEUE_GROUP_LIMITS] = json.dumps(groups.limits)
    return written


_KEYS = frozenset({QUEUE_AFFINITY, QUEUE_GROUP_LIMITS})


def _described(queue: Queue) -> dict[str, Any]:
    stated = placement_of(queue)
    return {"node_groups": asdict(stated.node_groups), "stated_deserved": stated.stated_deserved}
