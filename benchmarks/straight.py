"""POST to RUNNING: jobs at a steady rate through every process: `python -m benchmarks straight`.

Web, gateway, loops, beat and a simulated agent run as `make up` runs them; a client of its own
posts single-task jobs over HTTP. Prints JSON objects, one a line: how long a POST takes, and the
time from sending it to the commit of RUNNING. Uses an empty database named by DATABASE_URL, which
it migrates and fills.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import httpx

from benchmarks._installation import running, wait_until
from benchmarks._web import cpu_seconds
from scheduling.models import Attempt

NODES: Final = 4
SHAPE: Final = "gpus=8,cpu=256,memory=1Ti"
MUST_MS: Final = 500.0
BUSY: Final = 503


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
    with (
        running(count=NODES, shape=SHAPE) as here,
        here.client() as client,
        ThreadPoolExecutor(16) as pool,
    ):
        for number in range(20):  # connections, caches and the first cycle are not counted
            submit(client, -1 - number)
        used = cpu_seconds(here.pids)
        begin = time.monotonic()
        waiting = []
        for number in range(options.jobs):
            time.sleep(max(0.0, begin + number / options.rate - time.monotonic()))
            waiting.append(pool.submit(submit, client, number))
        posts = [one.result() for one in waiting]
        names = [name for name, _, _ in posts]
        started = Attempt.objects.filter(job__name__in=names, started_at__isnull=False)
        wait_until(lambda: started.count() == options.jobs)
        running_at = {
            name: at.timestamp()
            for name, at in started.values_list("job__name", "started_at")
            if at is not None
        }
        spent = {
            name: round((seconds - used[name]) * 1000 / options.jobs, 1)
            for name, seconds in cpu_seconds(here.pids).items()
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
