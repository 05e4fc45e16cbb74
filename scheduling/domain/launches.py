"""Commands for nodes, put together when they are sent: an outbox row names only the attempt.

So a gang of 10,000 tasks writes 10,000 short rows, and a command is always true at the moment at
which it leaves: an attempt that is over by then is not launched, and the epoch is the one that is
in force. The fields are those of `worker.protocol`'s Launch and Stop without the command's id.
"""

from __future__ import annotations

import base64
import ipaddress
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from django.conf import settings

from scheduling.domain import ports
from scheduling.domain.image_rules import UNSERVED, Rule, rules_of, runtime_wanted
from scheduling.domain.job_secrets import Delivery, Opened, WithheldError
from scheduling.domain.transitions import LAUNCH_TOPIC
from scheduling.lifecycle.states import AttemptState
from scheduling.models import Attempt, DeviceHold, Hold, Job, JobFile, Lease, Node
from scheduling.models.attempt import LIVE_STATES
from scheduling.spec.job_plugins import PLUGINS, Endpoint, context_of, environment, options_of
from scheduling.spec.job_spec import JobSpec, RoleSpec
from tenants.models import OutboxRow

HOST_RUNTIME = "host"
"""What runs a task that names neither image nor runtime: the node's own programs."""
LOOPBACK = "127.0.0.1"
SIMULATE_ANNOTATION = "terrace.io/simulate-seconds"
ARCHIVE_SUFFIXES = (".tar", ".tar.gz", ".tgz", ".tar.xz", ".tar.bz2", ".zip")
SECRET_MODE = 0o600
FILES_PATH = "/agent/v1/files/"
"""Where the gateway serves a job's code to the node, under its own address."""


@dataclass(frozen=True, slots=True)
class FileOrder:
    """A file that the task finds; `content` is base64."""

    path: str
    content: str = ""
    url: str = ""
    mode: int = 0o644
    is_archive: bool = False


@dataclass(frozen=True, slots=True)
class LaunchOrder:
    """Start one attempt."""

    epoch: int
    attempt: str
    job: str
    task: str
    tenant: str
    argv: list[str]
    runtime: str
    environment: dict[str, str]
    files: list[FileOrder] = field(default_factory=list)
    hosts: dict[str, str] = field(default_factory=dict)
    git_url: str = ""
    git_revision: str = ""
    working_dir: str = ""
    cpu_milli: int = 0
    memory_bytes: int = 0
    cpus: list[int] = field(default_factory=list)
    devices: list[str] = field(default_factory=list)
    ports: list[str] = field(default_factory=list)
    grace_seconds: float = 30.0
    time_limit_seconds: float | None = None
    simulate_seconds: float | None = None
    secret_environment: dict[str, str] = field(default_factory=dict, repr=False)
    """Values that are never stored: not here, and not on the node but in the process itself."""
    secret_files: list[FileOrder] = field(default_factory=list, repr=False)


@dataclass(frozen=True, slots=True)
class StopOrder:
    """End one attempt."""

    epoch: int
    attempt: str
    grace_seconds: float
    reason: str


@dataclass(frozen=True, slots=True)
class Withheld:
    """A launch that must not be sent: the attempt fails with this text."""

    row: int
    node: UUID
    attempt: UUID
    message: str


@dataclass(frozen=True, slots=True)
class Orders:
    """What to send for some outbox rows, by row id; `void`: rows that nobody needs any more."""

    launches: dict[int, LaunchOrder]
    stops: dict[int, StopOrder]
    void: list[int]
    withheld: list[Withheld] = field(default_factory=list)


def compose(rows: Sequence[OutboxRow]) -> Orders:
    """Put together the commands of outbox rows with a node."""
    keys = [UUID(row.key) for row in rows]
    found = Attempt.objects.filter(id__in=keys, state__in=LIVE_STATES).select_related(
        "task__role", "job", "node"
    )
    attempts = {str(attempt.id): attempt for attempt in found}
    epochs = _epochs({attempt.node.cluster_id for attempt in attempts.values()})
    orders = Orders({}, {}, [])
    to_launch: dict[int, Attempt] = {}
    for row in rows:
        attempt = attempts.get(row.key)
        is_launch = row.topic == LAUNCH_TOPIC
        if attempt is None or (is_launch and attempt.state == AttemptState.STOPPING):
            orders.void.append(row.id)
        elif is_launch:
            to_launch[row.id] = attempt
        else:
            orders.stops[row.id] = _stop_order(row, attempt, epochs)
    _add_launches(orders, to_launch, epochs)
    return orders


def _epochs(cluster_ids: Iterable[UUID]) -> dict[UUID, int]:
    scopes = {scheduler_scope(cluster_id): cluster_id for cluster_id in cluster_ids}
    known = Lease.objects.filter(scope__in=scopes).values_list("scope", "epoch")
    return {scopes[scope]: epoch for scope, epoch in known}


def scheduler_scope(cluster_id: UUID) -> str:
    """Return the name of the lease under which a cluster is scheduled."""
    return f"scheduler:{cluster_id}"


def _stop_order(row: OutboxRow, attempt: Attempt, epochs: Mapping[UUID, int]) -> StopOrder:
    return StopOrder(
        epoch=epochs.get(attempt.node.cluster_id, attempt.epoch),
        attempt=row.key,
        grace_seconds=float(row.payload.get("grace_seconds", 30)),
        reason=str(row.payload.get("reason", "")),
    )


def _add_launches(
    orders: Orders, attempts: Mapping[int, Attempt], epochs: Mapping[UUID, int]
) -> None:
    jobs = {attempt.job_id: attempt.job for attempt in attempts.values()}
    known = _Known(jobs, attempts.values())
    for row_id, attempt in attempts.items():
        epoch = epochs.get(attempt.node.cluster_id, attempt.epoch)
        try:
            orders.launches[row_id] = _launch_order(attempt, known, epoch)
        except WithheldError as error:
            orders.withheld.append(Withheld(row_id, attempt.node_id, attempt.id, str(error)))


class _Known:
    """What the launches of some jobs need, read with a few queries however many they are."""

    def __init__(self, jobs: Mapping[UUID, Job], attempts: Iterable[Attempt]) -> None:
        listed = list(attempts)
        self.specs = {key: JobSpec.model_validate(job.spec) for key, job in jobs.items()}
        real = {one.job_id for one in listed if not one.node.is_simulated}
        self.secrets = Opened({key: self.specs[key] for key in real}, jobs)
        endpoints = _endpoints(self.specs)
        self.contexts = {
            key: context_of(spec, endpoints=endpoints.get(key)) for key, spec in self.specs.items()
        }
        self.holds = {hold.attempt_id: hold for hold in Hold.objects.filter(attempt__in=listed)}
        self.devices: defaultdict[UUID, list[str]] = defaultdict(list)
        self.parts: defaultdict[UUID, list[tuple[int, int]]] = defaultdict(list)
        """Of devices that are shared: thousandths of the compute, and bytes of the memory."""
        # A task without GPU and without resources of other names holds no device.
        holders = [one.id for one in self.holds.values() if one.gpu_milli or one.extended]
        held = DeviceHold.objects.filter(hold__in=holders, released_at__isnull=True)
        columns = ("hold__attempt_id", "device__uuid", "is_whole", "gpu_milli", "memory_bytes")
        for attempt_id, uuid, is_whole, *part in held.order_by("device__index").values_list(
            *columns
        ):
            self.devices[attempt_id].append(uuid)
            if not is_whole:
                self.parts[attempt_id].append((part[0], part[1]))
        self.code: defaultdict[UUID, list[JobFile]] = defaultdict(list)
        for file in JobFile.objects.filter(job__in=list(jobs), purpose="code").order_by("path"):
            assert file.job_id is not None  # noqa: S101 -- filtered by it
            self.code[file.job_id].append(file)
        self.rules: dict[UUID, tuple[Rule, ...]] = {}

    def rules_for(self, node: Node) -> tuple[Rule, ...]:
        if node.cluster_id not in self.rules:
            self.rules[node.cluster_id] = rules_of(node.cluster_id)
        return self.rules[node.cluster_id]


def _endpoints(
    specs: Mapping[UUID, JobSpec],
) -> dict[UUID, dict[tuple[str, int], Endpoint]]:
    """Return where the live tasks of the jobs are reached.

    Jobs read the names that they know from Volcano; each task gets a hosts file with the addresses,
    and a node that cannot show it writes them in place of the names. Tasks that all lie on one
    machine reach one another by loopback. A hosts file takes no names for addresses, so where a
    machine is known by its name, that is written at once.
    """
    found: defaultdict[UUID, dict[tuple[str, int], Endpoint]] = defaultdict(dict)
    live = Attempt.objects.filter(job__in=list(specs), state__in=LIVE_STATES)
    rows = list(
        live.values_list("job_id", "task__role__name", "task__index", "node__address", "ports")
    )
    machines: defaultdict[UUID, set[str]] = defaultdict(set)
    for job_id, _, _, address, _ in rows:
        machines[job_id].add(address)
    for job_id, role, index, address, numbers in rows:
        spec = specs[job_id]
        is_one_machine = len(machines[job_id]) == 1 or is_loopback(address)
        where = LOOPBACK if is_one_machine else address
        name = f"{spec.name}-{role}-{index}.{spec.name}"
        found[job_id][role, index] = Endpoint(
            host=name if not where or is_number(where) else where,
            address=where,
            ports=_port_map(spec, numbers.get(ports.RENDEZVOUS)),
        )
    return found


def is_number(address: str) -> bool:
    """Whether an address is an IP address and not a name."""
    try:
        ipaddress.ip_address(address)
    except ValueError:
        return False
    return True


def is_loopback(address: str) -> bool:
    """Whether an address stands for the machine itself."""
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"


def _port_map(spec: JobSpec, number: int | None) -> dict[int, int]:
    if number is None:
        return {}
    named = (name for name in spec.plugins if name in ports.FRAMEWORKS and name in PLUGINS)
    options = (options_of(name, spec.plugins[name]) for name in named)
    return {int(one.port): number for one in options if hasattr(one, "port")}


def _launch_order(attempt: Attempt, known: _Known, epoch: int) -> LaunchOrder:
    job, task = attempt.job, attempt.task
    spec = known.specs[job.id]
    role = spec.role(task.role.name)
    assert role is not None  # noqa: S101 -- roles are never taken out of a spec
    injected = environment(spec, role.name, task.index, context=known.contexts[job.id])
    delivery = Delivery() if attempt.node.is_simulated else known.secrets.deliver(job.id, role)
    hold = known.holds.get(attempt.id)
    code = spec.code
    is_git = code is not None and code.source == "git"
    return LaunchOrder(
        epoch=epoch,
        attempt=str(attempt.id),
        job=str(job.id),
        task=f"{spec.name}-{role.name}-{task.index}",
        tenant=str(job.tenant_id),
        argv=list(injected.command or (*(role.command or ()), *(role.args or ()))),
        runtime=_runtime(job, role, known.rules_for(attempt.node)),
        environment={
            **injected.env,
            **{f"TERRACE_PORT_{name.upper()}": str(n) for name, n in attempt.ports.items()},
            **share_variables(known.parts[attempt.id]),
        },
        files=[*_injected_files(injected.files), *_code_files(known.code[job.id])],
        hosts={
            name: address for address, names in injected.hosts for name in names if name != address
        },
        git_url=code.url if code is not None and is_git else "",
        git_revision=code.revision if code is not None and is_git else "",
        working_dir=role.working_dir or (code.sub_path if code is not None else ""),
        cpu_milli=role.cpu_milli,
        memory_bytes=role.memory_limit_bytes or role.memory_bytes,
        cpus=list(hold.cpus) if hold is not None else [],
        devices=known.devices[attempt.id],
        ports=[port.name or str(port.number) for port in role.ports],
        grace_seconds=float(role.grace_seconds),
        time_limit_seconds=spec.time_limit_seconds,
        simulate_seconds=_simulated_seconds(spec, role) if attempt.node.is_simulated else None,
        secret_environment=delivery.variables,
        secret_files=[
            FileOrder(path=path, content=base64.b64encode(content).decode(), mode=SECRET_MODE)
            for path, content in delivery.files.items()
        ],
    )


MIB = 2**20
PERCENT = 10
"""Thousandths."""


def share_variables(parts: Sequence[tuple[int, int]]) -> dict[str, str]:
    """Tell a task what it may use of the GPUs that it shares; those of CUDA bind where MPS runs.

    `parts` are thousandths of the compute and bytes of the memory of each, in their order; 0 of the
    compute is what the others leave.
    """
    if not parts:
        return {}
    compute, memory = min(parts)[0], min(part[1] for part in parts)
    told = {"TERRACE_GPU_MILLI": str(compute), "TERRACE_GPU_MEMORY_BYTES": str(memory)}
    if memory >= MIB:
        limits = (f"{number}={part[1] // MIB}M" for number, part in enumerate(parts))
        told["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] = ",".join(limits)
    if compute:
        told["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] = str(max(1, compute // PERCENT))
    return told


def _runtime(job: Job, role: RoleSpec, rules: tuple[Rule, ...]) -> str:
    part = {"image": role.image, "runtime": role.runtime}
    wanted = runtime_wanted(part, job.unit_id, rules)
    return HOST_RUNTIME if not wanted or wanted.startswith(UNSERVED) else wanted


def _injected_files(files: Iterable[Any]) -> list[FileOrder]:
    return [
        FileOrder(
            path=file.path, content=base64.b64encode(file.text.encode()).decode(), mode=file.mode
        )
        for file in files
    ]


def _code_files(files: Iterable[JobFile]) -> list[FileOrder]:
    base = f"{settings.TERRACE_GATEWAY_URL}{FILES_PATH}"
    return [
        FileOrder(
            path="." if file.path.endswith(ARCHIVE_SUFFIXES) else file.path,
            url=f"{base}{file.id}",
            is_archive=file.path.endswith(ARCHIVE_SUFFIXES),
        )
        for file in files
    ]


def _simulated_seconds(spec: JobSpec, role: RoleSpec) -> float | None:
    text = role.annotations.get(SIMULATE_ANNOTATION) or spec.annotations.get(SIMULATE_ANNOTATION)
    if text is None:
        return spec.running_estimate_seconds
    try:
        return max(0.0, float(text))
    except ValueError:
        return spec.running_estimate_seconds
