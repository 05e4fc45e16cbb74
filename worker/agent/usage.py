"""Measure what the node and each attempt use: control groups where there are any, else /proc."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil

from worker.agent.inventory import DeviceUse, DeviceWatch
from worker.protocol import UsageSample

PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
TICKS_PER_SECOND: Final = os.sysconf("SC_CLK_TCK")
NANOSECONDS: Final = 1_000_000_000


@dataclass(frozen=True, slots=True)
class ProcessUse:
    """One line of /proc."""

    parent: int
    cpu_seconds: float
    memory_bytes: int


class UsageMeter:
    """Keeps the last reading of each subject, since CPU use is a difference."""

    def __init__(self, devices: DeviceWatch) -> None:
        self._devices = devices
        self._last: dict[str, tuple[float, float]] = {}

    def samples(self, shims: dict[str, tuple[int, list[str]]]) -> list[UsageSample]:
        """Measure everything once.

        Args:
            shims: attempt -> (pid of its shim, folders of its control groups).
        """
        now = time.time()
        processes = read_processes()
        devices = self._devices.use()
        found = [self._node(now), *(_device_sample(device, now) for device in devices)]
        members = {attempt: descend(pid, processes) for attempt, (pid, _) in shims.items()}
        for attempt, (_, groups) in shims.items():
            found.append(self._attempt(attempt, groups, members[attempt], processes, devices, now))
        alive = {"node", *shims}
        self._last = {key: value for key, value in self._last.items() if key in alive}
        return found

    def _node(self, now: float) -> UsageSample:
        times = psutil.cpu_times()
        idle = times.idle + getattr(times, "iowait", 0.0)
        # guest time is already part of user time in Linux's figures
        busy = sum(times) - idle - getattr(times, "guest", 0.0) - getattr(times, "guest_nice", 0.0)
        memory = psutil.virtual_memory()
        return UsageSample(
            subject="node",
            at=now,
            cpu_milli=self._rate("node", busy),
            memory_bytes=memory.total - memory.available,
        )

    def _attempt(
        self,
        attempt: str,
        groups: list[str],
        pids: set[int],
        processes: dict[int, ProcessUse],
        devices: list[DeviceUse],
        now: float,
    ) -> UsageSample:
        cpu = group_cpu_seconds(groups)
        memory = group_memory_bytes(groups)
        if cpu is None:
            cpu = sum(processes[pid].cpu_seconds for pid in pids)
        if memory is None:
            memory = sum(processes[pid].memory_bytes for pid in pids)
        used = [device for device in devices if pids & device.memory_by_pid.keys()]
        percents = [device.gpu_percent for device in used if device.gpu_percent is not None]
        return UsageSample(
            subject=attempt,
            at=now,
            cpu_milli=self._rate(attempt, cpu),
            memory_bytes=memory,
            gpu_percent=sum(percents) / len(percents) if percents else None,
            gpu_memory_bytes=sum(
                size for device in used for pid, size in device.memory_by_pid.items() if pid in pids
            )
            if used
            else None,
        )

    def _rate(self, subject: str, cpu_seconds: float) -> int | None:
        """Return milli-CPU since the last reading; None at the first."""
        now = time.monotonic()
        last = self._last.get(subject)
        self._last[subject] = (now, cpu_seconds)
        if last is None or now <= last[0]:
            return None
        return max(0, round((cpu_seconds - last[1]) / (now - last[0]) * 1000))


def _device_sample(device: DeviceUse, now: float) -> UsageSample:
    return UsageSample(
        subject=f"gpu:{device.uuid}",
        at=now,
        gpu_percent=device.gpu_percent,
        gpu_memory_bytes=device.memory_bytes,
        temperature_celsius=device.temperature_celsius,
        power_watts=device.power_watts,
    )


def read_processes() -> dict[int, ProcessUse]:
    """Read parent, CPU time and memory of all processes in one pass."""
    found = {}
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            fields = (folder / "stat").read_bytes().rpartition(b")")[2].split()
        except OSError:
            continue
        found[int(folder.name)] = ProcessUse(
            parent=int(fields[1]),
            cpu_seconds=(int(fields[11]) + int(fields[12])) / TICKS_PER_SECOND,
            memory_bytes=int(fields[21]) * PAGE_BYTES,
        )
    return found


def descend(root: int, processes: dict[int, ProcessUse]) -> set[int]:
    """Return the pids below `root`, without it."""
    children: dict[int, list[int]] = {}
    for pid, use in processes.items():
        children.setdefault(use.parent, []).append(pid)
    found: set[int] = set()
    waiting = list(children.get(root, ()))
    while waiting:
        pid = waiting.pop()
        if pid not in found:
            found.add(pid)
            waiting.extend(children.get(pid, ()))
    return found


def group_cpu_seconds(groups: list[str]) -> float | None:
    """Return the CPU time of a group, its ended processes included; None if it keeps no account."""
    for folder in groups:
        usage = _read(f"{folder}/cpuacct.usage")
        if usage:
            return int(usage) / NANOSECONDS
        for line in _read(f"{folder}/cpu.stat").splitlines():
            key, _, value = line.partition(" ")
            if key == "usage_usec":
                return int(value) / 1_000_000
    return None


def group_memory_bytes(groups: list[str]) -> int | None:
    """Return the memory of a group without what the kernel can drop at once; None: no account."""
    for folder in groups:
        total = _read(f"{folder}/memory.current") or _read(f"{folder}/memory.usage_in_bytes")
        if not total:
            continue
        for line in _read(f"{folder}/memory.stat").splitlines():
            key, _, value = line.partition(" ")
            if key in {"inactive_file", "total_inactive_file"}:
                return max(0, int(total) - int(value))
        return int(total)
    return None


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="ascii").strip()
    except OSError:
        return ""
