"""Rows of a small installation at work, for the tests of pages and for pictures of them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from scheduling.models import (
    Attempt,
    Cluster,
    CycleRecord,
    Device,
    DeviceHold,
    History,
    Hold,
    Job,
    Lease,
    LogChunk,
    MetricSample,
    Node,
    Queue,
    QueueClosure,
    QueueShare,
    Role,
    Task,
    Usage,
)
from tenants.models import OrgUnit, User
from tests.people import make_unit

GIB = 1024**3
GPU = "nvidia.com/gpu"
PHASES = (
    ("Running", 30),
    ("Pending", 34),
    ("Completed", 90),
    ("Failed", 20),
    ("Terminated", 12),
    ("Aborted", 8),
    ("Restarting", 3),
    ("Terminating", 3),
)
TASK_STATE = {
    "Running": "Running",
    "Restarting": "Stopping",
    "Terminating": "Stopping",
    "Completed": "Succeeded",
    "Failed": "Failed",
    "Terminated": "Cancelled",
}
REASONS = (
    ("gang_incomplete", {"placeable": 3, "running": 0, "min_available": 8, "role": "worker",
                         "nodes": 8, "request": {GPU: 1000},
                         "histogram": {"Insufficient nvidia.com/gpu": 8}}),
    ("queue_max", {"queue": "vision", "resource": GPU, "requested": 8000, "allocated": 28000,
                   "max": 32000}),
    ("queue_share", {"queue": "speech", "resource": GPU, "requested": 4000, "allocated": 12000,
                     "deserved": 12000}),
)  # fmt: skip
NAMES = ("resnet-train", "llm-pretrain", "asr-finetune", "quantize-8bit", "eval-suite", "detector",
         "tokenize", "ablation", "sweep", "export-onnx")  # fmt: skip


@dataclass(frozen=True, slots=True)
class Demo:
    """What was made."""

    cluster: Cluster
    root: Queue
    queues: tuple[Queue, ...]
    nodes: tuple[Node, ...]
    jobs: tuple[Job, ...]


def make_cluster(name: str, now: datetime) -> tuple[Cluster, Queue]:
    """Write a cluster with its root queue."""
    cluster = Cluster.objects.create(name=name, created_at=now)
    root = make_queue(cluster, None, None, "root", now)
    return cluster, root


def make_queue(
    cluster: Cluster,
    unit: OrgUnit | None,
    parent: Queue | None,
    name: str,
    now: datetime,
    **numbers: object,
) -> Queue:
    """Write a queue and its closure without asking for rights."""
    queue = Queue.objects.create(
        cluster=cluster, unit=unit, parent=parent, name=name, created_at=now, **numbers
    )
    above = QueueClosure.objects.filter(descendant=parent) if parent else []
    QueueClosure.objects.bulk_create(
        [
            QueueClosure(ancestor=queue, descendant=queue, depth=0),
            *(
                QueueClosure(ancestor_id=link.ancestor_id, descendant=queue, depth=link.depth + 1)
                for link in above
            ),
        ]
    )
    return queue


def make_job(  # noqa: PLR0913 -- what a job has
    queue: Queue,
    owner: User,
    name: str,
    now: datetime,
    *,
    phase: str = "Pending",
    replicas: int = 2,
    gpu_milli: int = 1000,
    **more: Any,
) -> Job:
    """Write a job of one role with its tasks, in some phase."""
    assert queue.unit is not None
    task_state = TASK_STATE.get(phase, "Pending")
    counters = {
        "tasks_running": replicas if task_state == "Running" else 0,
        "tasks_pending": replicas if task_state == "Pending" else 0,
        "tasks_stopping": replicas if task_state == "Stopping" else 0,
        "tasks_succeeded": replicas if task_state == "Succeeded" else 0,
        "tasks_failed": replicas if task_state == "Failed" else 0,
    }
    spec = {
        "name": name,
        "queue": queue.name,
        "min_available": replicas,
        "roles": [
            {
                "name": "worker",
                "replicas": replicas,
                "min_available": replicas,
                "command": ["/bin/sh", "-c", "python train.py --epochs 10"],
                "env": {"EPOCHS": "10"},
                "cpu_milli": 4000,
                "memory_bytes": 8 * GIB,
                "gpu_milli": gpu_milli,
            }
        ],
        "plugins": {"env": {}, "svc": {}},
    }
    job = Job.objects.create(
        tenant_id=queue.unit.tenant_id,
        unit=queue.unit,
        queue=queue,
        owner=owner,
        name=name,
        spec=spec,
        phase=phase,
        min_available=replicas,
        tasks_total=replicas,
        gpu_milli=gpu_milli * replicas,
        cpu_milli=4000 * replicas,
        memory_bytes=8 * GIB * replicas,
        **{"created_at": now, **counters, **more},
    )
    request = {"cpu": 4000, "memory": 8 * GIB, GPU: gpu_milli, "pods": 1000}
    role = Role.objects.create(
        job=job,
        position=0,
        name="worker",
        replicas=replicas,
        min_available=replicas,
        request=request,
        **counters,
    )
    Task.objects.bulk_create(
        [
            Task(job=job, role=role, index=index, state=task_state, state_at=now)
            for index in range(replicas)
        ]
    )
    return job


def make_node(cluster: Cluster, name: str, now: datetime, *, gpus: int = 8, **more: object) -> Node:
    """Write a node with GPUs."""
    amounts = {"cpu": 64_000, "memory": 256 * GIB, GPU: gpus * 1000, "pods": 110_000}
    node = Node.objects.create(
        cluster=cluster,
        name=name,
        created_at=now,
        last_seen_at=now,
        capacity=amounts,
        allocatable=amounts,
        runtimes=[{"name": "python", "kind": "interpreter", "version": "3.11"}],
        agent_version="0.1",
        address=f"10.0.0.{len(name)}",
        **{"state": "Ready", **more},
    )
    Device.objects.bulk_create(
        [
            Device(
                node=node,
                uuid=f"GPU-{name}-{index}",
                index=index,
                model="H100 80GB",
                memory_bytes=80 * GIB,
            )
            for index in range(gpus)
        ]
    )
    return node


def run_task(
    task: Task, node: Node, queue: Queue, devices: Sequence[Device], now: datetime
) -> Attempt:
    """Write a running attempt of a task with its hold."""
    attempt = Attempt.objects.create(
        task=task,
        job_id=task.job_id,
        node=node,
        number=1,
        generation=1,
        epoch=1,
        state="Running",
        bound_at=now - timedelta(minutes=12),
        started_at=now - timedelta(minutes=11),
    )
    hold = Hold.objects.create(
        attempt=attempt,
        node=node,
        queue=queue,
        cpu_milli=4000,
        memory_bytes=8 * GIB,
        gpu_milli=1000 * len(devices),
        created_at=now,
    )
    DeviceHold.objects.bulk_create([DeviceHold(hold=hold, device=device) for device in devices])
    Task.objects.filter(id=task.id).update(node=node, attempt_number=1)
    return attempt


def seed(tenant: OrgUnit, owners: Sequence[User], now: datetime) -> Demo:
    """Write three levels of queues, eight nodes of eight GPUs and two hundred jobs."""
    dice = random.Random(7)
    cluster, root = make_cluster("main", now)
    top = make_queue(cluster, tenant, root, tenant.name, now, weight=3, min={GPU: 16000})
    leaves, groups = [], []
    for department, teams in (("vision", ("robots", "medical")), ("language", ("speech", "llm"))):
        unit = make_unit(department, tenant)
        group = make_queue(cluster, unit, top, department, now, weight=2, max={GPU: 48000})
        groups.append(group)
        for number, team in enumerate(teams):
            leaf = make_queue(
                cluster, make_unit(team, unit), group, team, now,
                weight=1 + number, min={GPU: 4000}, max={GPU: 32000},
            )  # fmt: skip
            leaves.append(leaf)
    nodes = tuple(
        make_node(cluster, f"gpu-{number:02}", now, is_cordoned=number == 5)
        for number in range(1, 9)
    )
    jobs = _jobs(leaves, owners, now, dice)
    _place([job for job in jobs if job.phase == "Running"], nodes, now, dice)
    _shares((root, top, *groups, *leaves), now, dice)
    Lease.objects.create(
        scope=f"scheduler:{cluster.id}", holder="worker-1", epoch=3,
        expires_at=now + timedelta(days=30), acquired_at=now - timedelta(hours=2),
    )  # fmt: skip
    CycleRecord.objects.create(
        cluster=cluster, number=81234, epoch=3, started_at=now, snapshot_ms=1.2, plan_ms=3.4,
        apply_ms=2.1, binds=4, pending=34,
    )  # fmt: skip
    return Demo(cluster, root, (top, *groups, *leaves), nodes, tuple(jobs))


def _jobs(
    leaves: Sequence[Queue], owners: Sequence[User], now: datetime, dice: random.Random
) -> list[Job]:
    phases = [phase for phase, count in PHASES for _ in range(count)]
    dice.shuffle(phases)
    jobs = []
    for number, phase in enumerate(phases):
        created = now - timedelta(minutes=7 * number + dice.randrange(6))
        more: dict[str, Any] = {}
        if phase == "Pending" and number % 4:
            code, params = dice.choice(REASONS)
            more = {"reason_code": code, "reason_params": params, "gang_phase": "Inqueue"}
        if phase not in {"Pending", "Aborted"}:
            more["started_at"] = created + timedelta(seconds=dice.randrange(5, 900))
        if phase in {"Completed", "Failed", "Terminated"}:
            more["finished_at"] = more["started_at"] + timedelta(seconds=dice.randrange(60, 9000))
        jobs.append(
            make_job(
                dice.choice(leaves),
                dice.choice(owners),
                f"{dice.choice(NAMES)}-{number}",
                created,
                phase=phase,
                replicas=dice.choice((1, 2, 2, 4)),
                **more,
            )
        )
    return jobs


def _place(jobs: Sequence[Job], nodes: Sequence[Node], now: datetime, dice: random.Random) -> None:
    """Give running tasks GPUs until there are none, with measurements and output."""
    free = [device for node in nodes for device in node.devices.order_by("index")]
    by_id = {node.id: node for node in nodes}
    usage: list[Usage] = []
    for job in jobs:
        for task in job.tasks.order_by("index"):
            if not free:
                break
            device = free.pop(0)
            attempt = run_task(task, by_id[device.node_id], job.queue, [device], now)
            usage.append(
                Usage(node_id=device.node_id, device_uuid=device.uuid, at=now,
                      gpu_percent=dice.choice((2.0, 55.0, 78.0, 91.0, 97.0)),
                      gpu_memory_bytes=40 * GIB)
            )  # fmt: skip
            _output(job, attempt, now, dice)
    usage += [
        Usage(node=node, at=now, cpu_milli=dice.randrange(4000, 60000),
              memory_bytes=dice.randrange(20, 200) * GIB)
        for node in nodes
    ]  # fmt: skip
    Usage.objects.bulk_create(usage)


def _output(job: Job, attempt: Attempt, now: datetime, dice: random.Random) -> None:
    lines = "".join(
        f"[{11 - step // 12:02}:{59 - step % 60:02}] step {step} loss {3.2 / (1 + step / 20):.4f}\n"
        for step in range(120)
    ).encode()
    LogChunk.objects.create(
        attempt=attempt, stream="stdout", offset=0, size_bytes=len(lines), data=lines, at=now
    )
    MetricSample.objects.bulk_create(
        [
            MetricSample(
                job=job, attempt=attempt, line=step, at=now - timedelta(seconds=5 * (120 - step)),
                values={"step": step, "loss": 3.2 / (1 + step / 20) + dice.random() / 10,
                        "accuracy": 0.98 - 0.9 / (1 + step / 25)},
            )
            for step in range(0, 120, 2)
        ]
    )  # fmt: skip
    Usage.objects.bulk_create(
        [
            Usage(node_id=attempt.node_id, attempt=attempt, at=now - timedelta(seconds=10 * step),
                  cpu_milli=dice.randrange(2500, 4000), memory_bytes=dice.randrange(5, 8) * GIB,
                  gpu_percent=dice.uniform(70, 99))
            for step in range(40)
        ]
    )  # fmt: skip


def _shares(queues: Sequence[Queue], now: datetime, dice: random.Random) -> None:
    allocated: dict[UUID, int] = {queue.id: 0 for queue in queues}
    for queue_id, milli in Hold.objects.filter(released_at__isnull=True).values_list(
        "queue", "gpu_milli"
    ):
        for link in QueueClosure.objects.filter(descendant_id=queue_id):
            allocated[link.ancestor_id] = allocated.get(link.ancestor_id, 0) + milli
    QueueShare.objects.bulk_create(
        [
            QueueShare(
                queue=queue,
                deserved={GPU: max(4000, allocated[queue.id] + 1000 * dice.randrange(-4, 5))},
                allocated={GPU: allocated[queue.id], "cpu": allocated[queue.id] * 4},
                requested={GPU: allocated[queue.id] + 1000 * dice.randrange(0, 12)},
                updated_at=now,
            )
            for queue in queues
        ]
    )


def make_history(job: Job, now: datetime) -> None:
    """Write how a job came to run."""
    steps = (("job", "JobSubmitted", "", "Pending"), ("job", "Bound", "Pending", "Running"))
    History.objects.bulk_create(
        [
            History(job=job, seq=number, subject=subject, event=event, from_state=before,
                    to_state=after, at=now + timedelta(seconds=number), actor_label="alice")
            for number, (subject, event, before, after) in enumerate(steps, start=1)
        ]
    )  # fmt: skip
