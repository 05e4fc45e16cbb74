"""One node: takes commands, keeps attempts, and says what the control plane does not know yet.

It knows nothing of sockets: a session hands messages in and asks for the next report. So everything
that has to survive a broken connection is here, and what has to survive a restart is on the disk.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import os
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib import metadata
from typing import Final

from worker import protocol
from worker.agent.attempts import (
    Attempt,
    AttemptState,
    exit_record,
    exit_report,
    forget,
    new_attempt,
    read_launch,
    store_launch,
    take_lock,
)
from worker.agent.config import Runtime
from worker.agent.folders import NodeFolders, UnsafeNameError
from worker.agent.inventory import runtime_info
from worker.agent.machine import Machine
from worker.agent.preparing import attempt_folders
from worker.agent.tailing import CHUNK_BYTES
from worker.protocol import (
    AttemptInventory,
    AttemptReport,
    CommandDone,
    DeviceInfo,
    Hello,
    Launch,
    LogChunk,
    MetricPoint,
    Report,
    Stop,
    UsageSample,
)
from worker.shim import linux, records
from worker.shim.supervisor import LAUNCH_FAILED, NODE_SHUTDOWN

logger = logging.getLogger(__name__)

STATE_FILE: Final = "state.json"
FRAME_LOG_BYTES: Final = 4 * CHUNK_BYTES
FRAME_REPORTS: Final = 200
FRAME_METRICS: Final = 500
FRAMES_IN_FLIGHT: Final = 16
USAGE_KEPT: Final = 2_000
QUIET_LOOK_SECONDS: Final = 0.2
STALE_EPOCH: Final = "StaleEpoch"
NOT_STORED: Final = "NotStored"
BAD_COMMAND: Final = "BadCommand"
STOPPED_BEFORE_START: Final = "StoppedBeforeStart"


@dataclass(slots=True)
class Receipt:
    """What an acknowledgement of one frame confirms."""

    seq: int
    reports: dict[str, int] = field(default_factory=dict)
    logs: dict[tuple[str, str], int] = field(default_factory=dict)
    metrics: dict[str, tuple[int, int]] = field(default_factory=dict)


class Node:
    """The state of one node between and across sessions."""

    def __init__(
        self,
        *,
        name: str,
        folders: NodeFolders,
        machine: Machine,
        runtimes: Sequence[Runtime],
        address: str = "",
        keep_seconds: float = 86_400.0,
    ) -> None:
        self.name = name
        self.machine = machine
        self.dirty = asyncio.Event()
        """Set when there is something to report."""
        self._folders = folders
        self._runtimes = runtimes
        self._address = address
        self._keep_seconds = keep_seconds
        self._attempts: dict[str, Attempt] = {}
        self._unreported: dict[str, Attempt] = {}
        self._usage: deque[UsageSample] = deque(maxlen=USAGE_KEPT)
        self._devices: list[DeviceInfo] = []
        self._are_devices_news = False
        self._highest_epoch = 0
        self._is_leaving = False
        self._session = ""
        self._seq = itertools.count(1)
        self._in_flight: deque[Receipt] = deque()
        self._acknowledged = asyncio.Event()

    # --- life -----------------------------------------------------------------------------

    def load(self) -> None:
        """Read the disk and take over what was running before this agent."""
        self._folders.create()
        state = records.read(str(self._folders.data / STATE_FILE)) or {}
        epoch = state.get("highest_epoch", 0)
        self._highest_epoch = epoch if isinstance(epoch, int) else 0
        self._devices = self.machine.hardware().devices
        for entry in sorted(os.scandir(self._folders.attempts), key=lambda entry: entry.name):
            if entry.is_dir(follow_symlinks=False):
                self._load_attempt(entry.name)
        for lost in self.machine.strays(set(self._attempts), self.name):
            message = "the node's records of it were gone; its processes were ended"
            with contextlib.suppress(UnsafeNameError):
                self._bury(lost, reason="RecordsLost", message=message)

    def hello(self) -> Hello:
        """Return the full inventory."""
        hardware = self.machine.hardware()
        self._devices = hardware.devices
        self._are_devices_news = False
        return Hello(
            version=protocol.VERSION,
            node=self.name,
            boot_id=linux.boot_id(),
            agent_version=agent_version(),
            highest_epoch=self._highest_epoch,
            cpu_milli=hardware.cpu_milli,
            memory_bytes=hardware.memory_bytes,
            sockets=hardware.sockets,
            numa_nodes=hardware.numa_nodes,
            devices=hardware.devices,
            runtimes=[runtime_info(one) for one in self._runtimes],
            attempts=[
                AttemptInventory(attempt=attempt.id, state=attempt.state)
                for attempt in self._attempts.values()
                if not attempt.is_settled
            ],
            address=self._address,
            is_simulated=self.machine.is_simulated,
            warnings=self.machine.warnings(),
        )

    def begin_session(self, session: str) -> None:
        """Number reports from 1 again and repeat all that is not acknowledged."""
        self._session = session
        self._seq = itertools.count(1)
        self._in_flight.clear()
        for attempt in self._attempts.values():
            if not attempt.is_settled:
                attempt.rewind()
                self._unreported[attempt.id] = attempt
        self.dirty.set()

    # --- commands -------------------------------------------------------------------------

    def launch(self, command: Launch) -> CommandDone:
        """Start an attempt once, however often this is called."""
        if self._is_stale(command.epoch):
            return CommandDone(command.command_id, refused=STALE_EPOCH)
        if command.attempt in self._attempts:
            return CommandDone(command.command_id)
        if self._is_leaving:
            return CommandDone(command.command_id, refused=NODE_SHUTDOWN)
        try:
            folder = self._folders.attempt(command.attempt)
            metrics = attempt_folders(self._folders, command).metrics
        except UnsafeNameError as error:
            logger.warning("launch.refused error=%s", error)
            return CommandDone(command.command_id, refused=BAD_COMMAND)
        attempt = new_attempt(
            folder, command, metrics=metrics, is_durable=not self.machine.is_simulated
        )
        try:
            store_launch(attempt, command)
        except OSError as error:
            logger.exception("launch.not_stored attempt=%s", attempt.id)
            forget(attempt, None)
            return CommandDone(command.command_id, refused=f"{NOT_STORED}: {error.strerror}")
        self._attempts[attempt.id] = attempt
        self._observe(attempt, AttemptState.STARTING)
        self.machine.start(attempt, self)
        return CommandDone(command.command_id)

    def stop(self, command: Stop) -> CommandDone:
        """End an attempt; one that never came here is noted as ended, so that it cannot start."""
        if command.epoch and self._is_stale(command.epoch):
            return CommandDone(command.command_id, refused=STALE_EPOCH)
        try:
            self.end(command.attempt, grace_seconds=command.grace_seconds, reason=command.reason)
        except UnsafeNameError as error:
            logger.warning("stop.refused error=%s", error)
            return CommandDone(command.command_id, refused=BAD_COMMAND)
        return CommandDone(command.command_id)

    def end(self, attempt_id: str, *, grace_seconds: float, reason: str) -> None:
        """End an attempt.

        Raises:
            UnsafeNameError: the id cannot be one.
        """
        attempt = self._attempts.get(attempt_id)
        if attempt is None:
            message = "it was ended before its start arrived"
            self._bury(attempt_id, reason=STOPPED_BEFORE_START, message=message)
        elif not attempt.is_final:
            self.machine.stop(attempt, grace_seconds=grace_seconds, reason=reason)

    def shut_down(self) -> None:
        """End all attempts with their grace and start no more: the machine is being left."""
        self._is_leaving = True
        for attempt in list(self._attempts.values()):
            if not attempt.is_final:
                grace = attempt.launch.grace_seconds if attempt.launch is not None else 0.0
                self.machine.stop(attempt, grace_seconds=grace, reason=NODE_SHUTDOWN)

    async def wait_until_quiet(self) -> None:
        """Return when nothing runs and the control plane knows all of it."""
        while not self.is_quiet():
            self._acknowledged.clear()
            with contextlib.suppress(TimeoutError):
                # Outputs are brought without an acknowledgement here: look again by itself, too.
                async with asyncio.timeout(QUIET_LOOK_SECONDS):
                    await self._acknowledged.wait()

    def is_quiet(self) -> bool:
        """Tell whether nothing runs and the control plane knows how everything ended."""
        return all(
            attempt.is_final and not attempt.pending and attempt.is_collected
            for attempt in self._attempts.values()
        )

    # --- reports --------------------------------------------------------------------------

    def on_report(self, attempt: Attempt, report: AttemptReport) -> None:
        """Hear from the machine."""
        if attempt.observe(report):
            logger.info(
                "attempt.%s attempt=%s exit_code=%s signal=%s reason=%s",
                report.state.lower(),
                attempt.id,
                report.exit_code,
                report.signal,
                report.reason,
            )
            self._unreported[attempt.id] = attempt
            self.dirty.set()
            if attempt.is_final:
                self.machine.collect(attempt)

    def look_for_output(self) -> None:
        """Notice output and metrics that are not sent yet."""
        for attempt in self._attempts.values():
            if not attempt.is_closed and attempt.tails.has_more():
                self._unreported[attempt.id] = attempt
                self.dirty.set()

    async def measure(self) -> None:
        """Take a sample of everything and look at the devices' health."""
        live = [attempt for attempt in self._attempts.values() if not attempt.is_final]
        self._usage.extend(await self.machine.samples(live))
        devices = self.machine.hardware().devices
        if devices != self._devices:
            self._devices, self._are_devices_news = devices, True
        self.dirty.set()

    def next_report(self) -> Report | None:
        """Return the next frame to send; None if there is nothing or too much is unacknowledged."""
        self.dirty.clear()
        if len(self._in_flight) >= FRAMES_IN_FLIGHT:
            return None
        receipt = Receipt(seq=0)
        states: list[AttemptReport] = []
        logs: list[LogChunk] = []
        metrics: list[MetricPoint] = []
        for attempt in list(self._unreported.values()):
            self._collect_states(attempt, states, receipt)
            self._collect_output(attempt, logs, metrics, receipt)
            if attempt.sent == len(attempt.pending) and not attempt.tails.has_more():
                del self._unreported[attempt.id]
        usage = [self._usage.popleft() for _ in range(min(len(self._usage), FRAME_REPORTS))]
        devices = self._devices if self._are_devices_news else []
        if not (states or logs or metrics or usage or devices):
            return None
        if self._unreported or self._usage:
            self.dirty.set()
        self._are_devices_news = False
        receipt.seq = next(self._seq)
        self._in_flight.append(receipt)
        return Report(
            session=self._session,
            seq=receipt.seq,
            attempts=states,
            logs=logs,
            metrics=metrics,
            usage=usage,
            devices=devices,
        )

    def acknowledge(self, seq: int) -> None:
        """Take note that the reports up to and including `seq` are committed."""
        self._acknowledged.set()
        touched: set[str] = set()
        while self._in_flight and self._in_flight[0].seq <= seq:
            receipt = self._in_flight.popleft()
            touched |= self._confirm(receipt)
        for name in touched:
            attempt = self._attempts.get(name)
            if attempt is not None:
                self._save_reported(attempt)
                attempt.is_closed = attempt.is_settled
        if touched or self._unreported:
            self.dirty.set()

    def tidy(self) -> None:
        """Forget attempts that ended long ago and of which everything is known."""
        oldest = time.time() - self._keep_seconds
        for attempt in list(self._attempts.values()):
            if attempt.is_settled and attempt.folder.stat().st_mtime < oldest:
                launch = attempt.launch
                base = attempt_folders(self._folders, launch).base if launch is not None else None
                forget(attempt, base)
                del self._attempts[attempt.id]

    def live_attempts(self) -> list[str]:
        """Return the attempts that are not over."""
        return [attempt.id for attempt in self._attempts.values() if not attempt.is_final]

    # --- inside ---------------------------------------------------------------------------

    def _is_stale(self, epoch: int) -> bool:
        """Refuse what an earlier scheduler ordered; remember the highest, also on the disk."""
        if epoch < self._highest_epoch:
            logger.warning("command.stale epoch=%s highest=%s", epoch, self._highest_epoch)
            return True
        if epoch > self._highest_epoch:
            path = str(self._folders.data / STATE_FILE)
            records.write(path, {"highest_epoch": epoch}, is_durable=not self.machine.is_simulated)
            self._highest_epoch = epoch
        return False

    def _load_attempt(self, name: str) -> None:
        try:
            folder = self._folders.attempt(name)
        except UnsafeNameError:
            logger.warning("attempts.foreign_folder name=%r", name)
            return
        launch = read_launch(folder)
        metrics = attempt_folders(self._folders, launch).metrics if launch is not None else None
        attempt = new_attempt(
            folder, launch, metrics=metrics, is_durable=not self.machine.is_simulated
        )
        attempt.load_reported()
        self._attempts[name] = attempt
        exited = attempt.read(records.EXIT)
        if attempt.is_final:
            self.machine.collect(attempt)
            return  # acknowledged before this agent began
        if exited is None:
            self.machine.adopt(attempt, self)
            return
        started_at = (attempt.read(records.SHIM) or {}).get("started_at")
        if started_at and exited.get("reason") != LAUNCH_FAILED:
            self._observe(attempt, AttemptState.RUNNING, at=float(started_at))
        self.on_report(attempt, exit_report(attempt.id, exited))

    def _save_reported(self, attempt: Attempt) -> None:
        try:
            attempt.save_reported()
        except OSError as error:  # without the note a restart only repeats more than it has to
            logger.warning("reported.not_saved attempt=%s error=%s", attempt.id, error)

    def _bury(self, attempt_id: str, *, reason: str, message: str) -> None:
        """Note an attempt that has no process here and shall never have one."""
        folder = self._folders.attempt(attempt_id)
        folder.mkdir(mode=0o700, exist_ok=True)
        attempt = new_attempt(folder, None, metrics=None, is_durable=not self.machine.is_simulated)
        lock = take_lock(folder)
        if lock is None:
            raise RuntimeError(f"attempt {attempt_id} is unknown here and yet somebody runs it")
        try:
            record = exit_record(reason=reason, message=message)
            attempt.write(records.EXIT, record)
        finally:
            os.close(lock)
        self._attempts[attempt_id] = attempt
        self.on_report(attempt, exit_report(attempt_id, record))

    def _observe(self, attempt: Attempt, state: AttemptState, at: float | None = None) -> None:
        when = at if at is not None else time.time()
        self.on_report(attempt, AttemptReport(attempt=attempt.id, state=state, at=when))

    def _collect_states(
        self, attempt: Attempt, states: list[AttemptReport], receipt: Receipt
    ) -> None:
        room = FRAME_REPORTS - len(states)
        fresh = attempt.pending[attempt.sent : attempt.sent + room]
        if fresh:
            states.extend(fresh)
            attempt.sent += len(fresh)
            receipt.reports[attempt.id] = len(fresh)

    def _collect_output(
        self,
        attempt: Attempt,
        logs: list[LogChunk],
        metrics: list[MetricPoint],
        receipt: Receipt,
    ) -> None:
        for tail in attempt.tails.logs:
            room = FRAME_LOG_BYTES - len(logs) * CHUNK_BYTES
            chunk = tail.read(room) if room > 0 else None
            if chunk is not None:
                logs.append(chunk)
                receipt.logs[attempt.id, tail.stream] = tail.sent
        room = FRAME_METRICS - len(metrics)
        if room > 0 and attempt.tails.metrics.has_more():
            before = attempt.tails.metrics.sent
            metrics.extend(attempt.tails.metrics.read(room))
            if attempt.tails.metrics.sent != before:
                receipt.metrics[attempt.id] = attempt.tails.metrics.sent

    def _confirm(self, receipt: Receipt) -> set[str]:
        touched: set[str] = set()
        for name, count in receipt.reports.items():
            self._attempts[name].acknowledge_reports(count)
            touched.add(name)
        for (name, stream), offset in receipt.logs.items():
            for tail in self._attempts[name].tails.logs:
                if tail.stream == stream:
                    tail.acknowledged = offset
            touched.add(name)
        for name, position in receipt.metrics.items():
            self._attempts[name].tails.metrics.acknowledged = position
            touched.add(name)
        return touched


def agent_version() -> str:
    """Return the version of the installed distribution."""
    try:
        return metadata.version("terrace")
    except metadata.PackageNotFoundError:
        return "0"
