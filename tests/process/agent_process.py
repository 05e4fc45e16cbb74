"""Start, kill and inspect a real agent on a data folder of its own."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.process.fake_gateway import NODE, FakeGateway, wait_for, write_identity
from worker.shim import processes

ROOT = Path(__file__).resolve().parents[2]


class AgentUnderTest:
    """One agent, its folder, and whatever it started."""

    def __init__(self, *arguments: str, config: str = "", parent: Path | None = None) -> None:
        # pytest's own folders may only be entered by root; tasks run as somebody else
        self.data = Path(tempfile.mkdtemp(prefix="terrace-agent-", dir=parent))
        self.data.chmod(0o711)
        (self.data / "agent.toml").write_text(config)
        self._arguments = arguments
        self._process: subprocess.Popen[bytes] | None = None
        self._fake: FakeGateway | None = None
        self._turn: int | None = None

    def belongs_to(self, gateway: FakeGateway) -> AgentUnderTest:
        """Make it a node of the smallest gateway; starting then waits for its session."""
        self._fake = gateway
        self._await_turn()
        write_identity(self.data, gateway.url)
        return self

    def _await_turn(self) -> None:
        """Wait for agents of other runs of the tests: control groups are named by attempts.

        The smallest gateway calls them `a1`, `a2`, where a real one draws names.
        """
        if not _turns:
            path = Path(tempfile.gettempdir()) / "terrace-agent-tests.lock"
            self._turn = os.open(path, os.O_RDONLY | os.O_CREAT, 0o644)
            fcntl.flock(self._turn, fcntl.LOCK_EX)
            _turns.append(self)

    def _end_turn(self) -> None:
        if self._turn is not None:
            os.close(self._turn)
            self._turn = None
            _turns.remove(self)

    def join_with(self, url: str, token_file: Path) -> None:
        """Join the real gateway at the first start."""
        self._arguments = ("--server", url, "--token-file", str(token_file), *self._arguments)

    def simulate(self, shape: str) -> None:
        """Pretend to be a node of this shape, from the next start on."""
        words = list(self._arguments)
        if "--simulate" in words:
            at = words.index("--simulate")
            del words[at : at + 2]
        self._arguments = (*words, "--simulate", shape)

    def start(self, **environment: str) -> None:
        sessions = len(self._fake.hellos) if self._fake is not None else 0
        with (self.data / "agent.log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "worker.agent",
                    "run",
                    "--data",
                    self.data,
                    *self._arguments,
                ],
                cwd=ROOT,
                stdout=log,
                stderr=log,
                env={**os.environ, **environment},
            )
        fake = self._fake
        if fake is not None:
            wait_for(lambda: len(fake.hellos) > sessions)

    def kill(self, number: int = signal.SIGKILL) -> int:
        assert self._process is not None
        self._process.send_signal(number)
        return self._process.wait(20)

    def wait(self) -> int:
        assert self._process is not None
        return self._process.wait(20)

    def record(self, attempt: str, name: str) -> dict[str, Any] | None:
        path = self.data / "attempts" / attempt / name
        return json.loads(path.read_text()) if path.exists() else None

    def log(self) -> str:
        return (self.data / "agent.log").read_text()

    def processes_of(self, attempt: str) -> dict[int, int]:
        """Return the living processes with the attempt's marker, but for its shim."""
        found = processes.marked(NODE).get(attempt, {})
        return {
            pid: started
            for pid, started in found.items()
            if b"worker/shim" not in command_line(pid)
        }

    def family_of(self, attempt: str) -> dict[int, int]:
        """Return all living processes below the attempt's shim."""
        record = self.record(attempt, "shim.json")
        assert record is not None
        return processes.descendants(record["pid"])

    def living(self, attempt: str) -> set[int]:
        return set(self.processes_of(attempt))

    def lease_deadline(self) -> float:
        return float(json.loads((self.data / "lease").read_text())["deadline"])

    def remove_records(self, attempt: str) -> None:
        shutil.rmtree(self.data / "attempts" / attempt)

    def pretend_other_boot(self, attempt: str, family: dict[int, int]) -> None:
        """Do what a restart does: end all processes, and count the boot up."""
        path = self.data / "attempts" / attempt / "shim.json"
        record = json.loads(path.read_text())
        processes.send(record["pid"], record["start_time"], signal.SIGKILL)
        for pid, started in family.items():
            processes.send(pid, started, signal.SIGKILL)
        wait_for(lambda: processes.start_time(record["pid"]) is None)
        path.write_text(json.dumps({**record, "boot_id": "another"}))

    def has_brought(self, attempt: str) -> bool:
        """Tell whether all outputs of the attempt were brought."""
        return bool((self.record(attempt, "outputs.json") or {}).get("is_complete"))

    def run_another(self) -> int:
        command = [sys.executable, "-m", "worker.agent", "run", "--data", str(self.data)]
        return subprocess.run(command, cwd=ROOT, capture_output=True, check=False).returncode

    def clean_up(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self.kill()
        for attempt, found in processes.marked(NODE).items():
            if (self.data / "attempts" / attempt).exists():
                for pid, started in found.items():
                    processes.send(pid, started, signal.SIGKILL)
        shutil.rmtree(self.data, ignore_errors=True)
        self._end_turn()


_turns: list[AgentUnderTest] = []
"""The agent of this run that waited for the others, as long as it is used."""


def command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except FileNotFoundError:
        return b""
