"""The real machine: every attempt under a shim of its own, which does not need this agent to live.

What an agent finds of an attempt after its own restart, and what it makes of it:

| lock  | records                              | then                                            |
|-------|--------------------------------------|-------------------------------------------------|
| any   | `exit.json`                          | it is over: report it                           |
| held  |                                      | its shim lives: watch it                        |
| free  | no trace that a task was started     | the agent died while preparing: start it,       |
|       |                                      | or report that if its secrets died with it      |
| free  | traces of this boot                  | the shim was killed: kill the rest, report that |
| free  | traces of another boot               | the machine was restarted: report that          |
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import socket
import subprocess
import sys
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, Final

from worker.agent import inventory
from worker.agent.attempts import Attempt, exit_record, exit_report, take_lock, without_secrets
from worker.agent.config import AgentConfig
from worker.agent.folders import NodeFolders
from worker.agent.machine import Hardware, Listener
from worker.agent.outputs import Uploader
from worker.agent.preparing import PrepareError, Preparer, attempt_folders, forget_secrets
from worker.agent.usage import UsageMeter
from worker.protocol import AttemptReport, Launch, UsageSample
from worker.shim import cgroups, linux, processes, records, supervisor

logger = logging.getLogger(__name__)

SHIM_PATH: Final = str(Path(supervisor.__file__).with_name("__main__.py"))
LEASE_BYTES: Final = 256
STARTS_AT_ONCE: Final = 8
LOOK_SECONDS: Final = 0.1
RECORD_AGAIN_SECONDS: Final = 1.0
KILL_WAIT_SECONDS: Final = 5.0


class HostMachine:
    """Starts shims, watches them, and finds them again."""

    is_simulated = False

    def __init__(self, *, config: AgentConfig, folders: NodeFolders, preparer: Preparer) -> None:
        self._config = config
        self._folders = folders
        self._preparer = preparer
        self._boot_id = linux.boot_id()
        self._deadline = 0.0
        self._ports: dict[str, dict[str, int]] = {}
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        self._jobs: set[asyncio.Task[None]] = set()
        self._collecting: set[str] = set()
        self._uploader = Uploader(preparer.identity, config.ca_file)
        self._slots = asyncio.Semaphore(STARTS_AT_ONCE)
        self._devices = inventory.DeviceWatch()
        self._meter = UsageMeter(self._devices)

    # --- what is there --------------------------------------------------------------------

    def hardware(self) -> Hardware:
        """Read CPU, memory, NUMA nodes and devices."""
        return inventory.hardware(self._devices)

    def warnings(self) -> list[str]:
        """Name what weakens isolation here."""
        found = self._preparer.users.warnings()
        if self._config.use_cgroups and not cgroups.is_usable():
            found.append(
                "no control groups can be made here: memory limits are not enforced; "
                "run the agent as root or under systemd with Delegate=yes"
            )
        return found + self._devices.warnings()

    async def samples(self, attempts: list[Attempt]) -> list[UsageSample]:
        """Measure in a thread: it reads much of /proc."""
        shims = {}
        for attempt in attempts:
            record = attempt.read(records.SHIM) or {}
            pid, groups = record.get("pid"), record.get("cgroups")
            if isinstance(pid, int) and isinstance(groups, list):
                shims[attempt.id] = (pid, [str(group) for group in groups])
        return await asyncio.to_thread(self._meter.samples, shims)

    # --- lease ----------------------------------------------------------------------------

    def renew_lease(self, deadline: float) -> None:
        """Write the deadline where every shim of this node looks."""
        self._deadline = deadline
        record = json.dumps({"boot_id": self._boot_id, "deadline": deadline}).encode()
        # In place and of one size: a full disk must not end tasks. Torn, it renews nothing.
        fd = os.open(self._folders.lease, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.pwrite(fd, record.ljust(LEASE_BYTES), 0)
        finally:
            os.close(fd)

    def may_start(self) -> bool:
        """Tell whether the lease still holds."""
        return linux.boot_seconds() < self._deadline

    # --- start and stop -------------------------------------------------------------------

    def start(self, attempt: Attempt, listener: Listener) -> None:
        """Prepare and start in the background."""
        self._spawn(self._start(attempt, listener))

    def stop(self, attempt: Attempt, *, grace_seconds: float, reason: str) -> None:
        """Leave the order on the disk, then tell the shim; it looks by itself if we die between.

        The first order stands, but a repeated one may shorten the grace to nothing.
        """
        order = attempt.read(records.STOP)
        if order is None:
            order = {"grace_seconds": grace_seconds, "reason": reason or supervisor.STOPPED}
            attempt.write(records.STOP, order)
        shim = self._shim(attempt)
        if shim is not None:
            processes.send(*shim, 15)

    def adopt(self, attempt: Attempt, listener: Listener) -> None:
        """Find out what became of an attempt that was there before this agent."""
        lock = take_lock(attempt.folder)
        if lock is None:
            self._spawn(self._watch_adopted(attempt, listener))
            return
        if attempt.read(records.EXIT) is not None:
            # It ended after the agent had looked and before the lock was free: its end stands.
            os.close(lock)
            self._report_exit(attempt, listener)
            return
        was_started = self._was_started(attempt)
        has_all = attempt.launch is not None and not attempt.launch.are_secrets_left_out
        if not was_started and has_all:
            os.close(lock)
            self.start(attempt, listener)
            return
        try:
            if was_started:
                self._bury(attempt)
            elif attempt.launch is not None:
                message = "the agent ended before the task had its secrets"
                attempt.write(records.EXIT, exit_record(reason="SecretsLost", message=message))
            else:
                message = "the node's record of the command is damaged; nothing was started"
                attempt.write(records.EXIT, exit_record(reason="RecordsLost", message=message))
        finally:
            os.close(lock)
        self._report_exit(attempt, listener)

    def collect(self, attempt: Attempt) -> None:
        """Bring the outputs in the background; the files of secrets are gone at once."""
        if attempt.launch is not None:
            forget_secrets(attempt_folders(self._folders, attempt.launch))
        if attempt.launch is None or attempt.is_collected:
            attempt.is_collected = True
        elif attempt.id not in self._collecting:
            self._collecting.add(attempt.id)
            folder = attempt_folders(self._folders, attempt.launch).output
            self._spawn(self._uploader.bring(attempt, folder))

    def strays(self, known: set[str], node: str) -> list[str]:
        """Kill processes of ours whose records are gone; return their attempts."""
        found = processes.marked(node)
        lost = [attempt for attempt in found if attempt not in known]
        for attempt in lost:
            for pid, started in found[attempt].items():
                processes.send(pid, started, 9)
            cgroups.existing(attempt).kill()
        return lost

    async def close(self) -> None:
        """Stop watching. Shims and tasks go on; that is the point of them."""
        for job in self._jobs:
            job.cancel()
        await asyncio.gather(*self._jobs, return_exceptions=True)
        self._devices.close()

    # --- inside ---------------------------------------------------------------------------

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        job = asyncio.create_task(work)
        self._jobs.add(job)
        job.add_done_callback(self._jobs.discard)
        job.add_done_callback(_raise_in_log)

    async def _start(self, attempt: Attempt, listener: Listener) -> None:
        lock = take_lock(attempt.folder)
        if lock is None:
            await self._watch_adopted(attempt, listener)
            return
        try:
            async with self._slots:
                status = await self._prepare_and_run(attempt, lock)
        finally:
            os.close(lock)
        if status is None:
            self._report_exit(attempt, listener)
            return
        await self._follow(attempt, status, listener)
        await self._wait_for_end(attempt)
        self._report_exit(attempt, listener)

    async def _prepare_and_run(self, attempt: Attempt, lock: int) -> int | None:
        """Return the pipe on which the shim tells; None if there is an exit record instead."""
        launch = attempt.launch
        if launch is None:
            raise RuntimeError(f"attempt {attempt.id} has no command to start")
        try:
            attempt.ports = self._choose_ports(launch)
            work = asyncio.to_thread(self._preparer.prepare, launch, attempt.ports)
            preparation = await work
        except PrepareError as error:
            record = exit_record(reason=supervisor.LAUNCH_FAILED, message=str(error))
            attempt.write(records.EXIT, record)
            return None
        order = attempt.read(records.STOP)
        if order is not None:
            record = exit_record(reason=str(order.get("reason")), message="ended before it started")
            attempt.write(records.EXIT, record)
            return None
        attempt.tails.metrics.path = preparation.folders.metrics
        spec = {**preparation.spec.record()}
        attempt.write(records.SPEC, spec)
        attempt.write("prepared.json", {"ports": attempt.ports, "warnings": preparation.warnings})
        attempt.launch = without_secrets(launch)
        return self._run_shim(attempt, lock, preparation.secret_environment)

    def _run_shim(self, attempt: Attempt, lock: int, secrets: dict[str, str]) -> int:
        reader, writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        os.set_blocking(writer, True)
        command = [sys.executable, "-I", "-S", SHIM_PATH, attempt.path(records.SPEC)]
        errors = os.open(
            attempt.path("shim.log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600
        )
        shared = [_in_memory(secrets)] if secrets else []
        try:
            self._children[attempt.id] = subprocess.Popen(  # noqa: S603 -- our own program
                [*command, *map(str, (lock, writer, *shared))],
                pass_fds=(lock, writer, *shared),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                start_new_session=True,
                cwd="/",
                env={
                    "LANG": "C.UTF-8",
                    processes.MARKER: attempt.id,
                    processes.NODE_MARKER: self._preparer.identity.node,
                },
            )
        finally:
            for descriptor in (writer, errors, *shared):
                os.close(descriptor)
        return reader

    async def _follow(self, attempt: Attempt, status: int, listener: Listener) -> None:
        """Hear from the shim that the task runs or is being ended; returns when it is silent."""
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader()
        transport, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(status, "rb")
        )
        try:
            while line := await reader.readline():
                if line == b"running\n":
                    self._report_running(attempt, listener)
                elif line == b"stopping\n":
                    listener.on_report(attempt, _report(attempt, "Stopping", time.time()))
        finally:
            transport.close()

    async def _wait_for_end(self, attempt: Attempt) -> None:
        """Wait until no shim of the attempt is left; then see that there is an exit record."""
        child = self._children.pop(attempt.id, None)
        if child is not None:
            await asyncio.to_thread(child.wait)
        else:
            await self._wait_for_shim(attempt)
        try:
            await self._see_that_it_is_recorded(attempt)
        except FileNotFoundError:  # somebody removed the attempt's folder under our feet
            await asyncio.to_thread(self._kill_all, attempt.id)

    async def _see_that_it_is_recorded(self, attempt: Attempt) -> None:
        while (lock := take_lock(attempt.folder)) is None:  # noqa: ASYNC110 - flock has no event
            await asyncio.sleep(LOOK_SECONDS)
        try:
            while attempt.read(records.EXIT) is None:
                try:
                    await asyncio.to_thread(self._bury, attempt)
                except FileNotFoundError:
                    raise
                except OSError as error:  # a full disk: what happened must not be forgotten
                    logger.warning("attempt.not_recorded attempt=%s error=%s", attempt.id, error)
                    await asyncio.sleep(RECORD_AGAIN_SECONDS)
        finally:
            os.close(lock)

    async def _wait_for_shim(self, attempt: Attempt) -> None:
        shim = self._shim(attempt)
        if shim is None:
            return
        try:
            fd = os.pidfd_open(shim[0])
        except OSError:
            return
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[None] = loop.create_future()
        try:
            loop.add_reader(fd, _settle, ended)
            if processes.is_alive(*shim):
                await ended
        finally:
            loop.remove_reader(fd)
            os.close(fd)

    async def _watch_adopted(self, attempt: Attempt, listener: Listener) -> None:
        """Watch a shim that another agent started."""
        prepared = attempt.read("prepared.json") or {}
        attempt.ports = {str(k): int(v) for k, v in (prepared.get("ports") or {}).items()}
        self._ports[attempt.id] = attempt.ports
        while self._is_locked(attempt):
            record = attempt.read(records.SHIM)
            if record is not None and record.get("started_at"):
                self._report_running(attempt, listener)
                await self._wait_for_end(attempt)
                break
            await asyncio.sleep(LOOK_SECONDS)
        else:
            await self._wait_for_end(attempt)
        self._report_exit(attempt, listener)

    def _is_locked(self, attempt: Attempt) -> bool:
        lock = take_lock(attempt.folder)
        if lock is not None:
            os.close(lock)
        return lock is None

    def _shim(self, attempt: Attempt) -> tuple[int, int] | None:
        """Return (pid, start time) of the attempt's shim if its record is of this boot."""
        record = attempt.read(records.SHIM)
        if record is None or record.get("boot_id") != self._boot_id:
            return None
        pid, started = record.get("pid"), record.get("start_time")
        if isinstance(pid, int) and isinstance(started, int):
            return pid, started
        return None

    def _was_started(self, attempt: Attempt) -> bool:
        """Look for any trace of a task, should one record be gone."""
        traces = (records.SHIM, "stdout.log")
        return any((attempt.folder / name).exists() for name in traces) or bool(
            cgroups.existing(attempt.id).folders
        )

    def _bury(self, attempt: Attempt) -> None:
        """End what is left of an attempt whose shim is gone, and record that."""
        record = attempt.read(records.SHIM)
        if record is not None and record.get("boot_id") != self._boot_id:
            reason, message = "NodeRebooted", "the machine was restarted while the task ran"
        else:
            reason, message = (
                "ShimLost",
                "its supervisor was killed; the rest was ended",
            )
            self._kill_all(attempt.id)
        attempt.write(records.EXIT, exit_record(reason=reason, message=message, signal=9))

    def _kill_all(self, attempt: str) -> None:
        group = cgroups.existing(attempt)
        give_up_at = time.monotonic() + KILL_WAIT_SECONDS
        while time.monotonic() < give_up_at:
            group.kill()
            members = processes.marked(self._preparer.identity.node).get(attempt, {})
            for pid in group.members():
                started = processes.start_time(pid)
                if started is not None:
                    members[pid] = started
            living = {pid: at for pid, at in members.items() if processes.is_alive(pid, at)}
            if not living:
                break
            for pid, started in living.items():
                processes.send(pid, started, 9)
            time.sleep(0.02)
        group.remove()

    def _choose_ports(self, launch: Launch) -> dict[str, int]:
        """Pick a free number from the node's pool for each label."""
        taken = {port for ports in self._ports.values() for port in ports.values()}
        chosen: dict[str, int] = {}
        candidates = iter(range(self._config.port_first, self._config.port_last + 1))
        for label in launch.ports:
            for port in candidates:
                if port not in taken and _is_free(port):
                    chosen[label] = port
                    break
            else:
                first, last = self._config.port_first, self._config.port_last
                raise PrepareError(f"no free port for {label!r} between {first} and {last}")
        self._ports[launch.attempt] = chosen
        return chosen

    def _report_running(self, attempt: Attempt, listener: Listener) -> None:
        record = attempt.read(records.SHIM) or {}
        prepared = attempt.read("prepared.json") or {}
        warnings = [*(prepared.get("warnings") or []), *(record.get("warnings") or [])]
        listener.on_report(
            attempt,
            AttemptReport(
                attempt=attempt.id,
                state="Running",
                at=float(record.get("started_at") or time.time()),
                message="; ".join(map(str, warnings))[:2_000],
                ports=attempt.ports,
            ),
        )

    def _report_exit(self, attempt: Attempt, listener: Listener) -> None:
        self._ports.pop(attempt.id, None)
        record = attempt.read(records.EXIT)
        if record is None:
            record = exit_record(reason="RecordsLost", message="the exit record is damaged")
        if (attempt.read(records.SHIM) or {}).get("started_at") and record.get("reason") != (
            supervisor.LAUNCH_FAILED
        ):
            self._report_running(attempt, listener)  # no news unless we were away meanwhile
        listener.on_report(attempt, exit_report(attempt.id, record))


def _in_memory(secrets: dict[str, str]) -> int:
    """Return a file that is on no disk, to be handed to the shim as it is."""
    fd = os.memfd_create("terrace", os.MFD_CLOEXEC)
    with os.fdopen(os.dup(fd), "wb") as stream:
        stream.write(json.dumps(secrets).encode())
    return fd


def _settle(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _report(attempt: Attempt, state: str, at: float) -> AttemptReport:
    return AttemptReport(attempt=attempt.id, state=state, at=at)


def _is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe, contextlib.suppress(OSError):
        probe.bind(("", port))  # on all addresses, as a task would
        return True
    return False


def _raise_in_log(job: asyncio.Task[None]) -> None:
    if not job.cancelled() and job.exception() is not None:
        logger.error("attempt.failed_in_agent", exc_info=job.exception())
