"""What is read out of a Kubernetes pod template into a role's fields, and written back.

The template itself is kept, so that everything that has no field survives the round trip.
"""

from __future__ import annotations

import copy
from typing import Any

from scheduling.spec import pod_secrets
from scheduling.spec.job_spec import GPU_RESOURCE, RoleSpec
from scheduling.spec.quantities import write_bytes, write_thousandths
from scheduling.spec.reader import Findings, MapReader, counts_in_bytes, read_amount

GPU_MILLI_ANNOTATION = "terrace/gpu-milli"
"""Carries a part of a GPU, which a cluster's own resource name cannot."""
RUNTIME_ANNOTATION = "terrace/runtime"
DEFAULT_GRACE_SECONDS = 30
_POD_FIELDS = {
    "restart_policy": "restartPolicy",
    "grace_seconds": "terminationGracePeriodSeconds",
    "priority_class": "priorityClassName",
    "node_selector": "nodeSelector",
    "affinity": "affinity",
}


def lift(template: MapReader, *, role_name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Read a template: return the role's plain fields and the template in its regular form."""
    findings = template.findings
    regular = copy.deepcopy(template.value)
    metadata = template.sub("metadata")
    annotations = metadata.text_map("annotations") if metadata else {}
    fields: dict[str, Any] = {"labels": metadata.text_map("labels") if metadata else {}}
    fields["runtime"] = annotations.pop(RUNTIME_ANNOTATION, "")
    gpu_milli = annotations.pop(GPU_MILLI_ANNOTATION, "")
    fields["annotations"] = annotations
    pod = template.sub("spec")
    if pod is None:
        findings.refuse(template.at("spec"), "required")
        return fields, regular
    regular["spec"]["containers"] = containers = _regular_containers(pod, role_name)
    if pod.flag("hostNetwork") and not pod.text("dnsPolicy"):
        regular["spec"]["dnsPolicy"] = "ClusterFirstWithHostNet"
    fields |= _lift_pod(pod)
    if not containers:
        findings.refuse(pod.at("containers"), "no_container", role=role_name)
        return fields, regular
    base = pod.at("containers")
    readers = [MapReader(c, f"{base}[{n}]", findings) for n, c in enumerate(containers)]
    inits = list(pod.maps("initContainers"))
    fields |= _lift_container(readers[0])
    fields["secrets"] = pod_secrets.lift(pod, readers[0])
    fields |= _lift_amounts(readers, inits)
    if gpu_milli.isdecimal():
        fields["gpu_milli"] = int(gpu_milli[:12])
    for name in pod.unknown():
        if name in _MISSPELT_POD_FIELDS:
            findings.note(pod.at(name), "field_without_effect", field=name)
    return fields, regular


_MISSPELT_POD_FIELDS = {"priorityClass", "imagePullPolicy"}


def _regular_containers(pod: MapReader, role_name: str) -> list[dict[str, Any]]:
    """Return the containers as a list of maps, each with a name."""
    value = pod.raw("containers")
    if isinstance(value, dict):
        pod.findings.note(pod.at("containers"), "containers_not_a_list")
        pod.value = {**pod.value, "containers": [value]}
    containers = [dict(reader.value) for reader in pod.maps("containers")]
    for number, container in enumerate(containers):
        if not container.get("name"):
            name = role_name if number == 0 else f"{role_name}-{number}"
            path = f"{pod.at('containers')}[{number}].name"
            pod.findings.note(path, "name_assumed", name=name)
            container["name"] = name
    return containers


def _lift_pod(pod: MapReader) -> dict[str, Any]:
    grace = pod.whole("terminationGracePeriodSeconds")
    tolerations = [
        {
            "key": one.text("key") or "",
            "operator": one.text("operator") or "Equal",
            "value": one.text("value") or "",
            "effect": one.text("effect") or "",
            "toleration_seconds": one.whole("tolerationSeconds"),
        }
        for one in pod.maps("tolerations")
    ]
    fields = {
        "node_selector": pod.text_map("nodeSelector"),
        "affinity": pod.map("affinity"),
        "tolerations": tolerations,
        "priority_class": pod.text("priorityClassName") or "",
        "grace_seconds": DEFAULT_GRACE_SECONDS if grace is None else grace,
    }
    restart_policy = pod.text("restartPolicy")
    if restart_policy is not None:
        fields["restart_policy"] = restart_policy
    return fields


def _lift_container(container: MapReader) -> dict[str, Any]:
    env: dict[str, str] = {}
    for one in container.maps("env"):
        name = one.text("name")
        if not name:
            container.findings.refuse(one.at("name"), "required")
        elif one.raw("valueFrom") is None:
            env[name] = one.text("value") or ""
    ports = [
        {
            "number": one.whole("containerPort") or 0,
            "name": one.text("name") or "",
            "protocol": one.text("protocol") or "TCP",
        }
        for one in container.maps("ports")
    ]
    return {
        "image": container.text("image") or "",
        "command": container.texts("command") or None,
        "args": container.texts("args") or None,
        "working_dir": container.text("workingDir") or "",
        "env": env,
        "ports": ports,
    }


def _lift_amounts(containers: list[MapReader], inits: list[MapReader]) -> dict[str, Any]:
    """Sum what the containers ask for; an init container counts only where it asks for more."""
    total: dict[str, int] = {}
    limits: dict[str, int] = {}
    limited_everywhere = {"cpu", "memory"}
    for container in containers:
        requests, own_limits = container_amounts(container)
        for name, amount in requests.items():
            total[name] = total.get(name, 0) + amount
        for name in ("cpu", "memory"):
            if name in own_limits:
                limits[name] = limits.get(name, 0) + own_limits[name]
            else:
                limited_everywhere.discard(name)
    for init in inits:
        for name, amount in container_amounts(init)[0].items():
            total[name] = max(total.get(name, 0), amount)
    return {
        "cpu_milli": total.pop("cpu", 0),
        "memory_bytes": total.pop("memory", 0),
        "gpu_milli": total.pop(GPU_RESOURCE, 0),
        "resources": {name: amount for name, amount in total.items() if amount},
        "cpu_limit_milli": limits.get("cpu") if "cpu" in limited_everywhere else None,
        "memory_limit_bytes": limits.get("memory") if "memory" in limited_everywhere else None,
    }


def container_amounts(container: MapReader) -> tuple[dict[str, int], dict[str, int]]:
    """Return what a container asks for (a limit stands for a missing request), and its limits."""
    resources = container.sub("resources")
    if resources is None:
        return {}, {}
    given = {
        kind: {
            name: read_amount(name, value, f"{resources.at(kind)}.{name}", resources.findings)
            for name, value in resources.map(kind).items()
        }
        for kind in ("requests", "limits")
    }
    resources.raw("claims")
    for name in resources.unknown():
        # Amounts straight under `resources`: a cluster refuses them, the meaning is clear.
        resources.findings.note(resources.at(name), "amount_read_as_limit", resource=name)
        given["limits"][name] = read_amount(
            name, resources.value[name], resources.at(name), resources.findings
        )
    return {**given["limits"], **given["requests"]}, given["limits"]


def write_back(role: RoleSpec) -> dict[str, Any]:
    """Return the pod template of a role: as it was given, with the fields written into it."""
    template = copy.deepcopy(role.template) if role.template else _new_template(role)
    reader = MapReader(template, "", Findings())
    fields, template = lift(reader, role_name=role.name)
    was = RoleSpec.model_validate({"name": role.name, "min_available": 0, **fields})
    pod = template["spec"]
    main = pod["containers"][0]
    _write_metadata(template, role, was)
    for name, key in _POD_FIELDS.items():
        if getattr(role, name) != getattr(was, name):
            _put(pod, key, getattr(role, name))
    if role.tolerations != was.tolerations:
        _put(pod, "tolerations", [_toleration(one) for one in role.tolerations])
    _write_container(main, role, was)
    if role.secrets != was.secrets:
        pod_secrets.write(pod, main, role.secrets)
    if _amounts(role) != _amounts(was):
        _write_amounts(main, role, was)
    return template


def _new_template(role: RoleSpec) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": role.name}], "restartPolicy": role.restart_policy}}


def _put(target: dict[str, Any], key: str, value: Any) -> None:
    """Write a value, or take the key away where the value says nothing."""
    if value in (None, "", [], {}, ()):
        target.pop(key, None)
    else:
        target[key] = str(value) if isinstance(value, str) else value


def _write_metadata(template: dict[str, Any], role: RoleSpec, was: RoleSpec) -> None:
    annotations = dict(role.annotations)
    if role.runtime:
        annotations[RUNTIME_ANNOTATION] = role.runtime
    if role.gpu_milli % 1000:
        annotations[GPU_MILLI_ANNOTATION] = str(role.gpu_milli)
    metadata = dict(template.get("metadata") or {})
    if role.labels != was.labels:
        _put(metadata, "labels", dict(role.labels))
    _put(metadata, "annotations", annotations)
    _put(template, "metadata", metadata)


def _write_container(main: dict[str, Any], role: RoleSpec, was: RoleSpec) -> None:
    for name, key in (("image", "image"), ("working_dir", "workingDir")):
        if getattr(role, name) != getattr(was, name):
            _put(main, key, getattr(role, name))
    for name in ("command", "args"):
        value = getattr(role, name)
        if value != getattr(was, name):
            _put(main, name, None if value is None else list(value))
    if role.env != was.env:
        kept = [one for one in main.get("env") or [] if one.get("valueFrom") is not None]
        _put(main, "env", kept + [{"name": n, "value": v} for n, v in role.env.items()])
    if role.ports != was.ports:
        _put(main, "ports", [_port(one) for one in role.ports])


def _port(port: Any) -> dict[str, Any]:
    written: dict[str, Any] = {"containerPort": port.number}
    _put(written, "name", port.name)
    _put(written, "protocol", "" if port.protocol == "TCP" else port.protocol)
    return written


def _toleration(toleration: Any) -> dict[str, Any]:
    written: dict[str, Any] = {}
    for name, key in (("key", "key"), ("value", "value"), ("effect", "effect")):
        _put(written, key, getattr(toleration, name))
    written["operator"] = toleration.operator
    if toleration.toleration_seconds is not None:
        written["tolerationSeconds"] = toleration.toleration_seconds
    return written


def _amounts(role: RoleSpec) -> tuple[Any, ...]:
    return (role.request, role.cpu_limit_milli, role.memory_limit_bytes)


def _write_amounts(main: dict[str, Any], role: RoleSpec, was: RoleSpec) -> None:
    """Change the main container so that all containers together ask for the role's amounts."""
    own, _ = container_amounts(MapReader(main, "", Findings()))
    requests: dict[str, str] = {}
    limits: dict[str, str] = {}
    for name, amount in role.request.items():
        others = was.request.get(name, 0) - own.get(name, 0)
        mine = max(amount - others, 0)
        if name == GPU_RESOURCE:
            mine = -(-mine // 1000) * 1000
        written = write_bytes(mine) if counts_in_bytes(name) else write_thousandths(mine)
        (requests if name in ("cpu", "memory", "ephemeral-storage") else limits)[name] = written
    if role.cpu_limit_milli is not None:
        limits["cpu"] = write_thousandths(role.cpu_limit_milli)
    if role.memory_limit_bytes is not None:
        limits["memory"] = write_bytes(role.memory_limit_bytes)
    resources = dict(main.get("resources") or {})
    for name in list(resources):
        if name not in ("requests", "limits", "claims"):
            del resources[name]
    _put(resources, "requests", requests)
    _put(resources, "limits", limits)
    _put(main, "resources", resources)
