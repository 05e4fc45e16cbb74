"""Small JSON files that shim and agent leave for one another; a crash cannot tear them.

All of them lie in the attempt's folder, which only the agent's user may enter:

- `launch.json` (agent): the command as it came;
- `spec.json` (agent): what the shim is to run;
- `shim.json` (shim): who runs, identified by pid, start time and boot id;
- `stop.json` (agent): end the task, with this grace, for this reason;
- `exit.json` (shim, or the agent for a shim that is gone): how it ended. Final.
- `shim.lock`: held by whoever prepares or runs the attempt; free means that nobody does.
"""

from __future__ import annotations

import json
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

LAUNCH = "launch.json"
SPEC = "spec.json"
SHIM = "shim.json"
STOP = "stop.json"
EXIT = "exit.json"
LOCK = "shim.lock"


def write(path: str, record: dict[str, Any], *, is_durable: bool = True) -> None:
    """Replace the file by rename; with `is_durable` it survives a power cut once this returns."""
    temporary = f"{path}.{os.getpid()}.tmp"
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(fd, "w", encoding="utf-8") as stream:
            json.dump(record, stream, separators=(",", ":"))
            stream.flush()
            if is_durable:
                os.fsync(stream.fileno())
        os.rename(temporary, path)
    except OSError:
        if os.path.exists(temporary):
            os.unlink(temporary)
        raise
    if is_durable:
        _sync_folder(os.path.dirname(path))


def read(path: str) -> dict[str, Any] | None:
    """Return the record, or None where there is none or it is not a JSON object.

    A torn or flipped file counts as missing: every reader has a way to find out the truth without
    it (the lock, the boot id, a scan of processes).
    """
    try:
        with open(path, "rb") as stream:
            record = json.loads(stream.read())
    except (FileNotFoundError, ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None


def _sync_folder(folder: str) -> None:
    fd = os.open(folder or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
