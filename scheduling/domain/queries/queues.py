"""The read side of queues: the tree as rows, one queue with its place, and where one may submit."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import connection
from django.db.models import Count, Q, QuerySet, Subquery, Sum, Window
from django.db.models.functions import RowNumber

from scheduling.domain.queue_placement import Placement, placement_of
from scheduling.models import JobCount, Queue, QueueShare
from scheduling.models.job import JobPhase
from scheduling.models.queue import QueueState
from tenants.domain import access
from tenants.domain.access import Actor, Verb
from tenants.domain.errors import NotFound

Amounts = Mapping[str, int]

WAITING = frozenset({JobPhase.PENDING})
RUNNING = frozenset({JobPhase.RUNNING, JobPhase.RESTARTING, JobPhase.COMPLETING})
WHOLE = 100
"""A tree of so many visible queues is shown whole: each costs the page a millisecond."""
AT_ONCE = 200
"""So many children of one parent are shown at once."""


@dataclass(frozen=True, slots=True)
class QueueRow:
    """One line of the tree; of what lies above the viewer's units only name and depth are shown.

    `deserved`, `allocated` and `requested` are those of the last cycle, for the whole subtree; None
    before the first cycle. `waiting` and `running` count the jobs of the subtree.
    """

    id: UUID
    name: str
    parent_id: UUID | None
    depth: int
    """0 at the root."""
    is_path_only: bool = False
    unit_id: UUID | None = None
    unit_name: str = ""
    is_leaf: bool = True
    min: Amounts = field(default_factory=dict)
    max: Amounts = field(default_factory=dict)
    weight: int | None = None
    weight_share: float | None = None
    """Part of the parent's share if all siblings are busy; None if not all of them are visible."""
    priority: int = 0
    lend_min: bool = True
    reclaimable: bool = True
    policy: str = ""
    are_logs_shared: bool = False
    state: str = ""
    is_closed_by_parent: bool = False
    version: int = 0
    deserved: Amounts | None = None
    allocated: Amounts | None = None
    requested: Amounts | None = None
    share_at: datetime | None = None
    waiting: int = 0
    running: int = 0
    placement: Placement | None = None
    """Where its jobs may run and what it is stated to deserve; None: nothing is said."""
    may_edit: bool = False
    """Numbers: min, max, weight, priority, lending, policy."""
    may_open_close: bool = False
    may_create_below: bool = False
    may_delete: bool = False
    may_submit: bool = False

    @property
    def share_ratio(self) -> float | None:
        """Return allocated / deserved of the resource where it is greatest; None if unknown."""
        return share_ratio(self.allocated, self.deserved)


@dataclass(frozen=True, slots=True)
class QueueDetail:
    """One queue with the names above it and the rows right below it."""

    row: QueueRow
    path: tuple[str, ...]
    """Names from the root down, the queue's own last."""
    children: tuple[QueueRow, ...]


def share_ratio(allocated: Amounts | None, deserved: Amounts | None) -> float | None:
    """Return how much of what is deserved is used, by the resource where that is most."""
    ratios = [
        (allocated or {}).get(resource, 0) / amount
        for resource, amount in (deserved or {}).items()
        if amount > 0 and resource != "pods"
    ]
    return max(ratios, default=None)


def tree(actor: Actor, cluster_id: UUID) -> list[QueueRow]:
    """Return the rows of a cluster's tree, each parent before its children, siblings by name.

    Five queries, however many queues there are.
    """
    return _rows(actor, _visible(actor).filter(cluster_id=cluster_id))


@dataclass(frozen=True, slots=True)
class Cut:
    """Which part of a large tree is wanted: opened queues by name, or one queue alone, paged."""

    opened: frozenset[str] = frozenset()
    focus: str = ""
    """Only this queue, with what is right below it."""
    after: str = ""
    """With `focus`: the children that come after this name."""


@dataclass(frozen=True, slots=True)
class TreePart:
    """The rows of a tree, or of a part of it where the whole is too large to be read at once."""

    rows: tuple[QueueRow, ...]
    is_whole: bool
    total: int
    more: Mapping[UUID, int] = field(default_factory=dict)
    """Parent -> how many of its children are not among the rows."""


def part(actor: Actor, cluster_id: UUID, cut: Cut) -> TreePart:
    """Return the whole tree if it is small; else its top, with the opened queues' children.

    At most `AT_ONCE` children of each parent. Ten queries, and work by the rows that are returned,
    not by the size of the tree.
    """
    seen = _visible(actor).filter(cluster_id=cluster_id)
    every = seen.order_by().values("cluster_id").annotate(n=Count("id")).values("n")
    if cut.focus:
        tops = seen.filter(name=cut.focus)
    else:
        tops = seen.exclude(parent__in=seen.order_by().values("id"))
    named = tops.order_by("name").annotate(total=Subquery(every))
    found = list(named.values_list("id", "total")[:AT_ONCE])
    total = found[0][1] if found else 0
    if total <= WHOLE and not cut.focus:
        return TreePart(tuple(tree(actor, cluster_id)), is_whole=True, total=total)
    top_ids = [queue_id for queue_id, _total in found]
    parents = set(top_ids) if len(top_ids) == 1 else set()
    if cut.opened:
        parents |= set(seen.filter(name__in=cut.opened).values_list("id", flat=True))
    children = seen.filter(parent__in=parents)
    if cut.focus and cut.after:
        children = children.filter(Q(name__gt=cut.after) | ~Q(parent__in=top_ids))
    place = Window(RowNumber(), partition_by="parent", order_by="name")
    links = list(
        children.order_by("parent", "name")
        .annotate(place=place)
        .filter(place__lte=AT_ONCE)
        .values_list("id", "parent_id")
    )
    shown = _reachable(top_ids, links)
    listed = Counter(parent for queue_id, parent in links if queue_id in shown)
    missing: Mapping[UUID, int] = {}
    if listed and max(listed.values()) >= AT_ONCE:  # else nobody has more than are shown
        below = children.filter(parent__in=shown).order_by().values_list("parent_id")
        all_below = below.annotate(n=Count("id"))
        missing = {one: n - listed[one] for one, n in all_below if one and n > listed[one]}
    rows = _rows(actor, _visible(actor).filter(id__in=shown), is_whole=False)
    return TreePart(tuple(rows), is_whole=False, total=total, more=dict(missing))


def _reachable(tops: Iterable[UUID], links: Iterable[tuple[UUID, UUID | None]]) -> set[UUID]:
    """Keep what hangs below the tops without a gap: what is open inside a closed one is hidden."""
    below: defaultdict[UUID | None, list[UUID]] = defaultdict(list)
    for queue_id, parent in links:
        below[parent].append(queue_id)
    reached = set(tops)
    waiting = list(reached)
    while waiting:
        found = [one for one in below.pop(waiting.pop(), []) if one not in reached]
        reached.update(found)
        waiting += found
    return reached


def detail(actor: Actor, queue_id: UUID, *, most: int | None = None) -> QueueDetail:
    """Return a queue with its path and the first `most` of its children by name (default: all).

    Seven queries, and work by these rows, whatever lies below them.

    Raises:
        NotFound: the actor does not see the queue.
    """
    one = Queue.objects.filter(id=queue_id)
    return _detail(actor, one, lambda row: row.id == queue_id, most)


def detail_named(
    actor: Actor, cluster_id: UUID, name: str, *, most: int | None = None
) -> QueueDetail:
    """Do as `detail` for the queue of that name.

    Raises:
        NotFound: there is none that the actor sees.
    """
    one = Queue.objects.filter(cluster_id=cluster_id, name=name)
    return _detail(actor, one, lambda row: row.name == name, most)


def _detail(
    actor: Actor, one: QuerySet[Queue], is_it: Callable[[QueueRow], bool], most: int | None
) -> QueueDetail:
    below = Queue.objects.filter(parent__in=one.values("id")).order_by("name").values("id")
    wanted = _visible(actor).filter(Q(id__in=one.values("id")) | Q(id__in=below[:most]))
    rows = _rows(actor, wanted, is_whole=False)
    # Where the reader sees only what lies below it, the queue is not among the rows, or by name.
    top = next((row for row in rows if is_it(row) and not row.is_path_only), None)
    if top is None:
        raise NotFound("queue")
    names = {each.id: (each.name, each.parent_id) for each in rows}
    path: list[str] = []
    above: UUID | None = top.id
    while above is not None:
        name, above = names[above]
        path.insert(0, name)
    children = tuple(each for each in rows if each.parent_id == top.id)
    return QueueDetail(top, tuple(path), children)


def by_name(actor: Actor, cluster_id: UUID, name: str) -> Queue:
    """Return the queue of that name.

    Raises:
        NotFound: there is none that the actor sees.
    """
    queue = _visible(actor).filter(cluster_id=cluster_id, name=name).first()
    if queue is None:
        raise NotFound("queue")
    return queue


def placement(actor: Actor, queue_id: UUID) -> Placement:
    """Return where a queue's jobs may run, and what it is stated to deserve.

    Raises:
        NotFound: there is none that the actor sees.
    """
    queue = _visible(actor).filter(id=queue_id).first()
    if queue is None:
        raise NotFound("queue")
    return placement_of(queue)


def to_submit_to(actor: Actor, cluster_id: UUID | None = None) -> list[Queue]:
    """Return the open leaves where the actor may create jobs, by name; one query."""
    scope = access.reads(actor, Verb.JOB_CREATE)
    queues = Queue.objects.visible_to(scope).filter(
        state=QueueState.OPEN, parent__isnull=False, children__isnull=True
    )
    if cluster_id is not None:
        queues = queues.filter(cluster_id=cluster_id)
    return list(queues.select_related("unit", "cluster").order_by("name", "id"))


def _visible(actor: Actor) -> QuerySet[Queue]:
    return Queue.objects.visible_to(access.reads(actor, Verb.QUEUE_READ)).select_related("unit")


def _rows(actor: Actor, seen: QuerySet[Queue], *, is_whole: bool = True) -> list[QueueRow]:
    """Build the rows of visible queues and, by name only, of what lies above them.

    `is_whole`: with each queue comes all that lies below it; else the database sums that up.
    """
    visible = list(seen)
    shown = {queue.id for queue in visible}
    # Visibility goes downwards: what is hidden lies at or above a parent that is not shown.
    tops = {queue.parent_id for queue in visible} - shown - {None}
    above = Queue.objects.filter(descendant_links__descendant__in=tops).distinct()
    hidden = list(above.only("id", "name", "parent_id", "unit_id")) if tops else []
    parents = {queue.id: queue.parent_id for queue in (*visible, *hidden)}
    units = {queue.id: queue.unit_id for queue in (*visible, *hidden)}
    ids = seen.order_by().values("id")  # asked again as a subquery: a list of ids may be long
    above_ids = frozenset(parent for parent in parents.values() if parent is not None)
    below = {} if is_whole else _weights_below(shown)
    context = _Context(
        parents=parents,
        units=units,
        groups=above_ids | below.keys(),
        weights=_weight_shares(visible, below),
        depths=_depths(parents),
        shares={share.queue_id: share for share in QueueShare.objects.filter(queue__in=ids)},
        counts=_counts(ids, parents) if is_whole else _subtree_counts(shown),
        verbs=access.verbs_on(actor, units.values()),
    )
    rows = [context.row(queue) for queue in visible]
    rows += [context.path_row(queue) for queue in hidden]
    return _in_order(rows)


def _weight_shares(visible: Collection[Queue], below: Mapping[UUID, int]) -> dict[UUID, float]:
    """Return weight / sum of the siblings' weights below parents that are visible themselves.

    `below` has the sums where not all siblings are among the rows.
    """
    shown = {queue.id for queue in visible}
    sums: Counter[UUID | None] = Counter()
    for queue in visible:
        sums[queue.parent_id] += queue.weight
    known: Mapping[UUID | None, int] = {**sums, **{one: below[one] for one in below}}
    return {
        queue.id: queue.weight / known[queue.parent_id]
        for queue in visible
        if queue.parent_id in shown
    }


def _weights_below(shown: Collection[UUID]) -> dict[UUID, int]:
    """Return, for those of the queues that have others below them, the sum of their weights."""
    sums = Queue.objects.filter(parent__in=shown).order_by().values_list("parent_id")
    return {parent: weight for parent, weight in sums.annotate(all=Sum("weight")) if parent}


def _subtree_counts(shown: Collection[UUID]) -> dict[UUID, tuple[int, int]]:
    """Return (waiting, running) of each queue with all below it: one query over maintained sums."""
    sums: dict[UUID, list[int]] = {queue_id: [0, 0] for queue_id in shown}
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT c.ancestor_id, j.phase, sum(j.amount)::bigint"
            " FROM scheduling_jobcount j"
            " JOIN scheduling_queueclosure c ON c.descendant_id = j.queue_id"
            " WHERE j.phase = ANY(%s) AND c.ancestor_id = ANY(%s) GROUP BY 1, 2",
            [[*WAITING, *RUNNING], list(shown)],
        )
        for queue_id, phase, jobs in cursor.fetchall():
            sums[queue_id][0 if phase in WAITING else 1] += jobs
    return {queue_id: (waiting, running) for queue_id, (waiting, running) in sums.items()}


def _depths(parents: Mapping[UUID, UUID | None]) -> dict[UUID, int]:
    depths: dict[UUID, int] = {}

    def depth(queue_id: UUID) -> int:
        if queue_id not in depths:
            above = parents[queue_id]
            depths[queue_id] = 0 if above is None else depth(above) + 1
        return depths[queue_id]

    for queue_id in parents:
        depth(queue_id)
    return depths


def _counts(
    ids: QuerySet[Queue, Any], parents: Mapping[UUID, UUID | None]
) -> dict[UUID, tuple[int, int]]:
    """Return (waiting, running) of each subtree; one query over sums that a trigger keeps."""
    sums: dict[UUID, list[int]] = {queue_id: [0, 0] for queue_id in parents}
    rows = (
        JobCount.objects.filter(queue__in=ids, phase__in=[*WAITING, *RUNNING])
        .values_list("queue_id", "phase")
        .annotate(jobs=Sum("amount"))
    )
    for queue_id, phase, jobs in rows:
        above: UUID | None = queue_id
        while above is not None:
            sums[above][0 if phase in WAITING else 1] += jobs
            above = parents[above]
    return {queue_id: (waiting, running) for queue_id, (waiting, running) in sums.items()}


@dataclass(frozen=True, slots=True)
class _Context:
    """What rows need besides their queue, read once for all of them."""

    parents: Mapping[UUID, UUID | None]
    units: Mapping[UUID, UUID | None]
    groups: frozenset[UUID]
    weights: Mapping[UUID, float]
    depths: Mapping[UUID, int]
    shares: Mapping[UUID, QueueShare]
    counts: Mapping[UUID, tuple[int, int]]
    verbs: Mapping[UUID | None, frozenset[Verb]]

    def path_row(self, queue: Queue) -> QueueRow:
        return QueueRow(
            queue.id,
            queue.name,
            queue.parent_id,
            self.depths[queue.id],
            is_path_only=True,
            is_leaf=False,
        )

    def row(self, queue: Queue) -> QueueRow:
        share = self.shares.get(queue.id)
        waiting, running = self.counts[queue.id]
        above = self.verbs[self.units[queue.parent_id]] if queue.parent_id else frozenset()
        own = self.verbs[queue.unit_id]
        is_leaf = queue.id not in self.groups and queue.parent_id is not None
        is_open = queue.state == QueueState.OPEN
        return QueueRow(
            id=queue.id,
            name=queue.name,
            parent_id=queue.parent_id,
            depth=self.depths[queue.id],
            unit_id=queue.unit_id,
            unit_name=queue.unit.name if queue.unit else "",
            is_leaf=is_leaf,
            min=queue.min,
            max=queue.max,
            weight=queue.weight,
            weight_share=self.weights.get(queue.id),
            priority=queue.priority,
            lend_min=queue.lend_min,
            reclaimable=queue.reclaimable,
            policy=queue.policy,
            are_logs_shared=queue.are_logs_shared,
            state=queue.state,
            is_closed_by_parent=queue.is_closed_by_parent,
            version=queue.version,
            deserved=share.deserved if share else None,
            allocated=share.allocated if share else None,
            requested=share.requested if share else None,
            share_at=share.updated_at if share else None,
            waiting=waiting,
            running=running,
            placement=placement_of(queue) if queue.annotations or queue.deserved else None,
            may_edit=Verb.QUEUE_EDIT in above,
            may_open_close=Verb.QUEUE_STATE in above,
            may_create_below=Verb.QUEUE_CREATE in own,
            may_delete=Verb.QUEUE_DELETE in above,
            may_submit=is_leaf and is_open and Verb.JOB_CREATE in own,
        )


def _in_order(rows: Iterable[QueueRow]) -> list[QueueRow]:
    """Put each parent before its children and siblings by name."""
    below: defaultdict[UUID | None, list[QueueRow]] = defaultdict(list)
    for row in rows:
        below[row.parent_id].append(row)
    ordered: list[QueueRow] = []
    waiting = sorted(below[None], key=lambda row: row.name, reverse=True)
    while waiting:
        row = waiting.pop()
        ordered.append(row)
        waiting += sorted(below[row.id], key=lambda row: row.name, reverse=True)
    return ordered
