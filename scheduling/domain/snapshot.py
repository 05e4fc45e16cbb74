"""What a cycle looks at: the rows of one cluster as the engine's frozen values, kept warm.

`changed_xid` of a row is the transaction that last wrote it. A refresh remembers the xmin of its
own database snapshot and next time reads only rows with `changed_xid >=` that: every row committed
since, however transactions overlapped. An unchanged job, node or queue stays the same object, so
that the engine keeps what it computed for it. Tasks and holds carry no mark: whoever writes them
writes their job too.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from fnmatch import fnmatchcase
from typing import Any, NamedTuple
from uuid import UUID

from django.db import connection, transaction
from django.db.models import Q

from scheduling.domain import placement_rules
from scheduling.domain.bare_rows import BareRows
from scheduling.domain.errors import IncompleteSnapshotError
from scheduling.domain.jobs import PRIORITY_CLASSES
from scheduling.domain.lifecycle_views import job_view
from scheduling.domain.quota_walls import walls_of
from scheduling.engine import types as engine
from scheduling.engine.garbage import without_collecting
from scheduling.lifecycle.decisions import may_start
from scheduling.lifecycle.states import SCHEDULABLE_PHASES
from scheduling.models import (
    Device,
    DeviceHold,
    Hold,
    ImageRule,
    Job,
    Node,
    Queue,
    Reservation,
    Role,
)
from scheduling.models.node import NodeKind, NodeState
from scheduling.spec.job_spec import RoleSpec
from tenants.models import OrgClosure

HOSTNAME = "kubernetes.io/hostname"
"""Label that every node has, as in Kubernetes: rules about neighbours name it."""
NUMA_POLICY = "any"
"""The agent applies whatever CPUs a task is given: a node serves each task's own policy."""

STRIKES = 3
"""A job that made planning fail so often is left out until it is changed."""
UNSERVED = "image:"
"""Prefix of an image that no rule maps to a runtime: no node offers it, and the reason says so."""

TASK_STATES = {
    "Pending": engine.TaskState.PENDING,
    "Bound": engine.TaskState.BOUND,
    "Starting": engine.TaskState.BOUND,
    "Running": engine.TaskState.RUNNING,
    "Stopping": engine.TaskState.RELEASING,
    "Succeeded": engine.TaskState.SUCCEEDED,
    "Failed": engine.TaskState.FAILED,
}
"""A cancelled task is not in the snapshot: nothing more is wanted of it."""


@dataclass(frozen=True, slots=True)
class Rule:
    """An image rule with the units that it holds for; None: all."""

    pattern: str
    runtime: str
    units: frozenset[UUID] | None


@dataclass(slots=True)
class SnapshotCache:
    """The warm copy of one cluster; `refresh` brings it up to date and gives the snapshot."""

    since: int = 0
    nodes: dict[UUID, engine.Node] = field(default_factory=dict)
    queues: dict[UUID, engine.Queue] = field(default_factory=dict)
    jobs: dict[UUID, engine.Job] = field(default_factory=dict)
    versions: dict[str, int] = field(default_factory=dict)
    """Job key -> version of its row when it was read."""
    unreadable: dict[UUID, str] = field(default_factory=dict)
    """Jobs whose rows make no job, and what is wrong; what they hold counts, they want nothing."""
    rules: tuple[Rule, ...] = ()
    network_tiers: str = "[]"
    domains: tuple[engine.HyperNode, ...] = ()
    """Of the network, as the tiers and the nodes' labels draw them."""
    budgets: dict[UUID, engine.DisruptionBudget] = field(default_factory=dict)
    """Of the jobs whose owners limit evictions."""
    loads: dict[UUID, dict[str, str]] = field(default_factory=dict)
    """Measured load by node, as its annotations; only where the configuration asks for it."""
    loads_read_at: datetime | None = None
    snapshot: engine.Snapshot | None = None

    def refresh(self, cluster_id: UUID, now: datetime) -> engine.Snapshot:
        """Read what changed since the last time, in one consistent view of the database.

        Raises:
            IncompleteSnapshotError: a row refers to something that is not there; plan nothing.
        """
        is_outermost = not connection.in_atomic_block
        with without_collecting(), transaction.atomic():
            with connection.cursor() as cursor:
                if is_outermost:  # else the caller's transaction says what is seen
                    cursor.execute(READ_ONLY)
            news = _news(cluster_id, self.since)
            if news.rules or self.rules:
                self._refresh_rules(cluster_id)
                news = _news(cluster_id, self.since)
            is_changed = news.nodes and self._refresh_nodes(cluster_id)
            is_changed |= self._refresh_network(news.network_tiers or "[]", is_changed=is_changed)
            if news.queues or news.queue_count != len(self.queues):
                is_changed |= self._refresh_queues(cluster_id)
            is_changed |= news.jobs and self._refresh_jobs(cluster_id)
            is_changed |= self._refresh_loads(cluster_id, now, is_wanted=news.wants_load)
            reservations = _reservations(cluster_id, now) if news.reservations else ()
            walls = walls_of(cluster_id) if news.quotas else ()
        self.since = news.xmin
        self.snapshot = self._assemble(now, reservations, walls, is_changed=is_changed)
        return self.snapshot

    @property
    def has_devices(self) -> bool:
        """Whether any node has devices, so that tasks may hold some."""
        return any(node.devices for node in self.nodes.values())

    def _assemble(
        self,
        now: datetime,
        reservations: tuple[engine.Reservation, ...],
        walls: tuple[engine.Quota, ...],
        *,
        is_changed: bool,
    ) -> engine.Snapshot:
        last = self.snapshot
        if last is None or is_changed:
            _require_complete(self.jobs.values(), self.queues.values(), self.nodes.values())
        is_same = last is not None and not is_changed
        return engine.Snapshot(
            now=now.timestamp(),
            nodes=last.nodes if last is not None and is_same else self._nodes_with_load(),
            queues=last.queues if last is not None and is_same else tuple(self.queues.values()),
            jobs=last.jobs if last is not None and is_same else tuple(self.jobs.values()),
            reservations=reservations,
            version=self.since,
            disruption_budgets=tuple(self.budgets.values()),
            quotas=walls,
            hypernodes=self.domains,
        )

    def _nodes_with_load(self) -> tuple[engine.Node, ...]:
        if not self.loads:
            return tuple(self.nodes.values())
        return tuple(
            replace(node, annotations=self.loads[key]) if key in self.loads else node
            for key, node in self.nodes.items()
        )

    def _refresh_loads(self, cluster_id: UUID, now: datetime, *, is_wanted: bool) -> bool:
        """Read the measured load of the nodes, every few seconds, where a plugin looks at it."""
        if not is_wanted:
            had_loads, self.loads, self.loads_read_at = bool(self.loads), {}, None
            return had_loads
        if self.loads_read_at is not None and now - self.loads_read_at < LOAD_EVERY:
            return False
        self.loads, self.loads_read_at = _loads(cluster_id, now), now
        return True

    def _refresh_network(self, tiers: str, *, is_changed: bool) -> bool:
        """Draw the domains anew where tiers or nodes changed."""
        if tiers == self.network_tiers and not (is_changed and self.domains):
            return False
        self.network_tiers = tiers
        domains = placement_rules.network_domains(
            [placement_rules.Tier(**one) for one in json.loads(tiers)], self.nodes.values()
        )
        is_other = domains != self.domains
        self.domains = domains
        return is_other

    def _refresh_rules(self, cluster_id: UUID) -> None:
        rules = _rules(cluster_id)
        if rules != self.rules:
            # Which runtime serves a role may be another now: read all jobs again.
            self.rules, self.since, self.jobs = rules, 0, {}
            self.snapshot = None

    def _refresh_nodes(self, cluster_id: UUID) -> bool:
        rows = list(Node.objects.filter(cluster_id=cluster_id, changed_xid__gte=self.since))
        devices: defaultdict[UUID, list[Device]] = defaultdict(list)
        for device in Device.objects.filter(node__in=rows, is_present=True).order_by("index"):
            devices[device.node_id].append(device)
        gone = {row.id for row in rows if row.state == NodeState.REMOVED}
        fresh = {row.id: node_value(row, devices[row.id]) for row in rows if row.id not in gone}
        return _merge(self.nodes, fresh, gone)

    def _refresh_queues(self, cluster_id: UUID) -> bool:
        rows = Queue.objects.filter(cluster_id=cluster_id).select_related("parent")
        changed = list(rows.filter(changed_xid__gte=self.since))
        is_changed = _merge(self.queues, {row.id: queue_value(row) for row in changed}, set())
        if len(self.queues) != Queue.objects.filter(cluster_id=cluster_id).count():
            fresh = {row.id: queue_value(row) for row in rows}
            _merge(self.queues, fresh, self.queues.keys() - fresh.keys())
            return True
        return is_changed

    def _written_jobs(self, cluster_id: UUID) -> list[Job]:
        written = Job.objects.filter(queue__cluster_id=cluster_id, changed_xid__gte=self.since)
        if self.since == 0:
            written = written.filter(IS_OF_INTEREST)
        return JOBS.read(written)

    def _refresh_jobs(self, cluster_id: UUID) -> bool:
        rows = self._written_jobs(cluster_id)
        jobs = [job for job in rows if is_of_interest(job)]
        # Of its queue a job needs the name only: one instance for all, instead of one each.
        queues = {key: Queue(id=key, name=queue.name) for key, queue in self.queues.items()}
        for job in jobs:
            if job.queue_id in queues:
                job.queue = queues[job.queue_id]
        gone = {job.id for job in rows} - {job.id for job in jobs}
        self.versions.update({str(job.id): job.version for job in jobs})
        for job_id in gone:
            self.versions.pop(str(job_id), None)
        values, unreadable = job_values(
            jobs,
            self.rules,
            self.jobs,
            have_devices=self.has_devices,
            have_cpu_sets=any(node.numa for node in self.nodes.values()),
        )
        for key in gone | values.keys():
            self.unreadable.pop(key, None)
        self.unreadable.update(unreadable)
        for key in self.budgets.keys() & (gone | values.keys()):
            del self.budgets[key]
        for key, value in values.items():
            budget = placement_rules.budget_of(value) if value.annotations else None
            if budget is not None:
                self.budgets[key] = budget
        return _merge(self.jobs, values, gone)


NOT_READ = (
    "reason_code",
    "reason_params",
    "reason_at",
    "message",
    "desired_state",
    "gpu_milli",
    "cpu_milli",
    "memory_bytes",
    "started_at",
    "finished_at",
    "delete_after",
)
"""Columns of a job that no cycle looks at; a third of the time of a first read."""
JOBS, ROLES = BareRows(Job, without=NOT_READ), BareRows(Role)
# Between two queries of a first read 100,000 tasks become values: nobody waits for a reader.
READ_ONLY = """
SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY;
SET LOCAL idle_in_transaction_session_timeout = '120s'
"""
NEWS = """
SELECT
    pg_snapshot_xmin(pg_current_snapshot())::text::bigint,
    EXISTS (SELECT 1 FROM scheduling_node
            WHERE cluster_id = %(cluster)s AND changed_xid >= %(since)s),
    EXISTS (SELECT 1 FROM scheduling_queue
            WHERE cluster_id = %(cluster)s AND changed_xid >= %(since)s),
    (SELECT count(*) FROM scheduling_queue WHERE cluster_id = %(cluster)s),
    EXISTS (SELECT 1 FROM scheduling_job WHERE changed_xid >= %(since)s),
    EXISTS (SELECT 1 FROM scheduling_reservation),
    EXISTS (SELECT 1 FROM scheduling_imagerule WHERE cluster_id = %(cluster)s),
    EXISTS (SELECT 1 FROM scheduling_quotalimit),
    (SELECT network_tiers::text FROM scheduling_cluster WHERE id = %(cluster)s),
    EXISTS (SELECT 1 FROM scheduling_cluster
            WHERE id = %(cluster)s AND scheduler_config ~ 'name"?: *"?(usage|rescheduling)')
"""
LOAD_EVERY = timedelta(seconds=15)
LOAD_SPAN = timedelta(seconds=120)
"""Measurements are averaged over so long."""
LOADS = """
SELECT node.id,
    round(avg(said.cpu_milli) * 100 / nullif((node.capacity ->> 'cpu')::bigint, 0), 1),
    round(avg(said.memory_bytes) * 100 / nullif((node.capacity ->> 'memory')::bigint, 0), 1),
    extract(epoch FROM max(said.at))
FROM scheduling_node AS node
JOIN scheduling_usage AS said ON said.node_id = node.id AND said.device_uuid = ''
    AND said.attempt_id IS NULL AND said.at > %(since)s
WHERE node.cluster_id = %(cluster)s
GROUP BY node.id
"""


class News(NamedTuple):
    """Where something was written since the last time, or is at all, asked with one query."""

    xmin: int
    nodes: bool
    queues: bool
    queue_count: int
    jobs: bool
    reservations: bool
    rules: bool
    quotas: bool
    network_tiers: str | None
    wants_load: bool
    """Whether a plugin of the configuration looks at what nodes are measured to do."""


def _news(cluster_id: UUID, since: int) -> News:
    with connection.cursor() as cursor:
        cursor.execute(NEWS, {"cluster": cluster_id, "since": since})
        return News(*cursor.fetchone())


def _loads(cluster_id: UUID, now: datetime) -> dict[UUID, dict[str, str]]:
    with connection.cursor() as cursor:
        cursor.execute(LOADS, {"cluster": cluster_id, "since": now - LOAD_SPAN})
        rows = cursor.fetchall()
    keys = (engine.CPU_PERCENT, engine.MEMORY_PERCENT, engine.MEASURED_AT)
    return {
        node_id: {key: str(value) for key, value in zip(keys, said, strict=True)}
        for node_id, *said in rows
        if None not in said
    }


def build(cluster_id: UUID, now: datetime) -> engine.Snapshot:
    """Read the whole cluster anew."""
    return SnapshotCache().refresh(cluster_id, now)


# --- which jobs -----------------------------------------------------------------------------------

IS_OF_INTEREST = (
    Q(phase__in=[str(phase) for phase in SCHEDULABLE_PHASES])
    | Q(tasks_starting__gt=0)
    | Q(tasks_running__gt=0)
    | Q(tasks_stopping__gt=0)
)


def is_of_interest(job: Job) -> bool:
    """Whether a job wants a place or still holds one."""
    live = job.tasks_starting + job.tasks_running + job.tasks_stopping
    is_set_aside = job.quarantine_strikes >= STRIKES
    return (job.phase in SCHEDULABLE_PHASES and not is_set_aside) or live > 0


# --- rows to values -------------------------------------------------------------------------------


def node_value(row: Node, devices: Iterable[Device]) -> engine.Node:
    """Return a node as the engine knows it."""
    serves_all = row.kind == NodeKind.KUBERNETES or row.is_simulated
    is_usable = row.state == NodeState.READY and not (row.is_cordoned or row.is_draining)
    devices = list(devices)
    ids = {device.uuid: str(device.id) for device in devices}  # links name peers by the driver's
    return engine.Node(
        name=row.name,
        allocatable=row.allocatable,
        labels={HOSTNAME: row.name, **row.labels},
        taints=tuple(
            engine.Taint(t["key"], t.get("value", ""), t.get("effect", "NoSchedule"))
            for t in row.taints
        ),
        is_schedulable=is_usable,
        devices=tuple(
            engine.Device(
                id=str(device.id),
                index=device.index,
                resource=device.resource,
                memory_bytes=device.memory_bytes,
                is_healthy=device.is_healthy,
                numa_node=device.numa_node,
                links=tuple(
                    sorted((ids[peer], kind) for peer, kind in device.links.items() if peer in ids)
                ),
                model=device.model,
            )
            for device in devices
        ),
        runtimes=None if serves_all else frozenset(one["name"] for one in row.runtimes),
        numa=placement_rules.numa_nodes(row.topology.get("numa_nodes") or ()),
        numa_policy=NUMA_POLICY,
        data_sets=placement_rules.cached_data_sets(row.labels),
    )


def queue_value(row: Queue) -> engine.Queue:
    """Return a queue as the engine knows it."""
    return engine.Queue(
        name=row.name,
        parent=None if row.parent is None else row.parent.name,
        min=row.min,
        max=row.max,
        weight=row.weight,
        priority=row.priority,
        lend_min=row.lend_min,
        reclaimable=row.reclaimable,
        state=engine.QueueState(row.state),
        policy=engine.QueuePolicy(row.policy),
        deserved=row.deserved,
        created_at=row.created_at.timestamp(),
        annotations=row.annotations,
    )


def job_values(
    jobs: Collection[Job],
    rules: tuple[Rule, ...],
    known: Mapping[UUID, engine.Job],
    *,
    have_devices: bool = True,
    have_cpu_sets: bool = True,
) -> tuple[dict[UUID, engine.Job], dict[UUID, str]]:
    """Return jobs as the engine knows them, with three queries however many they are.

    The second part says what is wrong with those of them that could not be read.
    """
    if not jobs:
        return {}, {}
    roles: defaultdict[UUID, list[Role]] = defaultdict(list)
    for role in ROLES.read(Role.objects.filter(job__in=jobs).order_by("job", "position")):
        roles[role.job_id].append(role)
    tasks = _tasks_by_job(jobs, have_devices=have_devices, have_cpu_sets=have_cpu_sets)
    values, unreadable = {}, {}
    for job in jobs:
        try:
            value = job_value(job, roles[job.id], tasks[job.id], rules, known.get(job.id))
        except (AttributeError, KeyError, LookupError, TypeError, ValueError) as error:
            unreadable[job.id] = f"{type(error).__name__}: {error}"
            value = _held_only(job, roles[job.id], tasks[job.id])
        values[job.id] = value
    return values, unreadable


TaskColumns = tuple[
    UUID,
    int,
    int,
    int,
    str,
    str | None,
    float | None,
    float | None,
    tuple[str, ...],
    tuple[int, ...],
]


def _tasks_by_job(
    jobs: Collection[Job], *, have_devices: bool, have_cpu_sets: bool
) -> defaultdict[UUID, list[TaskColumns]]:
    devices: defaultdict[int, list[str]] = defaultdict(list)
    held = DeviceHold.objects.filter(
        released_at__isnull=True, hold__released_at__isnull=True, hold__attempt__job__in=jobs
    )
    if have_devices:
        for task_id, device_id in held.values_list("hold__attempt__task_id", "device_id"):
            devices[task_id].append(str(device_id))
    cpus: dict[int, tuple[int, ...]] = {}
    if have_cpu_sets:
        pinned = Hold.objects.filter(released_at__isnull=True, attempt__job__in=jobs)
        for task_id, numbers in pinned.exclude(cpus=[]).values_list("attempt__task_id", "cpus"):
            cpus[task_id] = tuple(numbers)
    tasks: defaultdict[UUID, list[TaskColumns]] = defaultdict(list)
    with connection.cursor() as cursor:
        cursor.execute(TASKS_OF, [[job.id for job in jobs], list(TASK_STATES)])
        for row in cursor.fetchall():
            tasks[row[0]].append((*row, tuple(devices.get(row[1], ())), cpus.get(row[1], ())))
    return tasks


# A time costs more to read than all the rest of a row: only the two that are looked at, as seconds.
TASKS_OF = """
SELECT task.job_id, task.id, task.role_id, task.index, task.state, node.name,
    extract(epoch FROM task.not_before)::float8,
    CASE WHEN task.state = 'Running' THEN extract(epoch FROM task.state_at)::float8 END
FROM scheduling_task AS task LEFT JOIN scheduling_node AS node ON node.id = task.node_id
WHERE task.job_id = ANY(%s) AND task.state = ANY(%s) ORDER BY task.id
"""


def job_value(
    job: Job,
    roles: list[Role],
    tasks: Iterable[TaskColumns],
    rules: tuple[Rule, ...],
    known: engine.Job | None = None,
) -> engine.Job:
    """Return one job as the engine knows it, without the tasks of roles that must not start yet."""
    spec = job.spec
    waiting = _roles_not_to_start(job, roles)
    names = {role.id: role.name for role in roles}
    values = tuple(_role_value(job, role, rules, is_waiting=role.id in waiting) for role in roles)
    ready_replicas = sum(role.replicas for role in roles if role.id not in waiting)
    min_available = min(job.min_available, ready_replicas)
    partitions = placement_rules.split_partitions(values, spec["roles"])
    startable = [v for v, role in zip(values, roles, strict=True) if role.id not in waiting]
    amounts = placement_rules.gang_amounts(startable, min_available)
    values = partitions.roles
    if known is not None and known.roles == values:
        values = known.roles
    listed = tuple(
        _task_value(row, partitions.role_of(names[row[2]], row[3]))
        for row in tasks
        if not (row[2] in waiting and row[4] == "Pending")
    )
    return engine.Job(
        key=str(job.id),
        name=job.name,
        queue=job.queue.name,
        roles=values,
        tasks=listed,
        min_available=min_available,
        priority=job.priority,
        owner=str(job.owner_id),
        created_at=job.created_at.timestamp(),
        phase=engine.GangPhase(job.gang_phase),
        admitted_at=None if job.admitted_at is None else job.admitted_at.timestamp(),
        is_runnable=_is_runnable(job),
        sla_waiting_seconds=spec.get("sla_waiting_seconds"),
        time_limit_seconds=spec.get("time_limit_seconds"),
        preemptable=spec.get("preemptable"),
        min_resources=amounts,
        annotations=spec.get("annotations") or {},
        topology=placement_rules.topology_rule(spec.get("network_topology")),
        sub_groups=partitions.sub_groups,
    )


def _held_only(job: Job, roles: list[Role], tasks: Iterable[TaskColumns]) -> engine.Job:
    """Return what counts of a job that cannot be read: what it holds, which nobody may take."""
    names = {role.id: role.name for role in roles}
    values = (_task_value(row, names[row[2]]) for row in tasks)
    return engine.Job(
        key=str(job.id),
        name=job.name,
        queue=job.queue.name,
        roles=tuple(
            engine.Role(
                name=role.name,
                request=role.request,
                replicas=role.replicas,
                min_available=role.min_available,
                preemptable=False,
            )
            for role in roles
        ),
        tasks=tuple(value for value in values if value.node is not None),
        min_available=job.min_available,
        owner=str(job.owner_id),
        created_at=job.created_at.timestamp(),
        phase=engine.GangPhase(job.gang_phase),
        is_runnable=False,
        preemptable=False,
    )


def _is_runnable(job: Job) -> bool:
    is_wanted = job.phase in SCHEDULABLE_PHASES and not job.wish
    return is_wanted and job.quarantine_strikes < STRIKES


def _roles_not_to_start(job: Job, roles: list[Role]) -> frozenset[int]:
    if not any(part.get("depends_on") for part in job.spec["roles"]):
        return frozenset()
    view = job_view(job, roles)
    return frozenset(
        role.id for role, one in zip(roles, view.roles, strict=True) if not may_start(view, one)
    )


def _role_value(job: Job, role: Role, rules: tuple[Rule, ...], *, is_waiting: bool) -> engine.Role:
    part = next(one for one in job.spec["roles"] if one["name"] == role.name)
    return engine.Role(
        name=role.name,
        request=role.request,
        replicas=role.replicas,
        min_available=0 if is_waiting else role.min_available,
        priority=PRIORITY_CLASSES.get(part.get("priority_class", ""), 0),
        node_selector=part.get("node_selector") or {},
        node_affinity=_affinity(part),
        tolerations=tuple(
            engine.Toleration(t["key"], t["operator"], t["value"], t["effect"])
            for t in part.get("tolerations") or ()
        ),
        image=runtime_wanted(part, job.unit_id, rules),
        preemptable=job.spec.get("preemptable") is not False,
        topology_policy=part.get("topology_policy", "none"),
        labels=placement_rules.labels_of(
            part, job_name=job.name, queue=job.queue.name, tenant_id=job.tenant_id
        ),
        annotations=part.get("annotations") or {},
        preferred_affinity=placement_rules.node_wishes(part),
        pod_terms=placement_rules.neighbour_terms(part, job.tenant_id),
        spread=placement_rules.spread_rules(part, job.tenant_id),
        limits=placement_rules.limits_of(part),
        may_evict=placement_rules.may_evict(part),
        ports=placement_rules.host_ports(part),
        data_sets=placement_rules.data_sets_of(part, job.spec.get("annotations") or {}),
    )


def _affinity(part: Mapping[str, Any]) -> tuple[tuple[engine.Requirement, ...], ...]:
    if not part.get("affinity"):
        return ()
    terms = RoleSpec.model_construct(
        name=part["name"], min_available=0, affinity=part["affinity"]
    ).required_node_terms
    return tuple(tuple(engine.Requirement(*one) for one in term) for term in terms)


def _task_value(row: TaskColumns, role: str) -> engine.Task:
    _, task_id, _, index, state, node, not_before, state_at, devices, cpus = row
    value = TASK_STATES[state]
    is_placed = value in (
        engine.TaskState.BOUND,
        engine.TaskState.RUNNING,
        engine.TaskState.RELEASING,
    )
    return engine.Task(
        key=str(task_id),
        role=role,
        index=index,
        state=value,
        node=node if is_placed else None,
        devices=devices if is_placed else (),
        cpus=cpus if is_placed else (),
        started_at=state_at,
        not_before=not_before if not_before is not None else 0.0,
    )


# --- images and runtimes --------------------------------------------------------------------------


def _rules(cluster_id: UUID) -> tuple[Rule, ...]:
    rows = list(ImageRule.objects.filter(cluster_id=cluster_id).order_by("position"))
    below: defaultdict[UUID, set[UUID]] = defaultdict(set)
    units = [row.unit_id for row in rows if row.unit_id is not None]
    if units:
        links = OrgClosure.objects.filter(ancestor__in=units)
        for ancestor, descendant in links.values_list("ancestor_id", "descendant_id"):
            below[ancestor].add(descendant)
    return tuple(
        Rule(row.pattern, row.runtime, frozenset(below[row.unit_id]) if row.unit_id else None)
        for row in rows
    )


def rules_of(cluster_id: UUID) -> tuple[Rule, ...]:
    """Return the image rules of a cluster in the order in which they decide."""
    return _rules(cluster_id)


def runtime_wanted(part: Mapping[str, Any], unit_id: UUID, rules: tuple[Rule, ...]) -> str:
    """Return the runtime that a role needs, empty for any.

    An image is served by the runtime of the first rule that matches; one that no rule matches
    gives a name that no node offers. Without an image the role may name a runtime itself.
    """
    image = part.get("image") or ""
    if not image:
        return str(part.get("runtime") or "")
    for rule in rules:
        is_meant = rule.units is None or unit_id in rule.units
        if is_meant and fnmatchcase(image, rule.pattern):
            return rule.runtime
    return UNSERVED + image


# --- the rest -------------------------------------------------------------------------------------


def _reservations(cluster_id: UUID, now: datetime) -> tuple[engine.Reservation, ...]:
    rows = Reservation.objects.filter(
        job__queue__cluster_id=cluster_id, expires_at__gt=now
    ).order_by("job_id")
    return tuple(
        engine.Reservation(
            job=str(row.job_id),
            amounts_by_node=row.amounts_by_node,
            expires_at=row.expires_at.timestamp(),
            reason=row.reason,
        )
        for row in rows
    )


def _merge(kept: dict[UUID, Any], fresh: Mapping[UUID, Any], gone: Collection[UUID]) -> bool:
    """Put fresh values in and take gone ones out; an equal value leaves the old object."""
    is_changed = False
    for key in gone:
        is_changed |= kept.pop(key, None) is not None
    for key, value in fresh.items():
        if kept.get(key) != value:
            kept[key] = value
            is_changed = True
    return is_changed


def _require_complete(
    jobs: Iterable[engine.Job], queues: Iterable[engine.Queue], nodes: Iterable[engine.Node]
) -> None:
    queue_names = {queue.name for queue in queues}
    node_names = {node.name for node in nodes}
    for queue in queues:
        if queue.parent is not None and queue.parent not in queue_names:
            raise IncompleteSnapshotError(f"queue {queue.name}: no parent {queue.parent}")
    for job in jobs:
        if job.queue not in queue_names:
            raise IncompleteSnapshotError(f"job {job.name}: no queue {job.queue}")
        for task in job.tasks:
            if task.node is not None and task.node not in node_names:
                raise IncompleteSnapshotError(f"job {job.name}: task on unknown {task.node}")
