"""Start, kill and inspect a real agent on a data folder of its own."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.process.fake_gateway import FakeGateway, wait_for, write_identity
from worker.shim import processes

ROOT = Path(__file__).resolve().parents[2]


class AgentUnderTest:
    """One agent, its folder, and whatever it started."""

    def __init__(self, *arguments: str, config: str = "") -> None:
        # pytest's own folders may only be entered by root; tasks run as somebody else
        self.data = Path(tempfile.mkdtemp(prefix="terrace-agent-"))
        self.data.chmod(0o711)
        (self.data / "agent.toml").write_text(config)
        self._arguments = arguments
        self._process: subprocess.Popen[bytes] | None = None
        self._fake: FakeGateway | None = None

    def belongs_to(self, gateway: FakeGateway) -> AgentUnderTest:
        """Make it a node of the smallest gateway; starting then waits for its session."""
        self._fake = gateway
        write_identity(self.data, gateway.url)
        return self

    def join_with(self, url: str, token_file: Path) -> None:
        """Join the real gateway at the first start."""
        self._arguments = ("--server", url, "--token-file", str(token_file), *self._arguments)

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
        found = processes.marked("node-test").get(attempt, {})
        return {
            pid: started
            for pid, started in found.items()
            if b"worker/shim" not in Path(f"/proc/{pid}/cmdline").read_bytes()
        }

    def clean_up(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self.kill()
        for shim in self.data.glob("attempts/*/shim.json"):
            record = json.loads(shim.read_text())
            if "pid" in record:
                processes.send(record["pid"], record["start_time"], signal.SIGKILL)
                self._kill_rest(shim.parent.name)
        shutil.rmtree(self.data, ignore_errors=True)

    def _kill_rest(self, attempt: str) -> None:
        for pid, started in self.processes_of(attempt).items():
            processes.send(pid, started, signal.SIGKILL)
