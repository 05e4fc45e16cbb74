"""Real tasks under `make up`: what Ctrl-C and a killed supervisor mean for them."""

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from controlplane.supervisor import record
from tests.process.running import PATIENCE_SECONDS, Up, data_folder, remove

SUBMIT = """
from scheduling.domain import clock, jobs
from scheduling.spec.parse import Format, parse
from tenants.domain.access import load_actor
from tenants.models import User
spec = parse({
    "name": "sleeper", "queue": "default",
    "roles": [{
        "name": "main", "replicas": 2, "cpu": "0.1", "memory": "64Mi",
        "command": ["sh", "-c", "trap 'exit 7' TERM; sleep 600 & wait"],
    }],
}, form=Format.JSON)
admin = load_actor(User.objects.get(username="admin"))
jobs.submit_job(actor=admin, spec=spec, now=clock.database_now())
"""
ATTEMPTS = """
import json
from scheduling.models import Attempt
rows = Attempt.objects.order_by("number", "task__index")
print(json.dumps(list(rows.values_list("number", "state", "exit_code", "reason_code"))))
"""
# number, state, exit code, reason: as `ATTEMPTS` prints them
RUNNING = [1, "Running", None, ""]
EVICTED = [1, "Evicted", 7, "NodeShutdown"]
RUNNING_AGAIN = [2, "Running", None, ""]


@pytest.fixture
def data() -> Iterator[Path]:
    folder = data_folder()
    yield folder
    remove(folder)


def wait_for_attempts(up: Up, expected: list[list[object]]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while (found := json.loads(up.ask(ATTEMPTS))) != expected:
        assert time.monotonic() < deadline, f"attempts are {found}"


def sleepers(data: Path) -> set[int]:
    """Return the pids of the tasks' shells."""
    mark = b"trap 'exit 7' TERM; sleep 600 & wait"
    found = set()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            is_task = (folder / "cmdline").read_bytes().split(b"\0")[:3] == [b"sh", b"-c", mark]
            is_ours = str(data).encode() in (folder / "environ").read_bytes()
        except OSError:
            continue
        if is_task and is_ours:
            found.add(int(folder.name))
    return found


def test_end_of_up_ends_tasks_and_the_next_one_runs_them_again(data: Path) -> None:
    """Ctrl-C gives tasks their grace and records why; their job goes on at the next start."""
    first = Up(data, with_agent=True)
    first.address()
    first.ask(SUBMIT)
    wait_for_attempts(first, [RUNNING, RUNNING])
    assert len(sleepers(data)) == 2

    assert first.end() == 0

    assert sleepers(data) == set()
    second = Up(data, with_agent=True)
    second.address()
    wait_for_attempts(second, [EVICTED, EVICTED, RUNNING_AGAIN, RUNNING_AGAIN])
    assert len(sleepers(data)) == 2
    assert second.end() == 0
    assert sleepers(data) == set()


def test_tasks_live_through_a_killed_supervisor(data: Path) -> None:
    """After kill -9 the same processes go on under the next start, as the same attempts."""
    patient = {"TERRACE_NODE_LEASE_SECONDS": "120"}  # a start may take longer than tasks wait
    first = Up(data, with_agent=True, **patient)
    first.address()
    first.ask(SUBMIT)
    wait_for_attempts(first, [RUNNING, RUNNING])
    before = sleepers(data)
    agent = first.pid_of("agent")

    first.kill()
    second = Up(data, with_agent=True, **patient)
    second.address()

    assert second.pid_of("agent") != agent
    wait_for_attempts(second, [RUNNING, RUNNING])
    assert sleepers(data) == before
    assert second.end() == 0
    assert sleepers(data) == set()
    assert record.load(data) == []
