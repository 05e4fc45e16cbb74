"""Cases about what surrounds a job: its pods, claims, conditions, names and start order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from scheduling.lifecycle.decisions import may_start
from scheduling.lifecycle.states import JobPhase
from scheduling.lifecycle.values import JobView, RoleView, Scope, ScopeKind, TaskCounts
from scheduling.spec import gangs, pods
from scheduling.spec.controller_cases.words import (
    UnsupportedCaseError,
    pod_index,
    read_time,
)
from scheduling.spec.quantities import read_thousandths, write_thousandths

Case = Mapping[str, Any]
_CLAIM_SUFFIX = "0" * 12
"""Stands for what a caller draws by chance."""


def answer(case: Case) -> dict[str, Any]:
    """Answer one question about a job's surroundings."""
    operations = {
        "kill-job": _kill_job,
        "kill-target": _kill_target,
        "delete-pod": _delete_pod,
        "sync-job": _sync_job,
        "dependency-met": _dependency_met,
        "prepare-volumes": _prepare_volumes,
        "create-claim": _create_claim,
        "record-phase": _record_phase,
        "report-gang-conditions": _report,
        "build-pod": _build_pod,
        "pod-name": _pod_name,
        "pod-names": _pod_names,
        "task-position": _task_position,
        "task-replicas": _task_replicas,
        "index-of-pod": _index_of_pod,
        "mark-out-of-sync": _mark_out_of_sync,
        "is-out-of-sync": _is_out_of_sync,
        "left-first": _left_first,
        "quota-usage": _quota_usage,
    }
    operation = case["when"]["operation"]
    if operation not in operations:
        raise UnsupportedCaseError(f"there is no question {operation!r}")
    return operations[operation](case["given"], case["when"])


# --- stopping and making ------------------------------------------------------------------------


def _kill_job(given: Case, when: Case) -> dict[str, Any]:
    """What the plugins of a job made lives as long as the job: it goes with it."""
    del when
    own = {given["job"]["name"], f"{given['job']['name']}-head-svc"}
    return {
        "error": False,
        "killed": [pod["name"] for pod in given.get("pods", ())],
        "kept": [],
        "services_left": [name for name in given.get("services", ()) if name not in own],
        "gang_record_left": False,
    }


def _kill_target(given: Case, when: Case) -> dict[str, Any]:
    target = when["target"]
    is_role = target["scope"] == "task"
    kind = ScopeKind.ROLE if is_role else ScopeKind.TASK
    scope = Scope(kind, target.get("task", ""), None if is_role else pod_index(target["pod"]))
    killed = [
        pod["name"]
        for pod in given.get("pods", ())
        if scope.covers(Scope(ScopeKind.TASK, pod["task"], pod_index(pod["name"])))
        and (is_role or pod["name"] == target["pod"])
    ]
    return {
        "error": False,
        "killed": killed,
        "kept": [pod["name"] for pod in given.get("pods", ()) if pod["name"] not in killed],
        "services_left": list(given.get("services", ())),
        "gang_record_left": bool(given.get("gang_record")),
    }


def _delete_pod(given: Case, when: Case) -> dict[str, Any]:
    gone = when["pod"] if isinstance(when["pod"], str) else when["pod"]["name"]
    names = [pod["name"] for pod in given.get("pods", ())]
    return {
        "error": False,
        "killed": [name for name in names if name == gone],
        "kept": [name for name in names if name != gone],
    }


def _sync_job(given: Case, when: Case) -> dict[str, Any]:
    del when
    job, existing = given["job"], given.get("pods", ())
    names = [pod["name"] for pod in existing]
    is_waiting = given.get("gang_record_phase", "") in ("", "Pending")
    if is_waiting or job.get("deleting"):
        return {"error": False, "created": [], "killed": [], "pod_count": len(names)}
    view = _view(given)
    created: list[str] = []
    killed: list[str] = []
    for task in job.get("tasks", ()):
        indexes = {
            index
            for pod in existing
            if pod["task"] == task["name"] and (index := pod_index(pod["name"])) is not None
        }
        killed += [
            pods.pod_name(job["name"], task["name"], index)
            for index in sorted(indexes)
            if index >= task["replicas"]
        ]
        role = view.role(task["name"])
        if role is not None and may_start(view, role):
            created += [
                pods.pod_name(job["name"], task["name"], index)
                for index in pods.missing_indexes(task["replicas"], indexes)
            ]
    count = len(names) + len(created) - len(killed)
    return {"error": False, "created": created, "killed": killed, "pod_count": count}


def _view(given: Case) -> JobView:
    roles = []
    for task in given["job"].get("tasks", ()):
        own = [pod for pod in given.get("pods", ()) if pod["task"] == task["name"]]
        phases = [pod.get("phase") for pod in own]
        ready = sum(pod.get("phase") == "Running" and bool(pod.get("ready")) for pod in own)
        depends_on = task.get("depends_on") or {}
        roles.append(
            RoleView(
                task["name"],
                task["replicas"],
                task.get("min_available"),
                depends_on=tuple(depends_on.get("tasks", ())),
                depends_on_any=depends_on.get("mode") == "any",
                counts=TaskCounts(
                    pending=phases.count("Pending"),
                    running=phases.count("Running"),
                    ready=ready,
                    succeeded=phases.count("Succeeded"),
                    failed=phases.count("Failed"),
                ),
            )
        )
    return JobView(JobPhase.PENDING, tuple(roles), min_available=0)


def _dependency_met(given: Case, when: Case) -> dict[str, Any]:
    view = _view(given)
    role = view.role(when["task"])
    return {"met": role is not None and may_start(view, role)}


# --- claims, history, conditions ----------------------------------------------------------------


def _prepare_volumes(given: Case, when: Case) -> dict[str, Any]:
    del when
    job = given["job"]
    volumes = job.get("volumes", ())
    known = {c["name"] if isinstance(c, Mapping) else c for c in given.get("claims", ())}
    made = []
    for volume in volumes:
        if volume.get("template") is not None:
            made.append(volume.get("claim") or f"{job['name']}-pvc-{_CLAIM_SUFFIX}")
        elif volume.get("claim") not in known:
            return {"error": True, "keyword": "claim-not-found", "volumes": len(volumes)}
    return {"error": False, "claims": made, "volumes": len(volumes)}


def _create_claim(given: Case, when: Case) -> dict[str, Any]:
    name = when.get("claim") or f"{given['job']['name']}-pvc-{_CLAIM_SUFFIX}"
    return {"error": False, "claims": [name]}


def _record_phase(given: Case, when: Case) -> dict[str, Any]:
    """As conditions do: each phase once, the newest last."""
    phase = when["phase"]
    history = [*(one for one in given.get("history", ()) if one != phase), phase]
    return {"history": history, "last": history[-1], "length": len(history)}


def _report(given: Case, when: Case) -> dict[str, Any]:
    del when
    job, record = given["job"], given.get("gang_record")
    conditions = record.get("conditions", ()) if isinstance(record, Mapping) else ()
    listed = [
        gangs.GangCondition(
            one["type"], one["status"] == "True", read_time(one["at"]), one["message"]
        )
        for one in conditions
    ]
    newest = gangs.waiting_condition(listed)
    if newest is None:
        return {"warning": False}
    name = f"{job.get('namespace', 'default')}:{job['name']}"
    return {
        "warning": True,
        "reason": gangs.PENDING_REASON,
        "message": f"PodGroup {name} {newest.type}, message: {newest.message}",
    }


# --- names and marks ----------------------------------------------------------------------------


def _build_pod(given: Case, when: Case) -> dict[str, Any]:
    job, task = given["job"], given["task"]
    marks = pods.mark_pod(
        pods.PodJob(
            name=job["name"],
            uid=job.get("uid", ""),
            namespace=job.get("namespace", "default"),
            queue=job.get("queue", "default"),
            scheduler=job.get("scheduler", "volcano"),
            version=job.get("version", 0),
            retry_count=job.get("retry_count", 0),
            priority_class=job.get("priority_class", ""),
            annotations=job.get("annotations", {}),
            is_forwarded=bool(job.get("forwarding")),
        ),
        pods.PodRole(
            name=task["name"],
            labels=task.get("pod_labels", {}),
            priority_class=task.get("priority_class", ""),
            scheduler=task.get("scheduler", ""),
            partition_size=task.get("partition_size"),
        ),
        when["index"],
    )
    volumes: dict[str, str] = {}  # the same claim twice is one volume
    for volume in job.get("volumes", ()):
        path = volume.get("mount_path", "")
        volumes.setdefault(volume.get("claim") or path, path)
    return {
        "pod_name": marks.name,
        "namespace": marks.namespace,
        "scheduler": marks.scheduler,
        "priority_class": marks.priority_class,
        "labels": dict(marks.labels),
        "annotations": dict(marks.annotations),
        "volume_count": len(volumes),
        "mount_paths": list(volumes.values()),
    }


def _pod_name(given: Case, when: Case) -> dict[str, Any]:
    task = given["task"] if isinstance(given["task"], str) else given["task"]["name"]
    return {"pod_name": pods.pod_name(given["job"]["name"], task, when["index"])}


def _pod_names(given: Case, when: Case) -> dict[str, Any]:
    job, name = given["job"], when["task"]
    replicas = _task_replicas(given, when)["replicas"]
    return {"pod_names": [pods.pod_name(job["name"], name, n) for n in range(replicas)]}


def _task_position(given: Case, when: Case) -> dict[str, Any]:
    names = [task["name"] for task in given["job"].get("tasks", ())]
    return {"position": names.index(when["task"]) if when["task"] in names else -1}


def _task_replicas(given: Case, when: Case) -> dict[str, Any]:
    tasks = given["job"].get("tasks", ())
    found = [task["replicas"] for task in tasks if task["name"] == when["task"]]
    return {"replicas": found[0] if found else 0}


def _index_of_pod(given: Case, when: Case) -> dict[str, Any]:
    del when
    text = (given["pod"].get("labels") or {}).get(pods.TASK_INDEX)
    try:
        return {"error": False, "index": int(text or "")}
    except ValueError:
        return {"error": True}


def _mark_out_of_sync(given: Case, when: Case) -> dict[str, Any]:
    del when
    path = "/metadata/annotations"
    escaped = pods.OUT_OF_SYNC.replace("~", "~0").replace("/", "~1")
    first = (
        []
        if given["pod"].get("annotations") is not None
        else [{"op": "add", "path": path, "value": {}}]
    )
    return {"json_patch": [*first, {"op": "add", "path": f"{path}/{escaped}", "value": "true"}]}


def _is_out_of_sync(given: Case, when: Case) -> dict[str, Any]:
    del when
    annotations = given["pod"].get("annotations") or {}
    return {"out_of_sync": annotations.get(pods.OUT_OF_SYNC) == "true"}


def _left_first(given: Case, when: Case) -> dict[str, Any]:
    del when
    left, right = given["left"], given["right"]
    positions = pod_index(left["name"]), pod_index(right["name"])
    if None not in positions and positions[0] != positions[1]:
        return {"left_first": (positions[0] or 0) < (positions[1] or 0)}
    ages = (left["age_offset_s"], left["id"]), (right["age_offset_s"], right["id"])
    return {"left_first": ages[0] < ages[1]}


def _quota_usage(given: Case, when: Case) -> dict[str, Any]:
    containers = [
        (_amounts(one.get("requests")), _amounts(one.get("limits")))
        for one in given["pod"].get("containers", ())
    ]
    usage = pods.quota_usage(containers, when.get("count", 1))
    plain = ("pods", "count/pods")
    return {
        "usage": {
            name: amount if name in plain else write_thousandths(amount)
            for name, amount in usage.items()
        }
    }


def _amounts(amounts: Mapping[str, Any] | None) -> dict[str, int]:
    return {name: read_thousandths(value) or 0 for name, value in (amounts or {}).items()}
