"""One control group per attempt, where this machine lets us make one: version 2, 1, or both mixed.

A group gives limits (memory, number of processes, weight of CPU), a list of members that nothing
can leave, and on version 2 a way to kill all of them at once. None of it is required: without any,
the supervisor still finds the attempt's processes as its descendants.
"""

from __future__ import annotations

import os

ROOT = "/sys/fs/cgroup"
PARENT = "terrace"
PIDS_LIMIT = 8192
V1_CONTROLLERS = ("memory", "pids", "cpu", "cpuacct", "cpuset", "freezer")


class Group:
    """The folders, one a hierarchy, that together hold one attempt."""

    __slots__ = ("folders", "warnings")

    def __init__(self, folders: list[str], warnings: list[str]) -> None:
        self.folders = folders
        self.warnings = warnings

    def join(self) -> None:
        """Move the calling process in; its children will be born inside.

        Raises:
            OSError: the kernel refused, e.g. because a folder was removed.
        """
        for folder in self.folders:
            _write(f"{folder}/cgroup.procs", "0")

    def members(self) -> set[int]:
        """Return the pids inside, in any hierarchy."""
        found: set[int] = set()
        for folder in self.folders:
            text = _read(f"{folder}/cgroup.procs")
            found.update(int(line) for line in text.split())
        found.discard(0)
        return found

    def kill(self) -> None:
        """Kill all members at once where the kernel can; members() tells who is left."""
        for folder in self.folders:
            path = f"{folder}/cgroup.kill"
            if os.path.exists(path):
                _try_write(path, "1")

    def oom_kills(self) -> int:
        """Return how many members the kernel killed for want of memory."""
        count = 0
        for folder in self.folders:
            for name in ("memory.events", "memory.oom_control"):
                for line in _read(f"{folder}/{name}").splitlines():
                    key, _, value = line.partition(" ")
                    if key == "oom_kill":
                        count += int(value)
        return count

    def remove(self) -> None:
        """Delete the empty folders; one that is not empty stays for the agent's next scan."""
        for folder in self.folders:
            try:
                os.rmdir(folder)
            except OSError:
                continue


def create(
    name: str, *, memory_bytes: int, cpu_milli: int, cpus: list[int], pids_limit: int = PIDS_LIMIT
) -> Group:
    """Make the attempt's group in every hierarchy that allows it and set its limits.

    What could not be done stands in `warnings`; a group without folders means that there are none.
    """
    warnings: list[str] = []
    folders: list[str] = []
    limits = _limits_v2(memory_bytes, cpu_milli, cpus, pids_limit)
    for base in _v2_bases():
        folder = _make(base, name, enable=True)
        if folder is not None:
            folders.append(folder)
            _apply(folder, limits, warnings)
    limits = _limits_v1(memory_bytes, cpu_milli, pids_limit)
    for controller in V1_CONTROLLERS:
        base = f"{ROOT}/{controller}"
        if not os.path.exists(f"{base}/cgroup.procs"):
            continue
        folder = _make(base, name, enable=False)
        if folder is None or (controller == "cpuset" and not _fill_cpuset(folder, cpus)):
            continue
        folders.append(folder)
        _apply(folder, limits, warnings)
    if memory_bytes and not any(_has_memory_limit(folder) for folder in folders):
        warnings.append("no control group with a memory limit can be made here")
    return Group(folders, warnings)


def existing(name: str) -> Group:
    """Return the group that an earlier supervisor made for this attempt, as far as it is there."""
    bases = [*_v2_bases(), *(f"{ROOT}/{controller}" for controller in V1_CONTROLLERS)]
    folders = [f"{base}/{PARENT}/{name}" for base in bases]
    return Group([folder for folder in folders if os.path.isdir(folder)], [])


def is_usable() -> bool:
    """Tell whether groups with a memory limit can be made here."""
    if os.access(f"{ROOT}/memory/cgroup.procs", os.W_OK):
        return True
    offered = [_read(f"{base}/cgroup.controllers").split() for base in _v2_bases()]
    return any("memory" in controllers for controllers in offered)


def _v2_bases() -> list[str]:
    """Return where groups may be made: the root for root, else the group we are in (delegated)."""
    for root in (ROOT, f"{ROOT}/unified"):
        if os.path.exists(f"{root}/cgroup.controllers"):
            if os.geteuid() == 0:
                return [root]
            for line in _read("/proc/self/cgroup").splitlines():
                if line.startswith("0::"):
                    # Our own group's parent: a group with members may not have controllers below.
                    own = os.path.dirname(root + line[3:].rstrip("/"))
                    return [own] if own.startswith(root) and os.access(own, os.W_OK) else []
    return []


def _make(base: str, name: str, *, enable: bool) -> str | None:
    parent = f"{base}/{PARENT}"
    folder = f"{parent}/{name}"
    try:
        if enable:
            _enable_controllers(base)
        os.makedirs(parent, exist_ok=True)
        if enable:
            _enable_controllers(parent)
        elif base.endswith("/cpuset"):
            _fill_cpuset(parent, [])
        os.makedirs(folder, exist_ok=True)
    except OSError:
        return None
    return folder


def _enable_controllers(folder: str) -> None:
    offered = _read(f"{folder}/cgroup.controllers").split()
    for controller in ("memory", "pids", "cpu", "cpuset"):
        if controller in offered:
            _try_write(f"{folder}/cgroup.subtree_control", f"+{controller}")


def _limits_v2(
    memory_bytes: int, cpu_milli: int, cpus: list[int], pids_limit: int
) -> dict[str, str]:
    limits = {"pids.max": str(pids_limit)}
    if memory_bytes:
        limits["memory.max"] = str(memory_bytes)
        limits["memory.swap.max"] = "0"
        limits["memory.oom.group"] = "1"
    if cpu_milli:
        limits["cpu.weight"] = str(min(10_000, max(1, cpu_milli // 10)))
    if cpus:
        limits["cpuset.cpus"] = ",".join(map(str, cpus))
    return limits


def _limits_v1(memory_bytes: int, cpu_milli: int, pids_limit: int) -> dict[str, str]:
    limits = {"pids.max": str(pids_limit)}
    if memory_bytes:
        limits["memory.limit_in_bytes"] = str(memory_bytes)
        limits["memory.memsw.limit_in_bytes"] = str(memory_bytes)
    if cpu_milli:
        limits["cpu.shares"] = str(min(262_144, max(2, cpu_milli * 1024 // 1000)))
    return limits


def _apply(folder: str, limits: dict[str, str], warnings: list[str]) -> None:
    for name, value in limits.items():
        path = f"{folder}/{name}"
        if os.path.exists(path):
            error = _try_write(path, value)
            if error:
                warnings.append(f"{name}={value}: {error}")


def _has_memory_limit(folder: str) -> bool:
    names = ("memory.max", "memory.limit_in_bytes")
    return any(os.path.exists(f"{folder}/{name}") for name in names)


def _fill_cpuset(folder: str, cpus: list[int]) -> bool:
    """Fill in what version 1 leaves empty and without which no process may enter."""
    parent = os.path.dirname(folder)
    for name, value in (("cpuset.cpus", ",".join(map(str, cpus))), ("cpuset.mems", "")):
        wanted = value or _read(f"{parent}/{name}").strip()
        is_to_write = bool(value) or not _read(f"{folder}/{name}").strip()
        if is_to_write and _try_write(f"{folder}/{name}", wanted):
            return False
    return True


def _read(path: str) -> str:
    try:
        with open(path, encoding="ascii") as stream:
            return stream.read()
    except OSError:
        return ""


def _write(path: str, value: str) -> None:
    with open(path, "w", encoding="ascii") as stream:
        stream.write(value)


def _try_write(path: str, value: str) -> str:
    try:
        _write(path, value)
    except OSError as error:
        return error.strerror or "refused"
    return ""
