"""Read scenario files, print the engine's decisions as JSON lines: `python -m scheduling.scenario`.

It only translates: a file into a snapshot, a configuration and a question; a plan or a plugin's
answer into names and quantities. What it cannot express it prints as unsupported.
"""

from __future__ import annotations

import json
import logging
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import ROUND_CEILING, Decimal
from math import isinf
from pathlib import Path
from typing import Any

import numpy as np

from scheduling.engine import budgets, registry
from scheduling.engine.actions import gang_evicting
from scheduling.engine.actions.backfill import best_effort_order
from scheduling.engine.actions.serving import roles_in_order
from scheduling.engine.actions.shuffle import withdrawn
from scheduling.engine.callbacks import Vote
from scheduling.engine.cycle import close, open_session, run_actions
from scheduling.engine.device_classes import PREFIX
from scheduling.engine.domains import Domains
from scheduling.engine.durations import parse_duration
from scheduling.engine.journal import Claim, Removed, Unit
from scheduling.engine.plugins import cdp, task_topology, tdm
from scheduling.engine.plugins.drf import HIERARCHY, HIERARCHY_WEIGHTS
from scheduling.engine.session import Plugin, Session
from scheduling.engine.tables import (
    QUEUE_AFFINITY,
    QUEUE_GROUP_LIMITS,
    SHAPE_ANNOTATIONS,
    Bools,
)
from scheduling.engine.types import (
    CPU_PERCENT,
    MEASURED_AT,
    MEMORY_PERCENT,
    PODS,
    ActionConfig,
    Amounts,
    Config,
    Device,
    DeviceClass,
    DisruptionBudget,
    GangPhase,
    HyperNode,
    Job,
    Node,
    Plan,
    PluginConfig,
    PodTerm,
    Queue,
    QueueState,
    Quota,
    Requirement,
    Role,
    Shard,
    ShardMode,
    Snapshot,
    SpreadRule,
    StorageClass,
    SubGroupPolicy,
    Taint,
    Task,
    TaskState,
    TopologyMode,
    TopologyRule,
    Volume,
    VolumeClaim,
)
from scheduling.engine.views import JobView, RoleView
from scheduling.spec.controller_cases import (
    UnsupportedCaseError as UnsupportedControllersCaseError,
)
from scheduling.spec.controller_cases import answer_controllers_case

log = logging.getLogger(__name__)

Data = Mapping[str, Any]  # a parsed JSON object; its shape is checked where it is read

NOW = 1_000_000_000.0
"""The instant at which scenarios happen, in seconds since the epoch."""

QUANTITY = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)([numkMGTPE]|[KMGTPE]i)?")

UNITS = {
    "": 1,
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    **{unit: 1000 ** (n + 1) for n, unit in enumerate("kMGTPE")},
    **{f"{unit}i": 1024 ** (n + 1) for n, unit in enumerate("KMGTPE")},
}

DAY_SECONDS = 24 * 60 * 60

DEFAULT_TASK_PRIORITY = 1

SHAPING = (
    "request",
    "node_selector",
    "priority",
    "preemptable",
    "cooldown_time",
    "revocable_zone",
    "affinity",
    "topology_spread",
    "limits",
    "preemption_policy",
    "volume_claims",
    "resource_claims",
)
"""What tasks of one role must have in common; a role is split where they differ."""


class UnsupportedCaseError(Exception):
    """The case says something that the program cannot translate yet."""


def amount(name: str, text: str) -> int:
    """Return a quantity in the engine's unit: bytes of memory, thousandths of anything else."""
    match = QUANTITY.fullmatch(str(text))
    if match is None:
        raise UnsupportedCaseError(f"quantity {text!r}")
    value = Decimal(match[1]) * UNITS[match[2] or ""]
    is_bytes = name in ("memory", "ephemeral-storage")
    return int((value if is_bytes else value * 1000).to_integral_value(ROUND_CEILING))


def quantity(name: str, value: int) -> str:
    """Return an amount as a quantity."""
    if name in ("memory", "ephemeral-storage"):
        return str(value)
    return str(value // 1000) if value % 1000 == 0 else f"{value}m"


def amounts(data: Data | None) -> dict[str, int]:
    """Return a mapping of quantities in the engine's units."""
    return {name: amount(name, text) for name, text in (data or {}).items()}


@dataclass(frozen=True, slots=True)
class Case:
    """A case with what was translated of it."""

    data: Data
    snapshot: Snapshot
    config: Config


def read_case(data: Data, *, groups: Sequence[str] | None = None) -> Case:
    """Translate the state and the configuration of a case, of all groups or of some."""
    priorities = {c["name"]: int(c.get("value", 0)) for c in data.get("priority_classes", [])}
    queues = [read_queue(q) for q in data["queues"]]
    names = {q.name for q in queues}
    jobs = []
    keys = label_keys(data)
    pods = with_claims(data)
    lost = [p for p in pods if p["phase"] == "Unknown"]
    pods = [p for p in pods if p["phase"] != "Unknown"]
    for group in data["podgroups"]:
        key = f"{group['namespace']}/{group['name']}"
        if groups is None or key in groups:
            jobs.append(read_job(group, pods, priorities, keys))
            if not group["queue"] and "" not in names:
                queues.append(Queue(""))
                names.add("")
    known = {(g["namespace"], g["name"]) for g in data["podgroups"]}
    alone = [p for p in pods if (p["namespace"], p["podgroup"]) not in known]
    if alone and groups is None:
        jobs.extend(read_lonely(pod, keys) for pod in alone)
        if "" not in names:
            queues.append(Queue(""))
            names.add("")
    here = [p for p in lost if p.get("node")]
    jobs.extend(read_lonely({**p, "phase": "Running", "preemptable": False}, keys) for p in here)
    if here and "" not in names:
        queues.append(Queue(""))
    return Case(
        data=data,
        snapshot=Snapshot(
            now=read_clock(data.get("clock")),
            nodes=tuple(
                read_node(
                    n, data.get("node_usage", {}).get(n["name"]), read_devices(data, n["name"])
                )
                for n in data["nodes"]
            ),
            queues=tuple(queues),
            jobs=tuple(jobs),
            shard=read_shard(data.get("sharding")),
            quotas=tuple(
                Quota(q["name"], q["namespace"], amounts(q.get("hard")), amounts(q.get("used")))
                for q in data.get("resource_quotas", [])
            ),
            hypernodes=tuple(read_hypernode(h) for h in data.get("hypernodes", [])),
            disruption_budgets=tuple(read_budget(b) for b in data.get("disruption_budgets", [])),
            device_classes=tuple(
                DeviceClass(c["name"], tuple(c.get("selectors", ())))
                for c in data.get("device_classes", [])
            ),
            storage_classes=tuple(
                read_storage_class(c, data.get("ignored_provisioners", ()))
                for c in data.get("storage_classes", [])
            ),
            volumes=tuple(
                Volume(
                    name=v["name"],
                    storage_class=v.get("storage_class", ""),
                    size_bytes=amount("memory", v.get("capacity", {}).get("storage", "0")),
                    is_available=v.get("phase", "Available") == "Available",
                )
                for v in data.get("persistent_volumes", [])
            ),
            volume_claims=tuple(
                VolumeClaim(
                    key=f"{c['namespace']}/{c['name']}",
                    storage_class=c.get("storage_class", ""),
                    size_bytes=amount("memory", c.get("request", {}).get("storage", "0")),
                )
                for c in data.get("volume_claims", [])
            ),
        ),
        config=read_config(data, data.get("actions", [])),
    )


def with_claims(data: Data) -> list[Data]:
    """Return the pods, each asking for the devices of its claims; a shared claim's go to the first.

    A pod that claims what does not exist asks for a class that no node has.
    """
    claims = {(c["namespace"], c["name"]): c for c in data.get("device_claims", [])}
    counted = set()
    pods = []
    for pod in data["pods"]:
        asked: Counter[str] = Counter()
        for name in pod.get("resource_claims", ()):
            key = (pod["namespace"], name)
            if key in counted:
                continue
            counted.add(key)
            known = claims.get(key, {"requests": [{"device_class": f"claim {name}"}]})
            for request in known.get("requests", []):
                asked[PREFIX + request["device_class"]] += int(request.get("count", 1))
        request = {**pod["request"], **{name: str(count) for name, count in asked.items()}}
        pods.append({**pod, "request": request} if asked else pod)
    return pods


def read_devices(data: Data, node: str) -> tuple[Device, ...]:
    """Translate the devices that a node publishes."""
    slices = [s for s in data.get("device_slices", []) if s.get("node") == node]
    names = [(name, s.get("driver", "")) for s in slices for name in s.get("devices", ())]
    return tuple(
        Device(id=name, index=i, resource="", driver=driver)
        for i, (name, driver) in enumerate(names)
    )


def read_storage_class(data: Data, ignored: Sequence[str]) -> StorageClass:
    """Translate a kind of volume; one whose provisioner is ignored makes no volumes."""
    provisioner = data.get("provisioner", "")
    return StorageClass(
        name=data["name"],
        is_provisioned=provisioner not in ("", "kubernetes.io/no-provisioner", *ignored),
        waits_for_consumer=data.get("volume_binding_mode") == "WaitForFirstConsumer",
    )


def read_clock(text: str | None) -> float:
    """Return the instant of the case: of the usual day, at the stated time."""
    if not text:
        return NOW
    hours, minutes, seconds = (float(part) for part in f"{text}:0:0".split(":")[:3])
    return NOW // DAY_SECONDS * DAY_SECONDS + hours * 3600 + minutes * 60 + seconds


def read_shard(data: Data | None) -> Shard | None:
    """Translate the part of the nodes that belongs to the scheduler."""
    if data is None or data.get("mode") not in set(ShardMode):
        return None
    return Shard(ShardMode(data["mode"]), frozenset(data["nodes"]))


def read_hypernode(data: Data) -> HyperNode:
    """Translate a domain of the network."""
    members = data["members"]
    return HyperNode(
        name=data["name"],
        tier=int(data["tier"]),
        tier_name=data.get("tier_name", ""),
        nodes=frozenset(m["name"] for m in members if m["kind"].lower() == "node"),
        members=tuple(m["name"] for m in members if m["kind"].lower() != "node"),
    )


def read_topology(data: Data | None) -> TopologyRule | None:
    """Translate a topology rule."""
    if not data:
        return None
    tier = data.get("highest_tier_allowed")
    return TopologyRule(
        mode=TopologyMode(data.get("mode", "hard")),
        highest_tier=int(tier) if tier is not None else None,
        highest_tier_name=data.get("highest_tier_name", ""),
    )


def read_policy(data: Data) -> SubGroupPolicy:
    """Translate a policy of sub-groups."""
    return SubGroupPolicy(
        name=data["name"],
        match_label_keys=tuple(data.get("match_label_keys", ())),
        size=int(data.get("sub_group_size", 1)),
        min_groups=int(data.get("min_sub_groups", 0)),
        topology=read_topology(data.get("network_topology")),
    )


def read_budget(data: Data) -> DisruptionBudget:
    """Translate a disruption budget."""
    return DisruptionBudget(
        name=data["name"],
        match_labels=data.get("match_labels", {}),
        disruptions_allowed=int(data["disruptions_allowed"]),
        namespace=data["namespace"],
    )


def read_node(data: Data, load: Data | None = None, devices: tuple[Device, ...] = ()) -> Node:
    """Translate a node; one that states no slots has none."""
    return Node(
        name=data["name"],
        allocatable={PODS: 0, **amounts(data["allocatable"])},
        labels=data.get("labels", {}),
        taints=tuple(
            Taint(t["key"], t.get("value", ""), t["effect"]) for t in data.get("taints", [])
        ),
        annotations={**data.get("annotations", {}), **_usage(load)},
        devices=devices,
    )


def _usage(load: Data | None) -> dict[str, str]:
    """Translate a node's measured load."""
    if load is None or load.get("age_seconds") is None:
        return {}
    return {
        CPU_PERCENT: str(load.get("cpu_avg_percent", 0)),
        MEMORY_PERCENT: str(load.get("memory_avg_percent", 0)),
        MEASURED_AT: str(NOW - load["age_seconds"]),
    }


def read_queue(data: Data) -> Queue:
    """Translate a queue; its min is kept free, as in Volcano."""
    deserved = data.get("deserved")
    return Queue(
        name=data["name"],
        parent=data.get("parent"),
        min=amounts(data.get("guarantee")),
        max=amounts(data.get("capability")),
        weight=int(data.get("weight", 1)),
        priority=int(data.get("priority", 0)),
        lend_min=False,
        reclaimable=data.get("reclaimable", True),
        state=QueueState(data.get("state", "Open")),
        deserved=amounts(deserved) if deserved is not None else None,
        annotations=_queue_annotations(data),
    )


def _queue_annotations(data: Data) -> dict[str, str]:
    """Translate what plugins read from a queue's annotations."""
    found = {}
    place = data.get("hierarchy")
    if place and place.get("path"):
        found[HIERARCHY] = place["path"]
        found[HIERARCHY_WEIGHTS] = place.get("weights", "")
    affinity = data.get("affinity")
    if affinity:
        found[QUEUE_AFFINITY] = json.dumps(
            {kind: affinity.get(f"node_group_{kind}", {}) for kind in ("affinity", "anti_affinity")}
        )
    if "node_group_limits_raw" in data:
        found[QUEUE_GROUP_LIMITS] = data["node_group_limits_raw"]
    elif data.get("node_group_limits"):
        found[QUEUE_GROUP_LIMITS] = json.dumps(
            {group: amounts(limit) for group, limit in data["node_group_limits"].items()}
        )
    return found


def read_job(
    group: Data, pods: Sequence[Data], priorities: Mapping[str, int], keys: frozenset[str]
) -> Job:
    """Translate a group with its pods."""
    own = [
        p for p in pods if p["podgroup"] == group["name"] and p["namespace"] == group["namespace"]
    ]
    roles, tasks = read_tasks(own, _role_minimums(group), keys)
    created = NOW - float(group.get("waiting_seconds", 0))
    if "created" in group:
        text = group["created"].replace("Z", "+00:00")
        created = (
            datetime.fromisoformat(text).astimezone(UTC).timestamp() if text[:4] != "0001" else 0.0
        )
    wait = group.get("sla_waiting_time")
    needed = group.get("min_resources")
    return Job(
        key=f"{group['namespace']}/{group['name']}",
        name=group["name"],
        queue=group["queue"],
        roles=roles,
        tasks=tasks,
        min_available=int(group["min_member"]),
        priority=int(group.get("priority", priorities.get(group.get("priority_class", ""), 0))),
        created_at=created,
        phase=GangPhase(group["phase"] or "Pending"),
        sla_waiting_seconds=parse_duration(wait) if wait else None,
        preemptable=group.get("preemptable"),
        min_resources=amounts(needed) if needed is not None else None,
        annotations=_job_annotations(group),
        topology=read_topology(group.get("network_topology")),
        sub_groups=tuple(read_policy(p) for p in group.get("sub_group_policies", [])),
        domain=group.get("allocated_hypernode", ""),
    )


def read_lonely(pod: Data, keys: frozenset[str]) -> Job:
    """Translate a pod without a group, or of which nothing is known, into a job of its own."""
    roles, tasks = read_tasks([pod], {}, keys)
    return Job(f"{tasks[0].key} alone", pod["name"], "", roles, tasks, 0, phase=GangPhase.RUNNING)


def _role_minimums(group: Data) -> dict[str, int]:
    """Return the role minimums; they count only if their sum is within the group's minimum."""
    minimums: dict[str, int] = group.get("min_task_member", {})
    return minimums if sum(minimums.values()) <= group["min_member"] else {}


def read_tasks(
    pods: Sequence[Data], minimums: Mapping[str, int], keys: frozenset[str]
) -> tuple[tuple[Role, ...], tuple[Task, ...]]:
    """Translate pods into tasks, and into roles of pods that are alike."""
    variants: dict[str, list[Data]] = {}
    for pod in pods:
        alike = json.dumps(
            [pod.get("role", ""), _labels(pod, keys), _accepts_revocable(pod)]
            + [_shaping_annotations(pod)]
            + [pod.get(k) for k in SHAPING],
            sort_keys=True,
        )
        variants.setdefault(alike, []).append(pod)
    per_role = Counter(group[0].get("role", "") for group in variants.values())
    roles: list[Role] = []
    tasks: list[Task] = []
    for position, members in enumerate(variants.values()):
        first = members[0]
        name = first.get("role", "")
        needed = minimums.get(name, 0)
        if per_role[name] > 1:  # what pods that differ have in common is only the whole of a role
            total = sum(p.get("role", "") == name for p in pods)
            needed = len(members) if needed >= total else 0
        role = Role(
            name=f"{name}#{position}",
            request=amounts(first["request"]),
            replicas=len(members),
            min_available=needed,
            priority=int(first.get("priority", DEFAULT_TASK_PRIORITY)),
            node_selector=first.get("node_selector", {}),
            preemptable=first.get("preemptable", True),
            labels=_labels(first, keys),
            annotations=_role_annotations(first),
            node_affinity=_required_nodes(first),
            preferred_affinity=_preferred_nodes(first),
            pod_terms=_pod_terms(first),
            spread=_spread(first),
            limits=amounts(first.get("limits")),
            may_evict=first.get("preemption_policy") != "Never",
            volume_claims=tuple(
                f"{first['namespace']}/{name}" for name in first.get("volume_claims", ())
            ),
            device_claims=tuple(
                f"{first['namespace']}/{name}" for name in first.get("resource_claims", ())
            ),
        )
        roles.append(role)
        tasks.extend(read_task(pod, role.name) for pod in members)
    return tuple(roles), tuple(tasks)


def label_keys(data: Data) -> frozenset[str]:
    """Return the keys of the pods' labels that any rule of the case looks at."""
    budgets = [b.get("match_labels", {}) for b in data.get("disruption_budgets", [])]
    policies = [p for g in data["podgroups"] for p in g.get("sub_group_policies", [])]
    selectors = [t.selector for p in data["pods"] for t in _pod_terms(p)]
    selectors += [rule.selector for p in data["pods"] for rule in _spread(p)]
    named = [{requirement.key for requirement in selector} for selector in selectors]
    return frozenset().union(*named, *budgets, *(p.get("match_label_keys", []) for p in policies))


def _labels(pod: Data, keys: frozenset[str]) -> dict[str, str]:
    labels = {"volcano.sh/task-spec": pod.get("role", ""), **pod.get("labels", {})}
    return {k: v for k, v in labels.items() if k in keys and v}


def _accepts_revocable(pod: Data) -> bool:
    """Return whether a pod may run on revocable nodes: it says so, or that it is preemptable."""
    annotations = pod.get("annotations", {})
    if zone := pod.get("revocable_zone", annotations.get(tdm.ZONE)):
        return bool(zone == "*")
    return str(annotations.get("volcano.sh/preemptable", "")).lower() == "true"


def _selector(data: Data | None) -> tuple[Requirement, ...]:
    """Translate a selector of labels."""
    chosen = data or {}
    return (
        *(Requirement(k, "In", (v,)) for k, v in sorted(chosen.get("match_labels", {}).items())),
        *(
            Requirement(e["key"], e["operator"], tuple(e.get("values") or ()))
            for e in chosen.get("match_expressions", [])
        ),
    )


def _required_nodes(pod: Data) -> tuple[tuple[Requirement, ...], ...]:
    rules = (pod.get("affinity") or {}).get("node_affinity") or {}
    return tuple(_selector(term) for term in rules.get("required", []))


def _preferred_nodes(pod: Data) -> tuple[tuple[int, tuple[Requirement, ...]], ...]:
    rules = (pod.get("affinity") or {}).get("node_affinity") or {}
    return tuple((int(t["weight"]), _selector(t)) for t in rules.get("preferred", []))


def _pod_terms(pod: Data) -> tuple[PodTerm, ...]:
    """Translate affinity and anti-affinity to other pods."""
    affinity = pod.get("affinity") or {}
    return tuple(
        PodTerm(
            selector=_selector(term.get("label_selector")),
            topology_key=term["topology_key"],
            is_anti=kind == "pod_anti_affinity",
            is_required=strength == "required",
            weight=int(term.get("weight", 0)),
        )
        for kind in ("pod_affinity", "pod_anti_affinity")
        for strength in ("required", "preferred")
        for term in (affinity.get(kind) or {}).get(strength, [])
    )


def _spread(pod: Data) -> tuple[SpreadRule, ...]:
    """Translate rules of spreading."""
    return tuple(
        SpreadRule(
            max_skew=int(rule["max_skew"]),
            topology_key=rule["topology_key"],
            selector=_selector(rule.get("label_selector")),
            is_required=rule["when_unsatisfiable"] == "DoNotSchedule",
        )
        for rule in pod.get("topology_spread") or ()
    )


def _shaping_annotations(pod: Data) -> dict[str, str]:
    """Return the annotations that decide where a pod may or should run."""
    annotations: Mapping[str, str] = pod.get("annotations", {})
    return {k: v for k, v in annotations.items() if k in SHAPE_ANNOTATIONS and k != tdm.ZONE}


def _role_annotations(pod: Data) -> dict[str, str]:
    """Translate what plugins read from a pod's annotations."""
    found = _shaping_annotations(pod)
    if "cooldown_time" in pod:
        found[cdp.COOLDOWN] = pod["cooldown_time"]
    if _accepts_revocable(pod):
        found[tdm.ZONE] = "*"
    return found


def _job_annotations(group: Data) -> dict[str, str]:
    """Translate what plugins read from a group's annotations."""
    found = {}
    budget = group.get("disruption_budget") or {}
    if "min_available" in budget:
        found[budgets.MIN_AVAILABLE] = str(budget["min_available"])
    if "max_unavailable" in budget:
        found[budgets.MAX_UNAVAILABLE] = str(budget["max_unavailable"])
    rules = group.get("task_topology") or {}
    for key, name in (
        ("affinity", task_topology.AFFINITY),
        ("anti_affinity", task_topology.ANTI_AFFINITY),
    ):
        if rules.get(key):
            found[name] = ";".join(",".join(members) for members in rules[key])
    if rules.get("task_order"):
        found[task_topology.TASK_ORDER] = ",".join(rules["task_order"])
    return found


def read_task(pod: Data, role: str) -> Task:
    """Translate a pod."""
    node = pod.get("node")
    state = _state(pod)
    digits = re.search(r"(\d+)$", pod["name"])
    return Task(
        key=f"{pod['namespace']}/{pod['name']}",
        role=role,
        index=int(digits[1]) if digits else 0,
        state=state,
        node=pod.get("promised_node") if state is TaskState.PIPELINED else node,
        nominated_node=pod.get("nominated_node") or "",
        started_at=(
            NOW - float(pod["scheduled_seconds_ago"]) if "scheduled_seconds_ago" in pod else None
        ),
    )


def _state(pod: Data) -> TaskState:
    phase = pod["phase"]
    if phase == "Pending":
        if pod.get("promised_node"):
            return TaskState.PIPELINED
        return TaskState.BOUND if pod.get("node") else TaskState.PENDING
    return TaskState(phase)


def read_config(data: Data, actions: Sequence[str], *, has_enqueue: bool | None = None) -> Config:
    """Translate tiers and actions; admission may be configured though it does not run."""
    for name in actions:
        if name not in registry.ACTIONS:
            raise UnsupportedCaseError(f"action {name}")
    arguments = data.get("action_arguments", {})
    tiers = []
    for tier in data["tiers"]:
        plugins = []
        for plugin in tier:
            if plugin["name"] not in KNOWN:
                raise UnsupportedCaseError(f"plugin {plugin['name']}")
            plugins.append(
                PluginConfig(
                    plugin["name"],
                    {k: _text(v) for k, v in plugin.get("arguments", {}).items()},
                    frozenset(plugin.get("disabled", [])),
                    frozenset(plugin.get("enabled", [])),
                )
            )
        tiers.append(tuple(plugins))
    configured = ["enqueue", *actions] if has_enqueue and "enqueue" not in actions else actions
    return Config(
        actions=tuple(
            ActionConfig(n, {k: _text(v) for k, v in arguments.get(n, {}).items()})
            for n in configured
        ),
        tiers=tuple(tiers),
    )


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


class TestRejecter(Plugin):
    """Rejects the admission of one group; made up by the source's tests."""

    name = "test-rejecter"

    def job_enqueueable(self, job: JobView) -> Vote:
        """Reject the named group."""
        is_named = job.job.name == self.arguments["reject_podgroup"]
        return Vote.REJECT if is_named else Vote.PERMIT


class TestPermitAll(Plugin):
    """Allows every victim of a gang eviction; made up by the source's tests."""

    name = "test-permit-all"

    def gang_evictable(self, claim: Claim, unit: Unit) -> bool:
        """Allow it."""
        del claim, unit
        return True


class TestVictimByPriority(Plugin):
    """Withdraws the tasks of one priority; made up by the source's tests."""

    name = "test-victim-by-priority"

    def victims(self) -> list[Unit]:
        """Return the running tasks of that priority."""
        views = [view for key in self.session.tables.rows if (view := self.session.view(key))]
        return [
            Unit(job, (held,))
            for job in views
            for held in self.session.held_tasks(job)
            if held[0].role.priority == int(self.arguments["priority"])
            and held[1].state is TaskState.RUNNING
        ]


class DeviceFitAfterEviction(Plugin):
    """Keeps one pod off every node while another runs; made up by the source's tests."""

    name = "device-fit-after-eviction"

    def task_predicate(self, job: JobView, role: RoleView) -> Bools | None:
        """Return bool[N], None for other pods."""
        del job
        pending = role.pending[-1].key if role.pending else ""
        if pending.rpartition("/")[2] != self.arguments["pod"]:
            return None
        blocker = self.arguments["blocked_while_running"]
        runs = any(
            task.key.rpartition("/")[2] == blocker and task.key not in self.session.evicted
            for row in self.session.tables.rows.values()
            for held in row.roles
            for task, _ in held.held
        )
        return np.full(self.session.tables.nodes.count, not runs)


HELPERS: dict[str, type[Plugin]] = {
    plugin.name: plugin
    for plugin in (DeviceFitAfterEviction, TestPermitAll, TestRejecter, TestVictimByPriority)
}
KNOWN = {**registry.PLUGINS, **HELPERS}


# -- sessions --------------------------------------------------------------------------------------


def answer_session(data: Data) -> dict[str, object]:
    """Run the actions, or the cycles, of a case and say what was decided."""
    if "cycles" not in data:
        session, plan = _run(read_case(data))
        return {**decisions(session, plan, data), "nomination_cleared": cleared(data, plan)}
    placed: dict[str, str] = {}
    phases: dict[str, GangPhase] = {}
    cycles = []
    for cycle in data["cycles"]:
        case = read_case(data, groups=cycle["present_podgroups"])
        snapshot = _with_binds(case.snapshot, placed, phases)
        config = read_config(data, cycle["actions"], has_enqueue=cycle.get("enqueue_configured"))
        session, plan = _run(Case(data, snapshot, config), cycle["actions"])
        cycles.append(decisions(session, plan, data))
        placed |= {b.task: b.node for b in plan.binds}
        phases |= plan.phases
    return {"cycles": cycles}


def _with_binds(
    snapshot: Snapshot, placed: Mapping[str, str], phases: Mapping[str, GangPhase]
) -> Snapshot:
    """Return the snapshot with earlier cycles' binds in effect."""
    return replace(
        snapshot,
        jobs=tuple(
            replace(
                job,
                phase=phases.get(job.key, job.phase),
                tasks=tuple(
                    replace(t, state=TaskState.BOUND, node=placed[t.key]) if t.key in placed else t
                    for t in job.tasks
                ),
            )
            for job in snapshot.jobs
        ),
    )


def _run(case: Case, actions: Sequence[str] | None = None) -> tuple[Session, Plan]:
    """Run a case's actions, or of those that it configures some only."""
    session = open_session(case.snapshot, case.config, plugins=KNOWN)
    run_actions(session, actions)
    return session, close(session)


def decisions(session: Session, plan: Plan, data: Data) -> dict[str, object]:
    """Return a plan with names and quantities."""
    binds = {b.task: b.node for b in plan.binds}
    evicted = [e.task for e in plan.evictions]
    pipelined = {p.task: p.node for p in plan.pipelined}
    status: dict[str, str] = {}
    allocated: dict[str, dict[str, str]] = {}
    phases: dict[str, str] = {}
    for job in session.snapshot.jobs:
        phases[job.key] = str(plan.phases.get(job.key, job.phase))
        roles = {r.name: r for r in job.roles}
        held: Counter[str] = Counter()
        for task in job.tasks:
            status[task.key] = _status(task, binds, evicted, pipelined)
            if status[task.key] in ("Allocated", "Binding", "Bound", "Running"):
                held.update({PODS: 1000, **roles[task.role].request})
        allocated[job.key] = {name: quantity(name, value) for name, value in held.items()}
    return {
        "binds": binds,
        "evicted": evicted,
        "pipelined": pipelined,
        "podgroup_phase": phases,
        "allocated": allocated,
        "task_status": status
        | {
            f"{p['namespace']}/{p['name']}": "Unknown"
            for p in data["pods"]
            if p["phase"] == "Unknown"
        },
        "nomination_cleared": [],
    }


def cleared(data: Data, plan: Plan) -> list[str]:
    """Name the groups whose nominations have come true: a bind takes them away."""
    bound = {b.job for b in plan.binds}
    nominated = {
        f"{p['namespace']}/{p['podgroup']}" for p in data["pods"] if p.get("nominated_node")
    } | {f"{g['namespace']}/{g['name']}" for g in data["podgroups"] if g.get("nominated_hypernode")}
    return sorted(bound & nominated)


def _status(
    task: Task, binds: Mapping[str, str], evicted: Sequence[str], pipelined: Mapping[str, str]
) -> str:
    if task.key in binds:
        return "Binding"
    if task.key in evicted:
        return "Releasing"
    if task.key in pipelined:
        return "Pipelined"
    return str(task.state)


# -- queries ---------------------------------------------------------------------------------------


def answer_query(data: Data) -> dict[str, object]:
    """Ask the plugins what a case asks."""
    case = read_case(data)
    query = data["query"]
    asks = [query["ask"]] if isinstance(query["ask"], str) else query["ask"]
    result: dict[str, object] = {}
    for ask in asks:
        if ask not in QUERIES:
            raise UnsupportedCaseError(f"question {ask}")
        session = open_session(case.snapshot, case.config, plugins=KNOWN)
        result["victims" if ask == "gang_victims" else ask] = QUERIES[ask](session, query)
    return result


def _views(session: Session) -> dict[str, tuple[JobView, RoleView, Task]]:
    """Return each task with its views."""
    found = {}
    for job in session.snapshot.jobs:
        view = session.view(job.key)
        if view is None:
            continue
        roles = {r.name: r for r in view.roles}
        for task in job.tasks:
            found[task.key] = (view, roles[task.role], task)
    return found


def _asked(session: Session, query: Data) -> Iterator[tuple[str, JobView, RoleView]]:
    views = _views(session)
    names = query.get("pods") or list(views)
    for name in names:
        if name in views:  # a pod whose queue does not exist is no question
            job, role, _ = views[name]
            yield name, job, role


def node_scores(session: Session, query: Data) -> dict[str, dict[str, float]]:
    """Sum the node scores of all plugins."""
    names = session.tables.nodes.names
    chosen = query.get("nodes")
    result = {}
    for pod, job, role in _asked(session, query):
        extra = session.task_scores(job, role)
        total = (
            [0.0] * len(names)
            if extra is None
            else [max(float(s), 0.0) if isinf(s) else float(s) for s in extra]
        )
        for callback in session.each("node_order"):
            total = [
                t + float(s) for t, s in zip(total, callback(role.shape, slice(None)), strict=True)
            ]
        mask = session.mask(role.shape)
        result[pod] = {
            name: total[i]
            for i, name in enumerate(names)
            if (mask[i] if chosen == "feasible" else not chosen or name in chosen)
        }
    return result


def node_status(session: Session, query: Data) -> dict[str, dict[str, str]]:
    """Say whether each node passes the filters."""
    names = session.tables.nodes.names
    return {
        pod: {
            name: "ok" if ok else "unresolvable"
            for name, ok in zip(names, _passes(session, job, role), strict=True)
        }
        for pod, job, role in _asked(session, query)
    }


def _passes(session: Session, job: JobView, role: RoleView) -> Bools:
    """Return bool[N]: nodes that pass all filters, room not considered."""
    passes = session.mask(role.shape)
    for callback in session.each("node_room"):
        passes &= callback(role.shape, slice(None))
    for callback in session.each("task_predicate"):
        allowed: Bools | None = callback(job, role)
        if allowed is not None:
            passes &= allowed
    return passes


def steps(session: Session, query: Data) -> list[bool]:
    """Check and place, one after the other."""
    views = _views(session)
    answers = []
    for step in query["steps"]:
        node = session.tables.nodes.index.get(step["node"], -1)
        if step["pod"] not in views or node < 0:
            answers.append(False)
            continue
        job, role, _ = views[step["pod"]]
        fits = bool(_passes(session, job, role)[node])
        answers.append(fits if step["op"] == "check" else session.place(job, role, node))
    return answers


def feasible_nodes(session: Session, query: Data) -> dict[str, list[str]]:
    """Name the nodes that pass the filters."""
    return {
        pod: [name for name, state in states.items() if state == "ok"]
        for pod, states in node_status(session, query).items()
    }


def hypernode_scores(session: Session, query: Data) -> dict[str, float]:
    """Score the domains for a sub-group."""
    wanted = query["sub_group"]
    job = session.view(wanted["podgroup"])
    found: dict[str, float] = {}
    for part in job.parts if job is not None else ():
        if (part.policy.name if part.policy else "") != wanted.get("policy", ""):
            continue
        if list(part.values) != list(wanted.get("label_values", [])):
            continue
        domains = Domains(session.snapshot.hypernodes, session.tables.nodes.index).all
        for callback in session.each("hyper_node_order"):
            for domain, score in zip(domains, callback(part.roles, domains), strict=True):
                found[domain.name] = found.get(domain.name, 0.0) + score
    return found


def job_order(session: Session, query: Data) -> list[str]:
    """Put jobs in order."""
    views = [view for key in query["jobs"] if (view := session.view(key)) is not None]
    return [view.key for view in sorted(views, key=session.job_key)]


def enqueueable(session: Session, query: Data) -> dict[str, bool]:
    """Say which jobs would be let in."""
    for key in query.get("first_mark_enqueued", []):
        view = session.view(key)
        if view is not None:
            for callback in session.each("job_enqueued"):
                callback(view)
    result = {}
    for key in query["enqueue"]:
        view = session.view(key)
        result[key] = view is not None and session.vote("job_enqueueable", view)
    return result


VETO_BY_KIND = {
    "preempt": "preemptable",
    "reclaim": "reclaimable",
    "gang_preempt": "gang_evictable",
    "gang_reclaim": "gang_evictable",
}
ACTION_BY_KIND = {"gang_preempt": gang_evicting.PREEMPT, "gang_reclaim": gang_evicting.RECLAIM}


def victims(session: Session, query: Data) -> list[str]:
    """Name the candidates that every plugin allows, one after the other."""
    kinds = [query["as"]] if isinstance(query["as"], str) else query["as"]
    answers = [_victims_as(session, query, kind) for kind in kinds]
    return [key for key in answers[0] if all(key in answer for answer in answers)]


def _revoked(session: Session, query: Data) -> list[str]:
    """Name what would be withdrawn: of the candidates, or of the whole cluster."""
    candidates = query.get("candidates")
    units = withdrawn(session)
    if candidates:
        views = _views(session)
        if not session.each("victims"):
            known = [views[k] for k in candidates if k in views]
            units = [Unit(job, ((role, task, -1),)) for job, role, task in known]
        units = [u for u in units if u.tasks[0][1].key in candidates]
    chosen = []
    for unit in units:
        if all(callback(unit) for callback in session.each("revocable")):
            session.evict(unit, action="shuffle", beneficiary=None)
            chosen.append(unit.tasks[0][1].key)
    return chosen


def _evictor(session: Session, like: JobView, priority: int) -> JobView:
    """Return a job of a priority that does not occur in the case."""
    job = replace(like.job, key="evictor", priority=priority, tasks=())
    return JobView(session.tables.read(job), queue=like.queue, now=session.now)


def gang_victims(session: Session, query: Data) -> list[str]:
    """Name the tasks of a domain that would be evicted, all bundles taken together."""
    job = session.view(query["for"])
    domains = Domains(session.snapshot.hypernodes, session.tables.nodes.index)
    domain = domains.by_name.get(query.get("domain", ""), domains.top)
    if job is None:
        return []
    found = gang_evicting.bundles(
        session,
        ACTION_BY_KIND[query["as"]],
        job,
        domain,
        allow_whole=query.get("allow_whole_bundle", True),
    )
    return sorted(
        {
            task.key
            for bundle in found
            for unit in bundle.units
            for _, task, node in unit.tasks
            if domain.mask[node]
        }
    )


def _victims_as(session: Session, query: Data, kind: str) -> list[str]:
    if kind == "revoke":
        return _revoked(session, query)
    if kind not in VETO_BY_KIND:
        raise UnsupportedCaseError(f"victims as {kind}")
    views = _views(session)
    name = query.get("preemptor") or query.get("for")
    evictor = views.get(str(name)) if name else None
    removed = Removed(session.width)
    chosen = []
    for key in query["candidates"]:
        if key not in views:
            continue
        job, role, task = views[key]
        unit = Unit(job, ((role, task, session.tables.nodes.index.get(task.node or "", -1)),))
        claimant, wanted = (evictor[0], evictor[1]) if evictor is not None else (job, role)
        if "evictor_priority" in query:
            claimant = _evictor(session, job, int(query["evictor_priority"]))
        claim = Claim(ACTION_BY_KIND.get(kind, kind), claimant, wanted, removed)
        if all(callback(claim, unit) for callback in session.each(VETO_BY_KIND[kind])):
            removed.add(unit)
            chosen.append(key)
    return chosen


def backfill_order(session: Session, query: Data) -> list[str]:
    """Name the best-effort pods in the order in which they are tried."""
    del query
    return [
        task.key
        for job, _ in best_effort_order(session)
        for role in roles_in_order(session, job)
        if role.shape.is_best_effort
        for task in reversed(role.pending)
    ]


QUERIES: dict[str, Callable[[Session, Data], object]] = {
    "node_scores": node_scores,
    "node_status": node_status,
    "hypernode_scores": hypernode_scores,
    "feasible_nodes": feasible_nodes,
    "job_order": job_order,
    "enqueueable": enqueueable,
    "victims": victims,
    "gang_victims": gang_victims,
    "backfill_order": backfill_order,
    "steps": steps,
}


def answer_controllers(case: Data) -> dict[str, object]:
    """Say what becomes of a controller or admission case."""
    return {"then": answer_controllers_case(case["family"], case)}


KINDS: dict[str, Callable[[Data], dict[str, object]]] = {
    "session": answer_session,
    "query": answer_query,
    "controllers": answer_controllers,
}


# -- the program -----------------------------------------------------------------------------------


def cases_of(data: Data) -> Iterator[Data]:
    """Yield the cases of a file."""
    if "cases" in data:
        for case in data["cases"]:
            yield {**{k: v for k, v in data.items() if k != "cases"}, **case}
    else:
        yield data


def answer(case: Data) -> dict[str, object]:
    """Answer one case, or say why not."""
    try:
        if "family" in case:
            return {"id": case["id"], "then": answer_controllers_case(str(case["family"]), case)}
        kind = str(case.get("kind"))
        if kind not in KINDS:
            return {"id": case.get("id"), "unsupported": f"kind {kind}"}
        return {"id": case["id"], **KINDS[kind](case)}
    except (UnsupportedCaseError, UnsupportedControllersCaseError) as error:
        return {"id": case.get("id"), "unsupported": str(error)}
    except Exception as error:
        log.warning("case %s failed", case.get("id"), exc_info=True)
        return {"id": case.get("id"), "unsupported": f"{type(error).__name__}: {error}"}


def main(paths: Sequence[str]) -> int:
    """Answer all cases of the files; 2 if one could not be read."""
    status = 0
    for path in paths:
        try:
            data = json.loads(Path(path).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            sys.stderr.write(f"{path}: {error}\n")
            status = 2
            continue
        for case in cases_of(data):
            sys.stdout.write(json.dumps(answer(case)) + "\n")
    return status


if __name__ == "__main__":
    logging.basicConfig(stream=sys.stderr, level=logging.ERROR)
    sys.exit(main(sys.argv[1:]))

__all__ = ["Amounts", "Requirement", "Vote", "answer", "main"]
