"""A ledger that real processes write, and what an outside reader makes of it.

A task takes an exclusive lock of its own name, writes `begin`, works, writes `end`. Two attempts of
one task at the same time cannot both hold the lock: the second writes `overlap`.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

SCRIPT = """
cd {folder} || exit 90
task={job}-$VC_TASK_INDEX
exec 9>>"$task.lock"
flock --nonblock 9 || {{ echo "overlap $task $TERRACE_ATTEMPT_ID -" >>ledger; exit 91; }}
echo "begin $task $TERRACE_ATTEMPT_ID $(cut -d' ' -f1 /proc/uptime)" >>ledger
sleep {seconds}
echo "end $task $TERRACE_ATTEMPT_ID $(cut -d' ' -f1 /proc/uptime)" >>ledger
"""


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the ledger; `at` is the machine's uptime in seconds."""

    what: str
    task: str
    attempt: str
    at: str


@dataclass(frozen=True, slots=True)
class Ledger:
    """A folder that every task may write into."""

    folder: Path

    @classmethod
    def make(cls, folder: Path) -> "Ledger":
        """Make the folder."""
        folder.mkdir()
        folder.chmod(0o777)
        ledger = folder / "ledger"
        ledger.touch()
        ledger.chmod(0o666)
        return cls(folder)

    def job(self, name: str, *, tasks: int, seconds: float, node: str = "") -> Mapping[str, object]:
        """Return a job of `tasks` tasks, on `node` if given, that write themselves into it."""
        script = SCRIPT.format(folder=self.folder, job=name, seconds=seconds)
        return {
            "name": name,
            "queue": "default",
            "plugins": ["env"],
            "policies": [
                {"event": "PodFailed", "action": "RestartTask"},
                {"event": "PodEvicted", "action": "RestartTask"},
            ],
            "roles": [
                {
                    "name": "main",
                    "replicas": tasks,
                    "cpu": "100m",
                    "memory": "32Mi",
                    "command": ["sh", "-c", script],
                    "node_selector": {"kubernetes.io/hostname": node} if node else {},
                }
            ],
        }

    def lines(self) -> list[Line]:
        """Read what has been written so far."""
        text = (self.folder / "ledger").read_text(encoding="utf-8")
        return [Line(*line.split()) for line in text.splitlines()]

    def overlaps(self) -> list[Line]:
        """Return the attempts that found another one of their task alive."""
        return [line for line in self.lines() if line.what == "overlap"]

    def ended(self) -> Counter[str]:
        """Return how often each task came to its end."""
        return Counter(line.task for line in self.lines() if line.what == "end")

    def attempts(self) -> set[str]:
        """Return the attempts of which a process really began."""
        return {line.attempt for line in self.lines() if line.what == "begin"}
