"""Submissions through the whole web program: `python -m benchmarks submissions`.

Single POSTs by several clients at once and batches of 1,000 jobs, each through middleware,
authentication, validation, rights, rows and commit, called in this process instead of by a socket.
Prints JSON objects, one a line: jobs a second, and the CPU time of one in this process. Uses an
empty database named by DATABASE_URL, which it migrates and fills.
"""

from __future__ import annotations

import argparse
import json
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

from django.db import connection
from django.test import Client

from benchmarks._rows import Rows, emit
from scheduling.domain.clock import database_now
from scheduling.models import Job
from tenants.domain import tokens

THREADS = 4
BATCH = 1_000


def main() -> None:
    """Measure both ways and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--singles", type=int, default=1_000)
    parser.add_argument("--batches", type=int, default=10)
    given = parser.parse_args()
    rows = Rows()
    now = database_now()
    _, secret = tokens.create_token(
        actor=rows.actor,
        user=rows.admin,
        name="benchmark",
        verbs=[],
        unit=None,
        expires_at=now + timedelta(hours=1),
        now=now,
    )
    headers = {"Authorization": f"Bearer {secret}"}
    client = Client(SERVER_NAME="127.0.0.1", headers=headers)

    def post(number: int) -> None:
        sent = Client(SERVER_NAME="127.0.0.1", headers=headers)
        reply = sent.post("/api/v1/jobs", _job(f"single-{number}"), content_type="application/json")
        if reply.status_code != 201:
            raise SystemExit(f"{reply.status_code}: {reply.content[:300]!r}")

    for number in range(10):
        post(-1 - number)
    with ThreadPoolExecutor(THREADS) as pool:
        begun, used = time.perf_counter(), time.process_time()
        list(pool.map(post, range(given.singles)))
        _emit("sustained submissions, jobs a second", given.singles, begun, used, 200.0)
        list(pool.map(lambda _: connection.close(), range(THREADS)))
    bodies = [
        json.dumps({"jobs": [_job(f"batch-{number}-{n}") for n in range(BATCH)]})
        for number in range(given.batches)
    ]
    begun, used = time.perf_counter(), time.process_time()
    for body in bodies:
        reply = client.post("/api/v1/jobs:batch", body, content_type="application/json")
        if reply.json()["done"] != BATCH:
            raise SystemExit(f"{reply.status_code}: {reply.content[:300]!r}")
    _emit("submissions in batches, jobs a second", given.batches * BATCH, begun, used, 2_000.0)
    if Job.objects.count() != given.singles + 10 + given.batches * BATCH:
        raise SystemExit("not every accepted job is a row")


def _emit(name: str, count: int, begun: float, used: float, must: float) -> None:
    wall, cpu = time.perf_counter() - begun, time.process_time() - used
    emit(
        name,
        count / wall,
        must,
        jobs=count,
        cpu_ms_a_job=round(cpu * 1000 / count, 3),
        a_second_of_cpu=round(count / cpu),
    )


def _job(name: str) -> dict[str, object]:
    role = {"name": "main", "command": ["true"], "cpu": "100m", "memory": "64Mi"}
    return {"name": name, "queue": "default", "roles": [role]}


if __name__ == "__main__":
    main()
