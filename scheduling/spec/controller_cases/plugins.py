"""Cases about job plugins: what a pod and a job get from them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from scheduling.spec.controller_cases.words import UnsupportedCaseError
from scheduling.spec.job_plugins import PLUGINS, for_job, for_task, options_of, read_options
from scheduling.spec.job_plugins.base import (
    JobAdditions,
    JobContext,
    KeyPair,
    Options,
    RoleContext,
    TaskAdditions,
)
from scheduling.spec.job_plugins.hcclrank import RANK_ANNOTATION, rank_of

Case = Mapping[str, Any]
_UNKNOWN = {"error": True, "keyword": "unknown-plugin"}


def answer(case: Case) -> dict[str, Any]:
    """Run the hooks that a case names."""
    given, when = case["given"], case["when"]
    if when["hook"] == "read-env":
        return {"value": _read_env(when["pod"], given["variable"])}
    names = given["plugin"].split("+")
    if any(name not in PLUGINS for name in names):
        return dict(_UNKNOWN)
    plugins = {name: _options(name, given.get("args")) for name in names}
    typed = {name: options_of(name, options) for name, options in plugins.items()}
    answered: dict[str, Any] = {"error": False}
    if len(names) == 1:
        answered["settings"] = _settings(names[0], typed[names[0]])
    job = given.get("job")
    if job is None:
        return answered
    context = _context(job)
    for hook in when["hook"].split(","):
        if hook != "pod-create":
            answered |= _merged(answered, _job(plugins, context, hook))
        elif any(_has_no_head(name, options, context) for name, options in typed.items()):
            return {"error": True}
        else:
            answered |= _pod(plugins, context, when.get("pod") or {})
    return answered


def _options(name: str, args: Any) -> dict[str, Any]:
    options, wrong = read_options(name, args)
    if wrong:
        raise UnsupportedCaseError(f"refused at submission: {wrong[0][1]}")
    return options


def _has_no_head(name: str, options: Options, job: JobContext) -> bool:
    problems = PLUGINS[name].problems(options, job)
    return any(problem.code == "ray_head_missing" for problem in problems)


def _settings(name: str, options: Options) -> dict[str, Any]:
    settings = options.model_dump()
    return {**settings, "plugin": name}


def _context(job: Mapping[str, Any]) -> JobContext:
    return JobContext(
        name=job["name"],
        roles=tuple(
            RoleContext(
                task["name"],
                task["replicas"],
                task.get("hostname") or "",
                task.get("subdomain") or "",
            )
            for task in job.get("tasks", ())
        ),
        key_pair=KeyPair("generated private key", "generated public key"),
    )


def _read_env(pod: Mapping[str, Any], variable: str) -> str:
    found = (env[variable] for env in pod.get("container_env", ()) if variable in env)
    return next(found, "")


# --- a pod --------------------------------------------------------------------------------------


def _pod(plugins: Mapping[str, Any], job: JobContext, pod: Mapping[str, Any]) -> dict[str, Any]:
    role = job.role(pod.get("task") or "") or RoleContext(pod.get("task") or "", 0)
    additions = for_task(plugins, job, role, pod.get("index", 0))
    main = list(pod.get("containers") or ())
    inits = list(pod.get("init_containers") or ())
    answered: dict[str, Any] = {
        "env": _env(additions, main, inits),
        "ports": _ports(additions, pod, main, inits),
        "mounts": _mounts(additions, main, inits),
        "command": _commands(additions, main),
        "annotations": _annotations(additions, pod, is_ranked="hcclrank" in plugins),
        "volume_mode": {
            mount.volume: f"{mount.mode:04o}" for one in additions for mount in one.mounts
        },
        "init_containers": _init_containers(additions, inits),
    }
    answered["first_port"] = {name: ports[0] for name, ports in answered["ports"].items() if ports}
    for one in additions:
        if one.hostname:
            answered |= {"hostname": one.hostname, "subdomain": one.subdomain}
    return answered


def _env(
    additions: tuple[TaskAdditions, ...], main: list[str], inits: list[str]
) -> dict[str, dict[str, str]]:
    env: dict[str, dict[str, str]] = {name: {} for name in (*main, *inits)}
    for variable in (one for addition in additions for one in addition.env):
        for name in (*main, *(inits if variable.in_init else ())):
            env[name][variable.name] = variable.value
    return env


def _ports(
    additions: tuple[TaskAdditions, ...],
    pod: Mapping[str, Any],
    main: list[str],
    inits: list[str],
) -> dict[str, list[int]]:
    opened: Mapping[str, list[int]] = pod.get("open_ports") or {}
    ports = {name: list(opened.get(name, ())) for name in (*main, *inits)}
    for port in (one for addition in additions for one in addition.ports):
        for name in (*main, *(inits if port.in_init else ())):
            if port.number not in ports[name] and port.container in ("", name):
                ports[name].append(port.number)
    return ports


def _mounts(
    additions: tuple[TaskAdditions, ...], main: list[str], inits: list[str]
) -> dict[str, list[dict[str, str]]]:
    mounts = [
        {"path": mount.path, "volume": mount.volume} for one in additions for mount in one.mounts
    ]
    return {name: list(mounts) for name in (*main, *inits)} if mounts else {}


def _commands(additions: tuple[TaskAdditions, ...], main: list[str]) -> dict[str, list[str]]:
    return {
        name: list(command)
        for one in additions
        for name, command in one.commands.items()
        if name in main
    }


def _annotations(
    additions: tuple[TaskAdditions, ...], pod: Mapping[str, Any], *, is_ranked: bool
) -> dict[str, str]:
    known = pod.get("annotations") or {}
    annotations = {name: text for one in additions for name, text in one.annotations.items()}
    if is_ranked:
        computed = annotations.get(RANK_ANNOTATION, "")
        rank = rank_of(computed, known, pod.get("container_env") or ())
        annotations |= {RANK_ANNOTATION: rank} if rank else {}
    return {**known, **annotations}


def _init_containers(
    additions: tuple[TaskAdditions, ...], inits: list[str]
) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = [{"name": name} for name in inits]
    waits = (one for addition in additions for one in addition.waits)
    return listed + [
        {
            "name": wait.name,
            "image": wait.image,
            "host": wait.host,
            "port": wait.port,
            "timeout_s": wait.timeout_seconds,
        }
        for wait in waits
        if wait.name not in inits
    ]


# --- a job --------------------------------------------------------------------------------------


def _job(plugins: Mapping[str, Any], job: JobContext, hook: str) -> dict[str, Any]:
    kept = for_job(plugins, job)
    is_there = hook == "job-add"
    answered: dict[str, Any] = {
        "config_maps": [one.config_map for one in kept.values() if one.config_map and is_there],
        "secrets": [one.secret for one in kept.values() if one.secret and is_there],
        "services": [service.name for one in kept.values() for service in one.services if is_there],
        "owned": [f"plugin-{name}" for name in kept] if is_there else [],
    }
    for one in kept.values():
        answered |= _kept(one, is_there=is_there)
    return answered


def _kept(one: JobAdditions, *, is_there: bool) -> dict[str, Any]:
    state = "exists_after_add" if is_there else "exists_after_delete"
    answered: dict[str, Any] = {}
    if one.config_map:
        answered["config_map"] = one.config_map
    if one.secret:
        answered["secret"] = one.secret
    if one.files:
        answered["files"] = {name: {"text": text} for name, text in one.files.items()}
    if one.services:
        service = one.services[0]
        answered["service"] = {
            "name": service.name,
            "headless": service.headless,
            "port_count": len(service.ports),
            "publish_not_ready": service.publish_not_ready,
            state: is_there,
        }
        answered["network_policy"] = {state: is_there and bool(one.network_policy)}
    return answered


def _merged(before: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, Any]:
    """Put together what two hooks say of the same service or policy."""
    merged = dict(now)
    for key in ("service", "network_policy"):
        if key in before and key in now:
            merged[key] = {**before[key], **now[key]}
    return merged
