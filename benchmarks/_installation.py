"""An installation to measure: web, gateway, loops, beat and simulated nodes, as in production.

Uses an empty database named by DATABASE_URL, which it migrates and fills.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Final

import httpx
import psutil

from benchmarks import _empty
from controlplane.supervisor.ports import any_free
from scheduling.domain import nodes
from scheduling.domain.clock import database_now
from scheduling.models import Lease, Node
from tenants.domain import tokens
from tenants.domain.access import load_actor

PATIENCE_SECONDS: Final = 180.0
UVICORN: Final = ("-m", "uvicorn", "--no-access-log", "--lifespan=off", "--ws=websockets-sansio")
CELERY: Final = ("-m", "celery", "-A", "worker.app")
WORKER: Final = (*CELERY, "worker", "--without-gossip", "--without-mingle", "--loglevel=WARNING")
AGENT: Final = ("-m", "worker.agent")


@dataclass(frozen=True, slots=True)
class Filled:
    """What an empty database was filled with."""

    api_token: str
    join_token: str


@dataclass(slots=True)
class Installation:
    """A running installation and how it came up."""

    web: str
    gateway: str
    api_token: str
    pids: dict[str, int] = field(default_factory=dict)
    join_seconds: float = 0.0
    ready_seconds: float = 0.0

    def cpu_seconds(self, name: str) -> float:
        """Return the CPU time that a process and its children have used by now."""
        process = psutil.Process(self.pids[name])
        times = [one.cpu_times() for one in (process, *process.children(recursive=True))]
        return round(sum(one.user + one.system for one in times), 2)

    def client(self) -> httpx.Client:
        """Return a client of the API with the administrator's token."""
        return httpx.Client(
            base_url=self.web,
            headers={"Authorization": f"Bearer {self.api_token}"},
            timeout=60,
            trust_env=False,
        )


def fill(*, uses: int) -> Filled:
    """Make an installation in an empty database, with a token that `uses` nodes can join by."""
    made = _empty.installation()
    now = database_now()
    actor = load_actor(made.admin)
    _, secret = tokens.create_token(
        actor=actor,
        user=made.admin,
        name="benchmark",
        verbs=[],
        unit=None,
        expires_at=now + timedelta(hours=1),
        now=now,
    )
    _, join = nodes.join_token_create(actor=actor, cluster=made.cluster, now=now, uses=uses)
    return Filled(secret, join)


@contextmanager
def running(*, count: int, shape: str, with_loops: bool = True) -> Iterator[Installation]:
    """Run an installation with `count` simulated nodes; it has ended when this is left."""
    filled = fill(uses=count)
    web, gateway = any_free(), any_free()
    here = Installation(f"http://127.0.0.1:{web}", f"http://127.0.0.1:{gateway}", filled.api_token)
    environment = {**os.environ, "PUBLIC_URL": here.web, "TERRACE_GATEWAY_URL": here.gateway}
    environment.pop(_empty.PATIENT, None)
    with tempfile.TemporaryDirectory(prefix="terrace-bench-") as folder:
        data = Path(folder)
        (data / "token").write_text(filled.join_token, encoding="ascii")
        commands: dict[str, tuple[str, ...]] = {
            "gateway": (*UVICORN, f"--port={gateway}", "worker.gateway.asgi:application")
        }
        if with_loops:
            commands |= {
                "web": (*UVICORN, f"--port={web}", "controlplane.asgi:application"),
                "loops": (*WORKER, "--queues=loops", "--concurrency=4", "--hostname=loops@%h"),
                "tasks": (*WORKER, "--queues=celery", "--concurrency=1", "--hostname=tasks@%h"),
                "beat": (*CELERY, "beat", "--loglevel=WARNING", f"--schedule={data}/beat"),
            }
        started: list[subprocess.Popen[bytes]] = []

        def start(name: str, arguments: tuple[str, ...]) -> subprocess.Popen[bytes]:
            with (data / "log").open("ab") as log:
                process = subprocess.Popen(
                    [sys.executable, *arguments], env=environment, stdout=log, stderr=log
                )
            started.append(process)
            here.pids[name] = process.pid
            return process

        try:
            for name, arguments in commands.items():
                start(name, arguments)
            wait_until(lambda: answers(here.gateway) and (not with_loops or answers(here.web)))
            _bring_up_nodes(here, start, data, count=count, shape=shape)
            if with_loops:
                planned = Lease.objects.filter(scope__startswith="scheduler:", epoch__gt=0)
                wait_until(planned.exists)
            yield here
        except BaseException:
            sys.stderr.write((data / "log").read_text(errors="replace")[-6000:])
            raise
        finally:
            for process in reversed(started):
                process.send_signal(signal.SIGTERM)
            for process in started:
                process.wait(30)


def _bring_up_nodes(
    here: Installation,
    start: Callable[[str, tuple[str, ...]], subprocess.Popen[bytes]],
    data: Path,
    *,
    count: int,
    shape: str,
) -> None:
    """Join and run the nodes, and note how long each took."""
    began = time.monotonic()
    joining = start(
        "join",
        (
            *AGENT, "join", f"--server={here.gateway}", f"--token-file={data}/token",
            f"--data={data}/agent", "--name=sim", f"--nodes={count}",
        ),
    )  # fmt: skip
    if joining.wait(PATIENCE_SECONDS) != 0:
        raise SystemExit("the nodes could not join")
    del here.pids["join"]  # it has ended
    here.join_seconds = round(time.monotonic() - began, 2)
    start("agent", (*AGENT, "run", f"--data={data}/agent", f"--nodes={count}",
                    f"--simulate={shape}"))  # fmt: skip
    wait_until(lambda: Node.objects.filter(state="Ready").count() == count)
    here.ready_seconds = round(time.monotonic() - began, 2)


def answers(url: str) -> bool:
    """Tell whether a web process or gateway is up."""
    try:
        return httpx.get(f"{url}/healthz", trust_env=False).status_code == 200
    except httpx.HTTPError:
        return False


def wait_until(condition: Callable[[], bool], seconds: float = PATIENCE_SECONDS) -> None:
    """Wait for what has to happen for the measurement to make sense."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise SystemExit("the installation did not get ready")
        time.sleep(0.1)
