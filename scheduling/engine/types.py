"""The frozen values that go into the engine and come out of it: snapshot and plan.

Units: `cpu` in milli-cores, `memory` and `ephemeral-storage` in bytes, every other resource
(`nvidia.com/gpu`, `pods`, ...) in thousandths of a unit, so 1 GPU is 1000. All amounts are `int`.
Times are seconds since the Unix epoch as `float`; the engine's clock is `Snapshot.now`.

A snapshot is built by `scheduling.domain.snapshot` (from the database), by `scheduling.scenario`
(from a file) or by `scheduling.simulator` (from a virtual cluster); the engine cannot tell which.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

Amounts = Mapping[str, int]
"""Resource name -> amount in the unit above; a missing name is 0 (in `max`: no limit)."""

CPU = "cpu"
MEMORY = "memory"
PODS = "pods"
GPU = "nvidia.com/gpu"
JOBS = "jobs"
"""Jobs that hold something, as a wall counts them: in thousandths, like other resources."""

CPU_PERCENT = "terrace/usage-cpu-percent"
"""Annotation of a node, as the next two: its measured load, and when that was measured."""
MEMORY_PERCENT = "terrace/usage-memory-percent"
MEASURED_AT = "terrace/usage-measured-at"
STALE_SECONDS = 300.0
"""A measurement older than this says nothing."""


class TaskState(StrEnum):
    """What the engine knows of a task; Allocated and Pipelined exist only inside a cycle."""

    PENDING = "Pending"
    ALLOCATED = "Allocated"
    PIPELINED = "Pipelined"
    BOUND = "Bound"
    RUNNING = "Running"
    RELEASING = "Releasing"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


class QueueState(StrEnum):
    """A queue's state; only an Open one takes new work."""

    OPEN = "Open"
    CLOSING = "Closing"
    CLOSED = "Closed"
    UNKNOWN = "Unknown"


class GangPhase(StrEnum):
    """How far a job's gang has got with the scheduler (Volcano: PodGroup phase)."""

    PENDING = "Pending"
    INQUEUE = "Inqueue"
    RUNNING = "Running"
    UNKNOWN = "Unknown"
    COMPLETED = "Completed"


class QueuePolicy(StrEnum):
    """In which order a queue serves its jobs."""

    PRIORITY = "priority"
    FIFO = "fifo"
    FAIR = "fair"
    SLA = "sla"


@dataclass(frozen=True, slots=True)
class Taint:
    """A node's taint; `effect` is NoSchedule, PreferNoSchedule or NoExecute."""

    key: str
    value: str = ""
    effect: str = "NoSchedule"


@dataclass(frozen=True, slots=True)
class Toleration:
    """What a role tolerates; an empty key with operator Exists tolerates everything."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


@dataclass(frozen=True, slots=True)
class Requirement:
    """One term of an affinity; operators: In, NotIn, Exists, DoesNotExist, Gt, Lt."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Device:
    """One accelerator; `numa_node` is -1 where unknown, `links` holds (peer id, link type)."""

    id: str
    index: int
    resource: str = GPU
    memory_bytes: int = 0
    is_healthy: bool = True
    numa_node: int = -1
    links: tuple[tuple[str, str], ...] = ()
    model: str = ""
    uuid: str = ""
    """As its driver calls it: what a role's annotations may choose by, like `id`."""
    driver: str = ""
    """What its class is chosen by, as `attributes`."""
    attributes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NumaNode:
    """The CPUs next to one memory controller of a machine; `cpus` are those for tasks."""

    index: int
    cpus: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Node:
    """A machine; `allocatable` already excludes what is reserved for the system."""

    name: str
    allocatable: Amounts
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    is_schedulable: bool = True
    """False while cordoned, draining or not ready; what runs there still counts as held."""
    devices: tuple[Device, ...] = ()
    runtimes: frozenset[str] | None = None
    """Images that the node's runtimes can serve; None: any image (Kubernetes, simulated)."""
    annotations: Mapping[str, str] = field(default_factory=dict)
    numa: tuple[NumaNode, ...] = ()
    """Empty: unknown, or CPUs are not given out one by one."""
    numa_policy: str = "none"
    """Of the node's own topology manager."""
    data_sets: frozenset[str] = frozenset()
    """Data sets of which it holds a cache."""
    images: Mapping[str, int] = field(default_factory=dict)
    """Container images in its cache, and their bytes."""


@dataclass(frozen=True, slots=True)
class Queue:
    """A share of the cluster: `min` guaranteed, `max` a wall, the rest by `weight`."""

    name: str
    parent: str | None = None
    min: Amounts = field(default_factory=dict)
    max: Amounts = field(default_factory=dict)
    weight: int = 1
    priority: int = 0
    lend_min: bool = True
    reclaimable: bool = True
    state: QueueState = QueueState.OPEN
    policy: QueuePolicy = QueuePolicy.PRIORITY
    deserved: Amounts | None = None
    """Stated only by a manifest (capacity plugin); None: computed."""
    created_at: float = 0.0
    annotations: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PodTerm:
    """With (or, anti, without) which tasks a task wants to share a host or zone."""

    selector: tuple[Requirement, ...]
    """Labels of the others; all must be met."""
    topology_key: str
    is_anti: bool = False
    is_required: bool = True
    weight: int = 0
    """Of a wish."""


@dataclass(frozen=True, slots=True)
class SpreadRule:
    """By how many like tasks one zone may be ahead of the emptiest one."""

    max_skew: int
    topology_key: str
    selector: tuple[Requirement, ...]
    is_required: bool = True


@dataclass(frozen=True, slots=True)
class Role:
    """The template that all tasks of one role share; scored once however many tasks there are."""

    name: str
    request: Amounts
    replicas: int
    min_available: int
    priority: int = 0
    node_selector: Mapping[str, str] = field(default_factory=dict)
    node_affinity: tuple[tuple[Requirement, ...], ...] = ()
    """Required terms, joined by OR; the requirements of one term are joined by AND."""
    tolerations: tuple[Toleration, ...] = ()
    image: str = ""
    preemptable: bool = True
    topology_policy: str = "none"
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    preferred_affinity: tuple[tuple[int, tuple[Requirement, ...]], ...] = ()
    """Wishes for nodes: weight and requirements that are joined by AND."""
    pod_terms: tuple[PodTerm, ...] = ()
    spread: tuple[SpreadRule, ...] = ()
    limits: Amounts = field(default_factory=dict)
    """Up to what its tasks may use of what they are not guaranteed."""
    may_evict: bool = True
    """False: nothing is evicted for its tasks (Kubernetes: preemptionPolicy Never)."""
    ports: tuple[int, ...] = ()
    """Of the host."""
    volume_claims: tuple[str, ...] = ()
    device_claims: tuple[str, ...] = ()
    """Claims that its tasks share: all who name one go to one node. What a claim takes is in
    `request`, as `deviceclass/<class>`, of one role only."""
    data_sets: tuple[str, ...] = ()
    """Data sets that its tasks read."""
    container_images: tuple[str, ...] = ()
    """As nodes name what they cache; `image` is what a node must be able to serve."""


@dataclass(frozen=True, slots=True)
class Task:
    """One replica of a role. `key` is unique in the snapshot (the database id, or a pod's name)."""

    key: str
    role: str
    index: int
    state: TaskState = TaskState.PENDING
    node: str | None = None
    devices: tuple[str, ...] = ()
    """Ids of the devices that it holds."""
    started_at: float | None = None
    not_before: float = 0.0
    """A retry's back-off: the task is left alone until then."""
    nominated_node: str = ""
    """Where an earlier cycle wanted it; taken if it fits there now."""
    cpus: tuple[int, ...] = ()
    """The CPUs that it holds for itself."""


class TopologyMode(StrEnum):
    """Whether a topology rule binds."""

    HARD = "hard"
    SOFT = "soft"


@dataclass(frozen=True, slots=True)
class TopologyRule:
    """How close tasks must lie: hard = in one domain of a tier up to the highest, soft = wish."""

    mode: TopologyMode
    highest_tier: int | None = None
    highest_tier_name: str = ""
    """Instead of the number; a name that no domain has sets no limit."""


@dataclass(frozen=True, slots=True)
class SubGroupPolicy:
    """Splits a job's roles by their labels: each distinct set of values is a sub-group."""

    name: str
    match_label_keys: tuple[str, ...]
    size: int = 1
    """Tasks that a sub-group needs."""
    min_groups: int = 0
    """Complete sub-groups that the job needs."""
    topology: TopologyRule | None = None


@dataclass(frozen=True, slots=True)
class HyperNode:
    """A domain of the network, such as a switch; the lower its tier, the closer its nodes."""

    name: str
    tier: int
    tier_name: str = ""
    nodes: frozenset[str] = frozenset()
    members: tuple[str, ...] = ()
    """Domains below, whose nodes belong to it too."""


@dataclass(frozen=True, slots=True)
class Job:
    """What a user submitted, as the engine sees it."""

    key: str
    name: str
    queue: str
    roles: tuple[Role, ...]
    tasks: tuple[Task, ...]
    min_available: int
    priority: int = 0
    owner: str = ""
    """For fair share among the users of a queue."""
    created_at: float = 0.0
    phase: GangPhase = GangPhase.PENDING
    admitted_at: float | None = None
    """When admission last let it in, if known."""
    is_runnable: bool = True
    """False while dependencies, suspension or a missing gate keep it out; it then gets no plan."""
    sla_waiting_seconds: float | None = None
    time_limit_seconds: float | None = None
    preemptable: bool | None = None
    min_resources: Amounts | None = None
    """What admission counts; None: sum of the requests of the gang's minimum."""
    annotations: Mapping[str, str] = field(default_factory=dict)
    topology: TopologyRule | None = None
    sub_groups: tuple[SubGroupPolicy, ...] = ()
    domain: str = ""
    """The domain that it lives in, if an earlier cycle noted one."""


@dataclass(frozen=True, slots=True)
class Reservation:
    """Capacity of nodes kept free for one job until it starts or the time is over."""

    job: str
    amounts_by_node: Mapping[str, Amounts]
    expires_at: float
    reason: str = "sla"
    """`sla` (waited past its time) or `evicted` (room was made for it)."""
    starts_at: float | None = None
    """When the job can start at the latest, from the time limits of what runs there; if known."""
    places: Mapping[str, str] = field(default_factory=dict)
    """Of room that was made: task -> node that it was promised; it is promised the same again."""


class ShardMode(StrEnum):
    """How far a scheduler keeps to its part of the nodes."""

    HARD = "hard"
    SOFT = "soft"


@dataclass(frozen=True, slots=True)
class Shard:
    """The nodes that belong to this scheduler: hard = no others, soft = these first."""

    mode: ShardMode
    nodes: frozenset[str]


@dataclass(frozen=True, slots=True)
class DisruptionBudget:
    """How many of the tasks with certain labels may be evicted at once."""

    name: str
    match_labels: Mapping[str, str]
    disruptions_allowed: int
    namespace: str = ""
    """Only tasks whose key starts with it and a slash; empty: all tasks."""

    def covers(self, role: Role, task_key: str) -> bool:
        """Return whether a task of a role counts against the budget."""
        if self.namespace and not task_key.startswith(f"{self.namespace}/"):
            return False
        return all(role.labels.get(key) == value for key, value in self.match_labels.items())


@dataclass(frozen=True, slots=True)
class Quota:
    """What the jobs of a namespace may ask for in all; resources not named have no limit.

    With `queues` it is a *wall* instead, around what the jobs of these queues hold: nothing is
    placed beyond it, whatever the queues would give. `hard` may name `JOBS` there.
    """

    name: str
    namespace: str
    hard: Amounts
    used: Amounts = field(default_factory=dict)
    """Of a wall: what is held outside this snapshot, such as in other clusters."""
    queues: frozenset[str] | None = None
    owner: str = ""
    """Of a wall: it is around this user's jobs only."""
    is_each: bool = False
    """Of a wall: every user has one of this size."""
    exempt: frozenset[str] = frozenset()
    """Users who have a wall of their own in the place of one that everybody has."""
    used_by_owner: Mapping[str, Amounts] = field(default_factory=dict)
    """Like `used`, where everybody has a wall."""


@dataclass(frozen=True, slots=True)
class DeviceClass:
    """Devices by what their driver says of them: every selector must hold."""

    name: str
    selectors: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StorageClass:
    """A kind of volume: whether one is made on demand, and only where its first task runs."""

    name: str
    is_provisioned: bool = True
    waits_for_consumer: bool = False


@dataclass(frozen=True, slots=True)
class Volume:
    """A volume that exists; terms as in `Role.node_affinity`, empty: reachable from every node."""

    name: str
    storage_class: str
    size_bytes: int
    nodes: tuple[tuple[Requirement, ...], ...] = ()
    is_available: bool = True


@dataclass(frozen=True, slots=True)
class VolumeClaim:
    """A wish for a volume by its key `namespace/name`, and the volume once it has one."""

    key: str
    storage_class: str
    size_bytes: int
    volume: str = ""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything one cycle looks at, at one instant."""

    now: float
    nodes: tuple[Node, ...]
    queues: tuple[Queue, ...]
    jobs: tuple[Job, ...]
    reservations: tuple[Reservation, ...] = ()
    version: int = 0
    shard: Shard | None = None
    disruption_budgets: tuple[DisruptionBudget, ...] = ()
    quotas: tuple[Quota, ...] = ()
    hypernodes: tuple[HyperNode, ...] = ()
    """The domains of the network; the whole cluster is one above them all."""
    device_classes: tuple[DeviceClass, ...] = ()
    storage_classes: tuple[StorageClass, ...] = ()
    volumes: tuple[Volume, ...] = ()
    volume_claims: tuple[VolumeClaim, ...] = ()


@dataclass(frozen=True, slots=True)
class PluginConfig:
    """One plugin of a tier; `disabled` names the callbacks that are switched off."""

    name: str
    arguments: Mapping[str, str] = field(default_factory=dict)
    disabled: frozenset[str] = frozenset()
    enabled: frozenset[str] | None = None
    """If given, only these callbacks act."""


@dataclass(frozen=True, slots=True)
class ActionConfig:
    """One action of a cycle with its arguments."""

    name: str
    arguments: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Config:
    """Actions in order and tiers of plugins; the default serves a GPU cluster."""

    actions: tuple[ActionConfig, ...]
    tiers: tuple[tuple[PluginConfig, ...], ...]


@dataclass(frozen=True, slots=True)
class Reason:
    """Why something waits or happened: a stable code and its numbers; words are made elsewhere."""

    code: str
    params: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Binding:
    """A pending task gets a place now."""

    task: str
    job: str
    node: str
    devices: tuple[str, ...] = ()
    cpus: tuple[int, ...] = ()
    reason: Reason | None = None
    """Why there: score and the next best node."""


@dataclass(frozen=True, slots=True)
class Eviction:
    """A running task loses its place; `beneficiary` is the job that gets it."""

    task: str
    job: str
    node: str
    action: str
    """`preempt`, `reclaim`, `gangpreempt`, `gangreclaim` or `shuffle`."""
    beneficiary: str | None = None
    reason: Reason | None = None


@dataclass(frozen=True, slots=True)
class Pipelined:
    """A pending task that was promised room which evictions or endings are still freeing."""

    task: str
    job: str
    node: str


@dataclass(frozen=True, slots=True)
class QueueShare:
    """What a cycle computed for one queue, for pages and metrics."""

    queue: str
    deserved: Amounts
    allocated: Amounts
    requested: Amounts


@dataclass(frozen=True, slots=True)
class Plan:
    """What a cycle decided. Whole gangs only: a job's binds stand together or not at all."""

    binds: tuple[Binding, ...] = ()
    evictions: tuple[Eviction, ...] = ()
    pipelined: tuple[Pipelined, ...] = ()
    reservations: tuple[Reservation, ...] = ()
    """The complete new set; one that is no longer listed is given up."""
    phases: Mapping[str, GangPhase] = field(default_factory=dict)
    """Job key -> phase, only where it changed."""
    job_reasons: Mapping[str, Reason] = field(default_factory=dict)
    """For every job with a task left pending."""
    task_reasons: Mapping[str, Reason] = field(default_factory=dict)
    """Task key -> reason, where it says more than the job's."""
    shares: tuple[QueueShare, ...] = ()
