"""Find and signal the processes of one attempt without ever hitting a stranger.

A process is identified by (pid, start time). A signal goes through a pidfd that is opened first and
whose start time is compared afterwards, so a pid that the kernel gave away meanwhile is left alone.
"""

from __future__ import annotations

import errno
import os
import signal

MARKER = "TERRACE_ATTEMPT_ID"
"""The environment variable by which an attempt's processes are known, whoever started them."""
NODE_MARKER = "TERRACE_NODE"
"""The environment variable that says which node (hence which agent) they belong to."""


START_TIME_FIELD = 19
"""Of /proc/PID/stat, counted from what follows the command's name."""


def start_time(pid: int) -> int | None:
    """Return the process's start in clock ticks since boot; None if there is no such process."""
    entry = _stat(pid)
    return entry[1] if entry else None


def is_alive(pid: int, started: int) -> bool:
    """Tell whether exactly this process still runs (a zombie does not)."""
    entry = _stat(pid)
    return entry is not None and entry[1] == started and entry[2] not in "ZX"


def descendants(root: int) -> dict[int, int]:
    """Return pid -> start time of all living children of `root`, theirs, and so on.

    Complete only for a `root` that is a child subreaper: then a process that daemonized is again
    a child of `root`.
    """
    children: dict[int, list[int]] = {}
    started: dict[int, int] = {}
    for pid in _pids():
        entry = _stat(pid)
        if entry is None or entry[2] in "ZX":
            continue
        children.setdefault(entry[0], []).append(pid)
        started[pid] = entry[1]
    found: dict[int, int] = {}
    waiting = list(children.get(root, ()))
    while waiting:
        pid = waiting.pop()
        if pid not in found:
            found[pid] = started[pid]
            waiting.extend(children.get(pid, ()))
    return found


def marked(node: str) -> dict[str, dict[int, int]]:
    """Return attempt -> {pid: start time} of all processes that carry this node's markers.

    Several agents may share a machine (two checkouts, tests), so the node has to match as well.
    """
    found: dict[str, dict[int, int]] = {}
    for pid in _pids():
        entry = _stat(pid)
        if entry is None or entry[2] in "ZX":
            continue
        try:
            with open(f"/proc/{pid}/environ", "rb") as stream:
                pairs = dict(item.partition(b"=")[::2] for item in stream.read().split(b"\0"))
        except OSError:
            continue  # ended meanwhile, or belongs to another user and so is not ours
        if pairs.get(NODE_MARKER.encode()) == node.encode():
            attempt = pairs.get(MARKER.encode(), b"").decode("utf-8", "replace")
            found.setdefault(attempt, {})[pid] = entry[1]
    return found


def send(pid: int, started: int, number: int) -> bool:
    """Signal the process if it still is the one that started then; tell whether it was."""
    try:
        fd = os.pidfd_open(pid)
    except OSError as error:
        if error.errno == errno.ENOSYS:
            return _send_by_pid(pid, started, number)
        return False
    try:
        if start_time(pid) != started:
            return False
        signal.pidfd_send_signal(fd, number)
    except ProcessLookupError:
        return False
    finally:
        os.close(fd)
    return True


def _send_by_pid(pid: int, started: int, number: int) -> bool:
    """Do the same on a kernel before 5.3, with the gap that it leaves."""
    if start_time(pid) != started:
        return False
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _stat(pid: int) -> tuple[int, int, str] | None:
    """Return (parent, start time, state); the command's name may itself contain parentheses."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as stream:
            fields = stream.read().rpartition(b")")[2].split()
    except OSError:
        return None
    if len(fields) <= START_TIME_FIELD:
        return None
    return int(fields[1]), int(fields[START_TIME_FIELD]), fields[0].decode("ascii")
