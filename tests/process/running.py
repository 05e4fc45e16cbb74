"""Run `manage.py up` for a test, on a data folder and ports of its own."""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

from controlplane.supervisor import record
from controlplane.supervisor.ports import any_free

CHECKOUT = Path(__file__).resolve().parent.parent.parent
PATIENCE_SECONDS = 300.0  # a busy machine is slow, not wrong
# No LANG, no HOME: what a service manager or a minimal container gives.
MINIMAL_ENVIRONMENT = {"PATH": os.environ["PATH"]}


class Up:
    """One `manage.py up`: what it said, and how to reach and end it."""

    def __init__(self, data: Path, *, with_agent: bool = False, **environment: str) -> None:
        """Start it; `environment` goes on top of a minimal one."""
        self.data = data
        self.output = data.with_name(f"{data.name}.out")
        ports = {"TERRACE_PORT": str(any_free()), "TERRACE_GATEWAY_PORT": str(any_free())}
        with self.output.open("ab") as stream:
            self.offset = stream.tell()
            self.process = subprocess.Popen(
                [sys.executable, "manage.py", "up", *([] if with_agent else ["--no-agent"])],
                cwd=CHECKOUT,
                env={**MINIMAL_ENVIRONMENT, **ports, "TERRACE_DATA": str(data), **environment},
                stdout=stream,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def said(self) -> str:
        """Return what it has printed so far."""
        return self.output.read_bytes()[self.offset :].decode()

    def wait_until_it_says(self, pattern: str) -> re.Match[str]:
        """Return the first match in its output."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            found = re.search(pattern, self.said())
            if found:
                return found
            if time.monotonic() > deadline or self.process.poll() is not None:
                message = f"no {pattern!r} in what it said:\n{self.said()}"
                raise AssertionError(message)
            time.sleep(0.05)

    def address(self) -> str:
        """Return the address that it prints when it is ready."""
        return self.wait_until_it_says(r"Terrace runs at (\S+) ")[1]

    def pid_of(self, name: str) -> int:
        """Return the recorded pid of one child."""
        return next(entry.identity.pid for entry in record.load(self.data) if entry.name == name)

    def ask(self, script: str) -> str:
        """Run a script in this installation's Django, and return what it prints."""
        done = subprocess.run(
            [sys.executable, "manage.py", "shell", "--no-imports", "--command", script],
            cwd=CHECKOUT,
            env={**MINIMAL_ENVIRONMENT, "TERRACE_DATA": str(self.data)},
            capture_output=True,
            check=False,
            text=True,
            timeout=PATIENCE_SECONDS,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def end(self) -> int:
        """Press Ctrl-C, and return its exit status."""
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(timeout=PATIENCE_SECONDS)

    def kill(self) -> None:
        """Kill the supervisor alone."""
        self.process.kill()
        self.process.wait()


def status_of(url: str) -> int:
    """Return the HTTP status of a page; 0 while nobody answers."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=5) as reply:
            return int(reply.status)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 0


def processes_of(data: Path) -> list[str]:
    """Return the command lines of all processes that belong to a data folder."""
    found = []
    marks = (f"TERRACE_DATA={data}\0".encode(), str(data).encode())
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            command = (folder / "cmdline").read_bytes()
            environment = (folder / "environ").read_bytes()
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
        if marks[0] in environment or marks[1] in command:
            found.append(command.replace(b"\0", b" ").decode(errors="replace"))
    return found


def data_folder(name: str = "data") -> Path:
    """Return a new folder that an unprivileged account may pass through to."""
    folder = Path(tempfile.mkdtemp(prefix="terrace-up-"))
    folder.chmod(0o711)
    return folder / name


def remove(data: Path) -> None:
    """End what a failed test may have left, and remove its folder."""
    if data.exists():
        record.end_leftovers(data)
    shutil.rmtree(data.parent, ignore_errors=True)
