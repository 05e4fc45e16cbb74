"""Cases about the admission of jobs, pods and gang records."""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from typing import Any

from scheduling.spec import pod_budget, rules, start_order, volcano
from scheduling.spec.controller_cases.words import faults, verdict
from scheduling.spec.job_spec import NetworkTopology
from scheduling.spec.parse import Format, read
from scheduling.spec.problems import Problem

Case = Mapping[str, Any]
_OWN_WORDS = {
    "unknown_dependency": "dependency_not_acyclic",
    "invalid_job_name": "invalid_name",
    "duplicate_claim": "claim_required",
}


def answer_job(case: Case) -> dict[str, Any]:
    """Judge a job that is submitted or changed, or find the order of its tasks."""
    given, when = case["given"], case["when"]
    if when["operation"] == "order-tasks":
        depends_on = {task["name"]: task.get("depends_on", ()) for task in given["tasks"]}
        found = start_order.find_order(depends_on)
        return {"acyclic": not found.cycle, "order": list(found.order)}
    new = read(_as_stored(case), form=Format.JSON)
    if when["operation"] == "update":
        old = read(dict(given["old_manifest"]), form=Format.JSON)
        if old.spec is None or new.spec is None:
            return verdict(faults(new.problems))
        problems = rules.check_update(old.spec, new.spec)
        return verdict(_as_manifest(problems))
    spec = when["manifest"].get("spec") or {}
    name = spec.get("queue") or "default"
    known = {queue["name"]: queue for queue in given.get("queues", ())}
    problems = rules.check_queue(name, _facts(name, known))
    found_faults = [*_renamed(new.problems), *_as_manifest(problems)]
    return verdict(found_faults)


def _as_stored(case: Case) -> dict[str, Any]:
    """Return the manifest without the fields that a cluster with features switched off drops."""
    manifest: dict[str, Any] = copy.deepcopy(dict(case["when"]["manifest"]))
    if case["given"].get("features", {}).get("pod_level_resources") is False:
        for task in manifest.get("spec", {}).get("tasks", ()):
            task.get("template", {}).get("spec", {}).pop("resources", None)
    return manifest


def _facts(name: str, known: Mapping[str, Any]) -> rules.QueueFacts | None:
    if name not in known:
        return None
    children = sum(queue.get("parent") == name for queue in known.values())
    return rules.QueueFacts(
        name, known[name].get("state", ""), is_root=name == "root", children=children
    )


def _as_manifest(problems: list[Problem]) -> list[dict[str, str]]:
    return _renamed(
        [Problem(volcano.manifest_path(one.path), one.code, one.params) for one in problems]
    )


def _renamed(problems: Any) -> list[dict[str, str]]:
    """The cases name a list of policies as a whole, and some codes otherwise."""
    return faults(
        Problem(
            re.sub(r"(policies)\[\d+\].*", r"\1", one.path),
            _OWN_WORDS.get(one.code, one.code),
            one.params,
        )
        for one in problems
    )


def answer_other(case: Case) -> dict[str, Any]:
    """Judge a pod's disruption budget, or a gang record's queue and placement."""
    given, when = case["given"], case["when"]
    if "pod" in when:
        pod = when["pod"]
        if pod.get("scheduler") not in given.get("scheduler_names", ("volcano",)):
            return verdict([])
        found = pod_budget.check(pod.get("annotations") or {})
        return verdict(faults(found))
    record = when["gang_record"]
    known = {queue["name"]: queue for queue in given.get("queues", ())}
    problems: list[Problem] = []
    if record.get("queue"):
        facts = _facts(record["queue"], known)
        problems += [
            one for one in rules.check_queue(record["queue"], facts) if one.code != "not_leaf_queue"
        ]
    problems += _topology(record.get("topology"), "topology")
    for number, subgroup in enumerate(record.get("subgroups", ())):
        problems += _topology(subgroup.get("topology"), f"subgroups[{number}].topology")
    return verdict(faults(problems))


def _topology(topology: Mapping[str, Any] | None, path: str) -> list[Problem]:
    if not topology:
        return []
    return list(
        rules.check_topology(
            NetworkTopology(
                mode=topology.get("mode") or "hard",
                highest_tier_allowed=topology.get("highest_tier_allowed"),
                highest_tier_name=topology.get("highest_tier_name"),
            ),
            path,
        )
    )
