"""The rules of a queue tree: what min, max, weight and depth may be, seen as a whole.

A tree is checked in its final state, so that several queues can be changed at once. Volcano checks
one queue at a time, against parents as they were; docs/queues.md says what differs on purpose.
Source: Volcano `pkg/webhooks/admission/queues/validate/validate_queue.go`.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from scheduling.spec.problems import Note, Param, Problem

DEEPEST = 10
"""Levels below the root."""
MOST_WEIGHT = 65_535
MOST_PRIORITY = 2**31 - 1
MOST_AMOUNT = 2**53
"""Amounts are below it: every language that reads JSON keeps them exact."""
LONGEST_NAME = 253
LONGEST_RESOURCE = 253
NAME = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")

Amounts = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class QueueNode:
    """What the rules look at; amounts in the units of `scheduling.engine.types`."""

    name: str
    parent: str | None = None
    min: Amounts = field(default_factory=dict)
    max: Amounts = field(default_factory=dict)
    weight: int = 1
    priority: int = 0
    deserved: Amounts | None = None
    """Stated only by a manifest; its rules bind only who states it."""


def check_name(name: str) -> list[Problem]:
    """Say what keeps a text from being a queue's name; it is what a manifest writes."""
    if not NAME.fullmatch(name) or len(name) > LONGEST_NAME:
        return [Problem("name", "queue_name", {"queue": name, "max": LONGEST_NAME})]
    return []


def check_tree(queues: Sequence[QueueNode]) -> list[Problem]:
    """Return every broken rule of a tree, in the order of the queues; none: it may stand.

    1. The shape: one root, parents that exist, no cycle, not too deep. A tree without a shape is
       not looked at further.
    2. Each queue alone: amounts, weight, priority, min <= deserved <= max.
    3. Each queue against those above: max <= the nearest max above.
    4. Each parent against its children: the sum of their min <= its own where it states one; what a
       subtree is guaranteed altogether <= its max. The root states nothing: it mirrors the cluster.

    Paths read `queues[<name>].<field>` or `queues[<name>].<field>[<resource>]`. Cost: queues x
    depth x resources.
    """
    tree = _Tree(queues)
    shape = list(tree.check_shape())
    if shape:
        return shape
    problems: list[Problem] = []
    for queue in queues:
        problems += _check_numbers(queue)
    if problems:
        return problems  # sums of what is no amount would say nothing
    for queue in queues:
        problems += _check_own(queue)
        problems += tree.check_above(queue)
        problems += tree.check_children(queue)
    return problems


def note_overcommitted(queues: Sequence[QueueNode], total: Amounts) -> list[Note]:
    """Say which resources the top queues are guaranteed more of than the cluster has."""
    tree = _Tree(queues)
    top = [queue for queue in queues if queue.parent is None]
    notes = []
    for root in top:
        for resource, amount in sorted(tree.guaranteed(root.name).items()):
            if amount > total.get(resource, 0):
                params: dict[str, Param] = {
                    "queue": root.name,
                    "resource": resource,
                    "amount": amount,
                    "bound": total.get(resource, 0),
                }
                notes.append(
                    Note(_path(root.name, "min", resource), "queue_min_above_total", params)
                )
    return notes


def _path(queue: str, name: str, resource: str = "") -> str:
    return f"queues[{queue}].{name}" + (f"[{resource}]" if resource else "")


def _check_numbers(queue: QueueNode) -> Iterator[Problem]:
    for name, value, most in (
        ("weight", queue.weight, MOST_WEIGHT),
        ("priority", queue.priority, MOST_PRIORITY),
    ):
        least = 1 if name == "weight" else 0
        if not least <= value <= most:
            params: dict[str, Param] = {
                "queue": queue.name,
                "value": value,
                "least": least,
                "most": most,
            }
            yield Problem(_path(queue.name, name), "queue_number_range", params)
    for name, amounts in (("min", queue.min), ("max", queue.max), ("deserved", queue.deserved)):
        for resource, amount in sorted((amounts or {}).items()):
            if not 1 <= len(resource) <= LONGEST_RESOURCE:
                yield Problem(_path(queue.name, name), "queue_resource_name", {"queue": queue.name})
            elif not _is_amount(amount):
                yield Problem(
                    _path(queue.name, name, resource),
                    "queue_amount",
                    {"queue": queue.name, "resource": resource, "value": str(amount)},
                )


def _is_amount(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < MOST_AMOUNT


def _check_own(queue: QueueNode) -> Iterator[Problem]:
    for resource, amount in sorted(queue.min.items()):
        if resource in queue.max and amount > queue.max[resource]:
            params = _amounts(queue, resource, amount, queue.max[resource])
            yield Problem(_path(queue.name, "min", resource), "queue_min_above_max", params)
    if queue.deserved is None:
        return
    for resource in sorted(queue.min.keys() | queue.deserved.keys()):
        deserved = queue.deserved.get(resource, 0)
        if queue.min.get(resource, 0) > deserved:
            params = _amounts(queue, resource, queue.min[resource], deserved)
            yield Problem(_path(queue.name, "min", resource), "queue_min_above_deserved", params)
        if deserved > queue.max.get(resource, deserved):
            params = _amounts(queue, resource, deserved, queue.max[resource])
            yield Problem(
                _path(queue.name, "deserved", resource), "queue_deserved_above_max", params
            )


def _amounts(
    queue: QueueNode, resource: str, amount: int, bound: int, **more: str
) -> dict[str, Param]:
    return {
        "queue": queue.name,
        "resource": resource,
        "amount": amount,
        "bound": bound,
        **more,
    }


class _Tree:
    """The queues by name and by parent."""

    def __init__(self, queues: Sequence[QueueNode]) -> None:
        self.queues = {queue.name: queue for queue in queues}
        self.listed = queues
        self.children: defaultdict[str, list[QueueNode]] = defaultdict(list)
        for queue in queues:
            if queue.parent is not None:
                self.children[queue.parent].append(queue)
        self._guaranteed: dict[str, dict[str, int]] = {}

    def check_shape(self) -> Iterator[Problem]:
        if len(self.queues) != len(self.listed):
            yield Problem("queues", "queue_name_twice", {})
        roots = [queue.name for queue in self.listed if queue.parent is None]
        if len(roots) != 1:
            yield Problem("queues", "queue_one_root", {"roots": len(roots)})
        for queue in self.listed:
            if queue.parent is not None and queue.parent not in self.queues:
                params = {"queue": queue.name, "parent": queue.parent}
                yield Problem(_path(queue.name, "parent"), "queue_parent_missing", params)
        reached = self._reached(roots)
        for queue in self.listed:
            depth = reached.get(queue.name)
            if depth is None and queue.parent in self.queues:
                params = {"queue": queue.name}
                yield Problem(_path(queue.name, "parent"), "queue_cycle", params)
            elif depth is not None and depth > DEEPEST:
                yield Problem(
                    _path(queue.name, "parent"),
                    "queue_too_deep",
                    {"queue": queue.name, "depth": depth, "max": DEEPEST},
                )

    def _reached(self, roots: Collection[str]) -> dict[str, int]:
        """Return the depth of all queues that hang together with a root."""
        depths = dict.fromkeys(roots, 0)
        level = list(roots)
        while level:
            below = [
                (child.name, depths[name] + 1) for name in level for child in self.children[name]
            ]
            depths.update(below)
            level = [name for name, _ in below]
        return depths

    def check_above(self, queue: QueueNode) -> Iterator[Problem]:
        for resource, amount in sorted(queue.max.items()):
            ancestor = self._nearest_max(queue, resource)
            if ancestor is not None and amount > ancestor.max[resource]:
                params = _amounts(
                    queue, resource, amount, ancestor.max[resource], ancestor=ancestor.name
                )
                yield Problem(
                    _path(queue.name, "max", resource), "queue_max_above_ancestor", params
                )

    def _nearest_max(self, queue: QueueNode, resource: str) -> QueueNode | None:
        above = queue.parent
        while above is not None:
            ancestor = self.queues[above]
            if resource in ancestor.max:
                return ancestor
            above = ancestor.parent
        return None

    def check_children(self, queue: QueueNode) -> Iterator[Problem]:
        children = self.children[queue.name]
        if queue.parent is None or not children:
            return
        for name, stated in (("min", queue.min), ("deserved", queue.deserved or {})):
            for resource, bound in sorted(stated.items()):
                total = sum((getattr(child, name) or {}).get(resource, 0) for child in children)
                if total > bound:
                    params = _amounts(queue, resource, total, bound)
                    code = f"queue_children_{name}_above_parent"
                    yield Problem(_path(queue.name, name, resource), code, params)
        guaranteed = self.guaranteed(queue.name)
        for resource, bound in sorted(queue.max.items()):
            # A min of its own above its max is named elsewhere.
            if guaranteed.get(resource, 0) > max(bound, queue.min.get(resource, 0)):
                params = _amounts(queue, resource, guaranteed[resource], bound)
                yield Problem(
                    _path(queue.name, "max", resource), "queue_children_min_above_max", params
                )

    def guaranteed(self, name: str) -> dict[str, int]:
        """Return a subtree's guarantee: its own min, or its children's where that is more."""
        known = self._guaranteed.get(name)
        if known is not None:
            return known
        sums: dict[str, int] = defaultdict(int)
        for child in self.children[name]:
            for resource, amount in self.guaranteed(child.name).items():
                sums[resource] += amount
        own = self.queues[name].min
        result = {r: max(sums.get(r, 0), own.get(r, 0)) for r in sums.keys() | own.keys()}
        self._guaranteed[name] = result
        return result
