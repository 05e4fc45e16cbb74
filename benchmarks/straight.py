"""POST to RUNNING: jobs at a steady rate through every process: `python -m benchmarks straight`.

Web, gateway, loops, beat and a simulated agent run as `make up` runs them; a client of its own
posts single-task jobs over HTTP. Prints JSON objects, one a line: how long a POST takes, and the
time from sending it to the commit of RUNNING. Uses an empty database named by DATABASE_URL, which
it migrates and fills.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.settings")
django.setup()

import httpx  # noqa: E402 -- Django first
import psutil  # noqa: E402 -- Django first
from django.core.management import call_command  # noqa: E402 -- Django first
from django.db import connection  # noqa: E402 -- Django first

from controlplane.supervisor.ports import any_free  # noqa: E402 -- Django first
from scheduling.domain import bootstrap, nodes  # noqa: E402 -- Django first
from scheduling.domain.clock import database_now  # noqa: E402 -- Django first
from scheduling.models import Attempt, Job, Lease, Node  # noqa: E402 -- Django first
from tenants.domain import tokens  # noqa: E402 -- Django first
from tenants.domain.access import load_actor  # noqa: E402 -- Django first

PATIENCE_SECONDS = 120.0
MUST_MS = 500.0
NODES = 4
BUSY = 503
UVICORN = ("-m", "uvicorn", "--no-access-log", "--lifespan=off", "--ws=websockets-sansio")
CELERY = ("-m", "celery", "-A", "worker.app")
WORKER = (*CELERY, "worker", "--without-gossip", "--without-mingle", "--loglevel=WARNING")


def fill() -> tuple[str, str]:
    """Make an installation; return an API token and a token with which the nodes join."""
    call_command("migrate", verbosity=0)
    call_command("createcachetable", verbosity=0)
    if Job.objects.exists():
        raise SystemExit("DATABASE_URL names a database that is in use; give an empty one.")
    now = database_now()
    made = bootstrap.ensure_installation(admin_username="admin", admin_password="x" * 20, now=now)
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
    _, join = nodes.join_token_create(actor=actor, cluster=made.cluster, now=now, uses=NODES)
    return secret, join


@contextmanager
def processes(web: int, gateway: int, join: str) -> Iterator[Mapping[str, int]]:
    """Run what an installation runs, give the process of each part, and end it."""
    with tempfile.TemporaryDirectory(prefix="terrace-bench-") as folder:
        data = Path(folder)
        (data / "token").write_text(join, encoding="ascii")
        environment = {
            **os.environ,
            "PUBLIC_URL": f"http://127.0.0.1:{web}",
            "TERRACE_GATEWAY_URL": f"http://127.0.0.1:{gateway}",
        }
        commands = {
            "web": (*UVICORN, f"--port={web}", "controlplane.asgi:application"),
            "gateway": (*UVICORN, f"--port={gateway}", "worker.gateway.asgi:application"),
            "loops": (*WORKER, "--queues=loops", "--concurrency=4", "--hostname=loops@%h"),
            "tasks": (*WORKER, "--queues=celery", "--concurrency=1", "--hostname=tasks@%h"),
            "beat": (*CELERY, "beat", "--loglevel=WARNING", f"--schedule={data}/beat"),
        }
        agent = ("-m", "worker.agent")
        join_command = (
            *agent, "join", f"--server=http://127.0.0.1:{gateway}", f"--token-file={data}/token",
            f"--data={data}/agent", "--name=sim", f"--nodes={NODES}",
        )  # fmt: skip
        run_command = (
            *agent, "run", f"--data={data}/agent", f"--nodes={NODES}",
            "--simulate=gpus=8,cpu=256,memory=1Ti",
        )  # fmt: skip
        log = (data / "log").open("ab")
        parts = {name: _spawn(one, environment, log) for name, one in commands.items()}
        try:
            _wait(lambda: _answers(gateway) and _answers(web))
            _spawn(join_command, environment, log).wait(PATIENCE_SECONDS)
            parts["agent"] = _spawn(run_command, environment, log)
            _wait(lambda: Node.objects.filter(state="Ready").count() == NODES)
            _wait(
                lambda: Lease.objects.filter(scope__startswith="scheduler:", epoch__gt=0).exists()
            )
            yield {name: process.pid for name, process in parts.items()}
        except BaseException:
            sys.stderr.write((data / "log").read_text(errors="replace")[-4000:])
            raise
        finally:
            for process in reversed(parts.values()):
                process.send_signal(signal.SIGTERM)
            for process in parts.values():
                process.wait(30)


def _spawn(
    arguments: tuple[str, ...], environment: dict[str, str], log: object
) -> subprocess.Popen[bytes]:
    return subprocess.Popen(  # type: ignore[call-overload,no-any-return]  # log is a file
        [sys.executable, *arguments], env=environment, stdout=log, stderr=log
    )


def _answers(port: int) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/healthz", trust_env=False).status_code == 200
    except httpx.HTTPError:
        return False


def _wait(condition: object) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():  # type: ignore[operator]  # a callable without arguments
        if time.monotonic() > deadline:
            raise SystemExit("the installation did not get ready")
        time.sleep(0.1)


def cpu_seconds(parts: Mapping[str, int]) -> dict[str, float]:
    """Return the CPU time of each part so far, its children's included, and PostgreSQL's."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        backend = int(cursor.fetchone()[0])
    everything = {**parts, "postgres": psutil.Process(backend).ppid(), "client": os.getpid()}
    return {name: _cpu_of_tree(psutil.Process(pid)) for name, pid in everything.items()}


def _cpu_of_tree(root: psutil.Process) -> float:
    seconds = 0.0
    for process in (root, *root.children(recursive=True)):
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue  # counted among its parent's children by now
        seconds += times.user + times.system + times.children_user + times.children_system
    return seconds


def submit(client: httpx.Client, number: int) -> tuple[str, float, float]:
    """Post one job; return its name, when it was sent and for how long the POST took."""
    name = f"bench-{number}"
    role = {"name": "main", "command": ["true"], "cpu": "100m", "memory": "64Mi"}
    document = {"name": name, "queue": "default", "roles": [role]}
    sent = time.time()
    reply = client.post("/api/v1/jobs", json=document)
    while reply.status_code == BUSY:  # it asks to be tried again; the time counts
        time.sleep(float(reply.headers["Retry-After"]))
        reply = client.post("/api/v1/jobs", json=document)
    reply.raise_for_status()
    return name, sent, time.time() - sent


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", type=float, default=20.0, help="jobs a second")
    parser.add_argument("--jobs", type=int, default=300)
    options = parser.parse_args()
    secret, join = fill()
    web, gateway = any_free(), any_free()
    with (
        processes(web, gateway, join) as parts,
        httpx.Client(
            base_url=f"http://127.0.0.1:{web}",
            headers={"Authorization": f"Bearer {secret}"},
            timeout=60,
            trust_env=False,
        ) as client,
        ThreadPoolExecutor(16) as pool,
    ):
        for number in range(20):  # connections, caches and the first cycle are not counted
            submit(client, -1 - number)
        used = cpu_seconds(parts)
        begin = time.monotonic()
        waiting = []
        for number in range(options.jobs):
            time.sleep(max(0.0, begin + number / options.rate - time.monotonic()))
            waiting.append(pool.submit(submit, client, number))
        posts = [one.result() for one in waiting]
        names = [name for name, _, _ in posts]
        started = Attempt.objects.filter(job__name__in=names, started_at__isnull=False)
        _wait(lambda: started.count() == options.jobs)
        running_at = {
            name: at.timestamp()
            for name, at in started.values_list("job__name", "started_at")
            if at is not None
        }
        spent = {
            name: round((seconds - used[name]) * 1000 / options.jobs, 1)
            for name, seconds in cpu_seconds(parts).items()
        }
    posted = sorted(seconds * 1000 for _, _, seconds in posts)
    waits = sorted((running_at[name] - sent) * 1000 for name, sent, _ in posts)
    for what, values, must in (
        ("POST of a job, p99 ms", posted, 300.0),
        ("POST to RUNNING committed, p99 ms", waits, MUST_MS),
    ):
        p99 = values[min(len(values) - 1, int(len(values) * 0.99))]
        row = {
            "benchmark": what,
            "value": round(p99, 1),
            "median": round(statistics.median(values), 1),
            "reference": must,
            "ratio": round(p99 / must, 3),
            "jobs": options.jobs,
            "rate": options.rate,
            "cpu_ms_a_job": spent,
        }
        print(json.dumps(row))


if __name__ == "__main__":
    main()
