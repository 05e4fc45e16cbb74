"""Cases about defaults: what is filled into jobs, queues, gang records and pods."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from scheduling.spec import gangs, resource_groups, volcano
from scheduling.spec.defaults import fill_in, fill_in_queue
from scheduling.spec.reader import Findings

_ROLE_FIELDS = {"name": "name", "min_available": "minAvailable", "max_retry": "maxRetry"}


def answer(case: Mapping[str, Any]) -> dict[str, Any]:
    """Fill in the defaults of an object."""
    given, when = case["given"], case["when"]
    if when["operation"] != "create":
        return {"allowed": False, "changed": False, "keyword": "unsupported-operation"}
    if given["kind"] == "Job":
        return {"allowed": True, **_job(when["manifest"])}
    if given["kind"] == "Queue":
        filled = fill_in_queue(when["queue"])
        return {"allowed": True, "changed": filled != when["queue"], "queue": filled}
    if given["kind"] == "PodGroup":
        record = dict(when["gang_record"])
        annotations = given.get("namespace_annotations") or {}
        record["queue"] = gangs.queue_in_namespace(record["queue"], annotations)
        changed = record != when["gang_record"]
        return {"allowed": True, "changed": changed, "gang_record": record}
    return {"allowed": True, **_pod(given, when["pod"])}


def _pod(given: Mapping[str, Any], pod: Mapping[str, Any]) -> dict[str, Any]:
    groups = [_group(one) for one in given.get("resource_groups", ())]
    found = resource_groups.find_group(
        groups,
        namespace=pod.get("namespace", "default"),
        annotations=pod.get("annotations") or {},
    )
    if found is None:
        return {"changed": False}
    placed = {
        "node_selector": dict(found.node_labels),
        "scheduler": found.scheduler,
        "tolerations": list(found.tolerations),
        "affinity": dict(found.affinity),
    }
    return {"changed": True, "pod": placed}


def _group(group: Mapping[str, Any]) -> resource_groups.ResourceGroup:
    match = group.get("match") or {}
    return resource_groups.ResourceGroup(
        group["name"],
        group["scheduler"],
        group["node_labels"],
        match.get("by", ""),
        tuple(match.get("values", ())),
        group.get("tolerations", ()),
        group.get("affinity", {}),
    )


def _job(manifest: Mapping[str, Any]) -> dict[str, Any]:
    before = manifest["spec"]
    spec = copy.deepcopy(before)
    plain = fill_in(volcano.read_job(dict(manifest), Findings()))
    spec |= {
        "queue": plain["queue"],
        "schedulerName": plain["scheduler_name"],
        "maxRetry": plain["max_retry"],
        "minAvailable": plain["min_available"],
    }
    if plain["plugins"]:
        given = spec.get("plugins") or {}
        spec["plugins"] = {name: given.get(name) or [] for name in plain["plugins"]}
    for task, role in zip(spec["tasks"], plain["roles"], strict=True):
        for name, key in _ROLE_FIELDS.items():
            task[key] = role[name]
        if role.get("depends_on"):
            task["dependsOn"] = {**task.get("dependsOn", {}), "name": role["depends_on"]["names"]}
        task["template"] = role["template"]
    return {"changed": spec != before, "spec": spec, "spec_tasks": spec["tasks"]}
