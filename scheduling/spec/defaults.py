"""What is filled in where nothing was said, in this order.

Source: Volcano `pkg/webhooks/admission/jobs/mutate/mutate_job.go`.
In minAvailable and maxRetry 0 means "not set": no restart at all is maxRetry 1.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
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
        _start_launcher_last(filled)
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


def _waits(role: dict[str, Any]) -> bool:
    depends_on = role.get("depends_on")
    return isinstance(depends_on, dict) and bool(depends_on.get("names"))


def _partition_minimum(role: dict[str, Any]) -> int:
    policy = role.get("partition_policy")
    if not isinstance(policy, dict):
        return 0
    least = max(as_whole(policy.get("min_partitions"), 0), 0)
    return least * as_whole(policy.get("partition_size"), 0)


def _minimum(role: Any) -> int:
    """What a role adds to the gang.

    A minimum above the replicas is a problem of its own. A role that waits for others adds
    nothing: the gang would wait for itself.
    """
    if not isinstance(role, dict) or _waits(role):
        return 0
    replicas = as_whole(role.get("replicas"), 0)
    return max(min(as_whole(role.get("min_available"), 0), replicas), 0)


def _start_launcher_last(filled: dict[str, Any]) -> None:
    """Let the launcher of an MPI job wait for its workers, unless it says what it waits for."""
    options = (filled.get("plugins") or {}).get("mpi") if _has_plugins(filled) else None
    if not isinstance(options, dict):
        return
    master, worker = options.get("master", "master"), options.get("worker", "worker")
    roles = [role for role in filled["roles"] if isinstance(role, dict)]
    if any(role.get("name") == worker for role in roles):
        for role in roles:
            if role.get("name") == master:
                role.setdefault("depends_on", {"names": [worker], "iteration": "all"})


def _has_plugins(filled: dict[str, Any]) -> bool:
    return isinstance(filled.get("plugins"), dict)


def fill_in_queue(queue: Mapping[str, Any]) -> dict[str, Any]:
    """Return a Volcano queue with its defaults; paths of the older style begin at the root."""
    filled = dict(queue)
    filled.setdefault("weight", 1)
    filled.setdefault("reclaimable", True)
    if not filled.get("parent") and filled.get("name") != "root":
        filled["parent"] = "root"
    hierarchy = filled.get("hierarchy")
    if hierarchy and not f"{hierarchy.get('path', '')}/".startswith("root/"):
        filled["hierarchy"] = {
            "path": f"root/{hierarchy.get('path', '')}",
            "weights": f"1/{hierarchy.get('weights', '')}",
        }
    return filled


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
