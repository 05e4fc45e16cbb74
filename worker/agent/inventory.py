"""What the machine has: CPU sockets, NUMA nodes, memory, and GPUs with their links and health."""

from __future__ import annotations

import dataclasses
import logging
import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import psutil
import pynvml

from worker.agent.config import Runtime
from worker.agent.machine import Hardware
from worker.protocol import DeviceInfo, RuntimeInfo

logger = logging.getLogger(__name__)

SYSFS: Final = Path("/sys/devices/system")


def hardware(devices: DeviceWatch) -> Hardware:
    """Read what is there now. CPUs that this process may not use do not count."""
    cpus = len(os.sched_getaffinity(0))
    return Hardware(
        cpu_milli=cpus * 1000,
        memory_bytes=psutil.virtual_memory().total,
        sockets=count_sockets(),
        numa_nodes=read_numa_nodes(),
        devices=devices.read(),
    )


def count_sockets(root: Path = SYSFS) -> int:
    """Return the number of CPU packages; 1 where the kernel does not say."""
    packages = {
        path.read_text().strip() for path in root.glob("cpu/cpu[0-9]*/topology/physical_package_id")
    }
    return max(1, len(packages))


def read_numa_nodes(root: Path = SYSFS) -> list[dict[str, Any]]:
    """Return [{"id", "cpus", "memory_bytes"}] by id; all CPUs as one node where there is none."""
    nodes = [
        {
            "id": int(path.name.removeprefix("node")),
            "cpus": (path / "cpulist").read_text().strip(),
            "memory_bytes": _meminfo_total(path / "meminfo"),
        }
        for path in root.glob("node/node[0-9]*")
    ]
    if not nodes:
        cpus = ",".join(map(str, sorted(os.sched_getaffinity(0))))
        nodes = [{"id": 0, "cpus": cpus, "memory_bytes": psutil.virtual_memory().total}]
    return sorted(nodes, key=lambda node: int(node["id"]))


def _meminfo_total(path: Path) -> int:
    match = re.search(r"MemTotal:\s+(\d+) kB", path.read_text()) if path.exists() else None
    return int(match[1]) * 1024 if match else 0


IMAGE_ENDINGS: Final = frozenset({".sqsh", ".sif", ".img"})
MOST_IMAGES: Final = 1_000


def runtime_info(runtime: Runtime) -> RuntimeInfo:
    """Return a runtime as the node reports it, with the images that it holds now."""
    images = read_images(Path(runtime.images)) if runtime.images else {}
    return RuntimeInfo(runtime.name, runtime.kind, runtime.version, images)


def read_images(folder: Path) -> dict[str, int]:
    """Return the image files of a folder by name without ending, and their bytes."""
    try:
        files = sorted(folder.iterdir())
        found = {
            file.name.removesuffix(file.suffix): file.stat().st_size
            for file in files[:MOST_IMAGES]
            if file.suffix in IMAGE_ENDINGS and file.is_file()
        }
    except OSError as error:
        logger.warning("cannot read the images in %s: %s", folder, error)
        return {}
    return found


@dataclass(frozen=True, slots=True)
class DeviceUse:
    """What NVML measures on one GPU."""

    uuid: str
    gpu_percent: float | None
    memory_bytes: int | None
    temperature_celsius: float | None
    power_watts: float | None
    memory_by_pid: dict[int, int] = field(default_factory=dict)


_LINK_NAMES: Final = {
    pynvml.NVML_TOPOLOGY_INTERNAL: "PIX",
    pynvml.NVML_TOPOLOGY_SINGLE: "PIX",
    pynvml.NVML_TOPOLOGY_MULTIPLE: "PXB",
    pynvml.NVML_TOPOLOGY_HOSTBRIDGE: "PHB",
    pynvml.NVML_TOPOLOGY_NODE: "NODE",
    pynvml.NVML_TOPOLOGY_SYSTEM: "SYS",
}


class DeviceWatch:
    """Reads GPUs by NVML; a machine without the library simply has none.

    A GPU that was there once and is not any more is reported unhealthy, not left out: what is
    bound to it has to be dealt with.
    """

    def __init__(self) -> None:
        self._known: dict[str, DeviceInfo] = {}
        self._problem = ""
        self._is_open = False
        self._open()

    def warnings(self) -> list[str]:
        """Say if there are GPUs that cannot be read."""
        return [self._problem] if self._problem else []

    def read(self) -> list[DeviceInfo]:
        """Return all GPUs ever seen, by index, with their present health."""
        found = {info.uuid: info for info in self._read_present()}
        for uuid, info in self._known.items():
            if uuid not in found:
                found[uuid] = dataclasses.replace(
                    info, is_healthy=False, health_reason="the driver does not show it any more"
                )
        self._known = found
        return sorted(found.values(), key=lambda info: (info.index, info.uuid))

    def use(self) -> list[DeviceUse]:
        """Measure all GPUs that answer."""
        if not self._is_open:
            return []
        measured = []
        for handle in self._handles():
            try:
                measured.append(_measure(handle))
            except pynvml.NVMLError as error:
                logger.warning("gpu.not_measured error=%s", error)
        return measured

    def close(self) -> None:
        """Let go of the library."""
        if self._is_open:
            pynvml.nvmlShutdown()
            self._is_open = False

    def _open(self) -> None:
        try:
            pynvml.nvmlInit()
        except (
            pynvml.NVMLError_LibraryNotFound,
            pynvml.NVMLError_DriverNotLoaded,
        ):
            return
        except pynvml.NVMLError as error:
            self._problem = f"GPUs cannot be read: {error}"
            return
        self._is_open = True

    def _handles(self) -> list[Any]:
        handles = []
        try:
            count = pynvml.nvmlDeviceGetCount()
        except pynvml.NVMLError as error:
            self._problem = f"GPUs cannot be counted: {error}"
            return []
        for index in range(count):
            try:
                handles.append(pynvml.nvmlDeviceGetHandleByIndex(index))
            except pynvml.NVMLError as error:
                logger.warning("gpu.no_handle index=%s error=%s", index, error)
        return handles

    def _read_present(self) -> list[DeviceInfo]:
        if not self._is_open:
            return []
        handles = []
        for handle in self._handles():
            try:
                handles.append((handle, _text(pynvml.nvmlDeviceGetUUID(handle))))
            except pynvml.NVMLError as error:
                logger.warning("gpu.no_uuid error=%s", error)
        return [_describe(handle, uuid, handles) for handle, uuid in handles]


def _describe(handle: Any, uuid: str, all_handles: list[tuple[Any, str]]) -> DeviceInfo:
    reason = _health_problem(handle)
    memory = _ask(pynvml.nvmlDeviceGetMemoryInfo, handle)
    index = _ask(pynvml.nvmlDeviceGetIndex, handle)
    numa_node = _ask(pynvml.nvmlDeviceGetNumaNodeId, handle)
    return DeviceInfo(
        uuid=uuid,
        index=index if index is not None else -1,
        model=_text(_ask(pynvml.nvmlDeviceGetName, handle) or ""),
        memory_bytes=int(memory.total) if memory is not None else 0,
        is_healthy=not reason,
        health_reason=reason,
        numa_node=numa_node if numa_node is not None else _pci_numa_node(handle),
        links={peer: _link(handle, other) for other, peer in all_handles if peer != uuid},
    )


def _health_problem(handle: Any) -> str:
    """Return why the GPU should get no work; empty: it answers and has no lasting fault."""
    try:
        pynvml.nvmlDeviceGetMemoryInfo(handle)
    except pynvml.NVMLError as error:
        return f"does not answer: {error}"
    rows = _ask(pynvml.nvmlDeviceGetRemappedRows, handle)
    if rows is not None and rows[-1]:  # (corrected, uncorrected, pending, failed)
        return "a memory row could not be remapped"
    errors = _ask(
        pynvml.nvmlDeviceGetTotalEccErrors,
        handle,
        pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED,
        pynvml.NVML_VOLATILE_ECC,
    )
    return f"{errors} uncorrected memory errors since the driver was loaded" if errors else ""


def _link(one: Any, other: Any) -> str:
    """Return how two GPUs reach one another: NVLink, else the nearest common bridge."""
    status = _ask(pynvml.nvmlDeviceGetP2PStatus, one, other, pynvml.NVML_P2P_CAPS_INDEX_NVLINK)
    if status == pynvml.NVML_P2P_STATUS_OK:
        return "NVLink"
    level = _ask(pynvml.nvmlDeviceGetTopologyCommonAncestor, one, other)
    return _LINK_NAMES.get(level, "SYS")


def _pci_numa_node(handle: Any) -> int:
    pci = _ask(pynvml.nvmlDeviceGetPciInfo, handle)
    if pci is None:
        return -1
    address = _text(pci.busId).lower()
    path = Path("/sys/bus/pci/devices") / address[-12:] / "numa_node"
    return int(path.read_text()) if path.exists() else -1


def _measure(handle: Any) -> DeviceUse:
    rates = _ask(pynvml.nvmlDeviceGetUtilizationRates, handle)
    memory = _ask(pynvml.nvmlDeviceGetMemoryInfo, handle)
    power = _ask(pynvml.nvmlDeviceGetPowerUsage, handle)
    temperature = _ask(pynvml.nvmlDeviceGetTemperature, handle, pynvml.NVML_TEMPERATURE_GPU)
    running = _ask(pynvml.nvmlDeviceGetComputeRunningProcesses, handle) or []
    return DeviceUse(
        uuid=_text(pynvml.nvmlDeviceGetUUID(handle)),
        gpu_percent=float(rates.gpu) if rates is not None else None,
        memory_bytes=int(memory.used) if memory is not None else None,
        temperature_celsius=float(temperature) if temperature is not None else None,
        power_watts=power / 1000 if power is not None else None,
        memory_by_pid={int(entry.pid): int(entry.usedGpuMemory or 0) for entry in running},
    )


def _ask(question: Any, *arguments: Any) -> Any:
    """Return NVML's answer; None where this GPU does not support the question."""
    try:
        return question(*arguments)
    except pynvml.NVMLError:
        return None


def _text(value: str | bytes) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
