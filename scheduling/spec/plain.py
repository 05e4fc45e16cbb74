"""The plain representation as people write it: shorthands are spelled out, form text is typed."""

from __future__ import annotations

import shlex
from typing import Any

from scheduling.spec import job_plugins
from scheduling.spec.job_spec import JobSpec, RoleSpec
from scheduling.spec.quantities import read_seconds
from scheduling.spec.reader import Findings, read_amount, suggestion

_DURATIONS = {
    "ttl": "ttl_seconds",
    "sla_waiting": "sla_waiting_seconds",
    "time_limit": "time_limit_seconds",
    "running_estimate": "running_estimate_seconds",
}
_AMOUNTS = {
    "cpu": ("cpu_milli", "cpu"),
    "memory": ("memory_bytes", "memory"),
    "gpu": ("gpu_milli", "gpu"),
    "cpu_limit": ("cpu_limit_milli", "cpu"),
    "memory_limit": ("memory_limit_bytes", "memory"),
}


def read_plain(document: dict[str, Any], findings: Findings, *, is_form: bool = False) -> Any:
    """Return a document with its shorthands spelled out.

    Shorthands: `cpu: 500m`, `memory: 2Gi`, `gpu: 0.5`; `time_limit: 2h`; a command as one line;
    `depends_on` as a name or list; `plugins` as a list of names; `event` for one event. In a form
    all values are text, and what was left empty is not there.
    """
    plain = _without_empty(document) if is_form else dict(document)
    plain.pop("apiVersion", None)
    if plain.get("kind") == "Job":
        del plain["kind"]
    _durations(plain, "", findings)
    plain["policies"] = _policies(plain.get("policies"), "policies", findings)
    if "plugins" in plain:
        plain["plugins"] = _plugins(plain["plugins"], findings)
    roles = plain.get("roles")
    if isinstance(roles, list):
        plain["roles"] = [
            _role(dict(role), f"roles[{n}]", n, findings) if isinstance(role, dict) else role
            for n, role in enumerate(roles)
        ]
    for name in ("labels", "annotations"):
        _text_map(plain, name)
    return plain


def _without_empty(value: Any) -> Any:
    """Drop what a form sends for fields and rows that were left empty."""
    if isinstance(value, dict):
        cleaned = {key: _without_empty(item) for key, item in value.items()}
        return {key: item for key, item in cleaned.items() if item not in ("", None, {}, [])}
    if isinstance(value, list):
        return [item for item in map(_without_empty, value) if item not in ("", None, {}, [])]
    return value.strip() if isinstance(value, str) and "\n" not in value else value


def _durations(plain: dict[str, Any], path: str, findings: Findings) -> None:
    for short, name in _DURATIONS.items():
        if short in plain and name not in plain:
            plain[name] = plain.pop(short)
        _seconds(plain, name, path, findings)


def _seconds(plain: dict[str, Any], name: str, path: str, findings: Findings) -> None:
    value = plain.get(name)
    if isinstance(value, str):
        seconds = read_seconds(value)
        where = f"{path}.{name}" if path else name
        if seconds is None:
            findings.refuse(where, "not_a_duration", value=value[:80])
            del plain[name]
        else:
            plain[name] = seconds


def _policies(value: Any, path: str, findings: Findings) -> Any:
    if value is None:
        return []
    if not isinstance(value, list):
        return value
    policies = []
    for number, item in enumerate(value):
        if not isinstance(item, dict):
            policies.append(item)
            continue
        policy = dict(item)
        event = policy.pop("event", None)
        events = policy.get("events") or []
        if isinstance(events, str):
            events = [part.strip() for part in events.split(",") if part.strip()]
        if event is not None and isinstance(events, list) and event not in events:
            events = [event, *events]
        policy["events"] = events
        policy.setdefault("action", "")
        if "timeout" in policy and "timeout_seconds" not in policy:
            policy["timeout_seconds"] = policy.pop("timeout")
        _seconds(policy, "timeout_seconds", f"{path}[{number}]", findings)
        policies.append(policy)
    return policies


def _plugins(value: Any, findings: Findings) -> Any:
    if isinstance(value, list) and all(isinstance(name, str) for name in value):
        return {name: {} for name in value}
    if not isinstance(value, dict):
        return value
    plugins: dict[str, Any] = {}
    for name, given in value.items():
        if name not in job_plugins.PLUGINS:
            plugins[name] = {}
            continue
        options = {} if given is True else given
        plugins[name], wrong = job_plugins.read_options(name, options)
        for code, detail in wrong:
            path = f"plugins.{name}"
            if code == "unknown_option":
                known = job_plugins.flags_of(name)
                findings.refuse(path, code, plugin=name, option=detail, known=known)
            else:
                findings.refuse(path, code, expected=detail, value=f"{options!r:.80}")
    return plugins


def _role(role: dict[str, Any], path: str, position: int, findings: Findings) -> dict[str, Any]:
    role.setdefault("name", f"default{position}")
    for short, (name, resource) in _AMOUNTS.items():
        if short in role and name not in role:
            role[name] = read_amount(resource, role.pop(short), f"{path}.{short}", findings)
    resources = role.get("resources")
    if isinstance(resources, dict):
        role["resources"] = {
            name: read_amount(name, value, f"{path}.resources.{name}", findings)
            if isinstance(value, str)
            else value
            for name, value in resources.items()
        }
    _command(role, path, findings)
    _lists(role)
    role["policies"] = _policies(role.get("policies"), f"{path}.policies", findings)
    _secrets(role)
    for name in ("env", "labels", "annotations", "node_selector"):
        _text_map(role, name)
    return role


def _secrets(role: dict[str, Any]) -> None:
    """Accept names, or lines: `name`, `VARIABLE=name/key`, `name:folder`, `name/key:file`."""
    value = role.get("secrets")
    if isinstance(value, str):
        value = [line.strip() for line in value.splitlines() if line.strip()]
    if isinstance(value, list):
        role["secrets"] = [_secret(one) if isinstance(one, str) else one for one in value]


def _secret(line: str) -> dict[str, Any]:
    variable, equals, rest = line.partition("=")
    where, _, path = (rest if equals else line).partition(":")
    name, _, key = where.strip().partition("/")
    given = {"key": key, "variable": variable.strip() if equals else "", "path": path.strip()}
    return {"name": name, **{field: text for field, text in given.items() if text}}


def secret_line(use: dict[str, Any]) -> str | None:
    """Write a use of a secret as a line of a form; None where a line cannot say it."""
    given = {name: value for name, value in use.items() if value}
    name, key = given.pop("name", ""), given.pop("key", "")
    variable, path = given.pop("variable", ""), given.pop("path", "")
    if given or (variable and path) or (key and not (variable or path)):
        return None
    line = f"{name}/{key}" if key else str(name)
    return f"{variable}={line}" if variable else f"{line}:{path}" if path else line


def _lists(role: dict[str, Any]) -> None:
    """Accept names and numbers in a text, or bare ones in a list, for what a role waits for."""
    if isinstance(role.get("depends_on"), str):
        role["depends_on"] = [part.strip() for part in role["depends_on"].split(",")]
    if isinstance(role.get("depends_on"), list):
        role["depends_on"] = {"names": role["depends_on"]} if role["depends_on"] else None
    if isinstance(role.get("ports"), list):
        role["ports"] = [one if isinstance(one, dict) else {"number": one} for one in role["ports"]]
    elif isinstance(role.get("ports"), str | int):
        role["ports"] = [{"number": one} for one in str(role["ports"]).replace(",", " ").split()]


def _command(role: dict[str, Any], path: str, findings: Findings) -> None:
    """A command of one text is a shell's; arguments of one text are split like a shell's."""
    if isinstance(role.get("command"), str):
        text = role["command"].replace("\r\n", "\n")
        role["command"] = ["/bin/sh", "-c", text] if text.strip() else None
    if isinstance(role.get("args"), str):
        try:
            role["args"] = shlex.split(role["args"])
        except ValueError as error:
            findings.refuse(f"{path}.args", "not_arguments", detail=str(error))
            del role["args"]


def _text_map(owner: dict[str, Any], name: str) -> None:
    """Accept a map, a list of {name, value}, or lines of NAME=value; values become text."""
    value = owner.get(name)
    if isinstance(value, str):
        pairs = [line.partition("=") for line in value.splitlines() if line.strip()]
        value = {key.strip(): text for key, _, text in pairs}
    elif isinstance(value, list) and all(isinstance(one, dict) and "name" in one for one in value):
        value = {str(one["name"]): one.get("value", "") for one in value}
    if isinstance(value, dict):
        owner[name] = {
            str(key): str(text).lower()
            if isinstance(text, bool)
            else ("" if text is None else str(text) if isinstance(text, int | float) else text)
            for key, text in value.items()
        }


def known_fields(owner: type[JobSpec | RoleSpec]) -> list[str]:
    """Return the names that a job or role may have in the plain form, shorthands included."""
    hidden = {"template", "scheduler_name", "namespace"}
    shorthands = _DURATIONS if owner is JobSpec else _AMOUNTS
    return [*(name for name in owner.model_fields if name not in hidden), *shorthands]


__all__ = ["known_fields", "read_plain", "suggestion"]
