"""Calibrate forecasts of starts on Philly: how often do jobs start by the foretold times?

    python -m benchmarks.forecasts [--traces FOLDER] [--limit JOBS] [--every SECONDS] [--plays N]

The trace is played with its virtual clusters as walls, so that jobs wait. Now and then the state is
taken as a snapshot and the starts are foretold from what had ended until then: run times of the
same user and GPU count, or of all. Each forecast is stretched by what earlier ones teach that were
made and came true before (`scheduling.simulator.calibration`); the figures without that stand
beside. Only forecasts of jobs that had waited for 60 s count: what
starts at once needs none. Well calibrated is half by p50 and nine in ten by p90.
"""

from __future__ import annotations

import argparse
import gzip
import statistics
import time
from collections import defaultdict
from itertools import islice
from pathlib import Path
from typing import Literal

from benchmarks._machine import show, traces_folder
from scheduling.engine.types import GPU, Job, Plan, Snapshot
from scheduling.simulator import trace
from scheduling.simulator.calibration import Outcome, learn
from scheduling.simulator.forecast import PLAYS, Basis, Forecast, RunTime, forecast
from scheduling.simulator.replay import Replay, Settings, World

CYCLE_SECONDS = 10.0
WAITED_SECONDS = 60.0
OUTCOMES = 300
"""The newest forecasts that are learnt from."""


class Witness:
    """Foretells at times during the replay, knowing only what has ended by then."""

    def __init__(self, every: float, seconds_of: dict[str, float], plays: int) -> None:
        """Take the time between forecasts and what the trace will reveal, job by job."""
        self.every = every
        self.plays = plays
        self.next = every
        self.seconds_of = seconds_of
        self.live: dict[str, Job] = {}
        self.ended: dict[tuple[str, int], list[float]] = defaultdict(list)
        self.all: list[float] = []
        self.made: list[tuple[str, float, Forecast]] = []
        """Job, when it was foretold, and what, before any stretching."""
        self.stretched: list[Forecast] = []
        self.started: dict[str, float] = {}
        self.cpu_seconds = 0.0

    def see(self, snapshot: Snapshot, result: Plan) -> None:
        """Learn what started and ended since the last cycle; foretell if it is time."""
        for bind in result.binds:
            self.started.setdefault(bind.job, snapshot.now)
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
        found = forecast(snapshot, run_times, plays=self.plays, cycle_seconds=CYCLE_SECONDS)
        self.cpu_seconds += time.process_time() - begun
        waited = {j.key for j in snapshot.jobs if snapshot.now - j.created_at >= WAITED_SECONDS}
        learnt = learn(
            (
                Outcome(at, one.p50, one.p90, self.started.get(key))
                for key, at, one in self.made[-OUTCOMES:]
            ),
            now=snapshot.now,
        )
        for key, one in found.items():
            if key in waited and key not in self.started:
                self.made.append((key, snapshot.now, one))
                self.stretched.append(learnt.of(one, now=snapshot.now))


def _kind(job: Job) -> tuple[str, int]:
    return job.owner, sum(role.request.get(GPU, 0) * role.replicas for role in job.roles)


def main() -> None:
    """Replay, compare, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--traces", type=Path)
    parser.add_argument("--limit", type=int)
    parser.add_argument("--every", type=float, default=1200.0)
    parser.add_argument("--plays", type=int, default=PLAYS)
    options = parser.parse_args()
    folder = traces_folder(options.traces) / "philly"
    with (folder / "philly_vc_nodes.csv").open() as file:
        nodes, queues = trace.read_philly_clusters(file)
    with gzip.open(folder / "chronus_philly_SLO.csv.gz", "rt") as file:
        arrivals = list(islice(trace.read_philly(file), options.limit))
    witness = Witness(options.every, {a.job.key: a.seconds for a in arrivals}, options.plays)
    day = Replay(
        World(tuple(nodes), tuple(trace.walled(queues))),
        arrivals,
        settings=Settings(cycle_seconds=CYCLE_SECONDS),
        check=witness.see,
    ).run()
    started = {r.job.key: r.started_at for r in day.records if r.started_at is not None}
    made = [
        (key, at, raw, found)
        for (key, at, raw), found in zip(witness.made, witness.stretched, strict=True)
    ]
    told = [one for one in made if one[0] in started]
    stretched = [(started[key], at, found) for key, at, _, found in told]
    raw = [(started[key], at, one) for key, at, one, _ in told]
    by_p50 = _share(stretched, "p50")
    show(
        {
            "benchmark": "forecasts on Philly, walls: share of starts by p50 (wanted 0.5)",
            "value": by_p50,
            "reference": 0.5,
            "ratio": round((by_p50 or 0) / 0.5, 3),
            "by_p90": _share(stretched, "p90"),
            "wanted_by_p90": 0.9,
            "as_played": {"by_p50": _share(raw, "p50"), "by_p90": _share(raw, "p90")},
            "forecasts": len(witness.made),
            "with_a_time": sum(found.p90 is not None for _, _, found in stretched),
            "jobs": len({key for key, *_ in told}),
            "median_error_of_the_wait": _median_error(stretched),
            "median_error_as_played": _median_error(raw),
            "cpu_seconds": round(witness.cpu_seconds, 1),
        }
    )


Told = tuple[float, float, Forecast]
"""When the job started, when that was foretold, and what was."""


def _share(told: list[Told], level: Literal["p50", "p90"]) -> float | None:
    """Return how many of those with both times started by one of them."""
    both = [(start, one) for start, _, one in told if one.p50 is not None and one.p90 is not None]
    by = sum(start <= (getattr(one, level) or 0.0) for start, one in both)
    return round(by / len(both), 3) if both else None


def _median_error(told: list[Told]) -> float | None:
    """Return the median of the error of p50 as a share of the wait."""
    errors = [
        abs(start - one.p50) / max(start - at, CYCLE_SECONDS)
        for start, at, one in told
        if one.p50 is not None and one.p90 is not None
    ]
    return round(statistics.median(errors), 3) if errors else None


if __name__ == "__main__":
    main()
