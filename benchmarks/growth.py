"""How a cycle's time grows, and what makes it harder: `python -m benchmarks.growth [--small]`.

One JSON object a line, CPU time (others may use the machine too):

- growth with nodes and with pending tasks: the exponent of the line through log(size), log(time);
  each size the median of three
- 50,000 tasks of 50,000 distinct shapes
- the same cluster with affinity, spreading and network topology asked for
- the memory of one process that plans for 5,000 nodes and 100,000 running tasks

Every plan is checked by the verifier, outside of the timing.
"""

from __future__ import annotations

import argparse
import gc
import math
import statistics
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace

from benchmarks._clusters import GIB, gang, nodes, occupants, queues, shapes, single, teams
from benchmarks._machine import Clock, peak_mib, show
from scheduling.engine.cycle import DEFAULT_CONFIG, Memo, plan
from scheduling.engine.types import (
    CPU,
    MEMORY,
    HyperNode,
    Job,
    PodTerm,
    Requirement,
    Role,
    Snapshot,
    SpreadRule,
    TopologyMode,
    TopologyRule,
)
from scheduling.engine.verify import check

MIB = 2**20
REPEATS = 3


def cpu_of(snapshot: Snapshot) -> tuple[float, int, int]:
    """Return (CPU seconds, binds, violations) of one cycle from nothing."""
    gc.collect()
    with Clock() as clock:
        result = plan(snapshot, DEFAULT_CONFIG)
    return clock.cpu, len(result.binds), len(check(snapshot, result))


def of_shapes(node_count: int, task_count: int, shape_count: int) -> Snapshot:
    """Return a cluster with waiting single tasks of so many shapes."""
    roles = shapes(100) if shape_count == 100 else distinct(shape_count)
    jobs = tuple(
        single(f"job{i:06}", roles[(i * 37) % shape_count], f"team{i % 20:03}", created=float(i))
        for i in range(task_count)
    )
    return Snapshot(0.0, nodes(node_count), queues(20), jobs)


def distinct(count: int) -> list[Role]:
    """Return as many roles of which no two ask for the same."""
    return [
        Role("task", {CPU: 250 + i % 4001, MEMORY: GIB + (i // 4001) * 2**24}, 1, 1)
        for i in range(count)
    ]


def exponent(sizes: Sequence[int], seconds: Sequence[float]) -> float:
    """Return the slope of the least-squares line through the logarithms."""
    x, y = [math.log(s) for s in sizes], [math.log(s) for s in seconds]
    return statistics.linear_regression(x, y).slope


def growth(name: str, sizes: Sequence[int], snapshots: Sequence[Snapshot]) -> dict[str, object]:
    """Measure the same cluster in several sizes."""
    seconds, violations = [], 0
    for snapshot in snapshots:
        runs = [cpu_of(snapshot) for _ in range(REPEATS)]
        seconds.append(statistics.median(run[0] for run in runs))
        violations += sum(run[2] for run in runs)
    value = exponent(sizes, seconds)
    return {
        "benchmark": f"growth of a cycle's CPU time with {name}, exponent",
        "value": round(value, 3),
        "reference": 1.2,
        "ratio": round(value / 1.2, 3),
        "must": 1.2,
        "aim": 1.05,
        "cpu_seconds": {str(size): round(s, 3) for size, s in zip(sizes, seconds, strict=True)},
        "violations": violations,
    }


def rate(name: str, snapshot: Snapshot, *, must: int) -> dict[str, object]:
    """Measure decisions a second of CPU time."""
    seconds, binds, violations = cpu_of(snapshot)
    value = binds / seconds
    return {
        "benchmark": name,
        "value": round(value),
        "reference": {"kube-scheduler": 810},
        "ratio": round(value / 810, 2),
        "must": must,
        "nodes": len(snapshot.nodes),
        "tasks": sum(len(job.tasks) for job in snapshot.jobs),
        "bound": binds,
        "violations": violations,
    }


def with_rules(node_count: int, task_count: int) -> Snapshot:
    """Return jobs of ten tasks: kept apart, spread over zones, near their like, under a switch."""
    machines = nodes(node_count)
    rack = 40
    racks = [
        HyperNode(f"rack{i // rack:03}", 1, nodes=frozenset(n.name for n in machines[i : i + rack]))
        for i in range(0, node_count, rack)
    ]
    top = HyperNode("spine", 2, members=tuple(h.name for h in racks))
    jobs = [ruled(i, task_count // 10) for i in range(task_count // 10)]
    return Snapshot(0.0, machines, queues(20), tuple(jobs), hypernodes=(*racks, top))


def ruled(number: int, count: int) -> Job:
    """Return a gang of ten with one of four rules; a tenth of the jobs share each label."""
    label = f"app{number % max(count // 10, 1)}"
    base = gang(f"job{number:05}", f"team{number % 20:03}", 10, gpus=0, created=float(number))
    same = (Requirement("app", "In", (label,)),)
    role = replace(base.roles[0], labels={"app": label})
    kind = number % 4
    if kind == 0:
        role = replace(role, pod_terms=(PodTerm(same, "host", is_anti=True),))
    elif kind == 1:
        role = replace(role, spread=(SpreadRule(2, "zone", same),))
    elif kind == 2:
        role = replace(role, pod_terms=(PodTerm(same, "zone", is_required=False, weight=50),))
    topology = TopologyRule(TopologyMode.HARD, 1) if kind == 3 else None
    return replace(base, roles=(role,), topology=topology)


def memory(node_count: int, running: int) -> dict[str, object]:
    """Return the peak of a process that plans three cycles over running tasks."""
    command = [sys.executable, "-m", "benchmarks.growth", "--peak", str(node_count), str(running)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    value = float(done.stdout)
    return {
        "benchmark": "memory of a process that plans, MiB",
        "value": round(value),
        "reference": round(600e6 / MIB),
        "ratio": round(value / (600e6 / MIB), 3),
        "must": round(600e6 / MIB),
        "aim": round(250e6 / MIB),
        "nodes": node_count,
        "running": running,
    }


def peak(node_count: int, running: int) -> float:
    """Return the MiB of this process after three cycles, snapshot included."""
    machines = nodes(node_count)
    role = Role("task", {CPU: 1000, MEMORY: GIB}, 1, 1)
    jobs = occupants(running, role, teams(20), machines)
    memo = Memo()
    for i in range(3):
        waiting = single(f"new{i}", role, "team000", created=float(i))
        snapshot = Snapshot(1e6 + i, machines, queues(20), (*jobs, waiting), version=i)
        plan(snapshot, DEFAULT_CONFIG, memo=memo)
    return peak_mib()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--small", action="store_true", help="a tenth of the size")
    parser.add_argument("--peak", type=int, nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("names", nargs="*", help="nodes tasks shapes rules memory")
    options = parser.parse_args()
    if options.peak:
        print(peak(*options.peak))
        return
    scale = 10 if options.small else 1
    by_nodes = [n // scale for n in (1250, 2500, 5000, 10_000)]
    by_tasks = [n // scale for n in (6250, 12_500, 25_000, 50_000)]
    tasks, some = 10_000 // scale, 5000 // scale
    runs = {
        "nodes": lambda: growth("nodes", by_nodes, [of_shapes(n, tasks, 100) for n in by_nodes]),
        "tasks": lambda: growth(
            "pending tasks", by_tasks, [of_shapes(some, n, 100) for n in by_tasks]
        ),
        "shapes": lambda: rate(
            "decisions per CPU second, each task of another shape",
            of_shapes(some, 50_000 // scale, 50_000 // scale),
            must=810,
        ),
        "rules": lambda: rate(
            "decisions per CPU second with affinity, spreading and topology",
            with_rules(some, 10_000 // scale),
            must=810,
        ),
        "memory": lambda: memory(some, 100_000 // scale),
    }
    for name in options.names or runs:
        show(runs[name]())


if __name__ == "__main__":
    main()
