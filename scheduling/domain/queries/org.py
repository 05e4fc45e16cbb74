"""The read side of the organisation: its tree with the queues that hang on it, and one unit."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from django.db.models import Count, Q

from scheduling.models import Cluster, Queue
from tenants.domain import access, grants, users
from tenants.domain.access import Actor, Verb, reads, verbs_on
from tenants.models import Grant, OrgClosure, OrgUnit, User

MOST_UNITS = 2000
Verbs = Mapping[UUID | None, frozenset[Verb]]


@dataclass(frozen=True, slots=True)
class UnitQueue:
    """A queue that hangs on a unit."""

    cluster: str
    name: str
    state: str


@dataclass(frozen=True, slots=True)
class UnitRow:
    """One line of the tree; of what lies above the viewer's units only name and depth are shown."""

    id: UUID
    name: str
    kind: str
    depth: int
    parent_id: UUID | None
    is_archived: bool
    version: int
    is_path_only: bool = False
    people: int | None = None
    """Grants given right here; None: not for the viewer to know."""
    queues: tuple[UnitQueue, ...] = ()
    may_create_below: bool = False
    may_change: bool = False


@dataclass(frozen=True, slots=True)
class HeldGrant:
    """A grant that holds on a unit, given there or above."""

    grant: Grant
    is_inherited: bool


@dataclass(frozen=True, slots=True)
class UnitHead:
    """One unit and where it lies."""

    unit: OrgUnit
    path: tuple[OrgUnit, ...]
    """From the tenant down to the parent."""


@dataclass(frozen=True, slots=True)
class UnitPage:
    """One unit with what is on it."""

    unit: OrgUnit
    path: tuple[OrgUnit, ...]
    """From the tenant down to the parent."""
    children: tuple[UnitRow, ...]
    queues: tuple[Queue, ...]
    clusters_without_queue: tuple[tuple[Cluster, UUID | None], ...]
    """With the queue that one of the unit would hang below, if the viewer manages that."""
    grants: tuple[HeldGrant, ...]
    accounts: tuple[User, ...]
    """Service accounts that it owns, and people without a grant that it looks after."""
    may_change: bool
    may_create_below: bool
    may_read_grants: bool
    may_give: bool


def unit_tree(actor: Actor, *, with_archived: bool = False) -> list[UnitRow]:
    """Return the units that the actor may read, each parent before its children, siblings by name.

    Five queries, however many units there are.
    """
    scope = reads(actor, Verb.ORG_READ)
    seen = OrgUnit.objects.all() if with_archived else OrgUnit.objects.filter(is_archived=False)
    if not scope.sees_everything:
        below = OrgClosure.objects.filter(ancestor__in=scope.readable_units)
        seen = seen.filter(id__in=below.values("descendant_id"))
    own = list(seen.order_by("name", "id")[:MOST_UNITS])
    ids = {unit.id for unit in own}
    above = OrgUnit.objects.filter(descendant_links__descendant__in=ids).exclude(id__in=ids)
    path_only = {unit.id: unit for unit in above.only("id", "name", "kind", "parent", "tenant")}
    verbs = verbs_on(actor, {*ids, *(unit.parent_id for unit in own)})
    rows = _rows(actor, own, verbs)
    rows += [
        UnitRow(unit.id, unit.name, unit.kind, 0, unit.parent_id, False, 0, is_path_only=True)  # noqa: FBT003 - not archived
        for unit in path_only.values()
    ]
    return _in_order(rows)


def unit_head(actor: Actor, unit_id: UUID) -> UnitHead:
    """Return one unit with the names above it. Two queries.

    Raises:
        NotFound: the actor does not see it.
    """
    access.require(actor, Verb.ORG_READ, unit_id, what="org unit")
    above = OrgUnit.objects.filter(descendant_links__descendant=unit_id)
    *path, unit = above.order_by("-descendant_links__depth")
    return UnitHead(unit, tuple(path))


def unit_page(actor: Actor, unit_id: UUID) -> UnitPage:
    """Return one unit with its children, queues, grants and accounts. Ten queries.

    Raises:
        NotFound: the actor does not see it.
    """
    head = unit_head(actor, unit_id)
    unit = head.unit
    children = list(
        OrgUnit.objects.filter(parent=unit).order_by("is_archived", "name", "id")[:MOST_UNITS]
    )
    above = [one.id for one in head.path]
    verbs = verbs_on(actor, {*above, None, unit.id, *(child.id for child in children)})
    here = verbs[unit.id]
    queues = list(
        Queue.objects.filter(Q(unit__in=[unit.id, *above]) | Q(parent__isnull=True))
        .select_related("cluster", "parent")
        .order_by("cluster__name", "name")
    )
    own = tuple(queue for queue in queues if queue.unit_id == unit.id)
    taken = {queue.cluster_id for queue in own}
    clusters = [one for one in Cluster.objects.order_by("name") if one.id not in taken]
    return UnitPage(
        unit=unit,
        path=head.path,
        children=tuple(_rows(actor, children, verbs)),
        queues=own if Verb.QUEUE_READ in here else (),
        clusters_without_queue=tuple(_nearest(above, queues, clusters, verbs)),
        grants=tuple(_grants_on(actor, unit)),
        accounts=tuple(_accounts_of(actor, unit)),
        may_change=Verb.ORG_ADMIN in verbs[unit.parent_id],
        may_create_below=Verb.ORG_ADMIN in here and not unit.is_archived,
        may_read_grants=Verb.GRANT_READ in here,
        may_give=Verb.GRANT_EDIT in here and not unit.is_archived,
    )


def paths_of(actor: Actor, verb: Verb, *, below: UUID | None = None) -> list[tuple[UUID, str]]:
    """Return (unit, path by names) where the actor has a verb, for a choice; archived ones not.

    The names above the actor's own units are part of the path: they may be read.
    """
    scope = reads(actor, verb)
    units = OrgUnit.objects.filter(is_archived=False)
    if not scope.sees_everything:
        links = OrgClosure.objects.filter(ancestor__in=scope.readable_units)
        units = units.filter(id__in=links.values("descendant_id"))
    if below is not None:
        links = OrgClosure.objects.filter(ancestor=below)
        units = units.filter(id__in=links.values("descendant_id"))
    ids = list(units.values_list("id", flat=True)[:MOST_UNITS])
    names: defaultdict[UUID, list[str]] = defaultdict(list)
    links = OrgClosure.objects.filter(descendant__in=ids).order_by("descendant_id", "-depth")
    for unit_id, name in links.values_list("descendant_id", "ancestor__name"):
        names[unit_id].append(name)
    paths = [(unit_id, " / ".join(parts)) for unit_id, parts in names.items()]
    return sorted(paths, key=lambda one: one[1])


def _nearest(
    above: Sequence[UUID], queues: Iterable[Queue], clusters: Iterable[Cluster], verbs: Verbs
) -> Iterable[tuple[Cluster, UUID | None]]:
    """Pair each cluster with the queue of the nearest unit above, where the actor may add to it.

    `above` names the units from the tenant down; the root of a cluster is farther than all of them.
    """
    depths: dict[UUID | None, int] = {unit_id: depth for depth, unit_id in enumerate(above)}
    nearest: dict[UUID, Queue] = {}
    candidates = [queue for queue in queues if queue.unit_id is None or queue.unit_id in depths]
    for queue in sorted(candidates, key=lambda one: -depths.get(one.unit_id, -1)):
        nearest.setdefault(queue.cluster_id, queue)
    for cluster in clusters:
        found = nearest.get(cluster.id)
        may_add = found is not None and Verb.QUEUE_CREATE in verbs[found.unit_id]
        yield cluster, found.id if found is not None and may_add else None


def _grants_on(actor: Actor, unit: OrgUnit) -> Iterable[HeldGrant]:
    """Return the grants that hold on a unit, those given there first."""
    held = (
        grants.visible_grants(actor)
        .filter(unit__descendant_links__descendant=unit)
        .select_related("user", "unit")
        .order_by("unit__descendant_links__depth", "user__username", "role")
    )
    return (HeldGrant(grant, grant.unit_id != unit.id) for grant in held)


def _accounts_of(actor: Actor, unit: OrgUnit) -> Iterable[User]:
    found = users.visible_users(actor).filter(home=unit)
    return [user for user in found.order_by("username") if user.is_service or user.removed_at]


def _rows(actor: Actor, units: Collection[OrgUnit], verbs: Verbs) -> list[UnitRow]:
    ids = [unit.id for unit in units]
    queues = _queues_of(actor, ids)
    counts = Grant.objects.filter(unit__in=ids).values_list("unit_id").annotate(n=Count("id"))
    people = dict(counts)
    return [
        UnitRow(
            id=unit.id,
            name=unit.name,
            kind=unit.kind,
            depth=0,
            parent_id=unit.parent_id,
            is_archived=unit.is_archived,
            version=unit.version,
            people=people.get(unit.id, 0) if Verb.GRANT_READ in verbs[unit.id] else None,
            queues=queues.get(unit.id, ()),
            may_create_below=Verb.ORG_ADMIN in verbs[unit.id] and not unit.is_archived,
            may_change=Verb.ORG_ADMIN in verbs[unit.parent_id],
        )
        for unit in units
    ]


def _queues_of(actor: Actor, unit_ids: Collection[UUID]) -> Mapping[UUID, tuple[UnitQueue, ...]]:
    found: defaultdict[UUID, list[UnitQueue]] = defaultdict(list)
    rows = Queue.objects.visible_to(reads(actor, Verb.QUEUE_READ)).filter(unit__in=unit_ids)
    for unit_id, cluster, name, state in rows.order_by("cluster__name", "name").values_list(
        "unit_id", "cluster__name", "name", "state"
    ):
        if unit_id is not None:
            found[unit_id].append(UnitQueue(cluster, name, state))
    return {unit_id: tuple(queues) for unit_id, queues in found.items()}


def _in_order(rows: Collection[UnitRow]) -> list[UnitRow]:
    """Put each parent before its children and siblings by name, and number the levels."""
    below: defaultdict[UUID | None, list[UnitRow]] = defaultdict(list)
    ids = {row.id for row in rows}
    for row in rows:
        below[row.parent_id if row.parent_id in ids else None].append(row)
    ordered: list[UnitRow] = []

    def key(row: UnitRow) -> tuple[bool, str, str]:
        return (row.is_archived, row.name, str(row.id))

    waiting = [(row, 0) for row in sorted(below[None], key=key, reverse=True)]
    while waiting:
        row, depth = waiting.pop()
        ordered.append(replace(row, depth=depth))
        children = sorted(below[row.id], key=key, reverse=True)
        waiting += [(child, depth + 1) for child in children]
    return ordered
