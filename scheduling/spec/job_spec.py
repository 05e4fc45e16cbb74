"""The one validated description of a job that form, YAML and JSON all become.

Amounts are integers: milli-CPU, bytes, milli-GPU; other resources in thousandths of a unit.
The *plain representation* is `spec.model_dump(mode="json")`: snake_case, units in the names.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from scheduling.lifecycle.events import LifecycleAction, PolicyEvent

GPU_RESOURCE = "nvidia.com/gpu"
"""The resource that `gpu_milli` stands for; other accelerators are named in `resources`."""


class JobKind(StrEnum):
    """What a job is for; it decides defaults and pages, not scheduling."""

    TRAINING = "training"
    BATCH = "batch"
    ARRAY = "array"
    NOTEBOOK = "notebook"
    DEBUG = "debug"
    QUANTIZATION = "quantization"
    CONVERSION = "conversion"


class RestartPolicy(StrEnum):
    """When the backend itself starts an ended process again inside one attempt."""

    NEVER = "Never"
    ON_FAILURE = "OnFailure"
    ALWAYS = "Always"


class TopologyPolicy(StrEnum):
    """How strictly the CPUs and devices of a task must share NUMA nodes."""

    NONE = "none"
    BEST_EFFORT = "best-effort"
    RESTRICTED = "restricted"
    SINGLE_NUMA_NODE = "single-numa-node"


class SpecPart(BaseModel):
    """Base of every part of a spec: immutable, and an unknown field is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)


class PolicySpec(SpecPart):
    """When one of the events, or this exit code, is seen: do the action, after the timeout."""

    events: tuple[PolicyEvent, ...] = ()
    exit_code: int | None = None
    action: LifecycleAction
    timeout_seconds: float | None = None


class NetworkTopology(SpecPart):
    """How close, in tiers of the network, the tasks of a job or partition must be placed."""

    mode: Literal["hard", "soft"] = "hard"
    highest_tier_allowed: int | None = None
    highest_tier_name: str | None = None


class DependsOn(SpecPart):
    """The roles that must be ready before this one starts."""

    names: tuple[str, ...] = ()
    iteration: Literal["all", "any"] = "all"


class PartitionPolicy(SpecPart):
    """The split of a role into groups that start and restart together."""

    total_partitions: int
    partition_size: int
    min_partitions: int = 0
    network_topology: NetworkTopology | None = None


class Toleration(SpecPart):
    """A taint that a role puts up with; an empty key with `Exists` tolerates every taint."""

    key: str = ""
    operator: Literal["Equal", "Exists"] = "Equal"
    value: str = ""
    effect: Literal["", "NoSchedule", "PreferNoSchedule", "NoExecute"] = ""
    toleration_seconds: int | None = None


class Port(SpecPart):
    """A port that the process listens on."""

    number: int
    name: str = ""
    protocol: Literal["TCP", "UDP", "SCTP"] = "TCP"


class SecretUse(SpecPart):
    """A secret that a task is given by name: variables of its environment, or files.

    Without `variable` and `path` the secret's kind says which; without `key` all of it is given.
    """

    name: str
    key: str = ""
    variable: str = ""
    """The variable that the key's value goes to; empty: named like the key."""
    prefix: str = ""
    """Put before the names of variables where all of it is given."""
    path: str = ""
    """The folder for the files, or with a key the file; below TERRACE_SECRETS."""
    items: dict[str, str] = Field(default_factory=dict)
    """Key -> path below `path`; empty: all, named like their keys."""
    is_optional: bool = False
    """Start without it where there is none that the owner may use."""


class RoleSpec(SpecPart):
    """One template of a job and how many tasks are made of it."""

    name: str
    replicas: int = 1
    min_available: int
    max_retry: int = 3
    """In-place restarts over all tasks of the role from which on TaskFailed is raised."""

    image: str = ""
    runtime: str = ""
    """The runtime to use where no image is named; empty: the node's default."""
    command: tuple[str, ...] | None = None
    args: tuple[str, ...] | None = None
    working_dir: str = ""
    env: dict[str, str] = Field(default_factory=dict)
    secrets: tuple[SecretUse, ...] = ()

    cpu_milli: int = 0
    memory_bytes: int = 0
    gpu_milli: int = 0
    resources: dict[str, int] = Field(default_factory=dict)
    """Any other resource by name, in thousandths of a unit."""
    cpu_limit_milli: int | None = None
    memory_limit_bytes: int | None = None

    node_selector: dict[str, str] = Field(default_factory=dict)
    affinity: dict[str, Any] = Field(default_factory=dict)
    """As in a pod template; `required_node_terms` reads what the scheduler uses of it."""
    tolerations: tuple[Toleration, ...] = ()
    ports: tuple[Port, ...] = ()
    restart_policy: RestartPolicy = RestartPolicy.NEVER
    grace_seconds: int = 30
    priority_class: str = ""

    policies: tuple[PolicySpec, ...] = ()
    depends_on: DependsOn | None = None
    partition_policy: PartitionPolicy | None = None
    topology_policy: TopologyPolicy = TopologyPolicy.NONE
    labels: dict[str, str] = Field(default_factory=dict)
    annotations: dict[str, str] = Field(default_factory=dict)

    template: dict[str, Any] | None = None
    """The pod template as it was given, so that what only YAML can say survives the round trip.

    Where it and a field above differ, the field is right (somebody edited it in a form).
    """

    @property
    def required_node_terms(self) -> tuple[tuple[tuple[str, str, tuple[str, ...]], ...], ...]:
        """The required node affinity: terms joined by OR, each (key, operator, values) by AND."""
        required = (self.affinity.get("nodeAffinity") or {}).get(
            "requiredDuringSchedulingIgnoredDuringExecution"
        ) or {}
        return tuple(
            tuple(
                (one["key"], one["operator"], tuple(str(v) for v in one.get("values") or ()))
                for one in term.get("matchExpressions") or ()
            )
            for term in required.get("nodeSelectorTerms") or ()
        )

    @property
    def request(self) -> dict[str, int]:
        """What one task asks for, in the engine's names and units; nothing that is zero."""
        amounts = {
            "cpu": self.cpu_milli,
            "memory": self.memory_bytes,
            GPU_RESOURCE: self.gpu_milli,
            **self.resources,
        }
        return {name: amount for name, amount in amounts.items() if amount}


class VolumeSpec(SpecPart):
    """A volume mounted into every task: an existing claim, or the description of a new one."""

    mount_path: str = ""
    claim_name: str = ""
    claim: dict[str, Any] | None = None


class CodeSource(SpecPart):
    """Where the code comes from: files uploaded before (archive id), or a git address."""

    source: Literal["archive", "git"]
    archive_id: str = ""
    url: str = ""
    revision: str = ""
    sub_path: str = ""


PluginOptions = dict[str, Any]
"""One plugin's options in their plain form; `job_plugins.options_of` gives them their types."""


class JobSpec(SpecPart):
    """One job, complete: defaults are filled in and every rule that needs no database holds."""

    name: Annotated[str, Field(min_length=1)]
    queue: str = "default"
    kind: JobKind = JobKind.TRAINING
    priority_class: str = ""
    priority: int | None = None
    """Given directly; None: that of the priority class."""

    roles: tuple[RoleSpec, ...]
    min_available: int
    min_success: int | None = None
    max_retry: int = 3
    """How often the job may run: the first time and max_retry - 1 restarts."""
    policies: tuple[PolicySpec, ...] = ()
    plugins: dict[str, PluginOptions] = Field(default_factory=dict)
    volumes: tuple[VolumeSpec, ...] = ()

    ttl_seconds: int | None = None
    """How long a finished job is kept; None: as the installation decides."""
    sla_waiting_seconds: float | None = None
    time_limit_seconds: float | None = None
    running_estimate_seconds: float | None = None
    preemptable: bool | None = None

    labels: dict[str, str] = Field(default_factory=dict)
    annotations: dict[str, str] = Field(default_factory=dict)
    code: CodeSource | None = None
    network_topology: NetworkTopology | None = None
    scheduler_name: str = "volcano"
    namespace: str = ""
    """The namespace that a manifest named; kept for the way back, not used for placing."""

    @property
    def task_count(self) -> int:
        """How many tasks the job has when all replicas run."""
        return sum(role.replicas for role in self.roles)

    def role(self, name: str) -> RoleSpec | None:
        """Return the role with this name, None if there is none."""
        return next((role for role in self.roles if role.name == name), None)
