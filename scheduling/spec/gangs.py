"""Gang records (Volcano: PodGroups): what a job, or a pod that came by itself, needs together.

Inside Terrace a gang is part of its job; these records are for clusters, where Volcano's own
objects must say the same. Source: Volcano `pkg/controllers/{job,podgroup}`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from scheduling.spec.job_spec import NetworkTopology, PartitionPolicy

QUEUE_ANNOTATION = "scheduling.volcano.sh/queue-name"
MIN_MEMBER_ANNOTATION = "scheduling.volcano.sh/group-min-member"
TOPOLOGY_MODE = "volcano.sh/network-topology-mode"
HIGHEST_TIER = "volcano.sh/network-topology-highest-tier"
INHERITED_PREFIX = "volcano.sh/"
DEFAULT_QUEUE = "default"
PODS = "pods"

Amounts = Mapping[str, int]
"""In the engine's units; `pods` in pods here."""


@dataclass(frozen=True, slots=True)
class GangRole:
    """A role as a gang sees it."""

    name: str
    replicas: int
    request: Amounts = field(default_factory=dict)
    min_available: int | None = None
    priority: int = 0
    partition_policy: PartitionPolicy | None = None

    @property
    def minimum(self) -> int:
        """How many of its tasks the gang needs."""
        if self.min_available is not None:
            return self.min_available
        policy = self.partition_policy
        if policy is not None and policy.min_partitions > 0:
            return policy.min_partitions * policy.partition_size
        return self.replicas


@dataclass(frozen=True, slots=True)
class SubGroup:
    """The rule made of a role's partitions."""

    role: str
    size: int
    min_subgroups: int
    topology: NetworkTopology | None


def min_task_members(roles: Iterable[GangRole]) -> dict[str, int]:
    """Return how many tasks of each role the gang needs."""
    return {role.name: role.minimum for role in roles}


def min_resources(
    roles: Sequence[GangRole], gang_size: int, *, of_whole_job: bool = False
) -> dict[str, int]:
    """Return the amounts that a gang reserves, with the number of its pods.

    1. Roles in the order of priority, higher first.
    2. The minimums of all roles, as far as the gang goes. Where the gang is smaller than their
       sum, `of_whole_job` takes replicas by priority instead.
    3. What the gang still needs comes from the remaining replicas, again by priority.
    """
    ordered = sorted(roles, key=lambda role: -role.priority)
    taken = dict.fromkeys((role.name for role in ordered), 0)
    left = gang_size
    if not (of_whole_job and gang_size < sum(role.minimum for role in ordered)):
        for role in ordered:
            taken[role.name] = min(role.minimum, left)
            left -= taken[role.name]
    for role in ordered:
        more = min(role.replicas - taken[role.name], left)
        taken[role.name] += max(more, 0)
        left -= max(more, 0)
    total: dict[str, int] = {PODS: gang_size - left}
    for role in ordered:
        for resource, amount in role.request.items():
            total[resource] = total.get(resource, 0) + amount * taken[role.name]
    return total


def subgroup_of(role: GangRole) -> SubGroup | None:
    """Return the rule made of a role's partitions, None where it has none."""
    policy = role.partition_policy
    if policy is None:
        return None
    return SubGroup(
        role.name, policy.partition_size, policy.min_partitions, policy.network_topology
    )


def queue_in_namespace(queue: str, namespace_annotations: Mapping[str, str]) -> str:
    """Return the queue of a record: the default one gives way to the one of the namespace."""
    named = namespace_annotations.get(QUEUE_ANNOTATION)
    return named if named and queue in ("", DEFAULT_QUEUE) else queue


def owner_minimum(owner_annotations: Mapping[str, str]) -> int:
    """Return the gang size that the owner of a pod states; what is no number counts as 1."""
    text = owner_annotations.get(MIN_MEMBER_ANNOTATION)
    if text is None:
        return 1
    digits = text.removeprefix("-")
    return int(text) if digits.isdecimal() and digits.isascii() and len(digits) < 10 else 1  # noqa: PLR2004 - fits 32 bits


def topology_of(annotations: Mapping[str, str]) -> NetworkTopology | None:
    """Return the placement that a pod's annotations ask for, None if they ask for none."""
    if TOPOLOGY_MODE not in annotations and HIGHEST_TIER not in annotations:
        return None
    tier = annotations.get(HIGHEST_TIER, "")
    is_soft = annotations.get(TOPOLOGY_MODE, "").lower() == "soft"
    return NetworkTopology(
        mode="soft" if is_soft else "hard",
        highest_tier_allowed=int(tier) if tier.isdecimal() and len(tier) < 10 else None,  # noqa: PLR2004 - fits 32 bits
    )


PENDING_REASON = "PodGroupPending"
"""The event that tells a job's owner why it waits."""


@dataclass(frozen=True, slots=True)
class GangCondition:
    """One condition of a gang record."""

    type: str
    is_true: bool
    at: datetime | None
    message: str


def waiting_condition(conditions: Iterable[GangCondition]) -> GangCondition | None:
    """Return the newest condition that holds, unless it says that the gang is scheduled."""
    holding = [one for one in conditions if one.is_true and one.at is not None]
    newest = max(holding, key=lambda one: one.at or _LONG_AGO, default=None)
    return None if newest is None or newest.type == "Scheduled" else newest


_LONG_AGO = datetime.min.replace(tzinfo=UTC)


# --- records ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class GangOwner:
    """The object that a record belongs to and disappears with."""

    kind: str
    name: str
    uid: str
    is_controller: bool = True


@dataclass(frozen=True, slots=True)
class GangRecord:
    """A gang as a cluster's record states it."""

    name: str
    owner: GangOwner | None = None
    queue: str = DEFAULT_QUEUE
    priority_class: str = ""
    min_member: int = 1
    min_task_members: Mapping[str, int] = field(default_factory=dict)
    min_resources: Amounts = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    topology: NetworkTopology | None = None
    subgroups: tuple[SubGroup, ...] = ()


@dataclass(frozen=True, slots=True)
class LoosePod:
    """A pod that no job of ours made, but that asks for our scheduler."""

    name: str
    uid: str = ""
    owner: GangOwner | None = None
    priority_class: str = ""
    request: Amounts = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)


_BUDGETS = ("volcano.sh/jdb-min-available", "volcano.sh/jdb-max-unavailable")
_COPIED_LABELS = ("volcano.sh/preemptable", "volcano.sh/cooldown-time")
_COPIED_ANNOTATIONS = (
    "volcano.sh/preemptable",
    "volcano.sh/cooldown-time",
    "volcano.sh/revocable-zone",
    *_BUDGETS,
)


@dataclass(frozen=True, slots=True)
class GangJob:
    """A job as its record sees it."""

    name: str
    uid: str
    roles: Sequence[GangRole]
    min_available: int
    queue: str = DEFAULT_QUEUE
    priority_class: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    topology: NetworkTopology | None = None


def record_of_job(job: GangJob, *, name: str) -> GangRecord:
    """Return the record of a job; one that is there already is brought in line with it."""
    return GangRecord(
        name=name,
        owner=GangOwner("Job", job.name, job.uid),
        queue=job.queue,
        priority_class=job.priority_class,
        min_member=job.min_available,
        min_task_members=min_task_members(job.roles),
        min_resources=min_resources(job.roles, job.min_available, of_whole_job=True),
        labels=dict(job.labels),
        annotations=dict(job.annotations),
        topology=job.topology,
        subgroups=tuple(group for group in map(subgroup_of, job.roles) if group is not None),
    )


def record_of_pod(
    pod: LoosePod, *, owner_annotations: Mapping[str, str] | None = None, name: str = ""
) -> GangRecord:
    """Return the record of a pod: sized and marked by its owner, its own annotations win.

    `owner_annotations` None: they are not inherited.
    """
    inherited = {
        key: value
        for key, value in (owner_annotations or {}).items()
        if key.startswith(INHERITED_PREFIX)
    }
    own = {key: pod.annotations[key] for key in _COPIED_ANNOTATIONS if key in pod.annotations}
    if any(budget in own for budget in _BUDGETS):
        inherited = {key: value for key, value in inherited.items() if key not in _BUDGETS}
    minimum = owner_minimum(owner_annotations) if owner_annotations is not None else 1
    owner = pod.owner or GangOwner("Pod", pod.name, pod.uid)
    return GangRecord(
        name=name or f"podgroup-{owner.uid}",
        owner=owner,
        queue=pod.annotations.get(QUEUE_ANNOTATION) or DEFAULT_QUEUE,
        priority_class=pod.priority_class,
        min_member=minimum,
        min_resources={key: amount * minimum for key, amount in pod.request.items()},
        labels={key: pod.labels[key] for key in _COPIED_LABELS if key in pod.labels},
        annotations={**inherited, **own},
        topology=topology_of(pod.annotations),
    )
