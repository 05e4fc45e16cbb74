"""The read side of clusters: nodes with their devices and use, schedulers, leases, health."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import NamedTuple
from uuid import UUID

from django.db import connection
from django.db.models import Count, Exists, Max, Min, OuterRef, Q, Subquery, Sum, Value
from django.db.models.fields import CharField
from django.db.models.fields.json import KeyTextTransform
from django.db.models.functions import Cast, Concat, Now

from scheduling.engine.plugins.nodegroup import GROUP_LABEL
from scheduling.models import (
    Attempt,
    Cluster,
    CycleRecord,
    Device,
    DeviceHold,
    Hold,
    Job,
    JoinToken,
    Lease,
    Node,
    Usage,
)
from scheduling.models.attempt import LIVE_STATES
from scheduling.models.node import NodeState
from tenants.domain.errors import NotFound
from tenants.models import OutboxRow
from tenants.models.scoped import Scope

NODES_PER_PAGE = 60
"""So many nodes are on one page of a map."""
SHOWN_ATTEMPTS = 200
"""So many running attempts of a node are listed."""
FRESH = timedelta(minutes=2)
"""Older measurements say nothing about now."""
GPU = "nvidia.com/gpu"


@dataclass(frozen=True, slots=True)
class Holder:
    """A job as far as a map names it."""

    id: UUID
    name: str
    queue: str
    owner: str


@dataclass(frozen=True, slots=True)
class Slot:
    """One GPU of a node as the map shows it; `percent` None: not measured, never zero."""

    device: Device
    percent: float | None = None
    memory_bytes: int | None = None
    held_milli: int = 0
    job: Holder | None = None
    """The job that holds it, if the viewer may read that job."""

    @property
    def state(self) -> str:
        """Return free, busy or bad."""
        if not self.device.is_healthy or not self.device.is_present:
            return "bad"
        return "busy" if self.held_milli else "free"


@dataclass(frozen=True, slots=True)
class NodeLoad:
    """A node with its slots and what is held and measured on it."""

    node: Node
    slots: tuple[Slot, ...] = ()
    held: Mapping[str, int] = field(default_factory=dict)
    cpu_milli: int | None = None
    memory_bytes: int | None = None

    @property
    def free_gpus(self) -> int:
        """How many GPUs are healthy and held by nobody."""
        return sum(slot.state == "free" for slot in self.slots)

    @property
    def is_schedulable(self) -> bool:
        """Whether the scheduler may place tasks there."""
        node = self.node
        return node.state == NodeState.READY and not (node.is_cordoned or node.is_draining)


class Room(NamedTuple):
    """How many GPUs a node has, how many are free, and whether the scheduler may use them."""

    is_schedulable: bool
    gpus: int
    free: int


@dataclass(frozen=True, slots=True)
class ClusterMap:
    """One page of a cluster's nodes by name, and the sums over all of them."""

    cluster: Cluster
    loads: tuple[NodeLoad, ...]
    rooms: tuple[Room, ...]
    """Of every node, whatever the page."""
    after: str = ""
    """The name after which the page begins."""
    next_after: str = ""
    """The name after which the next page begins; empty: this is the last."""

    @property
    def nodes(self) -> int:
        """How many nodes there are."""
        return len(self.rooms)

    @property
    def gpus(self) -> int:
        """How many GPUs there are."""
        return sum(room.gpus for room in self.rooms)

    @property
    def free_gpus(self) -> int:
        """How many GPUs could be given out now."""
        return sum(room.free for room in self.rooms if room.is_schedulable)

    @property
    def largest_gang(self) -> tuple[int, int]:
        """Return (nodes, GPUs on each) of the largest job of equal parts that would fit now."""
        free = sorted(
            (room.free for room in self.rooms if room.is_schedulable and room.free),
            reverse=True,
        )
        sizes = [(count, size) for count, size in enumerate(free, start=1)]
        return max(sizes, key=lambda pair: (pair[0] * pair[1], pair[1]), default=(0, 0))


@dataclass(frozen=True, slots=True)
class Health:
    """What the health page shows: leases, last cycles, outbox, agents."""

    now: datetime
    leases: tuple[Lease, ...]
    absent: tuple[Cluster, ...]
    cycles: tuple[CycleRecord, ...]
    outbox_waiting: int
    outbox_dead: int
    outbox_oldest: datetime | None
    dead_rows: tuple[OutboxRow, ...]
    nodes: Mapping[str, int]
    silent: tuple[Node, ...]
    clusters: tuple[Cluster, ...]


def clusters_without_scheduler() -> list[Cluster]:
    """Return the clusters for which no process holds the scheduler's lease now."""
    lease = Lease.objects.filter(
        scope=Concat(
            Value("scheduler:"), Cast(OuterRef("id"), CharField()), output_field=CharField()
        ),
        expires_at__gt=Now(),
    )
    return list(Cluster.objects.filter(~Exists(lease)).only("id", "name").order_by("name"))


def first_cluster() -> Cluster | None:
    """Return the installation's first cluster, None before bootstrap."""
    return Cluster.objects.order_by("created_at").first()


def load_cluster(name: str = "") -> Cluster:
    """Return a cluster by name, the first without one.

    Raises:
        NotFound: there is none.
    """
    found = Cluster.objects.filter(name=name).first() if name else first_cluster()
    if found is None:
        raise NotFound("cluster")
    return found


def cluster_map(scope: Scope, cluster: Cluster, *, now: datetime, after: str = "") -> ClusterMap:
    """Return nodes, devices, holds and the newest measurements of a page: seven queries at most."""
    nodes = Node.objects.filter(cluster=cluster).exclude(state=NodeState.REMOVED).order_by("name")
    shown = list(nodes.filter(name__gt=after)[: NODES_PER_PAGE + 1])
    loads = tuple(node_loads(scope, shown[:NODES_PER_PAGE], now=now))
    has_more = len(shown) > NODES_PER_PAGE
    if has_more or after:
        rooms = _rooms(cluster)
    else:
        rooms = tuple(Room(one.is_schedulable, len(one.slots), one.free_gpus) for one in loads)
    next_after = loads[-1].node.name if has_more else ""
    return ClusterMap(cluster, loads, rooms, after, next_after)


_ROOMS = """
    SELECT n.state = 'Ready' AND NOT n.is_cordoned AND NOT n.is_draining, count(d.id),
           count(d.id) FILTER (WHERE d.is_healthy AND d.is_present AND h.device_id IS NULL)
    FROM scheduling_node n LEFT JOIN scheduling_device d ON d.node_id = n.id
    LEFT JOIN (
        SELECT DISTINCT device_id FROM scheduling_devicehold WHERE released_at IS NULL
    ) h ON h.device_id = d.id
    WHERE n.cluster_id = %s AND n.state <> 'Removed' GROUP BY n.id
"""


def _rooms(cluster: Cluster) -> tuple[Room, ...]:
    """Return the room of every node, without reading each device: one query."""
    with connection.cursor() as cursor:
        cursor.execute(_ROOMS, [cluster.id])
        return tuple(Room(*row) for row in cursor.fetchall())


def node_loads(scope: Scope, nodes: list[Node], *, now: datetime) -> list[NodeLoad]:
    """Return what is held and measured on some nodes: five queries however many."""
    ids = [node.id for node in nodes]
    slots = _slots(scope, ids, now=now)
    held = {
        row["node"]: {"cpu": row["cpu"], "memory": row["memory"], GPU: row["gpu"]}
        for row in Hold.objects.filter(node__in=ids, released_at__isnull=True)
        .values("node")
        .annotate(cpu=Sum("cpu_milli"), memory=Sum("memory_bytes"), gpu=Sum("gpu_milli"))
        .order_by("node")
    }
    measured = {
        node: (cpu, memory)
        for node, cpu, memory in Usage.objects.filter(
            node__in=ids, device_uuid="", attempt__isnull=True, at__gt=now - FRESH
        )
        .order_by("node", "-at")
        .distinct("node")
        .values_list("node_id", "cpu_milli", "memory_bytes")
    }
    return [
        NodeLoad(
            node,
            tuple(slots.get(node.id, ())),
            held.get(node.id, {}),
            *measured.get(node.id, (None, None)),
        )
        for node in nodes
    ]


def _slots(scope: Scope, node_ids: list[UUID], *, now: datetime) -> dict[UUID, list[Slot]]:
    """Return the GPUs of nodes; a map has thousands, so only what it shows is read of each."""
    devices = Device.objects.filter(node__in=node_ids).order_by("node_id", "index")
    held: dict[UUID, int] = defaultdict(int)
    first_job: dict[UUID, UUID] = {}
    for device_id, is_whole, gpu_milli, job_id in DeviceHold.objects.filter(
        device__node__in=node_ids, released_at__isnull=True
    ).values_list("device_id", "is_whole", "gpu_milli", "hold__attempt__job_id"):
        held[device_id] += 1000 if is_whole else gpu_milli
        first_job.setdefault(device_id, job_id)
    seen = Job.objects.visible_to(scope).filter(id__in=set(first_job.values()))
    named = seen.values_list("id", "name", "queue__name", "owner__username")
    jobs = {job_id: Holder(job_id, *names) for job_id, *names in named}
    used = {
        (node_id, uuid): (percent, memory)
        for node_id, uuid, percent, memory in Usage.objects.filter(
            node__in=node_ids, at__gt=now - FRESH
        )
        .exclude(device_uuid="")
        .order_by("node", "device_uuid", "-at")
        .distinct("node", "device_uuid")
        .values_list("node_id", "device_uuid", "gpu_percent", "gpu_memory_bytes")
    }
    slots: dict[UUID, list[Slot]] = defaultdict(list)
    for device in devices.defer("links"):
        percent, memory = used.get((device.node_id, device.uuid), (None, None))
        holder = first_job.get(device.id)
        slots[device.node_id].append(
            Slot(
                device,
                percent=percent,
                memory_bytes=memory,
                held_milli=held.get(device.id, 0),
                job=jobs.get(holder) if holder is not None else None,
            )
        )
    return slots


def load_node(cluster: Cluster, name: str) -> Node:
    """Return a node by name.

    Raises:
        NotFound: there is none.
    """
    node = Node.objects.filter(cluster=cluster, name=name).exclude(state=NodeState.REMOVED).first()
    if node is None:
        raise NotFound("node")
    return node


def live_attempts(scope: Scope, node: Node) -> tuple[list[Attempt], int]:
    """Return a node's live attempts of jobs that the scope reads, and how many others there are."""
    live = Attempt.objects.filter(node=node, state__in=LIVE_STATES)
    readable = live.filter(job__in=Job.objects.visible_to(scope).values("id"))
    counted = live.values("node").annotate(n=Count("id")).values("n")
    shown = list(
        readable.select_related("job", "job__queue", "job__owner", "task__role", "hold")
        .annotate(of=Subquery(counted))
        .order_by("bound_at")[:SHOWN_ATTEMPTS]
    )
    if not shown:
        return [], 0 if scope.sees_everything else live.count()
    return list(shown), shown[0].of - len(shown)


def node_usage(node: Node, *, since: datetime) -> list[Usage]:
    """Return measurements of a node as a whole and of its devices since a time, oldest first."""
    return list(
        Usage.objects.filter(node=node, attempt__isnull=True, at__gt=since).order_by("at")[:6000]
    )


def open_join_tokens(cluster: Cluster, *, now: datetime) -> int:
    """Return how many join tokens can still be used."""
    return JoinToken.objects.filter(cluster=cluster, uses_left__gt=0, expires_at__gt=now).count()


def health(*, now: datetime) -> Health:
    """Return what an operator looks at first: eight queries."""
    outbox = OutboxRow.objects.aggregate(
        waiting=Count("id", filter=Q(is_dead=False)),
        dead=Count("id", filter=Q(is_dead=True)),
        oldest=Min("created_at", filter=Q(is_dead=False)),
    )
    states = Node.objects.exclude(state=NodeState.REMOVED).values_list("state")
    newest = CycleRecord.objects.values("cluster").annotate(last=Max("id")).values("last")
    return Health(
        now=now,
        leases=tuple(Lease.objects.order_by("scope")),
        absent=tuple(clusters_without_scheduler()),
        cycles=tuple(CycleRecord.objects.filter(id__in=newest).select_related("cluster")),
        outbox_waiting=outbox["waiting"],
        outbox_dead=outbox["dead"],
        outbox_oldest=outbox["oldest"],
        dead_rows=tuple(OutboxRow.objects.filter(is_dead=True).order_by("-id")[:20]),
        nodes=dict(states.annotate(n=Count("id")).order_by("state")),
        silent=tuple(Node.objects.filter(state=NodeState.NOT_READY).order_by("last_seen_at")[:20]),
        clusters=tuple(Cluster.objects.order_by("created_at")),
    )


def node_groups(cluster: Cluster) -> dict[str, int]:
    """Return the groups of a cluster's nodes by name, with how many nodes are in each.

    For who may read the nodes' labels; no rights are asked here.
    """
    nodes = Node.objects.filter(cluster=cluster).exclude(state=NodeState.REMOVED)
    grouped = nodes.annotate(group=KeyTextTransform(GROUP_LABEL, "labels")).order_by("group")
    found = grouped.values_list("group").annotate(n=Count("id"))
    return {group: n for group, n in found if group}


def allocatable(cluster: Cluster) -> list[Mapping[str, int]]:
    """Return what each ready node of a cluster can give."""
    ready = Node.objects.filter(cluster=cluster, state=NodeState.READY)
    return list(ready.values_list("allocatable", flat=True))
