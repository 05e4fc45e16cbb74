"""What a task is called and carries on a cluster: names, labels and annotations of its pod.

Written as Volcano writes them, so that its scheduler and its tools understand Terrace's pods.
Source: Volcano `pkg/controllers/job/job_controller_util.go`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

OUT_OF_SYNC = "volcano.sh/controller-out-of-sync"
"""Marks a pod that we remove ourselves: its end triggers no policy."""
TASK_INDEX = "volcano.sh/task-index"
_COPIED = ("volcano.sh/preemptable", "volcano.sh/cooldown-time", "volcano.sh/revocable-zone")
_COPIED_LABELS = ("volcano.sh/preemptable", "volcano.sh/cooldown-time")
_BUDGETS = ("volcano.sh/jdb-min-available", "volcano.sh/jdb-max-unavailable")
_FORWARDING = "volcano.sh/job-forwarding"


@dataclass(frozen=True, slots=True)
class PodJob:
    """A job as its pods name it."""

    name: str
    uid: str = ""
    namespace: str = "default"
    queue: str = "default"
    scheduler: str = "volcano"
    version: int = 0
    retry_count: int = 0
    priority_class: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    is_forwarded: bool = False


@dataclass(frozen=True, slots=True)
class PodRole:
    """A role as its pods name it; `partition_size` None: it has no partitions."""

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    priority_class: str = ""
    scheduler: str = ""
    topology_policy: str = ""
    partition_size: int | None = None


@dataclass(frozen=True, slots=True)
class PodMarks:
    """What identifies a pod."""

    name: str
    namespace: str
    scheduler: str
    priority_class: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]


def pod_name(job: str, role: str, index: int, attempt: int = 1) -> str:
    """Return the name of host and pod; from the second attempt on the pod's ends in `-r<n>`."""
    name = f"{job}-{role}-{index}"
    return name if attempt == 1 else f"{name}-r{attempt}"


def gang_name(job: str, uid: str) -> str:
    """Return the name of a job's gang record."""
    return f"{job}-{uid}" if uid else job


def mark_pod(job: PodJob, role: PodRole, index: int, *, attempt: int = 1) -> PodMarks:
    """Return names, labels and annotations of a task's pod."""
    role_name = role.name or "default"
    labels = {
        **role.labels,
        TASK_INDEX: str(index),
        "volcano.sh/job-name": job.name,
        "volcano.sh/job-namespace": job.namespace,
        "volcano.sh/task-spec": role_name,
        "volcano.sh/queue-name": job.queue,
        **{name: job.labels[name] for name in _COPIED_LABELS if name in job.labels},
    }
    if role.partition_size is not None:
        labels["volcano.sh/partition-id"] = str(partition_of(index, role.partition_size))
    annotations = {
        **role.annotations,
        TASK_INDEX: str(index),
        "volcano.sh/task-spec": role_name,
        "scheduling.k8s.io/group-name": gang_name(job.name, job.uid),
        "volcano.sh/job-name": job.name,
        "volcano.sh/queue-name": job.queue,
        "volcano.sh/job-version": str(job.version),
        "volcano.sh/template-uid": f"{job.name}-{role_name}",
        "volcano.sh/job-retry-count": str(job.retry_count),
        **copied_annotations(job.annotations),
    }
    if role.topology_policy:
        annotations["volcano.sh/numa-topology-policy"] = role.topology_policy
    if job.is_forwarded:
        labels[_FORWARDING] = annotations[_FORWARDING] = "true"
    return PodMarks(
        pod_name(job.name, role.name, index, attempt),
        job.namespace,
        role.scheduler or job.scheduler,
        role.priority_class or job.priority_class,
        labels,
        annotations,
    )


def copied_annotations(annotations: Mapping[str, str]) -> dict[str, str]:
    """Return what of a job's annotations its pods carry too; of two budgets the first."""
    copied = {name: annotations[name] for name in _COPIED if name in annotations}
    budget = next((name for name in _BUDGETS if name in annotations), None)
    if budget is not None:
        copied[budget] = annotations[budget]
    return copied


def partition_of(index: int, size: int) -> int:
    """Return the partition that a task's index falls into; without a size all are in the first."""
    return max(index, 0) // size if size > 0 else 0


def missing_indexes(replicas: int, existing: set[int]) -> list[int]:
    """Return the indexes of a role that have no pod yet."""
    return [index for index in range(replicas) if index not in existing]


def quota_usage(
    containers: Sequence[tuple[Mapping[str, int], Mapping[str, int]]], count: int = 1
) -> dict[str, int]:
    """Return what so many pods charge a resource quota with, by its names.

    `containers`: requests and limits of each; amounts come back in the same unit. `pods` and
    `count/pods` are in pods.
    """
    usage: dict[str, int] = {"pods": count, "count/pods": count}
    for requests, limits in containers:
        for resource, amount in requests.items():
            names = [f"requests.{resource}"]
            if resource in ("cpu", "memory", "ephemeral-storage"):
                names.append(resource)
            for name in names:
                usage[name] = usage.get(name, 0) + amount * count
        for resource, amount in limits.items():
            name = f"limits.{resource}"
            usage[name] = usage.get(name, 0) + amount * count
    return usage
