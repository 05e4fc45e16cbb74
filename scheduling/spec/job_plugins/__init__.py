"""The job plugins by name, in their fixed order, and what they add to a task or a job."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from scheduling.spec.job_plugins.base import (
    Endpoint,
    FileAddition,
    JobAdditions,
    JobContext,
    JobPlugin,
    KeyPair,
    Options,
    RoleContext,
    TaskAdditions,
)
from scheduling.spec.job_plugins.env import EnvPlugin
from scheduling.spec.job_plugins.hcclrank import HcclrankPlugin, rank_variable
from scheduling.spec.job_plugins.mpi import MpiPlugin
from scheduling.spec.job_plugins.pytorch import PytorchPlugin
from scheduling.spec.job_plugins.ray import RayPlugin
from scheduling.spec.job_plugins.rendezvous import RendezvousPlugin
from scheduling.spec.job_plugins.ssh import SshPlugin
from scheduling.spec.job_plugins.svc import SvcPlugin
from scheduling.spec.job_plugins.tensorflow import TensorflowPlugin
from scheduling.spec.job_spec import JobSpec, RoleSpec
from scheduling.spec.problems import Param, Problem

__all__ = [
    "PLUGINS",
    "Endpoint",
    "Environment",
    "JobContext",
    "KeyPair",
    "RoleContext",
    "context_of",
    "environment",
    "flags_of",
    "for_job",
    "for_task",
    "options_of",
    "options_to_args",
    "problems_of",
    "read_options",
    "requires",
]

PLUGINS: Mapping[str, JobPlugin[Any]] = {
    plugin.name: plugin
    for plugin in (
        EnvPlugin(),
        SvcPlugin(),
        SshPlugin(),
        TensorflowPlugin(),
        PytorchPlugin(),
        MpiPlugin(),
        RayPlugin(),
        RendezvousPlugin(),
        HcclrankPlugin(),
    )
}
"""In the order in which they are applied: hcclrank reads a RANK that pytorch may have set."""

PlainOptions = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Environment:
    """What the plugins inject into one task, ready for a machine without cluster DNS."""

    env: Mapping[str, str]
    files: tuple[FileAddition, ...]
    hosts: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Lines of the hosts file: address and its names."""
    ports: tuple[int, ...] = ()
    command: tuple[str, ...] | None = None
    """What a plugin runs in place of the role's own command and arguments; None: those."""
    additions: tuple[TaskAdditions, ...] = field(default=(), repr=False)


def read_options(plugin: str, args: object) -> tuple[dict[str, Any], list[tuple[str, str]]]:
    """Turn a manifest's flags, or a map, into plain options; return them and (code, detail)s.

    Flags are read as Go does: `--name=value`, `-name=value`, `--name value`, `--flag` for true.
    """
    known = PLUGINS[plugin].options_type
    if args is None:
        return {}, []
    if isinstance(args, Mapping):
        return dict(args), []
    if not isinstance(args, list | tuple):
        return {}, [("wrong_type", "a list of flags or a map of options")]
    by_flag = {known.flag(name): name for name in known.model_fields}
    options: dict[str, Any] = {}
    wrong: list[tuple[str, str]] = []
    rest = [str(arg) for arg in args]
    while rest:
        name, _, value = rest.pop(0).lstrip("-").partition("=")
        field_name = by_flag.get(name)
        if field_name is None:
            wrong.append(("unknown_option", name))
            continue
        if not _:
            is_flag = known.model_fields[field_name].annotation is bool
            value = "true" if is_flag or not rest else rest.pop(0)
        options[field_name] = value
    return options, wrong


def flags_of(plugin: str) -> str:
    """Return the options of a plugin as a text for messages."""
    known = PLUGINS[plugin].options_type
    return ", ".join(f"--{known.flag(name)}" for name in known.model_fields) or "-"


def requires(plugin: str) -> tuple[str, ...]:
    """Return the plugins that a plugin needs, none for an unknown one."""
    return PLUGINS[plugin].requires if plugin in PLUGINS else ()


def options_to_args(plugin: str, options: PlainOptions) -> list[str]:
    """Write options as the flags of a Volcano manifest; those at their default are left out."""
    typed = options_of(plugin, options)
    given = typed.model_dump(exclude_defaults=True)
    return [f"--{type(typed).flag(name)}={_flag_text(value)}" for name, value in given.items()]


def _flag_text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def options_of(plugin: str, options: PlainOptions) -> Options:
    """Return a plugin's options with their types.

    Raises:
        pydantic.ValidationError: an option is unknown or has the wrong type.
    """
    typed: Options = PLUGINS[plugin].options_type.model_validate(dict(options))
    return typed


def context_of(
    spec: JobSpec,
    *,
    endpoints: Mapping[tuple[str, int], Endpoint] | None = None,
    key_pair: KeyPair | None = None,
) -> JobContext:
    """Return a job as its plugins see it."""
    return JobContext(
        name=spec.name,
        roles=tuple(_role_context(role) for role in spec.roles),
        endpoints=endpoints or {},
        key_pair=key_pair,
    )


def _role_context(role: RoleSpec) -> RoleContext:
    pod = (role.template or {}).get("spec") or {}
    return RoleContext(
        role.name, role.replicas, str(pod.get("hostname") or ""), str(pod.get("subdomain") or "")
    )


def problems_of(plugins: Mapping[str, PlainOptions], job: JobContext) -> list[Problem]:
    """Return what is wrong with the plugins of a job: their names, options and roles."""
    problems: list[Problem] = []
    for name, options in plugins.items():
        path = f"plugins.{name}"
        if name not in PLUGINS:
            known = ", ".join(PLUGINS)
            problems.append(Problem(path, "unknown_plugin", {"plugin": name, "known": known}))
            continue
        try:
            typed = options_of(name, options)
        except ValidationError as error:
            problems += [_option_problem(name, one) for one in error.errors()]
            continue
        problems += PLUGINS[name].problems(typed, job)
    return problems


def _option_problem(plugin: str, error: Any) -> Problem:
    option = ".".join(str(part) for part in error["loc"])
    known = PLUGINS[plugin].options_type
    params: dict[str, Param] = {"plugin": plugin, "option": option}
    if error["type"] == "extra_forbidden":
        params["known"] = ", ".join(known.model_fields) or "-"
        return Problem(f"plugins.{plugin}.{option}", "unknown_option", params)
    return Problem(
        f"plugins.{plugin}.{option}", "wrong_option", {**params, "value": str(error["input"])[:80]}
    )


def for_task(
    plugins: Mapping[str, PlainOptions], job: JobContext, role: RoleContext, index: int
) -> tuple[TaskAdditions, ...]:
    """Return what each plugin of a job adds to one task, in the fixed order."""
    return tuple(
        plugin.for_task(options_of(name, plugins[name]), job, role, index)
        for name, plugin in PLUGINS.items()
        if name in plugins
    )


def for_job(plugins: Mapping[str, PlainOptions], job: JobContext) -> dict[str, JobAdditions]:
    """Return what each plugin of a job keeps beside it, by plugin name."""
    return {
        name: plugin.for_job(options_of(name, plugins[name]), job)
        for name, plugin in PLUGINS.items()
        if name in plugins
    }


def environment(
    spec: JobSpec,
    role: str,
    index: int,
    *,
    endpoints: Mapping[tuple[str, int], Endpoint] | None = None,
    key_pair: KeyPair | None = None,
    context: JobContext | None = None,
) -> Environment:
    """Return everything that the plugins of a job inject into one task.

    A plugin's variable wins over one of the same name in the role's own environment. For many
    tasks of one job make `context_of(spec, ...)` once and give it: host lists are then shared, and
    endpoints and key pair are taken from it.

    Raises:
        KeyError: the job has no such role.
    """
    job = context or context_of(spec, endpoints=endpoints, key_pair=key_pair)
    role_spec, role_context = spec.role(role), job.role(role)
    if role_spec is None or role_context is None:
        raise KeyError(role)
    additions = for_task(spec.plugins, job, role_context, index)
    env = dict(role_spec.env)
    for addition in additions:
        env.update({one.name: one.value for one in addition.env})
    if HcclrankPlugin.name in spec.plugins:
        env |= rank_variable(additions, role_spec.annotations, env)
    declared = [port.number for port in role_spec.ports]
    added = [port.number for addition in additions for port in addition.ports]
    return Environment(
        env=env,
        files=tuple(file for addition in additions for file in addition.files),
        hosts=job.once("hosts file", lambda: _hosts_file(job)),
        ports=tuple(dict.fromkeys((*declared, *added))),
        command=_command(role_spec, additions),
        additions=additions,
    )


def _command(role: RoleSpec, additions: tuple[TaskAdditions, ...]) -> tuple[str, ...] | None:
    """Return the command that a plugin sets for the role's main container."""
    containers = ((role.template or {}).get("spec") or {}).get("containers") or [{}]
    main = containers[0].get("name")
    for addition in additions:
        for container, command in addition.commands.items():
            if main is None or container == main:
                return command
    return None


def _hosts_file(job: JobContext) -> tuple[tuple[str, tuple[str, ...]], ...]:
    lines: list[tuple[str, tuple[str, ...]]] = []
    for role in job.roles:
        for index in range(role.replicas):
            endpoint = job.endpoints.get((role.name, index))
            if endpoint is not None and endpoint.address:
                short = job.task_name(role, index)
                names = dict.fromkeys((f"{short}.{job.name}", short, endpoint.host))
                lines.append((endpoint.address, tuple(names)))
    return tuple(lines)
