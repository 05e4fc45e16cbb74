"""Measure what a page asks of the engine: explain, the smallest change, fits; a JSON object a line.

    python -m benchmarks.answers [--small] [NAME ...]

A full cluster of 5,000 nodes and 50,000 running tasks, with 2,000 waiting jobs that fare alike (one
shape), that have 100 shapes, or of whom each has its own owner, queue and shape. What was kept
since the last cycle is at hand, as in a web process; a running job ends and one starts before each
question, as on a live cluster.
"""

from __future__ import annotations

import argparse
import gc
from collections.abc import Callable
from dataclasses import replace

from benchmarks._clusters import GIB, nodes, occupants, queues, single, teams
from benchmarks._machine import Clock, show
from scheduling.engine.changes import smallest_changes, why
from scheduling.engine.cycle import DEFAULT_CONFIG, Memo, plan
from scheduling.engine.explain import explain, fits
from scheduling.engine.types import CPU, GPU, MEMORY, Job, Role, Snapshot

MUST_MS = 50.0
MOST_CHANGES = 3
"""As many as the page of a waiting job shows."""


def _role(i: int, *, shapes: int) -> Role:
    """Return one of so many roles, none of which fits a full node."""
    return Role(
        "task",
        {CPU: 60_000 + 10 * (i % shapes), MEMORY: GIB * (1 + i % 9), GPU: 1000 * (1 + i % 4)},
        replicas=1,
        min_available=1,
        node_selector={"zone": f"z{i % 4}"} if i % 3 == 0 else {},
    )


def cluster(kind: str, node_count: int, running: int, waiting: int) -> Snapshot:
    """Return a full cluster and so many waiting jobs: `alike`, of `shapes`, or `distinct`."""
    machines = nodes(node_count)
    busy = Role("task", {CPU: 9000, MEMORY: GIB, GPU: 500}, 1, 1)
    count = waiting if kind == "distinct" else 20
    tree = tuple(replace(queue, weight=1) for queue in queues(count))  # nobody has to give back
    names = teams(count)
    shapes = {"alike": 1, "shapes": 100, "distinct": waiting}[kind]
    roles = [_role(i, shapes=shapes) for i in range(shapes)]
    jobs = occupants(running, busy, names, machines)
    for i in range(waiting):
        role = roles[i % shapes]
        queue = names[0] if kind == "alike" else names[i % count]
        job = single(f"wait{i:06}", role, queue, created=float(i))
        jobs.append(replace(job, owner=f"user{i:04}") if kind == "distinct" else job)
    return Snapshot(1e6, machines, tree, tuple(jobs))


QUESTIONS: dict[str, Callable[[Snapshot, Job, Memo], object]] = {
    "explain": lambda snapshot, job, memo: explain(snapshot, DEFAULT_CONFIG, job.key, memo=memo),
    "fits": lambda snapshot, job, memo: fits(snapshot, DEFAULT_CONFIG, job, memo=memo),
    "changes": lambda snapshot, job, memo: smallest_changes(
        snapshot, DEFAULT_CONFIG, job.key, memo=memo
    ),
    "why": lambda snapshot, job, memo: why(
        snapshot, DEFAULT_CONFIG, job.key, memo=memo, most=MOST_CHANGES
    ),
}


def measure(kind: str, name: str, snapshot: Snapshot, *, repeats: int) -> dict[str, object]:
    """Ask one thing of different jobs, and take the median and the worst."""
    question = QUESTIONS[name]
    memo = Memo()
    plan(snapshot, DEFAULT_CONFIG, memo=memo)
    jobs = list(snapshot.jobs)
    waiting = [i for i, job in enumerate(jobs) if job.key.startswith("wait")]
    seconds = []
    for k in range(repeats):
        jobs[k] = replace(jobs[k], key=f"again{k:06}")
        snapshot = replace(snapshot, now=snapshot.now + 1, jobs=tuple(jobs), version=k)
        asked = jobs[waiting[len(waiting) * k // repeats]]
        gc.collect()
        with Clock() as clock:
            question(snapshot, asked, memo)
        seconds.append(clock.cpu * 1000)
    seconds.sort()
    return {
        "benchmark": f"{name}, waiting jobs: {kind}",
        "nodes": len(snapshot.nodes),
        "running": len(jobs) - len(waiting),
        "waiting": len(waiting),
        "value_cpu": round(seconds[len(seconds) // 2], 1),
        "worst_cpu": round(seconds[-1], 1),
        "unit": "ms",
        "must": MUST_MS,
        "ratio": round(MUST_MS / seconds[len(seconds) // 2], 2),
    }


def main() -> None:
    """Run all and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--small", action="store_true", help="a tenth of the size")
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("names", nargs="*", help=" ".join(QUESTIONS))
    options = parser.parse_args()
    scale = 10 if options.small else 1
    for kind in ("alike", "shapes", "distinct"):
        snapshot = cluster(kind, 5000 // scale, 50_000 // scale, 2000 // scale)
        for name in options.names or QUESTIONS:
            show(measure(kind, name, snapshot, repeats=options.repeats))


if __name__ == "__main__":
    main()
