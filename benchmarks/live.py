"""Live fan-out: many open pages follow a job that writes 4 times/s: `python -m benchmarks live`.

Prints one JSON object a line: the time from the commit of a chunk to its arrival on a page (p99),
over all pages, with one web process on one core, and the CPU time it takes for each frame. A frame
carries some 500 bytes. The pages are sockets of a process of their own on another core. Uses an
empty database named by DATABASE_URL, which it migrates and fills.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import time
from datetime import UTC, datetime

import psutil
from asgiref.sync import sync_to_async
from django.conf import settings
from django.test import Client
from redis.asyncio import Redis

from benchmarks import _empty, _web
from scheduling.domain import jobs, topics
from scheduling.domain.clock import database_now
from scheduling.models import Attempt, LogChunk, Node
from scheduling.spec.job_spec import JobSpec, RoleSpec
from tenants.domain.access import load_actor

CHUNK_BYTES = 300
"""In base64 and with its frame this makes about 500 bytes."""
A_SECOND = 4
MUST_PAGES, REFERENCE_MS = 1000, 100.0
AIM_MS = 250.0
"""With more pages than that: the aim is 5,000."""
OPEN_SECONDS = 60
WARM_UP = 4
"""Chunks that are not counted: the first one waits for whatever was never done before."""


def fill() -> tuple[Attempt, str]:
    """Write a job with one running attempt; return it and an administrator's session cookie."""
    made = _empty.installation()
    now = database_now()
    role = RoleSpec(name="worker", replicas=1, min_available=1, command=("true",))
    spec = JobSpec(name="followed", queue=made.queue.name, roles=(role,), min_available=1)
    job = jobs.submit_job(actor=load_actor(made.admin), spec=spec, now=now)
    node = Node.objects.create(cluster=made.cluster, name="bench", created_at=now)
    attempt = Attempt.objects.create(
        task=job.tasks.get(), job=job, node=node, number=1, generation=1, epoch=1, bound_at=now
    )
    client = Client()
    client.force_login(made.admin)
    name = settings.SESSION_COOKIE_NAME
    return attempt, f"{name}={client.cookies[name].value}"


def open_pages(port: int, cookie: str, key: str, pages: int, cpu: int) -> subprocess.Popen[str]:
    """Start the process of the pages; return it when all of them follow."""
    command = [
        sys.executable, "-m", "benchmarks._pages",
        f"--port={port}", f"--key={key}", f"--pages={pages}", f"--cpu={cpu}",
    ]  # fmt: skip
    process = subprocess.Popen(
        command,
        env={**os.environ, "PAGES_COOKIE": cookie},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None  # noqa: S101 -- asked for above
    if process.stdout.readline() != "open\n":
        raise SystemExit("The pages did not open.")
    return process


async def write(attempt: Attempt, chunks: int) -> None:
    """Commit chunks and hint at them, as the gateway and the relay do."""
    topic = topics.job(attempt.job_id)
    async with Redis.from_url(settings.REDIS_URL) as redis:
        for number in range(chunks):
            began = time.monotonic()
            line = f"{time.time():.6f} ".ljust(CHUNK_BYTES - 1, "x") + "\n"
            await sync_to_async(LogChunk.objects.create)(
                attempt=attempt,
                stream="stdout",
                offset=number * CHUNK_BYTES,
                size_bytes=CHUNK_BYTES,
                data=line.encode(),
                at=datetime.now(UTC),
            )
            hint = {"topic": topic, "seq": number, "kind": "log"}
            await redis.publish(topics.LIVE_CHANNEL, json.dumps(hint))
            await asyncio.sleep(max(0.0, 1 / A_SECOND - (time.monotonic() - began)))


async def measure(attempt: Attempt, cookie: str, *, pages: int, seconds: int) -> None:
    """Open the pages, write, and print what was seen."""
    cores = sorted(os.sched_getaffinity(0))
    with _web.serving(cpu=cores[0] if len(cores) > 1 else -1) as pids:
        ((port, pid),) = pids.items()
        web = psutil.Process(pid)
        idle = web.memory_info().rss
        key = f"{topics.job(attempt.job_id)}/feed/log/{attempt.id}:stdout"
        began = time.monotonic()
        followers = open_pages(port, cookie, key, pages, cores[1] if len(cores) > 1 else -1)
        opening = time.monotonic() - began
        await asyncio.sleep(2)
        opened, busy = web.memory_info().rss, web.cpu_times()
        await write(attempt, seconds * A_SECOND)
        await asyncio.sleep(2)
        used = web.cpu_times()
        said, _ = followers.communicate(timeout=OPEN_SECONDS)
        seen = json.loads(said)
        cpu_seconds = used.user + used.system - busy.user - busy.system
        _print(
            seen["delays"],
            seconds,
            all_pages_open_seconds=round(opening, 2),
            memory_kib_a_page=round((opened - idle) / 1024 / pages, 1),
            web_cpu_percent=round(100 * cpu_seconds / seconds),
            web_cpu_microseconds_a_frame=round(1e6 * cpu_seconds / (pages * seconds * A_SECOND), 1),
            pages_cpu_percent=round(100 * seen["cpu_seconds"] / seconds),
            load_average=round(os.getloadavg()[0], 1),
        )


def _print(delays: list[list[float]], seconds: int, **more: float) -> None:
    counted = [delay for page in delays for delay in page[WARM_UP:]]
    if not counted:
        raise SystemExit("No page received anything.")
    p99 = statistics.quantiles(counted, n=100)[98]
    reference = REFERENCE_MS if len(delays) <= MUST_PAGES else AIM_MS
    line = {
        "benchmark": f"live fan-out: {len(delays)} pages x {A_SECOND}/s, p99 ms",
        "value": round(p99, 1),
        "reference": reference,
        "ratio": round(p99 / reference, 3),
        "p50_ms": round(statistics.median(counted), 1),
        "complete_pages": sum(len(page) == seconds * A_SECOND for page in delays),
        **more,
    }
    print(json.dumps(line), flush=True)


def main() -> None:
    """Measure with the sizes of the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pages", type=int, default=1000)
    parser.add_argument("--seconds", type=int, default=10)
    given = parser.parse_args()
    attempt, cookie = fill()
    asyncio.run(measure(attempt, cookie, pages=given.pages, seconds=given.seconds))


if __name__ == "__main__":
    main()
