"""Replay Philly's trace: FIFO, SJF, SRTF, QSSF beside Terrace on the same jobs and servers.

    python -m benchmarks.traces [--traces FOLDER] [--limit JOBS] [--cycle SECONDS]

FOLDER (or TERRACE_TRACES) has a folder `philly` with the published files of jobs and clusters.
The four orders serve each virtual cluster alone, strictly, as their paper compares them; SJF and
SRTF know every run time in advance, QSSF foretells it, Terrace knows nothing of it. Terrace runs
twice: with the virtual clusters as walls (nothing lent), and as queues with their size as min.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import time
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from benchmarks._machine import show, traces_folder
from scheduling.simulator import baselines, trace
from scheduling.simulator.baselines import Order, PoolJob
from scheduling.simulator.replay import Settings, World, replay
from scheduling.simulator.report import report, spread

GPUS = trace.GPUS_OF_A_NODE


def pools(folder: Path, limit: int | None) -> list[tuple[int, list[PoolJob]]]:
    """Return servers and jobs of each virtual cluster."""
    jobs: dict[str, list[PoolJob]] = {}
    with gzip.open(folder / "chronus_philly_SLO.csv.gz", "rt") as file:
        for row in islice(csv.DictReader(file), limit):
            jobs.setdefault(row["user"], []).append(
                PoolJob(
                    row["job_id"],
                    float(row["submit_time"]),
                    float(row["duration"]),
                    int(row["num_gpu"]),
                    row["user"],
                    row["model_name"],
                )
            )
    with (folder / "philly_vc_nodes.csv").open() as file:
        return [
            (int(row["node num"]), jobs.get(f"vc_{row['vc']}", [])) for row in csv.DictReader(file)
        ]


def baseline(order: Order, clusters: Sequence[tuple[int, list[PoolJob]]]) -> dict[str, object]:
    """Return the completion times of one order over all virtual clusters."""
    begun = time.process_time()
    ended = [
        one
        for servers, jobs in clusters
        for one in baselines.run(jobs, servers=servers, gpus=GPUS, order=order)
    ]
    return {
        "name": order.value,
        "jobs": len(ended),
        **_figures(
            [e.ended_at - e.job.arrives_at for e in ended],
            [e.started_at - e.job.arrives_at for e in ended],
        ),
        "cpu_seconds": round(time.process_time() - begun, 1),
    }


def terrace(folder: Path, *, limit: int | None, cycle: float, walls: bool) -> dict[str, object]:
    """Return the completion times of Terrace's default configuration on one cluster."""
    with (folder / "philly_vc_nodes.csv").open() as file:
        nodes, queues = trace.read_philly_clusters(file)
    with gzip.open(folder / "chronus_philly_SLO.csv.gz", "rt") as file:
        arrivals = list(islice(trace.read_philly(file), limit))
    world = World(tuple(nodes), tuple(trace.walled(queues) if walls else queues))
    begun = time.process_time()
    day = replay(world, arrivals, settings=Settings(cycle_seconds=cycle))
    summary = report(day)
    return {
        "name": "terrace, walls" if walls else "terrace, min and lending",
        "jobs": summary.ended,
        **_figures(
            [r.ended_at - r.job.created_at for r in day.records if r.ended_at is not None],
            [r.started_at - r.job.created_at for r in day.records if r.started_at is not None],
        ),
        "evictions": summary.evictions,
        "cycles": summary.cycles,
        "cpu_seconds": round(time.process_time() - begun, 1),
    }


def _figures(completions: list[float], waits: list[float]) -> dict[str, object]:
    completion, wait = spread(completions), spread(waits)
    return {
        "jct_mean_s": round(completion.mean or 0, 1),
        "jct_p95_s": round(completion.p95 or 0, 1),
        "wait_mean_s": round(wait.mean or 0, 1),
        "wait_p95_s": round(wait.p95 or 0, 1),
    }


def main() -> None:
    """Run all and print one JSON object a line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--traces", type=Path)
    parser.add_argument("--limit", type=int)
    parser.add_argument("--cycle", type=float, default=10.0)
    options = parser.parse_args()
    folder = traces_folder(options.traces) / "philly"
    clusters = pools(folder, options.limit)
    rows = {order: baseline(order, clusters) for order in Order}
    reference = float(str(rows[Order.QSSF]["jct_mean_s"]))
    for row in rows.values():
        _show(row, reference)
    for walls in (True, False):
        _show(terrace(folder, limit=options.limit, cycle=options.cycle, walls=walls), reference)


def _show(row: dict[str, object], reference: float) -> None:
    """Print a row beside what QSSF, the best order that knows no run times, gets on these jobs."""
    value = float(str(row["jct_mean_s"]))
    ratio = round(value / reference, 3) if reference else None
    more = {"value": value, "reference": reference or None, "ratio": ratio}
    show({"benchmark": f"Philly, mean JCT in seconds: {row.pop('name')}", **more, **row})


if __name__ == "__main__":
    main()
