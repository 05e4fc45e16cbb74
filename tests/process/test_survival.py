"""Worker, agent, Redis and PostgreSQL are killed while jobs run: nothing is lost or run twice."""

import json
import os
import signal
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from controlplane.supervisor import record
from tests.process.ledger import Ledger
from tests.process.running import PATIENCE_SECONDS, Up, data_folder, remove

MAKE_TOKEN = """
from datetime import timedelta
from scheduling.domain import clock
from tenants.domain import tokens
from tenants.domain.access import load_actor
from tenants.models import User
now = clock.database_now()
admin = User.objects.get(username="admin")
_, secret = tokens.create_token(
    actor=load_actor(admin), user=admin, name="survival", verbs=[], unit=None,
    expires_at=now + timedelta(hours=1), now=now,
)
print(secret)
"""
ATTEMPTS = """
import json
from scheduling.models import Attempt
print(json.dumps([str(one) for one in Attempt.objects.values_list("id", flat=True)]))
"""
VIOLATIONS = """
from django.core.management import call_command
call_command("check_invariants")
"""
VICTIMS = ("loops", "agent", "redis", "postgres")


class Api:
    """The REST API as a patient client uses it: a request that got no answer is repeated."""

    def __init__(self, address: str, token: str) -> None:
        self._base = f"{address}/api/v1"
        self._token = token
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def submit(self, job: Mapping[str, object]) -> str:
        """Submit a job, under one key however often, and return its id."""
        key = {"Idempotency-Key": f"survival-{job['name']}"}
        return str(self._until_answered("POST", "/jobs", job, key)["id"])

    def phase(self, job_id: str) -> str:
        """Return a job's phase."""
        return str(self._until_answered("GET", f"/jobs/{job_id}")["phase"])

    def _until_answered(
        self,
        method: str,
        path: str,
        body: Mapping[str, object] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                return self._ask(method, path, body, headers or {})
            except urllib.error.HTTPError as error:
                if error.code < 500 or time.monotonic() > deadline:
                    raise AssertionError(error.read().decode()) from error
            except OSError:
                if time.monotonic() > deadline:
                    raise
            time.sleep(0.2)

    def _ask(
        self,
        method: str,
        path: str,
        body: Mapping[str, object] | None,
        headers: Mapping[str, str],
    ) -> Any:
        request = urllib.request.Request(
            self._base + path,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={
                "Authorization": f"Bearer {self._token}",
                "Content-Type": "application/json",
                **headers,
            },
        )
        with self._opener.open(request, timeout=20) as reply:
            return json.load(reply)


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
