"""Keep a list of programs running until told to end, then end them in order."""

import contextlib
import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from controlplane.supervisor import processes, record
from controlplane.supervisor.errors import StartError
from controlplane.supervisor.processes import Identity
from controlplane.supervisor.programs import ENDING, Program, place_in_end

STABLE_SECONDS = 60.0
LONGEST_PAUSE_SECONDS = 30.0
FIRST_PAUSE_SECONDS = 0.5
TICK_SECONDS = 0.5
LOG_CHECK_SECONDS = 30.0
LOG_BYTES = 20 * 1024 * 1024


@dataclass(slots=True)
class Child:
    """A program with the process that runs it now, or the time at which to try again."""

    program: Program
    process: subprocess.Popen[bytes] | None = None
    identity: Identity | None = None
    started: float = 0.0
    failures: int = 0
    due: float = 0.0
    told_to_end: float | None = None
    """When it was told to end at once, since somebody else had asked it to end."""


class Supervisor:
    """Starts, restarts and ends children; single-threaded, woken by signals."""

    def __init__(self, folder: Path, logs: Path, say: Callable[[str], None]) -> None:
        """Keep the record in `folder`, the logs in `logs`, and tell a person through `say`."""
        self.folder = folder
        self.logs = logs
        self.say = say
        self.children: list[Child] = []
        self.requests_to_end = 0
        self.next_log_check = 0.0

    def start(self, program: Program) -> subprocess.Popen[bytes]:
        """Start a program and keep it running from now on."""
        child = Child(program)
        self.children.append(child)
        return self._spawn(child)

    def give_up(self, program: Program) -> None:
        """Stop keeping a program running, and end it."""
        given_up = [child for child in self.children if child.program is program]
        self._end_group(given_up, max(self.requests_to_end, 1))
        self.children = [child for child in self.children if child.program is not program]
        self._save()

    def log_of(self, program: Program) -> Path:
        """Return the file that has the program's output."""
        return self.logs / f"{program.name}.log"

    @contextlib.contextmanager
    def signals(self) -> Iterator[None]:
        """Take over the signals that ask for the end, and wake up when a child ends."""
        read_end, write_end = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._wakeup = read_end
        old_wakeup = signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
        numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD)
        old = {number: signal.signal(number, self._on_signal) for number in numbers}
        try:
            yield
        finally:
            for number, handler in old.items():
                signal.signal(number, handler)
            signal.set_wakeup_fd(old_wakeup)
            os.close(read_end)
            os.close(write_end)

    def run(self) -> None:
        """Watch the children until somebody asks for the end."""
        while not self.requests_to_end:
            self.watch()
            self.wait(TICK_SECONDS)

    def wait(self, seconds: float) -> None:
        """Sleep until a signal comes or the time is over."""
        select.select([self._wakeup], [], [], seconds)
        with contextlib.suppress(BlockingIOError):
            os.read(self._wakeup, 4096)

    def watch(self) -> None:
        """Notice the children that ended, and start again those whose pause is over."""
        now = time.monotonic()
        for child in self.children:
            if child.process is None:
                if now >= child.due:
                    self._spawn_again(child)
            elif self._has_ended(child.process):
                self._on_end(child, now)
            else:
                self._hurry(child, child.process, now)
        if now >= self.next_log_check:
            self.next_log_check = now + LOG_CHECK_SECONDS
            for child in self.children:
                trim(self.log_of(child.program))

    def end(self) -> None:
        """End the children, group by group, each with its grace; a second request hurries."""
        asked = max(self.requests_to_end, 1)
        for place in range(len(ENDING)):
            group = [child for child in self.children if place_in_end(child.program.name) == place]
            self._end_group(group, asked)
        self.children.clear()
        record.save(self.folder, [])

    def _end_group(self, group: list[Child], asked: int) -> None:
        """Ask all of a group to end, kill who does not in time, and reap them."""
        begun = time.monotonic()
        living = [(child.program, child.process) for child in group if child.process is not None]
        for program, process in living:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(program.stop)
        while waiting := [each for each in living if not self._has_ended(each[1])]:
            for program, process in waiting:
                is_late = time.monotonic() - begun > program.grace_seconds
                if is_late or self.requests_to_end > asked:
                    _kill_group(process)
            self.wait(0.1)
        for child in group:
            if child.process is not None:
                _kill_group(child.process)  # what a pool's master left
                child.process.wait()
                child.process = None

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        if number != signal.SIGCHLD:
            self.requests_to_end += 1

    def _on_end(self, child: Child, now: float) -> None:
        process = child.process
        if process is None:
            return
        # What it leaves behind (a pool's workers) must not work beside its successor.
        _kill_group(process)
        code = process.wait()
        child.process = child.identity = child.told_to_end = None
        child.failures = 1 if now - child.started > STABLE_SECONDS else child.failures + 1
        pause = min(FIRST_PAUSE_SECONDS * 2 ** (child.failures - 1), LONGEST_PAUSE_SECONDS)
        child.due = now + pause
        self._save()
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        self.say(
            f"{child.program.name} ended with {how}; starting it again in {pause:g} s. "
            f"Its log: {self.log_of(child.program)}"
        )

    def _hurry(self, child: Child, process: subprocess.Popen[bytes], now: float) -> None:
        """Let a program that ends neither work nor ever be gone come to its end, and so anew."""
        program = child.program
        if child.told_to_end is not None:
            if now - child.told_to_end > program.grace_seconds:
                _kill_group(process)
        elif program.is_ending is not None and program.is_ending():
            child.told_to_end = now
            process.send_signal(program.stop)
            self.say(f"Somebody asked {program.name} to end; it waits for nobody, and starts anew.")

    def _spawn_again(self, child: Child) -> None:
        try:
            self._spawn(child)
        except (StartError, OSError) as error:
            child.failures += 1
            pause = min(FIRST_PAUSE_SECONDS * 2 ** (child.failures - 1), LONGEST_PAUSE_SECONDS)
            child.due = time.monotonic() + pause
            self.say(f"{child.program.name} cannot start: {error}; next try in {pause:g} s.")

    def _spawn(self, child: Child) -> subprocess.Popen[bytes]:
        program = child.program
        if program.before_start is not None:
            program.before_start()
        process = processes.spawn(
            program.command,
            log=self.log_of(program),
            environment=program.environment,
            folder=program.folder,
            account=program.account,
            sockets=program.sockets,
        )
        child.process = process
        child.identity = Identity.of(process.pid)
        child.started = time.monotonic()
        self._save()
        return process

    def _save(self) -> None:
        record.save(
            self.folder,
            [
                record.Entry(
                    child.program.name,
                    child.identity,
                    child.program.leftover_stop or child.program.stop,
                )
                for child in self.children
                if child.identity is not None
            ],
        )

    @staticmethod
    def _has_ended(process: subprocess.Popen[bytes]) -> bool:
        """Tell whether it ended, without reaping it: its pid stays its own until then."""
        flags = os.WEXITED | os.WNOHANG | os.WNOWAIT
        return process.returncode is not None or os.waitid(os.P_PID, process.pid, flags) is not None


def trim(log: Path) -> None:
    """Move what a log has to `<name>.log.1` once it is long; its writers append on."""
    with contextlib.suppress(FileNotFoundError):
        if log.stat().st_size <= LOG_BYTES:
            return
        old = log.with_suffix(".log.1")
        with log.open("rb") as source, old.open("wb") as target:
            os.fchmod(target.fileno(), 0o600)
            while chunk := source.read(1 << 20):
                target.write(chunk)
        # The writers opened it for appending, so that they go on at the start.
        os.truncate(log, 0)


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    """Kill the session of a child that was not reaped yet, so that the group is surely its own."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
