"""Measure the engine alone: decisions a second, idle cycles, gangs, reclaim: a JSON object a line.

    python -m benchmarks.engine [--small] [NAME ...]

Each figure stands beside the reference of docs (kube-scheduler 810 decisions a second, Goedel
2,500 a shard) and the budgets of the design. Every plan is checked by the independent verifier,
outside of the timing. The collector of garbage is kept out, as the scheduler's loop keeps it out
of its cycles.
"""

from __future__ import annotations

import argparse
import gc
from dataclasses import replace

from benchmarks._clusters import GIB, gang, nodes, occupants, queues, shapes, single, teams
from benchmarks._machine import Clock, peak_mib, show
from benchmarks.answers import cluster
from scheduling.engine.cycle import DEFAULT_CONFIG, Memo, plan
from scheduling.engine.garbage import without_collecting
from scheduling.engine.types import CPU, GPU, MEMORY, Queue, Role, Snapshot
from scheduling.engine.verify import check


def decisions(node_count: int, task_count: int) -> dict[str, object]:
    """Place single tasks of 100 shapes with all default plugins."""
    roles = shapes(100)
    jobs = tuple(
        single(f"job{i:06}", roles[(i * 37) % 100], f"team{i % 20:03}", created=float(i))
        for i in range(task_count)
    )
    snapshot = Snapshot(0.0, nodes(node_count), queues(20), jobs)
    gc.collect()
    with without_collecting(), Clock() as clock:
        result = plan(snapshot, DEFAULT_CONFIG)
    rate = len(result.binds) / clock.wall
    return {
        "benchmark": "decisions per second",
        "nodes": node_count,
        "tasks": task_count,
        "bound": len(result.binds),
        "value": round(rate),
        "value_cpu": round(len(result.binds) / clock.cpu),
        "reference": {"kube-scheduler": 810, "goedel shard": 2500},
        "must": 5000,
        "aim": 50000,
        "ratio": round(rate / 5000, 2),
        "violations": len(check(snapshot, result)),
    }


def idle(node_count: int, running: int, pending: int, *, cycles: int) -> dict[str, object]:
    """Plan again and again while nothing fits; one running job ends and one starts each time."""
    machines = nodes(node_count, gpus=4)
    small = Role("task", {CPU: 1000, MEMORY: GIB}, 1, 1)
    roles = [
        Role("task", {CPU: 97_000 + 1000 * i, MEMORY: GIB * (1 + i % 9)}, 1, 1) for i in range(50)
    ]
    jobs = occupants(running, small, teams(20), machines)
    jobs += [
        single(f"wait{i:06}", roles[i % 50], f"team{i % 20:03}", created=float(i))
        for i in range(pending)
    ]
    snapshot = Snapshot(1e6, machines, queues(20), tuple(jobs))
    memo = Memo()
    with without_collecting(), Clock() as first:
        plan(snapshot, DEFAULT_CONFIG, memo=memo)
    clocks = []
    for i in range(cycles):
        jobs[i] = replace(jobs[i], key=f"again{i:06}")
        snapshot = replace(snapshot, now=snapshot.now + 1, jobs=tuple(jobs), version=i)
        gc.collect()
        with without_collecting(), Clock() as clock:
            result = plan(snapshot, DEFAULT_CONFIG, memo=memo)
        clocks.append(clock)
    seconds = sorted(clock.wall for clock in clocks)
    cpu = sorted(clock.cpu for clock in clocks)
    last = min(len(seconds) - 1, int(len(seconds) * 0.99))
    p99 = seconds[last]
    return {
        "benchmark": "idle cycle",
        "nodes": node_count,
        "running": running,
        "pending": pending,
        "value": round(p99 * 1000, 1),
        "value_cpu": round(cpu[last] * 1000, 1),
        "median": round(seconds[len(seconds) // 2] * 1000, 1),
        "median_cpu": round(cpu[len(cpu) // 2] * 1000, 1),
        "first": round(first.wall * 1000),
        "first_cpu": round(first.cpu * 1000),
        "unit": "ms, p99",
        "must": 50,
        "aim": 10,
        "ratio": round(0.050 / p99, 2),
        "reasons": len(result.job_reasons),
        "violations": len(check(snapshot, result)),
        "memory_mib": round(peak_mib()),
    }


def gangs(node_count: int, count: int, size: int) -> dict[str, object]:
    """Place gangs wholly."""
    jobs = tuple(
        gang(f"gang{i:03}", f"team{i % 20:03}", size, gpus=0, created=float(i))
        for i in range(count)
    )
    snapshot = Snapshot(0.0, nodes(node_count), queues(20), jobs)
    with without_collecting(), Clock() as clock:
        result = plan(snapshot, DEFAULT_CONFIG)
    seconds = clock.wall
    return {
        "benchmark": "gangs",
        "nodes": node_count,
        "gangs": f"{count} x {size}",
        "bound": len(result.binds),
        "value": round(seconds * 1000),
        "value_cpu": round(clock.cpu * 1000),
        "unit": "ms (engine alone; the budget of 3 s is with the commit)",
        "must": 3000,
        "aim": 1000,
        "ratio": round(3 / seconds, 2),
        "violations": len(check(snapshot, result)),
    }


def reclaim(node_count: int) -> dict[str, object]:
    """Take back half of a full cluster for one gang."""
    machines = nodes(node_count)
    role = Role("task", {CPU: 4000, MEMORY: 16 * GIB, GPU: 1000}, 1, 1)
    running = occupants(node_count * 8, role, ["rich"], machines)
    jobs = (*running, gang("big", "poor", node_count // 2, gpus=8))
    snapshot = Snapshot(1e6, machines, (Queue("rich"), Queue("poor")), jobs)
    memo = plan_of(replace(snapshot, jobs=tuple(running)))
    gc.collect()
    with without_collecting(), Clock() as clock:
        result = plan(snapshot, DEFAULT_CONFIG, memo=memo)
    seconds = clock.wall
    must = {500: 200, 1000: 500}.get(node_count, 0)
    return {
        "benchmark": "reclaim for a large gang",
        "nodes": node_count,
        "evicted": len(result.evictions),
        "promised": len(result.pipelined),
        "value": round(seconds * 1000),
        "value_cpu": round(clock.cpu * 1000),
        "unit": "ms",
        "must": must,
        "ratio": round(must / 1000 / seconds, 2),
        "violations": len(check(snapshot, result)),
    }


def take_back(node_count: int, waiting: int) -> dict[str, object]:
    """Let twenty queues of a full cluster take back at once: their weights have just changed."""
    snapshot = cluster("shapes", node_count, node_count * 10, waiting)
    even = plan_of(snapshot)
    weights = tuple(replace(q, weight=1 + i % 5) for i, q in enumerate(snapshot.queues))
    snapshot = replace(snapshot, queues=weights)
    gc.collect()
    with without_collecting(), Clock() as clock:
        result = plan(snapshot, DEFAULT_CONFIG, memo=even)
    return {
        "benchmark": "reclaim by many queues at once",
        "nodes": node_count,
        "waiting": waiting,
        "evicted": len(result.evictions),
        "promised": len(result.pipelined),
        "value": round(clock.wall, 1),
        "value_cpu": round(clock.cpu, 1),
        "unit": "s",
        "violations": len(check(snapshot, result)),
    }


def plan_of(snapshot: Snapshot) -> Memo:
    """Return what a caller keeps of a plan."""
    memo = Memo()
    plan(snapshot, DEFAULT_CONFIG, memo=memo)
    return memo


def main() -> None:
    """Run all and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--small", action="store_true", help="a tenth of the size")
    parser.add_argument("names", nargs="*", help="decisions idle gangs reclaim takeback")
    options = parser.parse_args()
    scale = 10 if options.small else 1
    runs = {
        "decisions": lambda: decisions(5000 // scale, 50_000 // scale),
        "idle": lambda: idle(5000 // scale, 100_000 // scale, 10_000 // scale, cycles=30),
        "gangs": lambda: gangs(1000 // scale, 20, 500 // scale),
        "reclaim500": lambda: reclaim(500 // scale),
        "reclaim1000": lambda: reclaim(1000 // scale),
        "takeback": lambda: take_back(5000 // scale, 2000 // scale),
    }
    chosen = [n for n in runs if not options.names or any(n.startswith(x) for x in options.names)]
    for name in chosen:
        show(runs[name]())


if __name__ == "__main__":
    main()
