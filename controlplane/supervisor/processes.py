"""Start and end processes, and recognise them again by pid, start time and boot.

A pid alone names nobody: it is reused. Whoever signals a process that it did not just start goes
through `Identity`, which opens a pidfd first and compares start time and boot afterwards, so the
signal reaches that process or none.
"""

import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

BOOT_ID_FILE = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, slots=True)
class Account:
    """The user and group that a child runs as."""

    uid: int
    gid: int
    name: str
    may_read_all: bool = False
    """Keeps the right to read every file, since the checkout lies where only root may enter."""


@dataclass(frozen=True, slots=True)
class Identity:
    """One process of one boot, for as long as it lives."""

    pid: int
    start_ticks: int
    boot_id: str

    @classmethod
    def of(cls, pid: int) -> "Identity | None":
        """Return who `pid` is now, or None if nobody has it (a zombie counts as nobody)."""
        try:
            line = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
        except (FileNotFoundError, ProcessLookupError):
            return None
        # The name stands in brackets and may hold anything, brackets and spaces included.
        fields = line[line.rindex(")") + 2 :].split()
        if fields[0] in {"Z", "X"}:
            return None
        return cls(pid=pid, start_ticks=int(fields[19]), boot_id=boot_id())

    def is_alive(self) -> bool:
        """Tell whether this very process still runs."""
        return Identity.of(self.pid) == self

    def send(self, number: signal.Signals) -> bool:
        """Signal this process and no other; False if it is gone."""
        try:
            descriptor = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return False
        try:
            if not self.is_alive():
                return False
            signal.pidfd_send_signal(descriptor, number)
        except ProcessLookupError:
            return False
        finally:
            os.close(descriptor)
        return True

    def outlast(self, *, grace_seconds: float) -> None:
        """Wait until it has ended; after the grace, kill it."""
        deadline = time.monotonic() + grace_seconds
        while self.is_alive():
            if time.monotonic() > deadline:
                self.send(signal.SIGKILL)
                deadline = float("inf")
            time.sleep(0.02)


def boot_id() -> str:
    """Return the id of this boot of the machine."""
    return BOOT_ID_FILE.read_text(encoding="ascii").strip()


def command_as(
    command: Sequence[str],
    account: Account | None,
    *,
    ends_with_parent: signal.Signals | None = None,
) -> list[str]:
    """Return the command line that runs `command` as the account, and as no more than that.

    Args:
        command: Program and arguments.
        account: Whom to become; None stays who we are.
        ends_with_parent: Signal that the kernel sends to the process when the thread that started
            it ends.
    """
    words: list[str] = []
    if account is not None:
        words += [f"--reuid={account.uid}", f"--regid={account.gid}", "--clear-groups"]
        kept = "-all,+dac_read_search" if account.may_read_all else "-all"
        words += [f"--inh-caps={kept}", f"--ambient-caps={kept}", f"--bounding-set={kept}"]
        if account.may_read_all:
            # Else access(2), which initdb asks about its own files, forgets the right.
            words.append("--securebits=+no_setuid_fixup")
        words.append("--no-new-privs")
    if ends_with_parent is not None:
        words.append(f"--pdeathsig={ends_with_parent.name.removeprefix('SIG')}")
    return ["setpriv", *words, "--", *command] if words else list(command)


def spawn(  # noqa: PLR0913 -- what a process needs, by keyword
    command: Sequence[str],
    *,
    log: Path,
    environment: Mapping[str, str],
    folder: Path,
    account: Account | None = None,
    ends_with_parent: signal.Signals | None = None,
    sockets: Sequence[int] = (),
) -> subprocess.Popen[bytes]:
    """Start a child in a session of its own, its output appended to `log`.

    Args:
        command: Program and arguments; no shell looks at them.
        log: File for standard output and error, closed to others.
        environment: The whole environment of the child.
        folder: Working directory.
        account: Whom to run as; None keeps the caller's.
        ends_with_parent: Signal that the kernel sends to the child when the caller's thread ends.
        sockets: Descriptors that the child inherits under the same numbers.
    """
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        return subprocess.Popen(
            command_as(command, account, ends_with_parent=ends_with_parent),
            stdin=subprocess.DEVNULL,
            stdout=descriptor,
            stderr=descriptor,
            cwd=folder,
            env=dict(environment),
            pass_fds=sockets,
            # A session of its own: Ctrl-C goes to the supervisor, which ends things in order.
            start_new_session=True,
        )
    finally:
        os.close(descriptor)


def tail(log: Path, lines: int = 15) -> str:
    """Return the end of a log, for an error message."""
    try:
        return "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:])
    except FileNotFoundError:
        return ""
