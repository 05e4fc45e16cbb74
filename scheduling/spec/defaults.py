"""What is filled in where nothing was said, in this order. Source: `spec/jobs.md` 1.5.

In minAvailable and maxRetry 0 means "not set": no restart at all is maxRetry 1.
"""

from __future__ import annotations

import re
from typing import Any

from scheduling.spec import job_plugins

DEFAULT_QUEUE = "default"
DEFAULT_MAX_RETRY = 3


def fill_in(plain: dict[str, Any], *, default_queue: str = DEFAULT_QUEUE) -> dict[str, Any]:
    """Return the plain representation with defaults; fields of the wrong type are left alone."""
    filled = {key: value for key, value in plain.items() if value is not None}
    if filled.get("queue") in ("", DEFAULT_QUEUE, None):
        filled["queue"] = default_queue
    if filled.get("max_retry") in (0, None):
        filled["max_retry"] = DEFAULT_MAX_RETRY
    roles = filled.get("roles")
    if isinstance(roles, list):
        filled["roles"] = [_fill_role(role) if isinstance(role, dict) else role for role in roles]
        if as_whole(filled.get("min_available"), 0) == 0:
            minimums = [_minimum(role) for role in filled["roles"]]
            filled["min_available"] = sum(minimums)
    else:
        filled.setdefault("min_available", 0)
    plugins = filled.get("plugins")
    if isinstance(plugins, dict):
        filled["plugins"] = with_required_plugins(plugins)
    return filled


def _fill_role(role: dict[str, Any]) -> dict[str, Any]:
    filled = {key: value for key, value in role.items() if value is not None}
    filled.setdefault("replicas", 1)
    for name in ("command", "args"):
        if filled.get(name) in ([], ()):
            del filled[name]
    if filled.get("max_retry") in (0, None):
        filled["max_retry"] = DEFAULT_MAX_RETRY
    if "min_available" not in filled:
        replicas = max(as_whole(filled["replicas"], 0), 0)
        filled["min_available"] = _partition_minimum(filled) or replicas
    return filled


def _partition_minimum(role: dict[str, Any]) -> int:
    policy = role.get("partition_policy")
    if not isinstance(policy, dict):
        return 0
    least = as_whole(policy.get("min_partitions"), 0)
    return least * as_whole(policy.get("partition_size"), 0)


def _minimum(role: Any) -> int:
    """What a role adds to the gang; a minimum above the replicas is a problem of its own."""
    if not isinstance(role, dict):
        return 0
    replicas = as_whole(role.get("replicas"), 0)
    return max(min(as_whole(role.get("min_available"), 0), replicas), 0)


def with_required_plugins(plugins: dict[str, Any]) -> dict[str, Any]:
    """Return the plugins with those that they need: svc for frameworks, ssh for mpi."""
    filled = dict(plugins)
    for name in plugins:
        for needed in job_plugins.requires(name):
            filled.setdefault(needed, {})
    return filled


def as_whole(value: Any, otherwise: int) -> int:
    """Return a whole number that may be written as text (a form's), else the other value."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str) and re.fullmatch(r"\s*-?[0-9]{1,18}\s*", value):
        return int(value)
    return otherwise
