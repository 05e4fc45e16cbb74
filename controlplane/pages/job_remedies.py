"""What a waiting job's reasons lead to: the action filled in, or the page where it is decided."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.urls import reverse
from django.utils.http import urlencode

from scheduling.domain.queries import explain
from scheduling.engine.changes import Change, ChangeKind
from scheduling.models import Job
from scheduling.spec.job_spec import JobSpec, RoleSpec, TopologyPolicy

CONSTRAINTS = frozenset({"node_selector", "node_affinity", "neighbours", "numa", "topology"})
"""What can be left out of a copy by itself; rules inside a pod's template are edited as YAML."""


@dataclass(frozen=True, slots=True)
class Remedy:
    """A change that would start the job, and how it is made: moved to a queue, or as a copy."""

    code: str
    params: Mapping[str, Any]
    queue: str = ""
    copy_url: str = ""


def remedies(job: Job, changes: Sequence[Change], *, may_control: bool) -> list[Remedy]:
    """Return the changes with what makes them; to who may not change the job, as words alone."""
    return [_remedy(job, one, may_control=may_control) for one in changes]


def _remedy(job: Job, change: Change, *, may_control: bool) -> Remedy:
    code, params = explain.code_of(change), change.params
    if not may_control or change.kind == ChangeKind.WAIT_FOR:
        return Remedy(code, params)
    if change.kind == ChangeKind.OTHER_QUEUE:
        return Remedy(code, params, queue=str(params["queue"]))
    if params.get("constraint") not in {None, *CONSTRAINTS}:
        return Remedy(code, params)
    names = ("min_available", "role", "constraint", "key")
    given = {name: str(params[name]) for name in names if params.get(name)}
    query = urlencode({"change": change.kind.value, **given})
    return Remedy(code, params, copy_url=f"{reverse('pages:job_clone', args=[job.id])}?{query}")


def with_change(spec: JobSpec, wanted: Mapping[str, str]) -> JobSpec:
    """Return a spec with the change that an address names; as it is, if it names none."""
    least = wanted.get("min_available", "")
    if wanted.get("change") == ChangeKind.LOWER_MIN and least.isdecimal() and int(least):
        return _with_min(spec, int(least))
    if wanted.get("change") == ChangeKind.DROP_CONSTRAINT:
        return _without(spec, wanted)
    return spec


def _with_min(spec: JobSpec, least: int) -> JobSpec:
    roles = spec.roles
    if len(roles) == 1:
        most = min(roles[0].min_available, least)
        roles = (roles[0].model_copy(update={"min_available": most}),)
    count = min(spec.min_available, least)
    return spec.model_copy(update={"min_available": count, "roles": roles})


def _without(spec: JobSpec, wanted: Mapping[str, str]) -> JobSpec:
    if wanted.get("constraint") == "topology":
        return spec.model_copy(update={"network_topology": None})
    roles = tuple(
        _relaxed(role, wanted.get("constraint", ""), wanted.get("key", ""))
        if role.name == wanted.get("role")
        else role
        for role in spec.roles
    )
    return spec.model_copy(update={"roles": roles})


def _relaxed(role: RoleSpec, constraint: str, key: str) -> RoleSpec:
    match constraint:
        case "node_selector":
            kept = {name: value for name, value in role.node_selector.items() if name != key}
            return role.model_copy(update={"node_selector": kept})
        case "node_affinity":
            return _wishing(role, frozenset({"nodeAffinity"}))
        case "neighbours":
            return _wishing(role, frozenset({"podAffinity", "podAntiAffinity"}))
        case "numa":
            return role.model_copy(update={"topology_policy": TopologyPolicy.NONE})
    return role


def _wishing(role: RoleSpec, kinds: frozenset[str]) -> RoleSpec:
    """Return a role whose affinities of some kinds only prefer and require nothing."""
    kept = {
        kind: {name: rule for name, rule in rules.items() if not name.startswith("required")}
        if kind in kinds
        else rules
        for kind, rules in role.affinity.items()
    }
    return role.model_copy(update={"affinity": kept})
