"""Volcano Jobs (batch.volcano.sh/v1alpha1) in and out: manifest <-> plain representation."""

from __future__ import annotations

import json
import re
from typing import Any

from scheduling.spec import job_plugins, pod_template
from scheduling.spec.job_spec import JobKind, JobSpec, NetworkTopology, PolicySpec, RoleSpec
from scheduling.spec.quantities import read_seconds, write_duration
from scheduling.spec.reader import Findings, MapReader

JOB_API = "batch.volcano.sh/v1alpha1"
PREEMPTABLE = "volcano.sh/preemptable"
SLA_WAITING_TIME = "volcano.sh/sla-waiting-time"
KIND = "terrace/kind"
CODE = "terrace/code"
PRIORITY = "terrace/priority"
TIME_LIMIT = "terrace/time-limit"
_METADATA_OF_THE_CLUSTER = {
    "creationTimestamp", "generation", "managedFields", "ownerReferences", "resourceVersion",
    "selfLink", "uid", "finalizers", "deletionTimestamp", "deletionGracePeriodSeconds",
}  # fmt: skip


def read_job(manifest: dict[str, Any], findings: Findings, *, name_suffix: str = "") -> Any:
    """Return the plain representation of a Job manifest; what is wrong goes into the findings.

    `generateName` gets `name_suffix` behind it: chance is not for this package.
    """
    top = MapReader(manifest, "", findings)
    plain = _read_metadata(top, name_suffix)
    spec = top.sub("spec")
    if spec is not None:
        plain |= read_job_spec(spec)
    elif manifest.get("spec") is None:
        findings.refuse("spec", "required")
    return plain


def _read_metadata(top: MapReader, name_suffix: str) -> dict[str, Any]:
    metadata = top.sub("metadata")
    if metadata is None:
        return {}
    name = metadata.text("name") or ""
    generate_name = metadata.text("generateName")
    if not name and generate_name:
        name = f"{generate_name}{name_suffix}".rstrip("-")
        metadata.findings.note(metadata.at("generateName"), "name_generated", name=name)
    annotations = metadata.text_map("annotations")
    plain: dict[str, Any] = {
        "name": name,
        "namespace": metadata.text("namespace") or "",
        "labels": metadata.text_map("labels"),
        "annotations": annotations,
    }
    for field in metadata.unknown():
        if field not in _METADATA_OF_THE_CLUSTER:
            metadata.findings.note(metadata.at(field), "field_ignored", field=field)
    _take_annotations(plain, annotations, metadata)
    return plain


def _take_annotations(
    plain: dict[str, Any], annotations: dict[str, str], metadata: MapReader
) -> None:
    """Move annotations that have a field of their own into it."""
    if annotations.get(PREEMPTABLE) in ("true", "false"):
        plain["preemptable"] = annotations.pop(PREEMPTABLE) == "true"
    if annotations.get(KIND) in set(JobKind):
        plain["kind"] = annotations.pop(KIND)
    if re.fullmatch(r"-?\d{1,10}", annotations.get(PRIORITY, "")):
        plain["priority"] = int(annotations.pop(PRIORITY))
    path = metadata.at("annotations")
    _take_durations(plain, annotations, path, metadata.findings)
    if CODE in annotations:
        try:
            plain["code"] = json.loads(annotations[CODE])
            del annotations[CODE]
        except ValueError:
            metadata.findings.refuse(f"{path}.{CODE}", "not_json")


def _take_durations(
    plain: dict[str, Any], annotations: dict[str, str], path: str, findings: Findings
) -> None:
    for key, field in (
        (SLA_WAITING_TIME, "sla_waiting_seconds"),
        (TIME_LIMIT, "time_limit_seconds"),
    ):
        if key in annotations:
            seconds = read_seconds(annotations[key])
            if seconds is None:
                findings.refuse(f"{path}.{key}", "not_a_duration", value=annotations[key][:80])
            else:
                plain[field] = seconds
                del annotations[key]


def read_job_spec(spec: MapReader) -> dict[str, Any]:
    """Return the plain representation of a JobSpec, as Jobs, templates and schedules carry it."""
    findings = spec.findings
    plain: dict[str, Any] = {
        "queue": spec.text("queue") or "default",
        "scheduler_name": spec.text("schedulerName") or "volcano",
        "min_available": spec.whole("minAvailable"),
        "min_success": spec.whole("minSuccess"),
        "max_retry": spec.whole("maxRetry"),
        "ttl_seconds": spec.whole("ttlSecondsAfterFinished"),
        "running_estimate_seconds": spec.seconds("runningEstimate"),
        "priority_class": spec.text("priorityClassName") or "",
        "policies": _read_policies(spec),
        "plugins": _read_plugins(spec),
        "volumes": _read_volumes(spec),
        "network_topology": _read_topology(spec),
        "roles": [_read_role(task, n) for n, task in enumerate(spec.maps("tasks"))],
    }
    for field in spec.unknown():
        findings.note(spec.at(field), "field_ignored", field=field)
    return plain


def _read_policies(owner: MapReader) -> list[dict[str, Any]]:
    policies = []
    for policy in owner.maps("policies"):
        events = policy.texts("events") or []
        event = policy.text("event")
        if event is not None and event not in events:
            events = [event, *events]
        policies.append(
            {
                "events": events,
                "exit_code": policy.whole("exitCode"),
                "action": policy.text("action") or "",
                "timeout_seconds": policy.seconds("timeout"),
            }
        )
        for field in policy.unknown():
            policy.findings.note(policy.at(field), "field_ignored", field=field)
    return policies


def _read_plugins(spec: MapReader) -> dict[str, dict[str, Any]]:
    plugins: dict[str, dict[str, Any]] = {}
    for name, args in spec.map("plugins").items():
        if name not in job_plugins.PLUGINS:
            plugins[name] = {}
            continue
        options, wrong = job_plugins.read_options(name, args)
        plugins[name] = options
        path = f"{spec.at('plugins')}.{name}"
        for code, detail in wrong:
            if code == "unknown_option":
                flags = job_plugins.flags_of(name)
                spec.findings.refuse(path, code, plugin=name, option=detail, known=flags)
            else:
                spec.findings.refuse(path, code, expected=detail, value=f"{args!r:.80}")
    return plugins


def _read_volumes(spec: MapReader) -> list[dict[str, Any]]:
    return [
        {
            "mount_path": volume.text("mountPath") or "",
            "claim_name": volume.text("volumeClaimName") or "",
            "claim": volume.map("volumeClaim") if volume.raw("volumeClaim") is not None else None,
        }
        for volume in spec.maps("volumes")
    ]


def _read_topology(owner: MapReader) -> dict[str, Any] | None:
    topology = owner.sub("networkTopology")
    if topology is None:
        return None
    return {
        "mode": topology.text("mode") or "hard",
        "highest_tier_allowed": topology.whole("highestTierAllowed"),
        "highest_tier_name": topology.text("highestTierName"),
    }


def _read_role(task: MapReader, position: int) -> dict[str, Any]:
    name = task.text("name") or f"default{position}"
    plain: dict[str, Any] = {
        "name": name,
        "min_available": task.whole("minAvailable"),
        "max_retry": task.whole("maxRetry"),
        "policies": _read_policies(task),
        "topology_policy": task.text("topologyPolicy") or "none",
        "depends_on": _read_depends_on(task),
        "partition_policy": _read_partitions(task),
    }
    replicas = task.whole("replicas")
    plain["replicas"] = 0 if replicas is None else replicas
    template = task.sub("template")
    if template is None:
        empty = {"spec": {"containers": [{"name": name}]}}
        template = MapReader(empty, task.at("template"), task.findings)
    fields, regular = pod_template.lift(template, role_name=name)
    plain |= {**fields, "template": regular}
    if not (fields.get("image") or fields.get("command") or fields.get("args")):
        task.findings.note(task.at("template"), "role_runs_nothing", role=name)
    for field in task.unknown():
        task.findings.note(task.at(field), "field_ignored", field=field)
    return plain


def _read_depends_on(task: MapReader) -> dict[str, Any] | None:
    depends_on = task.sub("dependsOn")
    if depends_on is None:
        return None
    return {
        "names": depends_on.texts("name") or [],
        "iteration": depends_on.text("iteration") or "all",
    }


def _read_partitions(task: MapReader) -> dict[str, Any] | None:
    policy = task.sub("partitionPolicy")
    if policy is None:
        return None
    return {
        "total_partitions": policy.whole("totalPartitions") or 0,
        "partition_size": policy.whole("partitionSize") or 0,
        "min_partitions": policy.whole("minPartitions") or 0,
        "network_topology": _read_topology(policy),
    }


# --- out ----------------------------------------------------------------------------------------


def to_manifest(spec: JobSpec) -> dict[str, Any]:
    """Return the Volcano Job of a spec. Reading it back gives an equal spec."""
    metadata: dict[str, Any] = {"name": spec.name}
    _put(metadata, "namespace", spec.namespace)
    _put(metadata, "labels", dict(spec.labels))
    _put(metadata, "annotations", _annotations(spec))
    return {
        "apiVersion": JOB_API,
        "kind": "Job",
        "metadata": metadata,
        "spec": job_spec_to_manifest(spec),
    }


def job_spec_to_manifest(spec: JobSpec) -> dict[str, Any]:
    """Return the `spec` part of a Volcano Job."""
    written: dict[str, Any] = {
        "schedulerName": spec.scheduler_name,
        "queue": spec.queue,
        "minAvailable": spec.min_available,
        "maxRetry": spec.max_retry,
    }
    _put(written, "minSuccess", spec.min_success)
    _put(written, "priorityClassName", spec.priority_class)
    _put(written, "ttlSecondsAfterFinished", spec.ttl_seconds)
    if spec.running_estimate_seconds is not None:
        written["runningEstimate"] = write_duration(spec.running_estimate_seconds)
    written["plugins"] = {
        name: job_plugins.options_to_args(name, options) if name != "rendezvous" else dict(options)
        for name, options in spec.plugins.items()
    }
    _put(written, "policies", [_policy(policy) for policy in spec.policies])
    _put(written, "volumes", [_volume(volume) for volume in spec.volumes])
    _put(written, "networkTopology", _topology(spec.network_topology))
    written["tasks"] = [_task(role) for role in spec.roles]
    return written


def _put(target: dict[str, Any], key: str, value: Any) -> None:
    if value not in (None, "", [], {}):
        target[key] = value


def _annotations(spec: JobSpec) -> dict[str, str]:
    annotations = dict(spec.annotations)
    if spec.preemptable is not None:
        annotations[PREEMPTABLE] = str(spec.preemptable).lower()
    if spec.sla_waiting_seconds is not None:
        annotations[SLA_WAITING_TIME] = write_duration(spec.sla_waiting_seconds)
    if spec.time_limit_seconds is not None:
        annotations[TIME_LIMIT] = write_duration(spec.time_limit_seconds)
    if spec.kind is not JobKind.TRAINING:
        annotations[KIND] = spec.kind.value
    if spec.priority is not None:
        annotations[PRIORITY] = str(spec.priority)
    if spec.code is not None:
        annotations[CODE] = spec.code.model_dump_json(exclude_defaults=True)
    return annotations


def _policy(policy: PolicySpec) -> dict[str, Any]:
    written: dict[str, Any] = {}
    if len(policy.events) == 1:
        written["event"] = policy.events[0].value
    elif policy.events:
        written["events"] = [event.value for event in policy.events]
    if policy.exit_code is not None:
        written["exitCode"] = policy.exit_code
    written["action"] = policy.action.value
    if policy.timeout_seconds is not None:
        written["timeout"] = write_duration(policy.timeout_seconds)
    return written


def _volume(volume: Any) -> dict[str, Any]:
    written: dict[str, Any] = {"mountPath": volume.mount_path}
    _put(written, "volumeClaimName", volume.claim_name)
    if volume.claim is not None:
        written["volumeClaim"] = volume.claim
    return written


def _topology(topology: NetworkTopology | None) -> dict[str, Any]:
    if topology is None:
        return {}
    written: dict[str, Any] = {"mode": topology.mode}
    if topology.highest_tier_allowed is not None:
        written["highestTierAllowed"] = topology.highest_tier_allowed
    _put(written, "highestTierName", topology.highest_tier_name)
    return written


def _task(role: RoleSpec) -> dict[str, Any]:
    written: dict[str, Any] = {
        "name": role.name,
        "replicas": role.replicas,
        "minAvailable": role.min_available,
        "maxRetry": role.max_retry,
    }
    _put(written, "policies", [_policy(policy) for policy in role.policies])
    if role.topology_policy != "none":
        written["topologyPolicy"] = role.topology_policy.value
    if role.depends_on is not None:
        written["dependsOn"] = {
            "name": list(role.depends_on.names),
            "iteration": role.depends_on.iteration,
        }
    if role.partition_policy is not None:
        partitions = role.partition_policy
        written["partitionPolicy"] = {
            "totalPartitions": partitions.total_partitions,
            "partitionSize": partitions.partition_size,
            "minPartitions": partitions.min_partitions,
        }
        _put(written["partitionPolicy"], "networkTopology", _topology(partitions.network_topology))
    written["template"] = pod_template.write_back(role)
    return written


# --- paths --------------------------------------------------------------------------------------

_SEGMENTS = {
    "roles": "tasks", "min_available": "minAvailable", "min_success": "minSuccess",
    "max_retry": "maxRetry", "exit_code": "exitCode", "timeout_seconds": "timeout",
    "ttl_seconds": "ttlSecondsAfterFinished", "running_estimate_seconds": "runningEstimate",
    "priority_class": "priorityClassName", "scheduler_name": "schedulerName",
    "depends_on": "dependsOn", "topology_policy": "topologyPolicy",
    "partition_policy": "partitionPolicy", "total_partitions": "totalPartitions",
    "partition_size": "partitionSize", "min_partitions": "minPartitions",
    "network_topology": "networkTopology", "highest_tier_allowed": "highestTierAllowed",
    "highest_tier_name": "highestTierName", "mount_path": "mountPath",
    "claim_name": "volumeClaimName", "claim": "volumeClaim",
}  # fmt: skip
_IN_METADATA = {"name", "namespace", "labels", "annotations"}
_IN_ANNOTATIONS = {
    "kind": KIND, "code": CODE, "priority": PRIORITY, "time_limit_seconds": TIME_LIMIT,
    "preemptable": PREEMPTABLE, "sla_waiting_seconds": SLA_WAITING_TIME,
}  # fmt: skip
_CONTAINER = "template.spec.containers[0]"
_IN_TEMPLATE = {
    "image": f"{_CONTAINER}.image", "command": f"{_CONTAINER}.command",
    "args": f"{_CONTAINER}.args", "working_dir": f"{_CONTAINER}.workingDir",
    "env": f"{_CONTAINER}.env", "ports": f"{_CONTAINER}.ports",
    "cpu_milli": f"{_CONTAINER}.resources.requests.cpu",
    "memory_bytes": f"{_CONTAINER}.resources.requests.memory",
    "gpu_milli": f"{_CONTAINER}.resources.limits.nvidia.com/gpu",
    "resources": f"{_CONTAINER}.resources",
    "cpu_limit_milli": f"{_CONTAINER}.resources.limits.cpu",
    "memory_limit_bytes": f"{_CONTAINER}.resources.limits.memory",
    "node_selector": "template.spec.nodeSelector", "affinity": "template.spec.affinity",
    "tolerations": "template.spec.tolerations",
    "restart_policy": "template.spec.restartPolicy",
    "grace_seconds": "template.spec.terminationGracePeriodSeconds",
    "labels": "template.metadata.labels", "annotations": "template.metadata.annotations",
}  # fmt: skip


def manifest_path(path: str) -> str:
    """Translate a plain path: `roles[0].replicas` becomes `spec.tasks[0].replicas`."""
    head, _, rest = path.partition(".")
    if head == "$" or head in _IN_METADATA:
        return path if head == "$" else f"metadata.{path}"
    if head in _IN_ANNOTATIONS:
        return f"metadata.annotations.{_IN_ANNOTATIONS[head]}"
    if head == "plugins":
        return f"spec.{path}"
    role = re.fullmatch(r"roles(\[\d+\])", head)
    if role and rest:
        return f"spec.tasks{role[1]}.{_role_path(rest)}"
    return "spec." + _translated(path)


def _role_path(path: str) -> str:
    name = re.split(r"[.\[]", path, maxsplit=1)[0]
    if name == "priority_class":
        return "template.spec.priorityClassName"
    if name in _IN_TEMPLATE:
        return _IN_TEMPLATE[name] + path[len(name) :]
    return path if name == "template" else _translated(path)


def _translated(path: str) -> str:
    return re.sub(r"[a-z_]+", lambda match: _SEGMENTS.get(match[0], match[0]), path)


def plain_path(path: str) -> str:
    """Translate a manifest's path back as far as it has a plain name."""
    back = {written: name for name, written in _SEGMENTS.items()}
    short = path.removeprefix("spec.").removeprefix("metadata.")
    return re.sub(r"[A-Za-z]+", lambda match: back.get(match[0], match[0]), short)
