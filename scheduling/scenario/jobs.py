"""A case's groups and pods as jobs, roles and tasks."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from scheduling.engine import budgets
from scheduling.engine.device_classes import PREFIX
from scheduling.engine.durations import parse_duration
from scheduling.engine.plugins import cdp, task_topology, tdm
from scheduling.engine.shapes import SHAPE_ANNOTATIONS
from scheduling.engine.types import (
    GangPhase,
    Job,
    PodTerm,
    Requirement,
    Role,
    SpreadRule,
    SubGroupPolicy,
    Task,
    TaskState,
    TopologyMode,
    TopologyRule,
)
from scheduling.scenario.clock import NOW
from scheduling.scenario.quantities import Data, amounts

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
        min_resources=_needed(group, own),
        annotations=_job_annotations(group),
        topology=read_topology(group.get("network_topology")),
        sub_groups=tuple(read_policy(p) for p in group.get("sub_group_policies", [])),
        domain=group.get("allocated_hypernode", ""),
    )


def _needed(group: Data, pods: Sequence[Data]) -> dict[str, int] | None:
    """Return what a group needs at least: what it states, and the devices that its claims ask for.

    Of each role's minimum, or else of the first pods up to the group's.
    """
    stated = group.get("min_resources")
    claiming = sorted((p for p in pods if p.get("resource_claims")), key=lambda p: str(p["name"]))
    counted: list[Data] = []
    for role, count in group.get("min_task_member", {}).items():
        counted += [p for p in claiming if p.get("role", "") == role][:count]
    if not group.get("min_task_member"):
        counted = claiming[: group["min_member"]]
    devices: Counter[str] = Counter()
    for pod in counted:
        asked = amounts(pod["request"])
        devices.update({name: n for name, n in asked.items() if name.startswith(PREFIX)})
    if stated is None and not devices:
        return None
    return {**devices, **amounts(stated)}


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
