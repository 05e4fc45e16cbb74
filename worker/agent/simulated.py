"""A machine that pretends: only the start of processes and the source of load are replaced.

Commands, records, reports, leases and restarts are those of a real node, so one process can stand
for hundreds of nodes in a test of everything else. A pretended process is a line in the attempt's
folder: it goes on while the agent is away, and ends when its time has come.
"""

from __future__ import annotations

import asyncio
import random
import re
import time
from dataclasses import dataclass
from typing import Any, Final

from worker.agent.attempts import Attempt, exit_record, exit_report
from worker.agent.machine import Hardware, Listener
from worker.protocol import AttemptReport, DeviceInfo, UsageSample
from worker.shim import linux, records, supervisor

LOOK_SECONDS: Final = supervisor.TICK_SECONDS
DEFAULT_SECONDS: Final = 60.0
BYTES_BY_UNIT: Final = {"": 1, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}
GPU_MEMORY_BYTES: Final = 80 * 2**30
GPUS_PER_SOCKET: Final = 4
SECONDS: Final = re.compile(r"\d{1,9}(\.\d{1,6})?", re.ASCII)
EXAMPLE: Final = "gpus=8,cpu=64,memory=512Gi"


class SimulateError(ValueError):
    """What was given to --simulate cannot be read."""


@dataclass(frozen=True, slots=True)
class Shape:
    """The size of one pretended node."""

    gpus: int = 0
    cpu: int = 16
    memory_bytes: int = 64 * 2**30
    model: str = "Simulated-GPU"
    seconds: float = DEFAULT_SECONDS
    """How long a pretended process runs whose job does not say it."""


def parse_shape(text: str) -> Shape:
    """Read `gpus=8,cpu=64,memory=512Gi[,model=NAME][,seconds=60]`.

    Raises:
        SimulateError: a key is unknown or a number is none.
    """
    fields: dict[str, Any] = {}
    for part in filter(None, text.split(",")):
        key, _, value = part.partition("=")
        if key == "memory":
            fields["memory_bytes"] = _bytes(value)
        elif key in {"gpus", "cpu"} and value.isdigit():
            fields[key] = int(value)
        elif key == "model" and value:
            fields[key] = value
        elif key == "seconds" and SECONDS.fullmatch(value):
            fields[key] = float(value)
        else:
            raise SimulateError(f"--simulate: {part!r} is not understood; example: {EXAMPLE}")
    return Shape(**fields)


def _bytes(text: str) -> int:
    number = text.rstrip("KMGTi")
    unit = BYTES_BY_UNIT.get(text[len(number) :])
    if not number.isdigit() or unit is None:
        raise SimulateError(f"--simulate: memory={text!r} is not understood; example: 512Gi")
    return int(number) * unit


class SimulatedMachine:
    """Pretends processes by timers."""

    is_simulated = True

    def __init__(self, *, shape: Shape, node: str) -> None:
        self._shape = shape
        self._node = node
        self._boot_id = linux.boot_id()
        self._deadline = 0.0
        self._lease_timer: asyncio.TimerHandle | None = None
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._live: dict[str, tuple[Attempt, Listener]] = {}
        self._random = random.Random(node)  # noqa: S311 -- makes plausible figures, no secrets

    def hardware(self) -> Hardware:
        """Return the pretended hardware: one socket for every four GPUs, all linked by NVLink."""
        shape = self._shape
        sockets = max(1, -(-shape.gpus // GPUS_PER_SOCKET))
        uuids = [f"SIM-{self._node}-{index}" for index in range(shape.gpus)]
        per_socket = max(1, shape.cpu // sockets)
        return Hardware(
            cpu_milli=shape.cpu * 1000,
            memory_bytes=shape.memory_bytes,
            sockets=sockets,
            numa_nodes=[
                {
                    "id": number,
                    "cpus": f"{number * per_socket}-{(number + 1) * per_socket - 1}",
                    "memory_bytes": shape.memory_bytes // sockets,
                }
                for number in range(sockets)
            ],
            devices=[
                DeviceInfo(
                    uuid=uuid,
                    index=index,
                    model=shape.model,
                    memory_bytes=GPU_MEMORY_BYTES,
                    numa_node=index // GPUS_PER_SOCKET,
                    links={peer: "NVLink" for peer in uuids if peer != uuid},
                )
                for index, uuid in enumerate(uuids)
            ],
        )

    def warnings(self) -> list[str]:
        """Nothing is at risk."""
        return []

    def renew_lease(self, deadline: float) -> None:
        """Keep the deadline and look again when it passes."""
        self._deadline = deadline
        if self._lease_timer is None:
            self._watch_lease()

    def may_start(self) -> bool:
        """Tell whether the lease still holds."""
        return linux.boot_seconds() < self._deadline

    def start(self, attempt: Attempt, listener: Listener) -> None:
        """Pretend to start."""
        launch = attempt.launch
        seconds = self._shape.seconds
        exit_code = 0
        if launch is not None:
            try:
                seconds = float(launch.environment.get("TERRACE_SIMULATE_SECONDS", seconds))
                exit_code = int(launch.environment.get("TERRACE_SIMULATE_EXIT_CODE", 0))
            except ValueError as error:
                message = f"TERRACE_SIMULATE_SECONDS or TERRACE_SIMULATE_EXIT_CODE: {error}"
                record = exit_record(reason=supervisor.LAUNCH_FAILED, message=message)
                self._finish(attempt, listener, record)
                return
            if launch.simulate_seconds is not None:
                seconds = launch.simulate_seconds
        attempt.write(
            records.SHIM,
            {
                "boot_id": self._boot_id,
                "ends_at": linux.boot_seconds() + seconds,
                "started_at": time.time(),
                "exit_code": exit_code,
                "time_limit": launch.time_limit_seconds if launch is not None else None,
            },
        )
        self.adopt(attempt, listener)

    def adopt(self, attempt: Attempt, listener: Listener) -> None:
        """Take over where the pretended process is by now."""
        record = attempt.read(records.SHIM)
        if record is None:
            self.start(attempt, listener)
            return
        if record.get("boot_id") != self._boot_id:
            message = "the machine was restarted while the task ran"
            lost = exit_record(reason="NodeRebooted", message=message, signal=9)
            self._finish(attempt, listener, lost)
            return
        self._live[attempt.id] = (attempt, listener)
        started_at = float(record["started_at"])
        listener.on_report(attempt, _report(attempt, "Running", started_at))
        wait = max(0.0, float(record["ends_at"]) - linux.boot_seconds())
        ended = {**exit_record(reason=""), "exit_code": record["exit_code"]}
        limit = record.get("time_limit")
        if limit is not None and limit < wait:
            wait = float(limit)
            message = f"ran for its limit of {limit:g} s"
            ended = exit_record(reason=supervisor.TIME_LIMIT, message=message, signal=15)
        self._after(wait, attempt, listener, ended)

    def stop(self, attempt: Attempt, *, grace_seconds: float, reason: str) -> None:
        """Pretend that SIGTERM was obeyed at once."""
        live = self._live.get(attempt.id)
        if live is None:
            return
        _, listener = live
        listener.on_report(attempt, _report(attempt, "Stopping", time.time()))
        ended = exit_record(reason=reason or supervisor.STOPPED, signal=15)
        self._after(0.0, attempt, listener, ended)

    def collect(self, attempt: Attempt) -> None:
        """Pretended processes leave no outputs."""
        attempt.is_collected = True

    async def samples(self, attempts: list[Attempt]) -> list[UsageSample]:
        """Make up figures: a GPU in use is at 70 to 98 %, others are idle."""
        now = time.time()
        found: list[UsageSample] = []
        busy: set[str] = set()
        cpu_milli = memory_bytes = 0
        for attempt in attempts:
            launch = attempt.launch
            if launch is None:
                continue
            busy.update(launch.devices)
            cpu = int(launch.cpu_milli * self._random.uniform(0.5, 0.95))
            memory = int(launch.memory_bytes * self._random.uniform(0.4, 0.8))
            cpu_milli, memory_bytes = cpu_milli + cpu, memory_bytes + memory
            found.append(
                UsageSample(
                    subject=attempt.id,
                    at=now,
                    cpu_milli=cpu,
                    memory_bytes=memory,
                    gpu_percent=self._random.uniform(70, 98) if launch.devices else None,
                )
            )
        found.append(
            UsageSample(subject="node", at=now, cpu_milli=cpu_milli, memory_bytes=memory_bytes)
        )
        found.extend(
            self._device_sample(device, is_busy=device.uuid in busy, now=now)
            for device in self.hardware().devices
        )
        return found

    async def close(self) -> None:
        """Forget the timers; the records know when each process ends."""
        for timer in self._timers.values():
            timer.cancel()
        if self._lease_timer is not None:
            self._lease_timer.cancel()

    def strays(self, known: set[str], node: str) -> list[str]:
        """There are no processes that could be left over."""
        return []

    def _device_sample(self, device: DeviceInfo, *, is_busy: bool, now: float) -> UsageSample:
        percent = self._random.uniform(70, 98) if is_busy else 0.0
        return UsageSample(
            subject=f"gpu:{device.uuid}",
            at=now,
            gpu_percent=percent,
            gpu_memory_bytes=int(device.memory_bytes * percent / 120),
            temperature_celsius=35 + percent * 0.35,
            power_watts=70 + percent * 5.5,
        )

    def _after(
        self, seconds: float, attempt: Attempt, listener: Listener, record: dict[str, Any]
    ) -> None:
        earlier = self._timers.pop(attempt.id, None)
        if earlier is not None:
            earlier.cancel()
        loop = asyncio.get_running_loop()
        self._timers[attempt.id] = loop.call_later(seconds, self._finish, attempt, listener, record)

    def _finish(self, attempt: Attempt, listener: Listener, record: dict[str, Any]) -> None:
        self._timers.pop(attempt.id, None)
        self._live.pop(attempt.id, None)
        record = {**record, "at": time.time()}
        attempt.write(records.EXIT, record)
        listener.on_report(attempt, exit_report(attempt.id, record))

    def _watch_lease(self) -> None:
        if not self.may_start():
            for attempt, listener in list(self._live.values()):
                timer = self._timers.pop(attempt.id, None)
                if timer is not None:
                    timer.cancel()
                message = "no contact with the control plane until the lease ran out"
                lapsed = exit_record(reason=supervisor.LEASE_LAPSED, message=message, signal=9)
                self._finish(attempt, listener, lapsed)
        loop = asyncio.get_running_loop()
        self._lease_timer = loop.call_later(LOOK_SECONDS, self._watch_lease)


def _report(attempt: Attempt, state: str, at: float) -> AttemptReport:
    return AttemptReport(attempt=attempt.id, state=state, at=at)
