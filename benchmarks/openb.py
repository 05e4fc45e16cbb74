"""Pack Alibaba's openb pods onto its 1,213 GPU servers, beside what FGD's authors published.

    python -m benchmarks.openb [--traces FOLDER] [--seeds N] [--lists NAMES] [--demand SHARE]

Their experiment: servers empty; the pods sorted by name and shuffled; then random pods of the list
again until the GPUs asked for reach 130 % of what there is. One by one each is planned by the
default configuration and placed or dropped; none is moved, and nothing is known in advance: what
is typical is learnt from what runs. With `--arrivals 80` so many come between two cycles, which
costs a tenth; they are still placed in the order in which they came. Second, the whole queue is
visible in one cycle. The figure is the share of GPUs allocated, by thousandths, as a mean over the
seeds. The verifier checks plans outside of the timing: each of the second kind, and one after
every hundred arrivals of the first.

No packing can reach 100 %: each row also has what best-fit decreasing gets which knows in advance
all that comes until the servers are full (GPUs alone: as if CPU and memory were endless).
"""

from __future__ import annotations

import argparse
import csv
import gzip
import random
import statistics
import time
from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks._machine import show, traces_folder
from scheduling.engine.cycle import DEFAULT_CONFIG, Memo, plan
from scheduling.engine.types import (
    GPU,
    GangPhase,
    Job,
    Node,
    Plan,
    Queue,
    Snapshot,
    Task,
    TaskState,
)
from scheduling.engine.verify import check
from scheduling.simulator import trace

LISTS = ("default", "cpu100", "gpushare40", "gpuspec20", "multigpu20")
LEVELS = (50, 60, 70, 80, 90, 95, 100, 110, 120, 130)
WHOLE = 1000
BETWEEN_CHECKS = 100


def arrivals(jobs: Sequence[Job], *, seed: int, gpus: int) -> Iterator[Job]:
    """Yield the jobs in the order of a seed, then some again, until they ask for so many GPUs."""
    dice = random.Random(seed)
    order = sorted(jobs, key=lambda job: job.key)
    dice.shuffle(order)
    asked = 0
    for number, job in enumerate([*order, *(dice.choice(order) for _ in range(len(order)))]):
        if asked >= gpus:
            return
        asked += gpus_of(job)
        key = f"{number:06}-{job.key}"
        task = Task(f"{key}-0", job.tasks[0].role, 0)
        yield replace(
            job,
            key=key,
            name=key,
            tasks=(task,),
            created_at=float(number),
            phase=GangPhase.INQUEUE,
        )


def gpus_of(job: Job) -> int:
    """Return the thousandths of GPUs that a job of one task asks for."""
    return job.roles[0].request.get(GPU, 0)


def running_of(jobs: Sequence[Job], result: Plan) -> list[Job]:
    """Return those of the jobs that run once the plan is carried out, as they run."""
    binds = {bind.job: bind for bind in result.binds}
    return [
        replace(
            job,
            tasks=(
                replace(
                    job.tasks[0], state=TaskState.RUNNING, node=bind.node, devices=bind.devices
                ),
            ),
            phase=GangPhase.RUNNING,
        )
        for job in jobs
        if (bind := binds.get(job.key)) is not None
    ]


def in_order(
    nodes: tuple[Node, ...], queue: Sequence[Job], *, at_once: int
) -> tuple[dict[int, float], float, int]:
    """Return (share allocated by level of demand, CPU seconds of planning, violations)."""
    gpus = sum(node.allocatable.get(GPU, 0) for node in nodes)
    memo, running = Memo(), list[Job]()
    queues = (Queue("default"),)
    asked = held = violations = 0
    levels: dict[int, float] = {}
    seconds = 0.0
    for cycle, number in enumerate(range(0, len(queue), at_once)):
        arrived = queue[number : number + at_once]
        snapshot = Snapshot(float(number), nodes, queues, (*running, *arrived))
        begun = time.process_time()
        result = plan(snapshot, DEFAULT_CONFIG, memo=memo)
        seconds += time.process_time() - begun
        if cycle % max(BETWEEN_CHECKS // at_once, 1) == 0:
            violations += len(check(snapshot, result))
        asked += sum(map(gpus_of, arrived))
        placed = running_of(arrived, result)
        running += placed
        held += sum(map(gpus_of, placed))
        for level in LEVELS:
            if asked * 100 >= level * gpus:
                levels.setdefault(level, 100 * held / gpus)
    return levels, seconds, violations


def all_at_once(nodes: tuple[Node, ...], queue: Sequence[Job]) -> tuple[float, float, int]:
    """Return (share allocated, CPU seconds, violations) of one cycle that sees the whole queue."""
    gpus = sum(node.allocatable.get(GPU, 0) for node in nodes)
    snapshot = Snapshot(float(len(queue)), nodes, (Queue("default"),), tuple(queue))
    begun = time.process_time()
    result = plan(snapshot, DEFAULT_CONFIG)
    seconds = time.process_time() - begun
    asks = {job.key: gpus_of(job) for job in queue}
    held = sum(asks[bind.job] for bind in result.binds)
    return 100 * held / gpus, seconds, len(check(snapshot, result))


def known_in_advance(nodes: tuple[Node, ...], queue: Sequence[Job]) -> float:
    """Return the share that best-fit decreasing allocates: as many arrivals as fit, then gaps."""
    gpus = sum(node.allocatable.get(GPU, 0) for node in nodes)
    sizes = [gpus_of(job) for job in queue]
    low, high = 0, len(sizes) + 1
    while high - low > 1:
        middle = (low + high) // 2
        cards, _ = _decreasing(sizes[:middle])
        low, high = (middle, high) if cards * WHOLE <= gpus else (low, middle)
    cards, left = _decreasing(sizes[:low])
    held = sum(sizes[:low])
    insort(left, gpus - cards * WHOLE)
    for size in sizes[low:]:
        at = bisect_left(left, size)
        if size and at < len(left):
            insort(left, left.pop(at) - size)
            held += size
    return 100 * held / gpus


def _decreasing(sizes: Sequence[int]) -> tuple[int, list[int]]:
    """Return (GPUs needed, what is left of those in parts) by best-fit decreasing."""
    cards = sum(size // WHOLE for size in sizes if size >= WHOLE)
    left: list[int] = []
    for size in sorted((size for size in sizes if 0 < size < WHOLE), reverse=True):
        at = bisect_left(left, size)
        if at == len(left):
            cards += 1
            insort(left, WHOLE - size)
        else:
            insort(left, left.pop(at) - size)
    return cards, left


def published(folder: Path, name: str) -> dict[str, float]:
    """Return what the paper's authors published for their policy on a list, by level."""
    with (folder / "fgd_published.csv").open() as file:
        for row in csv.DictReader(file):
            if (row["workload"], row["policy"], row["metric"]) == (
                f"openb_pod_list_{name}",
                "06-FGD",
                "gpu_alloc_pct",
            ):
                return {str(level): float(row[f"mean_at_{level}"]) for level in LEVELS}
    raise KeyError(f"fgd_published.csv: no row of 06-FGD for {name}")


def measure(
    folder: Path, name: str, *, seeds: range, demand: float, servers: int | None, at_once: int
) -> Iterator[dict[str, object]]:
    """Yield the rows of one list of pods."""
    with gzip.open(folder / "openb_node_list_gpu_node.csv.gz", "rt") as file:
        nodes = tuple(trace.read_openb_nodes(file))[:servers]
    with gzip.open(folder / f"openb_pod_list_{name}.csv.gz", "rt") as file:
        jobs = [arrival.job for arrival in trace.read_openb_pods(file)]
    asked = round(demand * sum(node.allocatable.get(GPU, 0) for node in nodes))
    runs = [list(arrivals(jobs, seed=seed, gpus=asked)) for seed in seeds]
    reference = published(folder, name)
    best = statistics.mean(known_in_advance(nodes, queue) for queue in runs)
    single = [in_order(nodes, queue, at_once=at_once) for queue in runs]
    by_level = {
        str(level): round(statistics.mean(levels[level] for levels, _, _ in single), 3)
        for level in LEVELS
        if all(level in levels for levels, _, _ in single)
    }
    value = statistics.mean(list(levels.values())[-1] for levels, _, _ in single)
    cycles = sum(-(-len(queue) // at_once) for queue in runs)
    way = "one by one" if at_once == 1 else f"{at_once} a cycle"
    yield {
        "benchmark": f"openb {name}, {way}: GPUs allocated, %",
        "value": round(value, 3),
        "reference": reference["130"],
        "ratio": round(value / reference["130"], 4),
        "seeds": list(seeds),
        "known_in_advance": round(best, 3),
        "by_demand": by_level,
        "reference_by_demand": reference,
        "cpu_ms_a_cycle": round(1000 * sum(s for _, s, _ in single) / cycles, 2),
        "violations": sum(v for _, _, v in single),
    }
    whole = [all_at_once(nodes, queue) for queue in runs]
    value = statistics.mean(share for share, _, _ in whole)
    yield {
        "benchmark": f"openb {name}, whole queue visible: GPUs allocated, %",
        "value": round(value, 3),
        "reference": reference["130"],
        "ratio": round(value / reference["130"], 4),
        "seeds": list(seeds),
        "cpu_seconds_a_cycle": round(statistics.mean(s for _, s, _ in whole), 2),
        "violations": sum(v for _, _, v in whole),
    }


def main() -> None:
    """Run and print one JSON object a line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--traces", type=Path)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first-seed", type=int, default=42)
    parser.add_argument("--lists", default="default", help=f"of {', '.join(LISTS)}; or all")
    parser.add_argument("--arrivals", type=int, default=1, help="between two cycles")
    parser.add_argument("--demand", type=float, default=1.3)
    parser.add_argument("--servers", type=int, help="only the first so many")
    options = parser.parse_args()
    folder = traces_folder(options.traces) / "openb"
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    names = LISTS if options.lists == "all" else options.lists.split(",")
    for name in names:
        for row in measure(
            folder,
            name,
            seeds=seeds,
            demand=options.demand,
            servers=options.servers,
            at_once=options.arrivals,
        ):
            show(row)


if __name__ == "__main__":
    main()
