"""What a job says about its neighbours, network and ports, as the engine's values.

A rule about neighbours looks at tasks of the job's own tenant only: another tenant's labels are
none of its business, and could be made to keep it off all nodes. Each task therefore carries its
tenant as a label, and each selector asks for it.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from scheduling.engine import types as engine
from scheduling.engine.budgets import evictions_left
from scheduling.spec.gangs import GangRole, min_resources

TENANT = "terrace.dev/tenant"
JOB_NAME = "volcano.sh/job-name"
QUEUE_NAME = "volcano.sh/queue-name"
"""With the job's name enough to know a job by: in one queue no two live ones are called alike."""
PARTITION = "volcano.sh/partition-id/"
"""With a role's name: the label by which its partitions are told apart."""
DATA_SETS = "terrace.dev/data-sets"
"""Annotation of a role or job: the data sets that its tasks read, with commas between them."""
DATA_SET_LABEL = "data.terrace.dev/"
"""With a data set's name: the label of a node that holds a cache of it."""

STRENGTHS = (
    ("requiredDuringSchedulingIgnoredDuringExecution", True),
    ("preferredDuringSchedulingIgnoredDuringExecution", False),
)

Document = Mapping[str, Any]
"""Part of a spec in its plain form; keys below `affinity` and `template` are Kubernetes' own."""


def labels_of(part: Document, *, job_name: str, queue: str, tenant_id: UUID) -> dict[str, str]:
    """Return the labels by which others may look for a role's tasks."""
    return {
        **(part.get("labels") or {}),
        JOB_NAME: job_name,
        "volcano.sh/task-spec": str(part.get("name", "")),
        QUEUE_NAME: queue,
        TENANT: str(tenant_id),
    }


def neighbour_terms(part: Document, tenant_id: UUID) -> tuple[engine.PodTerm, ...]:
    """Return with which tasks a role wants to share a host or zone, or must not."""
    affinity = part.get("affinity") or {}
    return tuple(
        engine.PodTerm(
            selector=_selector(term.get("labelSelector"), tenant_id),
            topology_key=str(term.get("topologyKey", "")),
            is_anti=kind == "podAntiAffinity",
            is_required=is_required,
            weight=weight,
        )
        for kind in ("podAffinity", "podAntiAffinity")
        for strength, is_required in STRENGTHS
        for weight, term in _terms((affinity.get(kind) or {}).get(strength), is_required)
    )


def _terms(listed: Sequence[Document] | None, is_required: bool) -> Iterator[tuple[int, Document]]:  # noqa: FBT001 - what the name of the list said
    for one in listed or ():
        if is_required:
            yield 0, one
        else:
            yield int(one.get("weight", 0)), one.get("podAffinityTerm") or {}


def node_wishes(part: Document) -> tuple[tuple[int, tuple[engine.Requirement, ...]], ...]:
    """Return the wishes for nodes: weight, and requirements joined by AND."""
    rules = (part.get("affinity") or {}).get("nodeAffinity") or {}
    return tuple(
        (int(one.get("weight", 0)), tuple(_expressions(one.get("preference") or {})))
        for one in rules.get(STRENGTHS[1][0]) or ()
    )


def spread_rules(part: Document, tenant_id: UUID) -> tuple[engine.SpreadRule, ...]:
    """Return by how many like tasks one zone may be ahead of the emptiest."""
    pod = _pod(part)
    return tuple(
        engine.SpreadRule(
            max_skew=int(one.get("maxSkew", 1)),
            topology_key=str(one.get("topologyKey", "")),
            selector=_selector(one.get("labelSelector"), tenant_id),
            is_required=one.get("whenUnsatisfiable", "DoNotSchedule") == "DoNotSchedule",
        )
        for one in pod.get("topologySpreadConstraints") or ()
    )


def host_ports(part: Document) -> tuple[int, ...]:
    """Return the ports of the host that a task takes; two such tasks do not share a node."""
    found = {
        int(port["hostPort"])
        for container in _pod(part).get("containers") or ()
        for port in container.get("ports") or ()
        if port.get("hostPort")
    }
    return tuple(sorted(found))


def limits_of(part: Document) -> dict[str, int]:
    """Return up to what a task may use of CPU and memory, where that is said."""
    limits = {"cpu": part.get("cpu_limit_milli"), "memory": part.get("memory_limit_bytes")}
    return {name: int(amount) for name, amount in limits.items() if amount}


def may_evict(part: Document) -> bool:
    """Return whether others may be evicted for a role's tasks (preemptionPolicy is not Never)."""
    return _pod(part).get("preemptionPolicy") != "Never"


def data_sets_of(part: Document, job_annotations: Document) -> tuple[str, ...]:
    """Return the data sets that a role's tasks read: its own, or those of the job."""
    named = (part.get("annotations") or {}).get(DATA_SETS) or job_annotations.get(DATA_SETS)
    if not named:
        return ()
    return tuple(sorted({one.strip() for one in str(named).split(",")} - {""}))


def container_images(part: Document) -> tuple[str, ...]:
    """Return the image of a role as its file is called: `nvidia+pytorch+24.01`."""
    image = str(part.get("image") or "")
    if not image:
        return ()
    path, _, tag = image.rpartition(":")
    if not path or "/" in tag:  # no tag, and perhaps the port of a registry
        path, tag = image, "latest"
    return (_without_registry(f"{path}/{tag}".replace("/", "+")),)


# --- gangs ------------------------------------------------------------------------------------


def gang_amounts(roles: Sequence[engine.Role], min_available: int) -> engine.Amounts:
    """Return what a job's minimum asks for: what admission counts."""
    if len(roles) == 1:
        (role,) = roles
        count = min(max(role.min_available, min_available), role.replicas)
        if count == 1:  # most jobs: no amounts of their own
            return role.request
        return {name: amount * count for name, amount in role.request.items()}
    size = max(min_available, sum(role.min_available for role in roles))
    of_roles = [
        GangRole(
            role.name,
            role.replicas,
            {name: amount for name, amount in role.request.items() if name != engine.PODS},
            role.min_available,
            role.priority,
        )
        for role in roles
    ]
    total = min_resources(of_roles, size)
    return {**total, engine.PODS: total[engine.PODS] * 1000}


def budget_of(job: engine.Job) -> engine.DisruptionBudget | None:
    """Return how many of a job's tasks may be evicted at once, if its owner says so."""
    left = evictions_left(job)
    if left is None or not job.roles:
        return None
    labels = job.roles[0].labels
    return engine.DisruptionBudget(
        name=job.name,
        match_labels={key: labels[key] for key in (JOB_NAME, QUEUE_NAME)},
        disruptions_allowed=left,
    )


@dataclass(frozen=True, slots=True)
class Partitions:
    """The roles of a job with its partitioned ones split, each partition a role of its own.

    The engine's sub-groups are made of roles; `worker[0]` holds the first tasks of `worker`.
    """

    roles: tuple[engine.Role, ...]
    sub_groups: tuple[engine.SubGroupPolicy, ...]
    sizes: Mapping[str, int]
    """Role -> tasks of a partition, of those that are split."""

    def role_of(self, name: str, index: int) -> str:
        """Return the role to which a task belongs."""
        size = self.sizes.get(name)
        return name if size is None else _part_name(name, index // size)


def split_partitions(roles: Sequence[engine.Role], parts: Sequence[Document]) -> Partitions:
    """Split the roles of a job that say so in their part of its spec."""
    policies = {
        str(part["name"]): policy
        for part in parts
        if (policy := part.get("partition_policy")) and int(policy["partition_size"]) > 0
    }
    if not policies:
        return Partitions(tuple(roles), (), {})
    split: list[engine.Role] = []
    groups = []
    for role in roles:
        policy = policies.get(role.name)
        if policy is None:
            split.append(role)
            continue
        size = int(policy["partition_size"])
        label = PARTITION + role.name
        split += [
            replace(
                role,
                name=_part_name(role.name, first // size),
                replicas=min(size, role.replicas - first),
                min_available=0,
                labels={**role.labels, label: str(first // size)},
            )
            for first in range(0, role.replicas, size)
        ]
        groups.append(
            engine.SubGroupPolicy(
                name=role.name,
                match_label_keys=(label,),
                size=size,
                min_groups=-(-role.min_available // size),
                topology=topology_rule(policy.get("network_topology")),
            )
        )
    sizes = {name: int(policy["partition_size"]) for name, policy in policies.items()}
    return Partitions(tuple(split), tuple(groups), sizes)


def _part_name(role: str, number: int) -> str:
    return f"{role}[{number}]"


def topology_rule(rule: Document | None) -> engine.TopologyRule | None:
    """Return how close in the network the tasks must lie."""
    if not rule:
        return None
    return engine.TopologyRule(
        mode=engine.TopologyMode(rule.get("mode", "hard")),
        highest_tier=rule.get("highest_tier_allowed"),
        highest_tier_name=rule.get("highest_tier_name") or "",
    )


def _pod(part: Document) -> Document:
    template = part.get("template") or {}
    pod: Document = template.get("spec") or {}
    return pod


def _selector(selector: Document | None, tenant_id: UUID) -> tuple[engine.Requirement, ...]:
    chosen = selector or {}
    return (
        engine.Requirement(TENANT, "In", (str(tenant_id),)),
        *(
            engine.Requirement(key, "In", (str(value),))
            for key, value in sorted((chosen.get("matchLabels") or {}).items())
        ),
        *_expressions(chosen),
    )


def _expressions(chosen: Document) -> Iterator[engine.Requirement]:
    for one in chosen.get("matchExpressions") or ():
        values = tuple(str(value) for value in one.get("values") or ())
        yield engine.Requirement(one["key"], one["operator"], values)


# --- the machines -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Tier:
    """One level of the network, the nearest first: nodes with one value of `label` lie together."""

    name: str
    label: str


def network_domains(
    tiers: Sequence[Tier], nodes: Iterable[engine.Node]
) -> tuple[engine.HyperNode, ...]:
    """Return the domains of the network that the nodes' labels draw.

    A domain is known by the values of its own tier's label and of all tiers above it, so that a
    rack 1 in zone a is not a rack 1 in zone b. A node without a tier's label lies in no domain of
    it. Cost: nodes x tiers.
    """
    held: dict[tuple[int, tuple[str, ...]], set[str]] = defaultdict(set)
    below: dict[tuple[int, tuple[str, ...]], set[str]] = defaultdict(set)
    for node in nodes:
        lower = ""
        for number, tier in enumerate(tiers, start=1):
            if tier.label not in node.labels:
                continue
            path = tuple(
                node.labels.get(above.label, "") for above in reversed(tiers[number - 1 :])
            )
            if lower:
                below[number, path].add(lower)
            else:
                held[number, path].add(node.name)
            lower = _domain_name(tier.name, path)
    return tuple(
        engine.HyperNode(
            name=_domain_name(tiers[number - 1].name, path),
            tier=number,
            tier_name=tiers[number - 1].name,
            nodes=frozenset(held.get((number, path), ())),
            members=tuple(sorted(below.get((number, path), ()))),
        )
        for number, path in sorted(held.keys() | below.keys())
    )


def _domain_name(tier: str, path: Sequence[str]) -> str:
    return f"{tier}:{'/'.join(path)}"


def cached_data_sets(labels: Mapping[str, str]) -> frozenset[str]:
    """Return the data sets of which a node holds a cache, by its labels."""
    return frozenset(
        key.removeprefix(DATA_SET_LABEL)
        for key, value in labels.items()
        if key.startswith(DATA_SET_LABEL) and value != "false"
    )


def cached_images(runtimes: Iterable[Document]) -> dict[str, int]:
    """Return the images that a node's runtimes hold as files, and their bytes."""
    return {
        _without_registry(file): int(size)
        for one in runtimes
        for file, size in (one.get("images") or {}).items()
    }


def _without_registry(file: str) -> str:
    """Return a file's name without registry and `library`: some tools write them, some do not."""
    parts = file.split("+")
    if len(parts) > 1 and re.search(r"[.:]|^localhost$", parts[0]):
        parts = parts[1:]
    if len(parts) > 1 and parts[0] == "library":
        parts = parts[1:]
    return "+".join(parts)


def numa_nodes(reported: Sequence[Document]) -> tuple[engine.NumaNode, ...]:
    """Return the NUMA nodes of a machine that has several; of one there is nothing to choose."""
    found = tuple(
        engine.NumaNode(int(one["id"]), tuple(_cpu_list(str(one.get("cpus", "")))))
        for one in reported
        if one.get("cpus")
    )
    return found if len(found) > 1 else ()


def _cpu_list(text: str) -> Iterator[int]:
    """Read Linux' list of CPUs: `0-3,8`."""
    for part in text.split(","):
        first, dash, last = part.partition("-")
        if first.strip().isdecimal():
            begin = int(first)
            end = int(last) if dash and last.strip().isdecimal() else begin
            yield from range(begin, min(end, begin + MOST_CPUS) + 1)


MOST_CPUS = 4096
"""What a node tells is read with care: no machine has more."""
