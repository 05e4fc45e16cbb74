"""Rows of an organisation of any size around a scene: units, queues, people, nodes, live jobs.

The test of what pages ask of the database makes a moderate one, the benchmark of pages a large one.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import cycle, islice

from scheduling.models import (
    ChangeSet,
    Cluster,
    ClusterSample,
    CycleRecord,
    Job,
    JobTemplate,
    Lease,
    Node,
    Queue,
    QueueSample,
    QueueShare,
    Quota,
    QuotaLimit,
    Usage,
)
from tenants.models import (
    ApiToken,
    AuditRow,
    Grant,
    GrantRole,
    OrgUnit,
    OutboxRow,
    Secret,
    User,
    Webhook,
)
from tests.factories.demo import GIB, GPU, REASONS, make_job, make_node, make_queue, run_task
from tests.people import make_unit


@dataclass(frozen=True, slots=True)
class Size:
    """How many there are of what a page lists."""

    departments: int
    teams: int
    """In each department."""
    people: int
    nodes: int
    running: int
    """Jobs of one task that hold one GPU each."""
    waiting: int
    """Jobs with a reason."""


@dataclass(frozen=True, slots=True)
class Organisation:
    """What was made."""

    teams: tuple[Queue, ...]
    people: tuple[User, ...]
    nodes: tuple[Node, ...]
    running: tuple[Job, ...]
    waiting: tuple[Job, ...]


def make_organisation(cluster: Cluster, top: Queue, size: Size, now: datetime) -> Organisation:
    """Write everything below one tenant and its queue, without asking for rights."""
    assert top.unit is not None
    groups, teams = _tree(cluster, top, top.unit, size, now)
    people = _people(teams, size.people, now)
    nodes = tuple(
        make_node(cluster, f"gpu-node-{number:04}", now, is_simulated=True)
        for number in range(size.nodes)
    )
    running = _jobs("busy", "Running", size.running, teams, people, now)
    waiting = _jobs("queued", "Pending", size.waiting, teams, people, now)
    _place(running, nodes, now)
    _measure(nodes, now)
    _loops(cluster, now)
    _shares((top, *groups, *teams), now)
    _belongings(cluster, teams, people, now)
    return Organisation(teams, people, nodes, running, waiting)


def _tree(
    cluster: Cluster, top: Queue, tenant: OrgUnit, size: Size, now: datetime
) -> tuple[tuple[Queue, ...], tuple[Queue, ...]]:
    groups, teams = [], []
    for number in range(size.departments):
        name = f"department-{number:02}"
        unit = make_unit(name, tenant)
        group = make_queue(cluster, unit, top, name, now, max={GPU: 400_000})
        groups.append(group)
        for place in range(size.teams):
            name = f"team-{number:02}-{place:02}"
            team = make_unit(name, unit)
            teams.append(make_queue(cluster, team, group, name, now, min={GPU: 2000}))
    return tuple(groups), tuple(teams)


def _people(teams: tuple[Queue, ...], count: int, now: datetime) -> tuple[User, ...]:
    people = [
        User(username=f"person-{number:04}", email=f"person-{number:04}@terrace.test")
        for number in range(count)
    ]
    for one in people:
        one.set_unusable_password()
    User.objects.bulk_create(people)
    Grant.objects.bulk_create(
        [
            Grant(user=one, role=role, unit_id=team.unit_id, created_at=now)
            for one, team in zip(people, cycle(teams), strict=False)
            for role in (GrantRole.RESEARCHER, GrantRole.VIEWER)
        ]
    )
    return tuple(people)


def _jobs(
    name: str,
    phase: str,
    count: int,
    teams: tuple[Queue, ...],
    people: tuple[User, ...],
    now: datetime,
) -> tuple[Job, ...]:
    jobs = []
    places = zip(cycle(teams), cycle(people), cycle(REASONS), strict=False)
    for number, (team, owner, (code, params)) in enumerate(islice(places, count)):
        at = now - timedelta(seconds=60 * 20 + number)
        more = (
            {"started_at": at + timedelta(minutes=1), "gang_phase": "Running"}
            if phase == "Running"
            else {"reason_code": code, "reason_params": params, "gang_phase": "Inqueue"}
        )
        jobs.append(make_job(team, owner, f"{name}-{number}", at, phase=phase, replicas=1, **more))
    return tuple(jobs)


def _place(jobs: tuple[Job, ...], nodes: tuple[Node, ...], now: datetime) -> None:
    """Give each task one GPU, as long as there are some."""
    places = [(node, device) for node in nodes for device in node.devices.order_by("index")]
    for job, (node, device) in zip(jobs, places, strict=False):
        run_task(job.tasks.get(), node, job.queue, [device], now)


def _measure(nodes: tuple[Node, ...], now: datetime) -> None:
    """Write an hour of use of each node, and the newest of each GPU."""
    rows = [
        Usage(node=node, at=now - timedelta(minutes=minute), cpu_milli=9000, memory_bytes=40 * GIB)
        for node in nodes
        for minute in range(0, 60, 5)
    ]
    rows += [
        Usage(
            node=node,
            device_uuid=device.uuid,
            at=now,
            gpu_percent=10.0 * device.index,
            gpu_memory_bytes=40 * GIB,
        )
        for node in nodes
        for device in node.devices.all()
    ]
    Usage.objects.bulk_create(rows, batch_size=5000)


def _loops(cluster: Cluster, now: datetime) -> None:
    """Say that every loop is there, with cycles in the record and letters on the way."""
    for scope in ("relay", "reconcile", f"scheduler:{cluster.id}"):
        Lease.objects.create(
            scope=scope,
            holder="worker-1",
            epoch=3,
            expires_at=now + timedelta(days=30),
            acquired_at=now,
        )
    CycleRecord.objects.bulk_create(
        [
            CycleRecord(
                cluster=cluster,
                number=number,
                epoch=3,
                started_at=now - timedelta(seconds=number),
                snapshot_ms=1,
                plan_ms=3,
                apply_ms=2,
            )
            for number in range(1, 300)
        ]
    )
    ClusterSample.objects.bulk_create(
        [
            ClusterSample(
                cluster=cluster,
                at=now - timedelta(minutes=minute),
                capacity={GPU: 1_600_000},
                allocated={GPU: 900_000},
                waiting=30,
                running=900,
            )
            for minute in range(360)
        ]
    )


def _shares(queues: tuple[Queue, ...], now: datetime) -> None:
    """Say what each queue has and had."""
    amounts = {"deserved": {GPU: 8000}, "allocated": {GPU: 4000}, "requested": {GPU: 9000}}
    QueueShare.objects.bulk_create(
        [QueueShare(queue=queue, updated_at=now, **amounts) for queue in queues]
    )
    QueueSample.objects.bulk_create(
        [
            QueueSample(queue=queue, at=now - timedelta(minutes=10 * place), **amounts)
            for queue in queues
            for place in range(12)
        ]
    )


def _belongings(
    cluster: Cluster, teams: tuple[Queue, ...], people: tuple[User, ...], now: datetime
) -> None:
    """Write what else is listed: quotas, secrets, webhooks, templates, tokens, changes, record."""
    units = [team.unit for team in teams if team.unit is not None]
    quotas = Quota.objects.bulk_create(
        [Quota(unit=unit, scope="unit", created_at=now) for unit in units]
    )
    QuotaLimit.objects.bulk_create(
        [QuotaLimit(quota=quota, resource="running_jobs", amount=50) for quota in quotas]
    )
    Secret.objects.bulk_create(
        [
            Secret(
                unit=unit,
                name="shared",
                kind="variables",
                keys=["TOKEN"],
                key_id="none",
                wrapped_key=b"",
                ciphertext=b"",
                created_at=now,
                changed_at=now,
            )
            for unit in units
        ]
    )
    Webhook.objects.bulk_create(
        [
            Webhook(
                unit=unit,
                name="chat",
                url="https://example.org/hook",
                subjects=["job"],
                cursor="0.0",
                created_at=now,
            )
            for unit in units
        ]
    )
    JobTemplate.objects.bulk_create(
        [JobTemplate(owner=one, name="mine", text="x: 1", created_at=now) for one in people]
    )
    ApiToken.objects.bulk_create(
        [
            ApiToken(
                user=one,
                name="ci",
                prefix=f"t{number}",
                secret_hash=f"{number:064}",
                expires_at=now + timedelta(days=9),
                created_at=now,
            )
            for number, one in enumerate(people)
        ]
    )
    ChangeSet.objects.bulk_create(
        [
            ChangeSet(
                cluster=cluster, unit_id=team.unit_id, author=one, title="more", created_at=now
            )
            for team, one in zip(teams, cycle(people), strict=False)
        ]
    )
    OutboxRow.objects.bulk_create(
        [
            OutboxRow(topic="mail", payload={}, created_at=now, not_before=now, is_dead=True)
            for _ in range(5)
        ]
    )
    AuditRow.objects.bulk_create(
        [
            AuditRow(
                tenant_id=team.unit.tenant_id,
                unit_id=team.unit_id,
                at=now,
                actor=one,
                actor_label=one.username,
                action="queue.edit",
                subject_type="queue",
                subject_id=str(team.id),
                subject_label=team.name,
                before={"weight": 1},
                after={"weight": 2},
            )
            for team, one in zip(teams, cycle(people), strict=False)
            if team.unit is not None
        ]
    )
