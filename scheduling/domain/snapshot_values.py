"""Rows to values: nodes, queues and jobs of the database as the engine's frozen records."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from sys import intern
from typing import Any
from uuid import UUID

from django.db import connection

from scheduling.domain import placement_rules
from scheduling.domain.bare_rows import BareRows
from scheduling.domain.image_rules import Rule, runtime_wanted
from scheduling.domain.jobs import PRIORITY_CLASSES
from scheduling.domain.lifecycle_views import job_view
from scheduling.engine import types as engine
from scheduling.lifecycle.decisions import may_start
from scheduling.lifecycle.states import SCHEDULABLE_PHASES
from scheduling.models import Device, DeviceHold, Hold, Job, Node, Queue, Role
from scheduling.models.node import NodeKind, NodeState
from scheduling.spec.job_spec import RoleSpec

HOSTNAME = "kubernetes.io/hostname"
"""Label that every node has, as in Kubernetes: rules about neighbours name it."""
NUMA_POLICY = "any"
"""The agent applies whatever CPUs a task is given: a node serves each task's own policy."""

STRIKES = 3
"""A job that made planning fail so often is left out until it is changed."""
ROLES = BareRows(Role, shared=("request",))
NOTHING: Mapping[str, Any] = {}
"""What is not stated, one object for all; never changed."""

TASK_STATES = {
    "Pending": (engine.TaskState.PENDING, False),
    "Bound": (engine.TaskState.BOUND, True),
    "Starting": (engine.TaskState.BOUND, True),
    "Running": (engine.TaskState.RUNNING, True),
    "Stopping": (engine.TaskState.RELEASING, True),
    "Succeeded": (engine.TaskState.SUCCEEDED, False),
    "Failed": (engine.TaskState.FAILED, False),
}
"""State of a row -> the engine's, and whether such a task has a place.

A cancelled task is not in the snapshot: nothing more is wanted of it."""


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
                uuid=device.uuid,
            )
            for device in devices
        ),
        runtimes=None if serves_all else frozenset(one["name"] for one in row.runtimes),
        numa=placement_rules.numa_nodes(row.topology.get("numa_nodes") or ()),
        numa_policy=NUMA_POLICY,
        data_sets=placement_rules.cached_data_sets(row.labels),
        images=placement_rules.cached_images(row.runtimes),
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


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What of the cluster decides how its jobs are read."""

    rules: tuple[Rule, ...]
    queue_names: Mapping[UUID, str]
    have_devices: bool = True
    """Whether any node has devices, so that tasks may hold some; likewise of sets of CPUs."""
    have_cpu_sets: bool = True


def job_values(
    jobs: Collection[Job], around: Surroundings, known: Mapping[UUID, engine.Job]
) -> tuple[dict[UUID, engine.Job], dict[UUID, str]]:
    """Return jobs as the engine knows them, with few queries however many they are.

    The second part says what is wrong with those of them that could not be read.
    """
    if not jobs:
        return {}, {}
    roles: defaultdict[UUID, list[Role]] = defaultdict(list)
    for role in ROLES.where(ROLES_OF, [[job.id for job in jobs]]):
        roles[role.job_id].append(role)
    tasks = _tasks_by_role(jobs, roles, around)
    values, unreadable = {}, {}
    for job in jobs:
        try:
            value = job_value(job, roles[job.id], tasks, around, known.get(job.id))
        except (AttributeError, KeyError, LookupError, TypeError, ValueError) as error:
            unreadable[job.id] = f"{type(error).__name__}: {error}"
            value = _held_only(job, roles[job.id], tasks, around)
        values[job.id] = value
    return values, unreadable


ROLES_OF = "t.job_id = ANY(%s) ORDER BY t.job_id, t.position"
TasksByRole = Mapping[int, list[engine.Task]]


def _tasks_by_role(
    jobs: Collection[Job], roles: Mapping[UUID, list[Role]], around: Surroundings
) -> TasksByRole:
    """Return the tasks of these jobs, by the key of their role and named after it."""
    devices = _held_devices(jobs) if around.have_devices else {}
    cpus = _held_cpus(jobs) if around.have_cpu_sets else {}
    names = {role.id: role.name for group in roles.values() for role in group}
    tasks: defaultdict[int, list[engine.Task]] = defaultdict(list)
    with connection.cursor() as cursor:
        cursor.execute(TASKS_OF, [list(names), list(TASK_STATES)])
        for row in cursor:  # one by one: all of them as tuples take more room than their values
            role_id, task_id, index, state_name, node, not_before, running_since = row
            state, is_placed = TASK_STATES[state_name]
            task = engine.Task(
                str(task_id),
                names[role_id],
                index,
                state,
                intern(node) if is_placed and node else None,
                tuple(devices.get(task_id, ())) if is_placed else (),
                running_since,
                not_before or 0.0,
                "",
                cpus.get(task_id, ()) if is_placed else (),
            )
            tasks[role_id].append(task)
    return tasks


def _held_devices(jobs: Collection[Job]) -> Mapping[int, list[str]]:
    devices: defaultdict[int, list[str]] = defaultdict(list)
    held = DeviceHold.objects.filter(
        released_at__isnull=True, hold__released_at__isnull=True, hold__attempt__job__in=jobs
    )
    for task_id, device_id in held.values_list("hold__attempt__task_id", "device_id"):
        devices[task_id].append(str(device_id))
    return devices


def _held_cpus(jobs: Collection[Job]) -> Mapping[int, tuple[int, ...]]:
    pinned = Hold.objects.filter(released_at__isnull=True, attempt__job__in=jobs)
    found = pinned.exclude(cpus=[]).values_list("attempt__task_id", "cpus")
    return {task_id: tuple(numbers) for task_id, numbers in found}


# A time costs more to read than all the rest of a row: only the two that are looked at, as seconds.
TASKS_OF = """
SELECT task.role_id, task.id, task.index, task.state, node.name,
    extract(epoch FROM task.not_before)::float8,
    CASE WHEN task.state = 'Running' THEN extract(epoch FROM task.state_at)::float8 END
FROM scheduling_task AS task LEFT JOIN scheduling_node AS node ON node.id = task.node_id
WHERE task.role_id = ANY(%s) AND task.state = ANY(%s) ORDER BY task.id
"""


def job_value(
    job: Job,
    roles: list[Role],
    tasks: TasksByRole,
    around: Surroundings,
    known: engine.Job | None = None,
) -> engine.Job:
    """Return one job as the engine knows it, without the tasks of roles that must not start yet."""
    spec = job.spec
    queue = around.queue_names[job.queue_id]
    waiting = _roles_not_to_start(job, roles)
    values = tuple(
        _role_value(job, role, queue, around.rules, is_waiting=role.id in waiting) for role in roles
    )
    ready_replicas = sum(role.replicas for role in roles if role.id not in waiting)
    min_available = min(job.min_available, ready_replicas)
    partitions = placement_rules.split_partitions(values, spec["roles"])
    startable = [v for v, role in zip(values, roles, strict=True) if role.id not in waiting]
    amounts = placement_rules.gang_amounts(startable, min_available)
    values = partitions.roles
    if known is not None and known.roles == values:
        values = known.roles
    return engine.Job(
        key=str(job.id),
        name=job.name,
        queue=queue,
        roles=values,
        tasks=_startable_tasks(roles, tasks, waiting, partitions),
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
        annotations=spec.get("annotations") or NOTHING,
        topology=placement_rules.topology_rule(spec.get("network_topology")),
        sub_groups=partitions.sub_groups,
    )


def _startable_tasks(
    roles: list[Role],
    tasks: TasksByRole,
    waiting: frozenset[int],
    partitions: placement_rules.Partitions,
) -> tuple[engine.Task, ...]:
    listed: list[engine.Task] = []
    for role in roles:
        found = tasks.get(role.id, [])
        if role.id in waiting:
            found = [task for task in found if task.state is not engine.TaskState.PENDING]
        if role.name in partitions.sizes:
            found = [replace(one, role=partitions.role_of(one.role, one.index)) for one in found]
        listed += found
    return tuple(listed)


def _held_only(job: Job, roles: list[Role], tasks: TasksByRole, around: Surroundings) -> engine.Job:
    """Return what counts of a job that cannot be read: what it holds, which nobody may take."""
    values = (task for role in roles for task in tasks.get(role.id, ()))
    return engine.Job(
        key=str(job.id),
        name=job.name,
        queue=around.queue_names[job.queue_id],
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


def _role_value(
    job: Job, role: Role, queue: str, rules: tuple[Rule, ...], *, is_waiting: bool
) -> engine.Role:
    part = next(one for one in job.spec["roles"] if one["name"] == role.name)
    return engine.Role(
        name=role.name,
        request=role.request,
        replicas=role.replicas,
        min_available=0 if is_waiting else role.min_available,
        priority=PRIORITY_CLASSES.get(part.get("priority_class", ""), 0),
        node_selector=part.get("node_selector") or NOTHING,
        tolerations=tuple(
            engine.Toleration(t["key"], t["operator"], t["value"], t["effect"])
            for t in part.get("tolerations") or ()
        ),
        image=runtime_wanted(part, job.unit_id, rules),
        preemptable=job.spec.get("preemptable") is not False,
        topology_policy=part.get("topology_policy", "none"),
        labels=placement_rules.labels_of(
            part, job_name=job.name, queue=queue, tenant_id=job.tenant_id
        ),
        annotations=part.get("annotations") or NOTHING,
        limits=placement_rules.limits_of(part) or NOTHING,
        data_sets=placement_rules.data_sets_of(part, job.spec.get("annotations") or NOTHING),
        container_images=placement_rules.container_images(part),
        **_kubernetes_rules(part, job.tenant_id),
    )


def _kubernetes_rules(part: Mapping[str, Any], tenant_id: UUID) -> dict[str, Any]:
    """Return what a role says in Kubernetes' words about nodes, neighbours and ports.

    Most say nothing, and are not searched for each of these.
    """
    if not (part.get("affinity") or part.get("template")):
        return {}
    return {
        "node_affinity": _affinity(part),
        "preferred_affinity": placement_rules.node_wishes(part),
        "pod_terms": placement_rules.neighbour_terms(part, tenant_id),
        "spread": placement_rules.spread_rules(part, tenant_id),
        "may_evict": placement_rules.may_evict(part),
        "ports": placement_rules.host_ports(part),
    }


def _affinity(part: Mapping[str, Any]) -> tuple[tuple[engine.Requirement, ...], ...]:
    if not part.get("affinity"):
        return ()
    terms = RoleSpec.model_construct(
        name=part["name"], min_available=0, affinity=part["affinity"]
    ).required_node_terms
    return tuple(tuple(engine.Requirement(*one) for one in term) for term in terms)
