"""The rules that a job must keep, on submission and on change.

Source: Volcano `pkg/webhooks/admission/jobs/validate/*.go`.
Paths are those of the plain representation; `volcano.manifest_path` translates them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from scheduling.lifecycle.events import (
    INTERNAL_EVENTS,
    POLICY_ACTIONS,
    POLICY_EVENTS,
    TARGETED_ACTIONS,
    LifecycleAction,
    PolicyEvent,
)
from scheduling.spec import job_plugins, start_order
from scheduling.spec.job_spec import (
    GPU_RESOURCE,
    JobSpec,
    NetworkTopology,
    PolicySpec,
    RoleSpec,
    TopologyPolicy,
    VolumeSpec,
)
from scheduling.spec.limits import DEFAULT_LIMITS, Limits
from scheduling.spec.pod_template import container_amounts
from scheduling.spec.problems import Note, Param, Problem
from scheduling.spec.reader import Findings, MapReader, counts_in_bytes

DNS_NAME = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_ENV_NAME = re.compile(r"[-._a-zA-Z][-._a-zA-Z0-9]*")
_SUBDOMAIN_LENGTH = 253
_LARGEST_NUMBER = 2**31 - 1
_LARGEST_PORT = 65_535
_MOST_SECRETS = 64
_WHOLE = 1000
_FIELDS = {"cpu": "cpu", "memory": "memory", GPU_RESOURCE: "gpu"}
"""Resource -> the field of a role that asks for it."""
"""A whole device or core in thousandths."""


def check(spec: JobSpec, *, limits: Limits = DEFAULT_LIMITS) -> list[Problem]:
    """Return everything that is wrong with a job as such, all at once."""
    if not spec.roles:
        return [Problem("roles", "no_task")]
    context = job_plugins.context_of(spec)
    return [
        *_names(spec, limits),
        *_sizes(spec, limits),
        *_numbers(spec),
        *_gang(spec),
        *_policy_problems(spec.policies, "policies"),
        *job_plugins.problems_of(spec.plugins, context),
        *_volumes(spec),
        *check_topology(spec.network_topology, "network_topology"),
        *_start_order(spec),
        *_code(spec),
        *(problem for n, role in enumerate(spec.roles) for problem in _role(role, f"roles[{n}]")),
    ]


def warn(spec: JobSpec) -> list[Note]:
    """Return what a job says that will have no effect, or hardly the one that is meant."""
    return [*_warn_policies(spec), *_warn_start_order(spec)]


# --- names and sizes ----------------------------------------------------------------------------


def _names(spec: JobSpec, limits: Limits) -> Iterator[Problem]:
    if not DNS_NAME.fullmatch(spec.name) or len(spec.name) > limits.name_length:
        yield Problem("name", "invalid_job_name", {"name": spec.name[:80]})
    if not is_subdomain(spec.queue):
        yield Problem("queue", "invalid_name", {"name": spec.queue[:80]})
    if spec.priority_class and not is_subdomain(spec.priority_class):
        yield Problem("priority_class", "invalid_name", {"name": spec.priority_class[:80]})
    seen: dict[str, int] = {}
    for number, role in enumerate(spec.roles):
        path = f"roles[{number}].name"
        if role.name in seen:
            yield Problem(path, "duplicate_task_name", {"name": role.name[:80]})
        seen[role.name] = number
        if not LABEL.fullmatch(role.name) or len(role.name) > limits.name_length:
            yield Problem(path, "invalid_name", {"name": role.name[:80]})
        longest = f"{spec.name}-{role.name}-{max(role.replicas - 1, 0)}"
        if len(longest) > limits.name_length:
            params: dict[str, Param] = {
                "pod": longest[:200],
                "length": len(longest),
                "limit": limits.name_length,
            }
            yield Problem(path, "pod_name_too_long", params)


def is_subdomain(name: str) -> bool:
    """Whether a name is an RFC 1123 subdomain, as names of cluster objects must be."""
    return len(name) <= _SUBDOMAIN_LENGTH and SUBDOMAIN.fullmatch(name) is not None


def _sizes(spec: JobSpec, limits: Limits) -> Iterator[Problem]:
    counted: list[tuple[str, int, int]] = [
        ("roles", len(spec.roles), limits.roles),
        ("policies", len(spec.policies), limits.policies),
        ("volumes", len(spec.volumes), limits.volumes),
        ("labels", len(spec.labels), limits.labels),
        ("annotations", len(spec.annotations), limits.labels),
    ]
    for number, role in enumerate(spec.roles):
        path = f"roles[{number}]"
        counted += [
            (f"{path}.policies", len(role.policies), limits.policies),
            (f"{path}.env", len(role.env), limits.env_variables),
            (f"{path}.ports", len(role.ports), limits.ports),
            (f"{path}.secrets", len(role.secrets), _MOST_SECRETS),
            (f"{path}.labels", len(role.labels), limits.labels),
        ]
    for path, count, limit in counted:
        if count > limit:
            yield Problem(path, "too_many", {"count": count, "limit": limit})
    tasks = sum(max(role.replicas, 0) for role in spec.roles)
    if tasks > limits.tasks:
        yield Problem("roles", "too_many_tasks", {"count": tasks, "limit": limits.tasks})
    for path, text in _texts(spec):
        if len(text) > limits.text_length:
            params = {"length": len(text), "limit": limits.text_length}
            yield Problem(path, "text_too_long", params)
        if "\0" in text:
            yield Problem(path, "nul_character")


def _texts(spec: JobSpec) -> Iterator[tuple[str, str]]:
    """Every text that reaches a process or an object's name."""
    for number, role in enumerate(spec.roles):
        path = f"roles[{number}]"
        for name in ("image", "runtime", "working_dir"):
            yield f"{path}.{name}", getattr(role, name)
        for name in ("command", "args"):
            for position, text in enumerate(getattr(role, name) or ()):
                yield f"{path}.{name}[{position}]", text
        for name, text in role.env.items():
            yield f"{path}.env.{name[:80]}", text


def _numbers(spec: JobSpec) -> Iterator[Problem]:
    numbers: list[tuple[str, float | None]] = [
        ("min_available", spec.min_available),
        ("max_retry", spec.max_retry),
        ("ttl_seconds", spec.ttl_seconds),
        ("sla_waiting_seconds", spec.sla_waiting_seconds),
        ("time_limit_seconds", spec.time_limit_seconds),
        ("running_estimate_seconds", spec.running_estimate_seconds),
        *_timeouts(spec.policies, "policies"),
    ]
    for n, role in enumerate(spec.roles):
        numbers += [(f"roles[{n}].{name}", getattr(role, name)) for name in _ROLE_NUMBERS]
        numbers += [(f"roles[{n}].resources.{name}", v) for name, v in role.resources.items()]
        numbers += _timeouts(role.policies, f"roles[{n}].policies")
    yield from _out_of_range(numbers)
    if spec.min_success is not None and spec.min_success < 1:
        yield Problem("min_success", "below_one", {"value": spec.min_success})
    elif spec.min_success is not None and spec.min_success > spec.task_count:
        params: dict[str, Param] = {"value": spec.min_success, "tasks": spec.task_count}
        yield Problem("min_success", "min_success_above_total", params)
    if spec.priority is not None and abs(spec.priority) > _LARGEST_NUMBER:
        params = {"value": spec.priority, "limit": _LARGEST_NUMBER}
        yield Problem("priority", "number_too_large", params)


def _out_of_range(numbers: Iterable[tuple[str, float | None]]) -> Iterator[Problem]:
    for path, number in numbers:
        if number is not None and number < 0:
            yield Problem(path, "negative_number", {"value": number})
        elif number is not None and number > _most(path):
            yield Problem(path, "number_too_large", {"value": number, "limit": _most(path)})


_ROLE_NUMBERS = (
    "replicas", "min_available", "max_retry", "grace_seconds", "cpu_milli", "memory_bytes",
    "gpu_milli", "cpu_limit_milli", "memory_limit_bytes",
)  # fmt: skip


def _most(path: str) -> int:
    is_amount = path.endswith(("_milli", "_bytes")) or ".resources." in path
    return 2**63 - 1 if is_amount else _LARGEST_NUMBER


def _timeouts(policies: Sequence[PolicySpec], path: str) -> list[tuple[str, float | None]]:
    return [(f"{path}[{n}].timeout_seconds", p.timeout_seconds) for n, p in enumerate(policies)]


def _gang(spec: JobSpec) -> Iterator[Problem]:
    total = sum(max(role.replicas, 0) for role in spec.roles)
    if spec.min_available > total:
        params: dict[str, Param] = {"min_available": spec.min_available, "tasks": total}
        yield Problem("min_available", "min_available_above_total", params)
    for number, role in enumerate(spec.roles):
        if role.min_available > role.replicas >= 0:
            params = {
                "min_available": role.min_available,
                "replicas": role.replicas,
                "role": role.name,
            }
            yield Problem(f"roles[{number}].min_available", "task_min_above_replicas", params)


# --- policies -----------------------------------------------------------------------------------


def _policy_problems(policies: Sequence[PolicySpec], path: str) -> Iterator[Problem]:
    for number, policy in enumerate(policies):
        yield from _one_policy(policy, f"{path}[{number}]")
    events = Counter(event for policy in policies for event in set(policy.events))
    if PolicyEvent.ANY in events and len(events) > 1:
        yield Problem(path, "any_event_not_alone")
    for event, count in events.items():
        if count > 1:
            numbers = [str(n) for n, policy in enumerate(policies) if event in policy.events]
            params = {"event": event.value, "policies": ", ".join(numbers)}
            yield Problem(path, "duplicate_event", params)
    codes = Counter(p.exit_code for p in policies if p.exit_code is not None)
    for code, count in codes.items():
        if count > 1:
            yield Problem(path, "duplicate_exit_code", {"exit_code": code})


def _one_policy(policy: PolicySpec, path: str) -> Iterator[Problem]:
    if policy.events and policy.exit_code is not None:
        yield Problem(path, "event_and_exit_code")
    if not policy.events and policy.exit_code is None:
        yield Problem(path, "no_event_no_exit_code")
    if policy.exit_code == 0:
        yield Problem(f"{path}.exit_code", "exit_code_zero")
    for event in policy.events:
        if event in INTERNAL_EVENTS:
            params = {"event": event.value, "allowed": ", ".join(POLICY_EVENTS)}
            yield Problem(f"{path}.events", "invalid_event", params)
    if policy.action is LifecycleAction.SYNC_JOB:
        params = {"action": policy.action.value, "allowed": ", ".join(POLICY_ACTIONS)}
        yield Problem(f"{path}.action", "invalid_action", params)


def _warn_policies(spec: JobSpec) -> Iterator[Note]:
    for path, policies, roles in (
        ("policies", spec.policies, spec.roles),
        *((f"roles[{n}].policies", r.policies, (r,)) for n, r in enumerate(spec.roles)),
    ):
        for number, policy in enumerate(policies):
            where = f"{path}[{number}]"
            if PolicyEvent.POD_PENDING in policy.events and policy.timeout_seconds is None:
                yield Note(where, "pending_without_timeout")
            is_targeted = policy.action in TARGETED_ACTIONS
            if PolicyEvent.UNKNOWN in policy.events and is_targeted:
                yield Note(where, "no_target", {"action": policy.action.value})
            is_partition = policy.action is LifecycleAction.RESTART_PARTITION
            if is_partition and all(role.partition_policy is None for role in roles):
                yield Note(where, "no_partitions", {"action": policy.action.value})


# --- volumes, topology, start order, code -------------------------------------------------------


def _volumes(spec: JobSpec) -> Iterator[Problem]:
    paths: dict[str, int] = {}
    claims: dict[str, int] = {}
    for number, volume in enumerate(spec.volumes):
        path = f"volumes[{number}]"
        if not volume.mount_path:
            yield Problem(f"{path}.mount_path", "mount_path_required")
        elif ":" in volume.mount_path:
            params: dict[str, Param] = {"path": volume.mount_path[:80]}
            yield Problem(f"{path}.mount_path", "colon_in_path", params)
        elif volume.mount_path in paths:
            params = {"path": volume.mount_path[:80], "other": paths[volume.mount_path]}
            yield Problem(f"{path}.mount_path", "duplicate_mount_path", params)
        paths.setdefault(volume.mount_path, number)
        yield from _claim(volume, path, claims)
        claims.setdefault(volume.claim_name, number)


def _claim(volume: VolumeSpec, path: str, earlier: Mapping[str, int]) -> Iterator[Problem]:
    name = volume.claim_name
    if name and volume.claim is not None:
        yield Problem(path, "claim_name_and_template")
    elif not name and volume.claim is None:
        yield Problem(path, "claim_required")
    if name and not is_subdomain(name):
        yield Problem(f"{path}.claim_name", "invalid_name", {"name": name[:80]})
    if name and name in earlier:
        params: dict[str, Param] = {"name": name, "other": earlier[name]}
        yield Problem(f"{path}.claim_name", "duplicate_claim", params)


def check_topology(topology: NetworkTopology | None, path: str) -> Iterator[Problem]:
    """Yield what is wrong with a placement."""
    if topology is None:
        return
    if topology.highest_tier_allowed is not None and topology.highest_tier_name:
        yield Problem(path, "tier_number_and_name")
    tier = topology.highest_tier_allowed
    if tier is not None and tier < 0:
        yield Problem(f"{path}.highest_tier_allowed", "negative_number", {"value": tier})


def _start_order(spec: JobSpec) -> Iterator[Problem]:
    names = {role.name for role in spec.roles}
    depends = {r.name: r.depends_on.names if r.depends_on else () for r in spec.roles}
    for number, role in enumerate(spec.roles):
        for name in depends[role.name]:
            if name not in names:
                path = f"roles[{number}].depends_on"
                yield Problem(path, "unknown_dependency", {"role": role.name, "name": name[:80]})
    found = start_order.find_order(depends)
    if found.cycle:
        number = next(n for n, role in enumerate(spec.roles) if role.name in found.cycle)
        params = {"path": " -> ".join(found.cycle)}
        yield Problem(f"roles[{number}].depends_on", "dependency_not_acyclic", params)


def _warn_start_order(spec: JobSpec) -> Iterator[Note]:
    free = sum(r.replicas for r in spec.roles if not (r.depends_on and r.depends_on.names))
    if free < spec.min_available <= spec.task_count:
        params: dict[str, Param] = {"min_available": spec.min_available, "tasks": free}
        yield Note("min_available", "gang_waits_for_itself", params)


def _code(spec: JobSpec) -> Iterator[Problem]:
    code = spec.code
    if code is None:
        return
    if code.source == "archive" and not code.archive_id:
        yield Problem("code.archive_id", "required")
    if code.source == "git":
        if not code.url:
            yield Problem("code.url", "required")
        elif not re.match(r"(https?|ssh|git)://|[\w.-]+@[\w.-]+:", code.url):
            yield Problem("code.url", "not_a_git_url", {"url": code.url[:200]})
        if code.revision.startswith("-"):
            yield Problem("code.revision", "invalid_name", {"name": code.revision[:80]})
    if code.sub_path.startswith("/") or ".." in code.sub_path.split("/"):
        yield Problem("code.sub_path", "path_leaves_folder", {"path": code.sub_path[:200]})


# --- roles --------------------------------------------------------------------------------------


def _secrets(role: RoleSpec, path: str) -> Iterator[Problem]:
    """Names that can be secrets, variables that can be set, and paths that stay in their folder."""
    for number, use in enumerate(role.secrets):
        where = f"{path}.secrets[{number}]"
        if not is_subdomain(use.name):
            yield Problem(f"{where}.name", "invalid_name", {"name": use.name[:80]})
        if use.variable and not _ENV_NAME.fullmatch(use.variable):
            yield Problem(f"{where}.variable", "invalid_env_name", {"name": use.variable[:80]})
        if use.variable and not use.key:
            yield Problem(f"{where}.key", "required")
        for text in (use.path, *use.items.values()):
            if ".." in text.split("/") or "\0" in text:
                yield Problem(f"{where}.path", "secret_path", {"path": text[:80]})


def _role(role: RoleSpec, path: str) -> Iterator[Problem]:
    yield from _policy_problems(role.policies, f"{path}.policies")
    yield from _partitions(role, path)
    yield from _process(role, path)
    yield from _containers(role, path)


def _partitions(role: RoleSpec, path: str) -> Iterator[Problem]:
    policy = role.partition_policy
    if policy is None:
        return
    where = f"{path}.partition_policy"
    yield from check_topology(policy.network_topology, f"{where}.network_topology")
    total, size = policy.total_partitions, policy.partition_size
    params: dict[str, Param] = {
        "total": total,
        "size": size,
        "product": total * size,
        "replicas": role.replicas,
        "role": role.name,
    }
    if total <= 0:
        yield Problem(f"{where}.total_partitions", "partition_count_not_positive", params)
    if size <= 0:
        yield Problem(f"{where}.partition_size", "partition_size_not_positive", params)
    if policy.min_partitions < 0:
        value = {"value": policy.min_partitions}
        yield Problem(f"{where}.min_partitions", "negative_number", value)
    if total > 0 and size > 0 and total * size != role.replicas:
        yield Problem(f"{path}.replicas", "replicas_not_partition_product", params)
    wanted = policy.min_partitions * size
    if policy.min_partitions > 0 and role.min_available != wanted:
        params = {"min_available": role.min_available, "product": wanted, "role": role.name}
        yield Problem(f"{path}.min_available", "task_min_not_partition_product", params)


def _process(role: RoleSpec, path: str) -> Iterator[Problem]:
    yield from _secrets(role, path)
    for name in role.env:
        if not _ENV_NAME.fullmatch(name):
            yield Problem(f"{path}.env", "invalid_env_name", {"name": name[:80]})
    for number, port in enumerate(role.ports):
        if not 1 <= port.number <= _LARGEST_PORT:
            yield Problem(f"{path}.ports[{number}].number", "not_a_port", {"value": port.number})
    if role.template is None and not (role.image or role.runtime or role.command or role.args):
        yield Problem(f"{path}.command", "nothing_to_run", {"role": role.name})
    yield from _amounts(role, path)


def _amounts(role: RoleSpec, path: str) -> Iterator[Problem]:
    if role.template is None:
        yield from _other_resources(role, f"{path}.resources")
    if role.gpu_milli > _WHOLE and role.gpu_milli % _WHOLE:
        params: dict[str, Param] = {"gpus": f"{role.gpu_milli / _WHOLE:g}"}
        yield Problem(f"{path}.gpu_milli", "gpu_fraction_above_one", params)
    for name in ("cpu", "memory"):
        unit = "milli" if name == "cpu" else "bytes"
        request, limit = getattr(role, f"{name}_{unit}"), getattr(role, f"{name}_limit_{unit}")
        if limit is not None and request > limit and role.template is None:
            params = {"resource": name, "request": request, "limit": limit}
            yield Problem(f"{path}.{name}_{unit}", "request_above_limit", params)
    if role.topology_policy is not TopologyPolicy.NONE and role.template is None:
        yield from _whole_cpus(role.topology_policy, role.cpu_milli, role.name, f"{path}.cpu_milli")


def _other_resources(role: RoleSpec, path: str) -> Iterator[Problem]:
    """What has a field of its own is asked for there; of all else there are only whole units."""
    for name, amount in role.resources.items():
        if name in _FIELDS:
            params: dict[str, Param] = {"resource": name, "field": _FIELDS[name]}
            yield Problem(f"{path}.{name}", "resource_has_field", params)
        elif amount % _WHOLE and not counts_in_bytes(name):
            params = {"resource": name, "amount": f"{amount / _WHOLE:g}"}
            yield Problem(f"{path}.{name}", "resource_not_whole", params)


def _whole_cpus(policy: str, cpu_milli: int, container: str, path: str) -> Iterator[Problem]:
    if cpu_milli < _WHOLE or cpu_milli % _WHOLE:
        params: dict[str, Param] = {
            "policy": policy,
            "container": container,
            "cpu": f"{cpu_milli / _WHOLE:g}",
        }
        yield Problem(path, "cpu_not_integer", params)


def _containers(role: RoleSpec, path: str) -> Iterator[Problem]:
    """What Kubernetes would refuse in the template, as far as it concerns amounts."""
    if role.template is None:
        return
    pod = MapReader(role.template.get("spec") or {}, f"{path}.template.spec", Findings())
    sums: Counter[str] = Counter()
    for kind in ("containers", "initContainers"):
        for container in pod.maps(kind):
            requests, limits = container_amounts(container)
            if kind == "containers":
                sums.update(requests)
            for name, limit in limits.items():
                if requests[name] > limit:
                    params: dict[str, Param] = {
                        "resource": name,
                        "request": requests[name],
                        "limit": limit,
                    }
                    where = container.at("resources.requests")
                    yield Problem(where, "request_above_limit", params)
            if role.topology_policy is not TopologyPolicy.NONE:
                name = container.text("name") or role.name
                where = container.at("resources.requests.cpu")
                cpu = requests.get("cpu", 0)
                yield from _whole_cpus(role.topology_policy, cpu, name, where)
    yield from _pod_level(pod, sums)


def _pod_level(pod: MapReader, sums: Counter[str]) -> Iterator[Problem]:
    """Resources of the pod as a whole must cover those of its containers."""
    requests, limits = container_amounts(pod)
    for name, amount in requests.items():
        params: dict[str, Param] = {"resource": name, "request": amount, "sum": sums[name]}
        if amount < sums[name]:
            yield Problem(pod.at("resources"), "pod_resources_below_containers", params)
        if name in limits and amount > limits[name]:
            params = {"resource": name, "request": amount, "limit": limits[name]}
            yield Problem(pod.at("resources"), "request_above_limit", params)


# --- facts from outside, and changes ------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class QueueFacts:
    """What admission needs to know of the queue that a job names."""

    name: str
    state: str = "Open"
    is_root: bool = False
    children: int = 0


def check_queue(name: str, queue: QueueFacts | None) -> list[Problem]:
    """Return why a job may not be submitted to this queue; None: there is none so called."""
    if queue is None:
        return [Problem("queue", "queue_not_found", {"queue": name})]
    if queue.is_root:
        return [Problem("queue", "root_queue", {"queue": name})]
    problems = []
    if queue.state != "Open":
        params: dict[str, Param] = {"queue": name, "state": queue.state or "not ready yet"}
        problems.append(Problem("queue", "queue_not_open", params))
    if queue.children:
        params = {"queue": name, "children": queue.children}
        problems.append(Problem("queue", "not_leaf_queue", params))
    return problems


_CHANGEABLE = {"min_available", "priority_class"}
_CHANGEABLE_IN_ROLE = {"replicas", "min_available"}


def check_update(old: JobSpec, new: JobSpec, *, limits: Limits = DEFAULT_LIMITS) -> list[Problem]:
    """Return why a submitted job may not be changed so: only sizes and priority may change."""
    if len(old.roles) != len(new.roles):
        params: dict[str, Param] = {"before": len(old.roles), "after": len(new.roles)}
        return [Problem("roles", "tasks_added_or_removed", params)]
    problems = [
        Problem(path, "immutable_field", {"field": path})
        for path in (
            *_differences(old, new, "", _CHANGEABLE | {"roles", "volumes"}),
            *_volume_differences(old, new),
            *(
                path
                for n, (before, after) in enumerate(zip(old.roles, new.roles, strict=True))
                for path in _differences(before, after, f"roles[{n}].", _CHANGEABLE_IN_ROLE)
            ),
        )
    ]
    sizes = {"min_available_above_total", "task_min_above_replicas", "negative_number"}
    sizes |= {"replicas_not_partition_product", "task_min_not_partition_product"}
    sizes |= {"tier_number_and_name", "too_many_tasks", "pod_name_too_long", "number_too_large"}
    return problems + [one for one in check(new, limits=limits) if one.code in sizes]


def _differences(old: Any, new: Any, prefix: str, changeable: set[str]) -> list[str]:
    return [
        f"{prefix}{name}"
        for name in type(old).model_fields
        if name not in changeable and getattr(old, name) != getattr(new, name)
    ]


def _volume_differences(old: JobSpec, new: JobSpec) -> Iterable[str]:
    """The name of a claim that was made for a volume may be written back, nothing else."""
    if len(old.volumes) != len(new.volumes):
        return ["volumes"]
    return [
        f"volumes[{n}]"
        for n, (before, after) in enumerate(zip(old.volumes, new.volumes, strict=True))
        if before != after
        and not (
            before.mount_path == after.mount_path
            and before.claim is not None
            and not before.claim_name
        )
    ]
