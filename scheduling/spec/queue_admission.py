"""Volcano's admission of one queue at a time, for importing and mirroring its queues.

Terrace itself judges the tree that comes out (`queue_tree`); here one queue is judged against those
that are stored, with Volcano's own rules. Source: Volcano
`pkg/webhooks/admission/queues/validate/validate_queue.go`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal

from scheduling.spec.problems import Problem

ROOT = "root"
PROTECTED = frozenset({ROOT, "default"})
MOST_WEIGHT = 65_535
STRATEGIES = ("fifo", "traverse")
_LIMITS = ("min", "deserved", "max")
_SETTABLE_STATES = ("", "Open", "Closed")

Amounts = Mapping[str, Decimal]


@dataclass(frozen=True, slots=True)
class QueueRecord:
    """A queue as a manifest states it; `deserved` None: not stated."""

    name: str
    parent: str = ""
    weight: int | None = None
    min: Amounts = field(default_factory=dict)
    deserved: Amounts | None = None
    max: Amounts = field(default_factory=dict)
    state: str = ""
    allocated_pods: int = 0
    hierarchy_path: str | None = None
    hierarchy_weights: str = ""
    dequeue_strategy: str = ""

    @property
    def above(self) -> str:
        """The name of the parent; none is said: the root."""
        return "" if self.name == ROOT else self.parent or ROOT


@dataclass(frozen=True, slots=True)
class AdmissionConfig:
    """How Volcano's admission is set up."""

    max_depth: int = 5
    blocks_delete_with_pods: bool = False
    protects_root: bool = False


class _Stored:
    """The queues that are there, by name and by parent."""

    def __init__(self, queues: Iterable[QueueRecord]) -> None:
        self.by_name = {queue.name: queue for queue in queues}

    def with_queue(self, queue: QueueRecord) -> _Stored:
        return _Stored([*(q for q in self.by_name.values() if q.name != queue.name), queue])

    def children(self, name: str) -> list[QueueRecord]:
        return [queue for queue in self.by_name.values() if queue.above == name]

    def ancestors(self, queue: QueueRecord) -> Iterator[QueueRecord]:
        """Yield those above, nearest first, without the root; a cycle ends the walk."""
        seen = {queue.name}
        above = self.by_name.get(queue.above)
        while above is not None and above.name != ROOT and above.name not in seen:
            yield above
            seen.add(above.name)
            above = self.by_name.get(above.above)

    def levels_below(self, name: str, seen: frozenset[str] = frozenset()) -> int:
        """How many levels lie below a queue."""
        below = [
            1 + self.levels_below(child.name, seen | {name})
            for child in self.children(name)
            if child.name not in seen
        ]
        return max(below, default=0)


def check_create(
    queue: QueueRecord, stored: Iterable[QueueRecord], config: AdmissionConfig
) -> list[Problem]:
    """Return why a queue may not be made."""
    tree = _Stored(stored)
    return [*_alone(queue, tree), *_in_tree(queue, tree, config, is_moved=True)]


def check_update(
    old: QueueRecord,
    new: QueueRecord,
    stored: Iterable[QueueRecord],
    config: AdmissionConfig,
) -> list[Problem]:
    """Return why a queue may not be changed so; the tree is asked for new limits and parents."""
    tree = _Stored(stored)
    problems = list(_alone(new, tree))
    changed = [name for name in _LIMITS if (getattr(old, name) or {}) != (getattr(new, name) or {})]
    if new.name == ROOT and config.protects_root:
        problems += [Problem(name, "root_limits_protected") for name in changed]
    is_moved = old.above != new.above
    if is_moved or changed:
        problems += _in_tree(new, tree, config, is_moved=is_moved)
    return problems


def check_delete(
    name: str, stored: Iterable[QueueRecord], config: AdmissionConfig
) -> list[Problem]:
    """Return why a queue may not be removed."""
    tree = _Stored(stored)
    if name in PROTECTED:
        return [Problem("name", "protected_queue", {"queue": name})]
    queue = tree.by_name.get(name)
    if queue is None:
        return [Problem("name", "queue_not_found", {"queue": name})]
    if tree.children(name):
        return [Problem("name", "has_children", {"queue": name})]
    if config.blocks_delete_with_pods and queue.allocated_pods:
        return [Problem("name", "has_allocated_pods", {"queue": name})]
    return []


def _alone(queue: QueueRecord, tree: _Stored) -> Iterator[Problem]:
    if queue.weight is not None and not 1 <= queue.weight <= MOST_WEIGHT:
        yield Problem("weight", "weight_out_of_range", {"value": queue.weight})
    if queue.state not in _SETTABLE_STATES:
        yield Problem("state", "invalid_state", {"state": queue.state})
    if queue.dequeue_strategy and queue.dequeue_strategy not in STRATEGIES:
        yield Problem("dequeue_strategy", "not_in_list", {"value": queue.dequeue_strategy})
    for name in _LIMITS:
        for resource, amount in (getattr(queue, name) or {}).items():
            if amount < 0:
                yield Problem(f"{name}.{resource}", "negative_amount", {"value": str(amount)})
    yield from _deserved(queue)
    if queue.hierarchy_path is not None:
        yield from _hierarchy(queue, tree)


def _deserved(queue: QueueRecord) -> Iterator[Problem]:
    """What a queue deserves is computed here; only one that states it is bound by it."""
    if queue.deserved is None:
        for resource, amount in queue.min.items():
            if resource in queue.max and amount > queue.max[resource]:
                yield Problem(f"min.{resource}", "min_above_max", {"resource": resource})
        return
    for resource, amount in queue.min.items():
        if amount > queue.deserved.get(resource, Decimal(0)):
            yield Problem(f"deserved.{resource}", "deserved_below_min", {"resource": resource})
    for resource, amount in queue.deserved.items():
        if resource in queue.max and amount > queue.max[resource]:
            yield Problem(f"deserved.{resource}", "deserved_above_max", {"resource": resource})


def _hierarchy(queue: QueueRecord, tree: _Stored) -> Iterator[Problem]:
    path = queue.hierarchy_path or ""
    parts = path.split("/")
    weights = queue.hierarchy_weights.split("/") if queue.hierarchy_weights else []
    if len(parts) != len(weights):
        yield Problem("hierarchy.weights", "length_mismatch", {"path": path})
    for weight in weights:
        try:
            number = float(weight)
        except ValueError:
            yield Problem("hierarchy.weights", "weight_not_number", {"value": weight[:80]})
        else:
            if not number > 0:
                yield Problem("hierarchy.weights", "weight_not_positive", {"value": weight[:80]})
    for other in tree.by_name.values():
        is_inner = other.hierarchy_path is not None and other.hierarchy_path.startswith(f"{path}/")
        if is_inner and other.name != queue.name:
            params = {"path": path, "queue": other.name}
            yield Problem("hierarchy.path", "inner_node_of_other_path", params)


def _in_tree(
    queue: QueueRecord, stored: _Stored, config: AdmissionConfig, *, is_moved: bool
) -> Iterator[Problem]:
    if queue.name == ROOT:
        return
    if queue.above == queue.name:
        yield Problem("parent", "self_parent", {"queue": queue.name})
        return
    parent = stored.by_name.get(queue.above)
    if parent is None and queue.above != ROOT:
        yield Problem("parent", "parent_not_found", {"parent": queue.above})
        return
    tree = stored.with_queue(queue)
    if is_moved:
        yield from _new_place(queue, parent, stored, config)
    yield from _max_against_tree(queue, tree)
    for one in (parent, queue):
        if one is not None and one.name != ROOT:
            yield from _sums(tree.by_name[one.name], tree)


def _new_place(
    queue: QueueRecord, parent: QueueRecord | None, stored: _Stored, config: AdmissionConfig
) -> Iterator[Problem]:
    tree = stored.with_queue(queue)
    depth = 1 + sum(1 for _ in tree.ancestors(queue)) + tree.levels_below(queue.name)
    if depth > config.max_depth:
        yield Problem("parent", "queue_depth", {"depth": depth, "limit": config.max_depth})
    is_leaf = parent is not None and parent.name != ROOT and not stored.children(parent.name)
    if parent is not None and is_leaf and parent.allocated_pods:
        yield Problem("parent", "parent_has_pods", {"parent": parent.name})


def _max_against_tree(queue: QueueRecord, tree: _Stored) -> Iterator[Problem]:
    for resource, amount in queue.max.items():
        nearest = next((a for a in tree.ancestors(queue) if resource in a.max), None)
        if nearest is not None and amount > nearest.max[resource]:
            params = {"resource": resource, "queue": nearest.name}
            yield Problem(f"max.{resource}", "max_above_ancestor", params)
        below = _largest_max_below(queue.name, resource, tree)
        if below is not None and below > amount:
            yield Problem(f"max.{resource}", "max_below_descendant", {"resource": resource})


def _largest_max_below(name: str, resource: str, tree: _Stored) -> Decimal | None:
    """Search through queues that set none; below one that sets it, its own rule holds."""
    found: list[Decimal] = []
    level, seen = tree.children(name), {name}
    while level:
        following: list[QueueRecord] = []
        for child in level:
            if resource in child.max:
                found.append(child.max[resource])
            elif child.name not in seen:
                following += tree.children(child.name)
            seen.add(child.name)
        level = following
    return max(found, default=None)


def _sums(parent: QueueRecord, tree: _Stored) -> Iterator[Problem]:
    """What children are guaranteed, or deserve, together; missing on the parent counts as zero."""
    children = tree.children(parent.name)
    for name in ("min", "deserved"):
        stated = getattr(parent, name)
        if stated is None:
            continue
        sums: dict[str, Decimal] = {}
        for child in children:
            for resource, amount in (getattr(child, name) or {}).items():
                sums[resource] = sums.get(resource, Decimal(0)) + amount
        if any(total > stated.get(resource, Decimal(0)) for resource, total in sums.items()):
            yield Problem(name, f"children_{name}_above_parent", {"queue": parent.name})
