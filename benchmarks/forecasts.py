"""Calibrate forecasts of starts on Philly: how often do jobs start by the foretold times?

    python -m benchmarks.forecasts [--traces FOLDER] [--limit JOBS] [--every SECONDS]

The trace is played with its virtual clusters as walls, so that jobs wait. Now and then the state is
taken as a snapshot and the starts are foretold from what had ended until then: run times of the
same user and GPU count, or of all. Only forecasts of jobs that had waited for 60 s count: what
starts at once needs none. Well calibrated is half by p50 and nine in ten by p90.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import sys
import time
from collections import defaultdict
from itertools import islice
from pathlib import Path

from scheduling.engine.types import GPU, Job, Plan, Snapshot
from scheduling.simulator import trace
from scheduling.simulator.forecast import Basis, Forecast, RunTime, forecast
from scheduling.simulator.replay import Replay, Settings, World

CYCLE_SECONDS = 10.0
WAITED_SECONDS = 60.0


class Witness:
    """Foretells at times during the replay, knowing only what has ended by then."""

    def __init__(self, every: float, seconds_of: dict[str, float]) -> None:
        """Take the time between forecasts and what the trace will reveal, job by job."""
        self.every = every
        self.next = every
        self.seconds_of = seconds_of
        self.live: dict[str, Job] = {}
        self.ended: dict[tuple[str, int], list[float]] = defaultdict(list)
        self.all: list[float] = []
        self.made: list[tuple[str, float, Forecast]] = []
        self.cpu_seconds = 0.0

    def see(self, snapshot: Snapshot, _plan: Plan) -> None:
        """Learn what ended since the last cycle; foretell if it is time."""
        now = {job.key: job for job in snapshot.jobs}
        for key in self.live.keys() - now.keys():
            job, seconds = self.live[key], self.seconds_of[key]
            self.ended[_kind(job)].append(seconds)
            self.all.append(seconds)
        self.live = now
        if snapshot.now < self.next:
            return
        self.next = snapshot.now + self.every
        begun = time.process_time()
        everything = tuple(sorted(self.all[-500:]))
        run_times = {
            job.key: RunTime(tuple(sorted(alike)), Basis.HISTORY)
            if len(alike := self.ended[_kind(job)][-100:]) >= 3
            else RunTime(everything, Basis.OTHERS)
            for job in snapshot.jobs
        }
        found = forecast(snapshot, run_times, most_cycles=100)
        self.cpu_seconds += time.process_time() - begun
        waited = {j.key for j in snapshot.jobs if snapshot.now - j.created_at >= WAITED_SECONDS}
        self.made += [(key, snapshot.now, one) for key, one in found.items() if key in waited]


def _kind(job: Job) -> tuple[str, int]:
    return job.owner, sum(role.request.get(GPU, 0) * role.replicas for role in job.roles)


def main() -> None:
    """Replay, compare, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--traces", type=Path, default=os.environ.get("TERRACE_TRACES"))
    parser.add_argument("--limit", type=int)
    parser.add_argument("--every", type=float, default=1200.0)
    options = parser.parse_args()
    if options.traces is None:
        sys.exit("Say where the traces lie: --traces FOLDER or TERRACE_TRACES.")
    folder = Path(options.traces) / "philly"
    with (folder / "philly_vc_nodes.csv").open() as file:
        nodes, queues = trace.read_philly_clusters(file)
    with gzip.open(folder / "chronus_philly_SLO.csv.gz", "rt") as file:
        arrivals = list(islice(trace.read_philly(file), options.limit))
    witness = Witness(options.every, {a.job.key: a.seconds for a in arrivals})
    day = Replay(
        World(tuple(nodes), tuple(trace.walled(queues))),
        arrivals,
        settings=Settings(cycle_seconds=CYCLE_SECONDS),
        check=witness.see,
    ).run()
    started = {r.job.key: r.started_at for r in day.records if r.started_at is not None}
    told = [(started[key], at, one) for key, at, one in witness.made if one.p90 is not None]
    errors = sorted(
        abs(begin - one.p50) / max(begin - at, CYCLE_SECONDS)
        for begin, at, one in told
        if one.p50 is not None
    )
    result = {
        "benchmark": "forecasts",
        "trace": "philly, walls",
        "forecasts": len(witness.made),
        "with_a_time": len(told),
        "started_by_p50": _share(
            sum(one.p50 is not None and s <= one.p50 for s, _, one in told), told
        ),
        "started_by_p90": _share(
            sum(one.p90 is not None and s <= one.p90 for s, _, one in told), told
        ),
        "reference": {"p50": 0.5, "p90": 0.9},
        "median_error_of_the_wait": round(errors[len(errors) // 2], 3) if errors else None,
        "cpu_seconds": round(witness.cpu_seconds, 1),
    }
    json.dump(result, sys.stdout, indent=1)
    sys.stdout.write("\n")


def _share(count: int, of: list[tuple[float, float, Forecast]]) -> float | None:
    return round(count / len(of), 3) if of else None


if __name__ == "__main__":
    main()
