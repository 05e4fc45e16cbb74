"""The shapes of the peers' public benchmarks: `python -m benchmarks.peers [--traces FOLDER]`.

One JSON object a line, each beside the figure that the peer's project publishes
(`peers/peer_benchmarks.json` in the folder of traces), CPU time of the engine alone:

- KAI: reclaim for one large gang on 10 to 1,000 full nodes; allocate with four queues
- Volcano: 10,000 tasks in four shapes of gangs on 1,000 nodes (theirs with API server and kubelets;
  `benchmarks.cycle` measures ours with the commit)
- Kueue: its baseline and large-scale generators. Run times are emulated there and here, so the time
  that the whole takes says nothing; how long workloads wait for admission in that emulated time and
  what the scheduler itself computes does

Every plan is checked by the verifier, outside of the timing; of Kueue's many, one in fifty.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks._clusters import gang, nodes, occupants, queues, single
from benchmarks._machine import Clock, show, traces_folder
from scheduling.engine.cycle import DEFAULT_CONFIG, Memo, plan
from scheduling.engine.types import CPU, GPU, PODS, Job, Node, Plan, Queue, Role, Snapshot
from scheduling.engine.verify import check
from scheduling.simulator import trace
from scheduling.simulator.replay import Arrival, Replay, Settings, World

Published = Mapping[str, Any]  # figures as published: numbers, texts and lists, nested at will
KUEUE_CYCLE_SECONDS = 0.1
BETWEEN_CHECKS = 50
KUEUE_PARTS = {"kueue_baseline": "baseline", "kueue_large_scale": "large scale"}


def planned(snapshot: Snapshot, memo: Memo | None = None) -> tuple[Plan, Clock, int]:
    """Return (plan, its clock, violations)."""
    gc.collect()
    with Clock() as clock:
        result = plan(snapshot, DEFAULT_CONFIG, memo=memo)
    return result, clock, len(check(snapshot, result))


def kai_reclaim(count: int, peer: Published) -> dict[str, object]:
    """Take a tenth of a full cluster back for one gang of whole nodes."""
    machines = nodes(count)
    role = Role("task", {GPU: 1000}, 1, 1)
    running = occupants(count * 8, role, ["queue-0"], machines)
    size = max(count // 10, 1)
    big = replace(
        gang("big", "queue-1", size, gpus=8), roles=(Role("worker", {GPU: 8000}, size, size),)
    )
    tree = (Queue("queue-0"), Queue("queue-1", min={GPU: count * 8000}))
    memo = Memo()
    snapshot = Snapshot(1e6, machines, tree, (*running, big))
    plan(replace(snapshot, jobs=tuple(running)), DEFAULT_CONFIG, memo=memo)
    result, clock, violations = planned(snapshot, memo)
    reference = peer["ms_per_op"].get(str(count))
    value = clock.cpu * 1000
    return {
        "benchmark": f"KAI's reclaim for a large gang, {count} nodes, CPU ms",
        "value": round(value, 1),
        "reference": reference if reference is not None else peer.get(f"{count}_nodes"),
        "ratio": round(value / reference, 3) if reference else None,
        "evicted": len(result.evictions),
        "promised": len(result.pipelined),
        "violations": violations,
    }


def kai_allocate(node_count: int, job_count: int, peer: Published) -> dict[str, object]:
    """Place single GPUs for four queues under two departments."""
    tree = (
        *(Queue(f"dep{i}") for i in range(2)),
        *(Queue(f"queue-{i}", parent=f"dep{i // 2}") for i in range(4)),
    )
    role = Role("task", {GPU: 1000}, 1, 1)
    jobs = tuple(
        single(f"job{i:05}", role, f"queue-{i % 4}", created=float(i)) for i in range(job_count)
    )
    result, clock, violations = planned(Snapshot(0.0, nodes(node_count), tree, jobs))
    reference = peer["ms_per_op"][f"{node_count}n_{job_count}j"]
    return {
        "benchmark": f"KAI's allocate, {node_count} nodes, {job_count} jobs, CPU ms",
        "value": round(clock.cpu * 1000, 1),
        "reference": reference,
        "ratio": round(clock.cpu * 1000 / reference, 3),
        "bound": len(result.binds),
        "violations": violations,
    }


def volcano(shape: str, scale: int, peer: Published) -> dict[str, object]:
    """Place 10,000 tasks in gangs of one shape."""
    count, size = (int(part) for part in shape.split("x"))
    count, size = (count // scale, size) if count > 1 else (count, size // scale)
    jobs = tuple(
        gang(f"gang{i:05}", f"team{i % 20:03}", size, gpus=0, created=float(i))
        for i in range(count)
    )
    snapshot = Snapshot(0.0, nodes(1000 // scale), queues(20), jobs)
    result, clock, violations = planned(snapshot)
    walls = peer["10000x1_wall_s"] if shape == "10000x1" else None
    reference = walls["webhook_off"] if walls else None
    return {
        "benchmark": f"Volcano's {shape} tasks, {1000 // scale} nodes, engine alone, CPU s",
        "value": round(clock.cpu, 3),
        "reference": reference,
        "ratio": round(clock.cpu / reference, 5) if reference else None,
        "bound": len(result.binds),
        "violations": violations,
    }


class Watch:
    """Adds up the CPU time between cycles and checks a plan now and then."""

    def __init__(self) -> None:
        """Start at nought."""
        self.cycles = 0
        self.violations = 0
        self.checking = 0.0

    def see(self, snapshot: Snapshot, result: Plan) -> None:
        """Check one plan in fifty."""
        self.cycles += 1
        if self.cycles % BETWEEN_CHECKS == 0:
            begun = time.process_time()
            self.violations += len(check(snapshot, result))
            self.checking += time.process_time() - begun


def kueue(name: str, scale: int, peer: Published) -> dict[str, object]:
    """Play one of Kueue's generators: quotas only, so one node has all that the cohorts have."""
    cohorts = max(peer["cohorts"] // scale, 1)
    per_cohort = peer["queues_per_cohort"]
    quota, borrowing = peer["nominal_quota"] * 1000, peer["borrowing_limit"] * 1000
    tree = [Queue(f"cohort{c}", max={CPU: quota * per_cohort}) for c in range(cohorts)]
    tree += [
        Queue(f"queue{c}-{q:03}", f"cohort{c}", min={CPU: quota}, max={CPU: quota + borrowing})
        for c in range(cohorts)
        for q in range(per_cohort)
    ]
    total = quota * per_cohort * cohorts
    world = World((Node("all", {CPU: total, PODS: 10**9}),), tuple(tree))
    arrivals = [
        Arrival(job, kind["runtime_ms"] / 1000)
        for queue in tree
        if queue.parent is not None
        for kind in peer["per_queue"]
        for job in _workloads(queue.name, kind)
    ]
    watch = Watch()
    player = Replay(
        world, arrivals, settings=Settings(cycle_seconds=KUEUE_CYCLE_SECONDS), check=watch.see
    )
    with Clock() as clock:
        day = player.run()
    waits: dict[str, list[float]] = {}
    for record in day.records:
        if record.started_at is not None:
            kind = record.job.key.split("/")[1]
            waits.setdefault(kind, []).append(record.started_at - record.job.created_at)
    used = sum(
        record.seconds * record.job.roles[0].request[CPU]
        for record in day.records
        if record.ended_at is not None
    )
    ended = day.ended_at or 1.0
    cpu = clock.cpu - watch.checking
    measured = peer["measured"]
    return {
        "benchmark": f"Kueue's {KUEUE_PARTS[name]} generator: scheduler and emulation, CPU s",
        "value": round(cpu, 1),
        "reference": measured["wall_ms_mean"] / 1000 if scale == 1 else None,
        "ratio": round(cpu / (measured["wall_ms_mean"] / 1000), 4) if scale == 1 else None,
        "workloads": len(arrivals),
        "admitted": sum(map(len, waits.values())),
        "cycles": day.cycles,
        "cpu_ms_a_cycle": round(1000 * cpu / max(day.cycles, 1), 2),
        "emulated_seconds": round(ended, 1),
        "usage_pct": round(100 * used / (total * ended), 1),
        "mean_time_to_admission_ms": {
            kind: round(1000 * statistics.mean(found)) for kind, found in sorted(waits.items())
        },
        "reference_details": measured,
        "violations": watch.violations,
    }


def _workloads(queue: str, kind: Published) -> Iterator[Job]:
    """Yield the workloads of one class in one queue, at equal intervals."""
    for number in range(kind["count"]):
        yield trace.gang(
            f"{queue}/{kind['class']}/{number:04}",
            queue=queue,
            request={CPU: kind["request"] * 1000},
            tasks=1,
            arrives_at=number * kind["interval_ms"] / 1000,
            priority=kind["priority"],
        )


def results(published: Published, parts: list[str], scale: int) -> Iterator[dict[str, object]]:
    """Yield the rows of the chosen parts."""
    if "kai" in parts:
        for count in (10, 50, 100, 200, 500, 1000)[: 3 if scale > 1 else None]:
            yield kai_reclaim(count, published["kai_reclaim_large"])
        for node_count, job_count in ((10, 50), (50, 200), (100, 500)):
            yield kai_allocate(node_count, job_count, published["kai_allocate"])
    if "volcano" in parts:
        for shape in published["volcano_kind"]["cases"]:
            yield volcano(shape, scale, published["volcano_kind"])
    if "kueue" in parts:
        for name in KUEUE_PARTS if scale == 1 else ["kueue_baseline"]:
            yield kueue(name, scale, published[name])


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--traces", type=Path)
    parser.add_argument("--small", action="store_true", help="a tenth of the size")
    parser.add_argument("parts", nargs="*", default=["kai", "volcano", "kueue"])
    options = parser.parse_args()
    text = (traces_folder(options.traces) / "peers" / "peer_benchmarks.json").read_text()
    for row in results(json.loads(text), options.parts, 10 if options.small else 1):
        show(row)


if __name__ == "__main__":
    main()
