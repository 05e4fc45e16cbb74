"""Worker, agent, Redis and PostgreSQL are killed while jobs run: nothing is lost or run twice."""

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from controlplane.supervisor import record
from tests.process.ledger import Ledger
from tests.process.patient_api import ATTEMPTS, MAKE_TOKEN, VIOLATIONS, Api
from tests.process.running import PATIENCE_SECONDS, Up, data_folder, remove

VICTIMS = ("loops", "agent", "redis", "postgres")


@pytest.fixture
def up() -> Iterator[Up]:
    data = data_folder()
    running = Up(data, with_agent=True)
    yield running
    if running.process.poll() is None:
        running.end()
    remove(data)


def wait_for_phase(api: Api, job_id: str, phases: set[str]) -> str:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while (phase := api.phase(job_id)) not in phases:
        assert time.monotonic() < deadline, f"job {job_id} is {phase}"
        time.sleep(0.1)
    return phase


def kill_hard(data: Path, name: str) -> None:
    """Kill a program; the loops with the processes that they run in, which are their children.

    The agent's children are the shims, which are to outlive it.
    """
    (pid,) = (one.identity.pid for one in record.load(data) if one.name == name)
    victims = [pid]
    if name == "loops":
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
        victims += map(int, children)
    for one in victims:
        os.kill(one, signal.SIGKILL)


def test_nothing_is_lost_or_run_twice_when_a_process_is_killed(
    up: Up, record_property: Callable[[str, object], None]
) -> None:
    """Jobs that were acknowledged run to their end, once, whichever process is killed meanwhile."""
    api = Api(up.address(), up.ask(MAKE_TOKEN))
    ledger = Ledger.make(up.data.parent / "ledger")
    jobs: dict[str, str] = {}

    def submit(name: str, tasks: int, seconds: float) -> str:
        jobs[name] = api.submit(ledger.job(name, tasks=tasks, seconds=seconds))
        return jobs[name]

    for victim in VICTIMS:
        running = submit(f"before-{victim}", tasks=3, seconds=4)
        wait_for_phase(api, running, {"Running"})
        kill_hard(up.data, victim)
        killed = time.monotonic()
        after = submit(f"after-{victim}", tasks=2, seconds=1)
        wait_for_phase(api, after, {"Running", "Completed"})
        seconds = round(time.monotonic() - killed, 2)
        print(f"{victim}: killed; a new job ran after {seconds} s")  # noqa: T201 - pytest -rP shows it
        record_property(f"recovery_seconds_{victim}", seconds)

    phases = {name: wait_for_phase(api, job, {"Completed", "Failed"}) for name, job in jobs.items()}
    assert phases == dict.fromkeys(jobs, "Completed")
    assert ledger.overlaps() == []
    assert ledger.ended() == {
        f"{name}-{index}": 1
        for name in jobs
        for index in range(3 if name.startswith("before") else 2)
    }
    assert ledger.attempts() <= set(json.loads(up.ask(ATTEMPTS)))
    up.ask(VIOLATIONS)
