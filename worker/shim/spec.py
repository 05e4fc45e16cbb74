"""What a supervisor is to run; written by the agent as `spec.json` in the attempt's folder.

A plain class rather than a dataclass: importing dataclasses costs the shim half of its start.
"""

from __future__ import annotations

import json
import os

from worker.shim import records

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

FIELDS: dict[str, tuple[type | tuple[type, ...], Any]] = {
    "attempt": (str, None),
    "folder": (str, None),
    "argv": (list, None),
    "environment": (dict, None),
    "working_dir": (str, None),
    "lease_file": (str, None),
    "uid": (int, -1),
    "gid": (int, -1),
    "cpus": (list, []),
    "cpu_milli": (int, 0),
    "memory_bytes": (int, 0),
    "pids_limit": (int, 8192),
    "grace_seconds": ((int, float), 30.0),
    "time_limit_seconds": ((int, float), 0.0),
    "log_limit_bytes": (int, 1 << 30),
    "host_name": (str, ""),
    "hosts_file": (str, ""),
    "binds": (dict, {}),
    "reveals": (list, []),
    "use_cgroups": (bool, True),
}
"""Name -> (type, default); a field with the default None has to be there."""


class TaskSpec:
    """One attempt, ready to run: nothing is left to decide."""

    __slots__ = tuple(FIELDS)

    attempt: str
    folder: str
    """The attempt's records and logs; only the agent's user may enter."""
    argv: list[str]
    environment: dict[str, str]
    """All of it: nothing is inherited."""
    working_dir: str
    lease_file: str
    uid: int
    """The user to become; -1: stay who we are."""
    gid: int
    cpus: list[int]
    cpu_milli: int
    memory_bytes: int
    pids_limit: int
    grace_seconds: float
    time_limit_seconds: float
    """0: no limit."""
    log_limit_bytes: int
    host_name: str
    hosts_file: str
    """Shown to the task as /etc/hosts where a mount namespace is permitted."""
    binds: dict[str, str]
    """Folder to show -> where, in the task's mount namespace."""
    reveals: list[str]
    """Folders below ones that the task's user may not pass, such as /root: shown at their place,
    with nothing else beside them."""
    use_cgroups: bool

    def __init__(self, **fields: Any) -> None:
        """Check the fields.

        Raises:
            ValueError: a field is unknown, missing or of the wrong type; the text names it.
        """
        unknown = fields.keys() - FIELDS.keys()
        if unknown:
            raise ValueError(f"spec: unknown field {min(unknown)}")
        for name, (kind, default) in FIELDS.items():
            value = fields.get(name, default)
            if value is None:
                raise ValueError(f"spec: {name} is missing")
            if not isinstance(value, kind):
                raise ValueError(  # noqa: TRY004 - a bad file, not a bad call
                    f"spec: {name} has the wrong type {type(value).__name__}"
                )
            setattr(self, name, value)

    def record(self) -> dict[str, Any]:
        """Return the fields for `spec.json`."""
        return {name: getattr(self, name) for name in FIELDS}


def load_secrets(descriptor: int) -> dict[str, str]:
    """Read the variables that stand in no file: a JSON object in memory that the agent shares.

    Raises:
        ValueError: it is none, or a value is no text. The text names no value.
    """
    with os.fdopen(descriptor, "rb") as stream:
        stream.seek(0)
        try:
            secrets = json.loads(stream.read())
        except ValueError:
            raise ValueError("secrets: not a JSON object") from None
    if not isinstance(secrets, dict) or not all(isinstance(one, str) for one in secrets.values()):
        raise ValueError("secrets: not an object of texts")
    return secrets


def load(path: str) -> TaskSpec:
    """Read a spec.

    Raises:
        ValueError: the file is missing, torn, or a field is wrong.
    """
    record = records.read(path)
    if record is None:
        raise ValueError(f"spec: {path} is missing or is not a JSON object")
    return TaskSpec(**record)
