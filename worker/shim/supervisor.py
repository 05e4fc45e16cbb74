"""Run one attempt's task to its end, come what may, and leave a record of how it ended.

The supervisor outlives the agent. It ends the task when

- the agent left `stop.json` (SIGTERM to the supervisor says: look now; else it is seen in a tick),
- the supervisor itself is told to end (SIGTERM without `stop.json`: the machine shuts down),
- the time limit has passed,
- the lease has lapsed: the control plane may by now have started the task elsewhere, so this one
  is killed without grace, whether or not an agent is there.

Whatever the task started goes with it: all members of its control groups and all descendants, which
as children of a subreaper cannot hide by forking twice.
"""

from __future__ import annotations

import errno
import fcntl
import os
import select
import signal
import time

from worker.shim import cgroups, child, linux, processes, records, spec
from worker.shim.output import Budget, CappedStream

TYPE_CHECKING = False
if TYPE_CHECKING:
    from worker.shim.spec import TaskSpec

TICK_SECONDS = 0.5
KILL_WAIT_SECONDS = 10.0
DRAIN_SECONDS = 1.0
READ_BYTES = 65_536

LAUNCH_FAILED = "LaunchFailed"
LEASE_LAPSED = "LeaseLapsed"
TIME_LIMIT = "TimeLimit"
NODE_SHUTDOWN = "NodeShutdown"
OUT_OF_MEMORY = "OutOfMemory"
STOPPED = "Stopped"


def main(arguments: list[str]) -> int:
    """Supervise the attempt whose spec is named; return 0 once its exit record is on the disk."""
    path, *descriptors = arguments or [""]
    if not path or len(descriptors) not in {0, 2, 3}:
        os.write(2, b"usage: python -m worker.shim SPECFILE [LOCK_FD STATUS_FD [SECRETS_FD]]\n")
        return 2
    task = spec.load(path)
    if descriptors:
        lock, status, *secrets = map(int, descriptors)
        for descriptor in secrets:
            task.environment |= spec.load_secrets(descriptor)
    else:
        lock, status = _take_lock(task), os.open("/dev/null", os.O_WRONLY)
    if lock < 0 or os.path.exists(f"{task.folder}/{records.EXIT}"):
        return 0  # another supervisor has it, or it is over: a repeated start changes nothing
    for descriptor in (lock, status):
        os.set_inheritable(descriptor, False)  # noqa: FBT003 - the only way to call it
    Supervisor(task, status).run()
    return 0


def _take_lock(task: TaskSpec) -> int:
    fd = os.open(f"{task.folder}/{records.LOCK}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        return -1
    return fd


class Supervisor:
    """The event loop of one attempt."""

    def __init__(self, task: TaskSpec, status: int) -> None:
        self.task = task
        self.status = status
        self.warnings: list[str] = []
        self.main_pid = 0
        self.main_status: int | None = None
        self.reason = ""
        self.message = ""
        self.kill_at: float | None = None
        self.deadline = 0.0
        self.is_ending = False

    def run(self) -> None:
        """Run the task; return when nothing of it is left and the record is written."""
        signals = self._prepare_signals()
        linux.set_property(linux.PR_SET_CHILD_SUBREAPER, 1)
        self._read_lease()
        task = self.task
        if linux.boot_seconds() > self.deadline:
            self._record_unstarted(LEASE_LAPSED, "the lease had lapsed before the task was started")
            return
        self.group = cgroups.Group([], [])
        if task.use_cgroups:
            self.group = cgroups.create(
                task.attempt,
                memory_bytes=task.memory_bytes,
                cpu_milli=task.cpu_milli,
                cpus=task.cpus,
                pids_limit=task.pids_limit,
            )
            self.warnings += self.group.warnings
        budget = Budget(task.log_limit_bytes)
        self.streams = [
            CappedStream(f"{task.folder}/{name}.log", budget) for name in ("stdout", "stderr")
        ]
        self._write_state()
        pipes = self._start()
        if not self.message:
            self._tell("running")
            self.time_limit_at = (
                time.monotonic() + task.time_limit_seconds if task.time_limit_seconds else None
            )
            self._loop(pipes, signals)
        self._finish(pipes)

    # --- start ----------------------------------------------------------------------------

    def _prepare_signals(self) -> int:
        """Turn signals into bytes on a pipe, so that none is lost between two waits."""
        reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, _ignore)
        return reader

    def _start(self) -> list[int]:
        """Fork the task; return the pipes to read. A failure is left in `message`."""
        pairs = [os.pipe2(os.O_CLOEXEC) for _ in range(3)]
        (out, out_end), (err, err_end), (told, tell) = pairs
        pid = os.fork()
        if pid == 0:
            child.run(self.task, self.group, (out_end, err_end), tell)
        self.main_pid = pid
        for fd in (out_end, err_end, tell):
            os.close(fd)
        with os.fdopen(told, "rb") as stream:
            lines = stream.read().decode("utf-8", "replace").splitlines()
        for line in lines:
            kind, _, text = line.partition(" ")
            if kind == "warning":
                self.warnings.append(text)
            else:
                self.reason, self.message = LAUNCH_FAILED, text
        for fd in (out, err):
            os.set_blocking(fd, False)
        self.started_at = time.time()
        self._write_state()
        return [out, err]

    def _write_state(self) -> None:
        pid = os.getpid()
        records.write(
            f"{self.task.folder}/{records.SHIM}",
            {
                "attempt": self.task.attempt,
                "boot_id": linux.boot_id(),
                "pid": pid,
                "start_time": processes.start_time(pid),
                "task_pid": self.main_pid,
                "started_at": getattr(self, "started_at", None),
                "cgroups": self.group.folders,
                "warnings": self.warnings,
            },
            is_durable=False,  # it speaks of this boot only
        )

    def _tell(self, line: str) -> None:
        try:
            os.write(self.status, f"{line}\n".encode())
        except OSError as error:
            if error.errno != errno.EPIPE:  # the agent died; it reads shim.json when it is back
                raise

    # --- while it runs --------------------------------------------------------------------

    def _loop(self, pipes: list[int], signals: int) -> None:
        poll = select.poll()
        open_pipes = dict(zip(pipes, self.streams, strict=True))
        for fd in open_pipes:
            poll.register(fd, select.POLLIN)
        poll.register(signals, select.POLLIN)
        next_tick = 0.0
        while self.main_status is None:
            now = time.monotonic()
            if now >= next_tick:
                self._tick(now)
                next_tick = now + TICK_SECONDS
            wait = next_tick if self.kill_at is None else min(next_tick, self.kill_at)
            for fd, _ in poll.poll(max(0.0, wait - now) * 1000):
                if fd == signals:
                    self._take_signals(_drain_signals(signals))
                elif not _copy(fd, open_pipes[fd]):
                    poll.unregister(fd)
            if self.kill_at is not None and time.monotonic() >= self.kill_at:
                self._signal_all(signal.SIGKILL)
                self.kill_at = time.monotonic() + TICK_SECONDS

    def _take_signals(self, numbers: set[int]) -> None:
        self._reap()
        if signal.SIGTERM in numbers and self.main_status is None:
            self._look_for_stop(is_told=True)

    def _tick(self, now: float) -> None:
        """Look at what may have changed without a signal: lease, stop file, time limit."""
        self._read_lease()
        # After a pause of the whole machine it may have ended by itself, which is no lapse.
        self._reap()
        if self.main_status is not None:
            return
        if linux.boot_seconds() > self.deadline:
            if self.reason != LEASE_LAPSED:
                self.reason = LEASE_LAPSED
                self.message = "no contact with the control plane until the lease ran out"
                self.kill_at = now
                self._signal_all(signal.SIGKILL)
            return
        self._look_for_stop(is_told=False)
        if self.time_limit_at is not None and now >= self.time_limit_at and not self.is_ending:
            limit = f"{self.task.time_limit_seconds:g}"
            self._end(TIME_LIMIT, f"ran for its limit of {limit} s", self.task.grace_seconds)

    def _read_lease(self) -> None:
        """Take over a newer deadline; a missing, torn or foreign-boot file renews nothing."""
        record = records.read(self.task.lease_file)
        if record is None or record.get("boot_id") != linux.boot_id():
            return
        deadline = record.get("deadline")
        if isinstance(deadline, (int, float)) and deadline > self.deadline:
            self.deadline = float(deadline)

    def _look_for_stop(self, *, is_told: bool) -> None:
        if self.is_ending:
            return
        order = records.read(f"{self.task.folder}/{records.STOP}")
        if order is not None:
            grace = order.get("grace_seconds", self.task.grace_seconds)
            self._end(str(order.get("reason") or STOPPED), "", float(grace))
        elif is_told:
            message = "the supervisor was told to end, as when the machine shuts down"
            self._end(NODE_SHUTDOWN, message, self.task.grace_seconds)

    def _end(self, reason: str, message: str, grace_seconds: float) -> None:
        self.is_ending = True
        self.reason, self.message = reason, message
        self.kill_at = time.monotonic() + max(0.0, grace_seconds)
        self._tell("stopping")
        self._signal_all(signal.SIGTERM)

    # --- processes ------------------------------------------------------------------------

    def _members(self) -> dict[int, int]:
        members = processes.descendants(os.getpid())
        for pid in self.group.members():
            started = processes.start_time(pid)
            if started is not None and pid not in members and pid != os.getpid():
                members[pid] = started
        return members

    def _signal_all(self, number: int) -> None:
        if number == signal.SIGKILL:
            self.group.kill()
        for pid, started in self._members().items():
            processes.send(pid, started, number)

    def _reap(self) -> None:
        """Collect every child that ended: the task, and orphans that were handed to us."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self.main_pid:
                self.main_status = status

    def _kill_rest(self) -> None:
        """Leave nothing behind: daemons, double forks, deaf children."""
        give_up_at = time.monotonic() + KILL_WAIT_SECONDS
        while True:
            self._reap()
            rest = {pid for pid, began in self._members().items() if processes.is_alive(pid, began)}
            if not rest:
                return
            if time.monotonic() >= give_up_at:
                pids = ", ".join(map(str, sorted(rest)))
                self.message = f"{self.message} processes that cannot be killed: {pids}".strip()
                return
            self._signal_all(signal.SIGKILL)
            select.select([], [], [], 0.01)

    # --- end ------------------------------------------------------------------------------

    def _finish(self, pipes: list[int]) -> None:
        self._kill_rest()
        self._drain(pipes)
        for stream in self.streams:
            stream.close()
            if stream.problem:
                self.message = f"{self.message} {stream.problem}".strip()
        is_oom = self.group.oom_kills() > 0
        self.group.remove()
        exit_code, number = _decode_status(self.main_status)
        if self.reason == LAUNCH_FAILED:
            exit_code = None
        elif is_oom and not self.reason:
            self.reason = OUT_OF_MEMORY
        self._write_exit(exit_code=exit_code, number=number, is_oom=is_oom)

    def _record_unstarted(self, reason: str, message: str) -> None:
        self.reason, self.message = reason, message
        self._write_exit(exit_code=None, number=None, is_oom=False)

    def _write_exit(self, *, exit_code: int | None, number: int | None, is_oom: bool) -> None:
        record = {
            "attempt": self.task.attempt,
            "at": time.time(),
            "exit_code": exit_code,
            "signal": number,
            "is_oom": is_oom,
            "reason": self.reason,
            "message": self.message,
        }
        while os.path.isdir(self.task.folder):
            try:
                records.write(f"{self.task.folder}/{records.EXIT}", record)
            except OSError:  # a full disk: stay until there is room, nobody else knows how it ended
                time.sleep(TICK_SECONDS)
            else:
                return

    def _drain(self, pipes: list[int]) -> None:
        """Read what is still in the pipes; a stranger who holds one open cannot keep us here."""
        give_up_at = time.monotonic() + DRAIN_SECONDS
        for fd, stream in zip(pipes, self.streams, strict=True):
            while time.monotonic() < give_up_at and _copy(fd, stream):
                select.select([fd], [], [], max(0.0, give_up_at - time.monotonic()))
            os.close(fd)


def _copy(fd: int, stream: CappedStream) -> bool:
    """Copy what is there; False at the end of the stream."""
    try:
        data = os.read(fd, READ_BYTES)
    except BlockingIOError:
        return True
    if data:
        stream.write(data)
    return bool(data)


def _drain_signals(fd: int) -> set[int]:
    try:
        return set(os.read(fd, 4096))
    except BlockingIOError:
        return set()


def _decode_status(status: int | None) -> tuple[int | None, int | None]:
    """Return (exit code, signal), one of them None; 128 + signal is not made up."""
    if status is None:
        return None, None
    if os.WIFSIGNALED(status):
        return None, os.WTERMSIG(status)
    return os.WEXITSTATUS(status), None


def _ignore(_number: int, _frame: object) -> None:
    """Do nothing: the byte on the wake-up pipe is what counts."""
