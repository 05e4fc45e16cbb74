"""Calibrate forecasts of starts on Philly: how often do jobs start by the foretold times?

    python -m benchmarks.forecasts [--traces FOLDER] [--limit JOBS] [--every SECONDS] [--plays N]

The trace is played with its virtual clusters as walls, so that jobs wait. Now and then the state is
taken as a snapshot and the starts are foretold from what had started until then: run times of the
same user and GPU count, of the same GPU count, or of all. Each forecast is stretched by what
earlier ones teach that were made and came true before (`scheduling.simulator.calibration`), so each
is held out; the figures without that stand beside. Only forecasts of jobs that had waited for 60 s
count: what starts at once needs none, and would have started by any time told. Well calibrated is
half by p50 and nine in ten by p90; so that a useless wide range does not look good, the pinball
losses (seconds) and the width of the range stand beside. Jobs of one hour share their fate:
`*_error` is one standard deviation when whole hours are drawn anew (blocks of `BLOCK_SECONDS` of
the trace).
"""

from __future__ import annotations

import argparse
import gzip
import random
import statistics
import time
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from benchmarks._machine import show, traces_folder
from scheduling.engine.types import Job, Plan, Snapshot
from scheduling.simulator import trace
from scheduling.simulator.calibration import Outcome, learn
from scheduling.simulator.forecast import PLAYS, Forecast, forecast
from scheduling.simulator.history import History, Ran, gpus_of, most_of_an_owner
from scheduling.simulator.replay import Replay, Settings, World

CYCLE_SECONDS = 10.0
WAITED_SECONDS = 60.0
LESSONS = 5000
"""Jobs whose first forecast is learnt from, as `scheduling.domain.forecasts` has it."""
BLOCK_SECONDS = 1200.0
REDRAWS = 400


class Witness:
    """Foretells at times during the replay, knowing only what has ended by then."""

    def __init__(self, every: float, seconds_of: dict[str, float], plays: int) -> None:
        """Take the time between forecasts and what the trace will reveal, job by job."""
        self.every = every
        self.plays = plays
        self.next = every
        self.seconds_of = seconds_of
        self.live: dict[str, Job] = {}
        self.ran: dict[str, dict[str, Job]] = defaultdict(dict)
        """By owner the jobs that have started, in the order in which they did."""
        self.made: list[tuple[str, float, Forecast]] = []
        """Job, when it was foretold, and what, before any stretching."""
        self.stretched: list[Forecast] = []
        self.first: dict[str, tuple[float, Forecast]] = {}
        """By job its first forecast that named both times."""
        self.started: dict[str, float] = {}
        self.cpu_seconds = 0.0

    def see(self, snapshot: Snapshot, result: Plan) -> None:
        """Learn what started and ended since the last cycle; foretell if it is time."""
        now = {job.key: job for job in snapshot.jobs}
        for bind in result.binds:
            if self.started.setdefault(bind.job, snapshot.now) == snapshot.now:
                job = now[bind.job]
                self.ran[job.owner][job.key] = job
        self.live = now
        if snapshot.now < self.next:
            return
        self.next = snapshot.now + self.every
        begun = time.process_time()
        history = History(self._ran(snapshot.now))
        run_times = {
            job.key: history.run_time(_kind(job), gpus=gpus_of(job), limit=None)
            for job in snapshot.jobs
        }
        found = forecast(snapshot, run_times, plays=self.plays, cycle_seconds=CYCLE_SECONDS)
        self.cpu_seconds += time.process_time() - begun
        waited = {j.key for j in snapshot.jobs if snapshot.now - j.created_at >= WAITED_SECONDS}
        learnt = learn(self._lessons(), now=snapshot.now)
        for key, one in found.items():
            if key in waited and key not in self.started:
                self.made.append((key, snapshot.now, one))
                self.stretched.append(learnt.of(one, now=snapshot.now))
                if one.p90 is not None:
                    self.first.setdefault(key, (snapshot.now, one))

    def _ran(self, now: float) -> Iterator[Ran]:
        """Yield what has started, for how long it ran or has run by now."""
        most = most_of_an_owner(len(self.ran))
        for jobs in self.ran.values():
            for key, job in list(jobs.items())[-most:]:
                is_over = key not in self.live
                seconds = self.seconds_of[key] if is_over else now - self.started[key]
                yield Ran(_kind(job), gpus_of(job), seconds, is_over)

    def _lessons(self) -> list[Outcome]:
        """Return what became of the first forecasts of some jobs, drawn evenly from all."""
        keys = sorted(self.first, key=lambda key: zlib.crc32(key.encode()))[:LESSONS]
        return [
            Outcome(at, one.p50, one.p90, self.started.get(key))
            for key in keys
            for at, one in [self.first[key]]
        ]


def _kind(job: Job) -> tuple[str, int]:
    return job.owner, gpus_of(job)


def main() -> None:
    """Replay, compare, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--traces", type=Path)
    parser.add_argument("--limit", type=int)
    parser.add_argument("--every", type=float, default=600.0)
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
    gpus = {a.job.key: gpus_of(a.job) // 1000 for a in arrivals}
    queue = {a.job.key: a.job.queue for a in arrivals}
    told = [
        Told(at, started[key], gpus[key], queue[key], raw, found)
        for (key, at, raw), found in zip(witness.made, witness.stretched, strict=True)
        if key in started and raw.p90 is not None
    ]
    stretched = _figures([(one.at, one.start, one.stretched) for one in told])
    show(
        {
            "benchmark": "forecasts on Philly, walls: share of starts by p50 (wanted 0.5)",
            "value": stretched["by_p50"],
            "reference": 0.5,
            "ratio": round((stretched["by_p50"] or 0) / 0.5, 3),
            "wanted_by_p90": 0.9,
            **stretched,
            "as_played": _figures([(one.at, one.start, one.played) for one in told]),
            "by_gpus": {
                count: _figures([(o.at, o.start, o.stretched) for o in told if o.gpus == count])
                for count in sorted({one.gpus for one in told})
            },
            "by_queue": {
                name: _figures([(o.at, o.start, o.stretched) for o in told if o.queue == name])
                for name in sorted({one.queue for one in told})
            },
            "forecasts": len(witness.made),
            "with_a_time": len(told),
            "instants": len({one.at for one in told}),
            "jobs": len({key for key, _, one in witness.made if one.p90 is not None}),
            "cpu_seconds": round(witness.cpu_seconds, 1),
        }
    )


@dataclass(frozen=True, slots=True)
class Told:
    """A forecast of a job with both times, and what came true."""

    at: float
    start: float
    gpus: int
    queue: str
    played: Forecast
    stretched: Forecast


def _figures(told: Sequence[tuple[float, float, Forecast]]) -> dict[str, float | None]:
    """Return shares, losses and widths of forecasts: when made, when it started, what was told."""
    rows = [
        (at, start - at, one.p50 - at, one.p90 - at)
        for at, start, one in told
        if one.p50 is not None and one.p90 is not None
    ]
    if not rows:
        return {"by_p50": None}
    by_p50, by_p90 = ([(at, wait <= (p50, p90)[i]) for at, wait, p50, p90 in rows] for i in (0, 1))
    return {
        "count": len(rows),
        "by_p50": round(statistics.fmean(hit for _, hit in by_p50), 3),
        "by_p50_error": _error(by_p50),
        "by_p90": round(statistics.fmean(hit for _, hit in by_p90), 3),
        "by_p90_error": _error(by_p90),
        "pinball_p50": round(statistics.fmean(_pinball(0.5, w, p50) for _, w, p50, _ in rows), 1),
        "pinball_p90": round(statistics.fmean(_pinball(0.9, w, p90) for _, w, _, p90 in rows), 1),
        "median_width_by_wait": _median((p90 - p50, wait) for _, wait, p50, p90 in rows),
        "median_error_by_wait": _median((abs(wait - p50), wait) for _, wait, p50, _ in rows),
    }


def _pinball(share: float, wait: float, told: float) -> float:
    """Return the loss that the true quantile makes least (Koenker and Bassett, 1978)."""
    return share * (wait - told) if wait >= told else (1 - share) * (told - wait)


def _median(parts: Iterable[tuple[float, float]]) -> float:
    """Return the median of amounts as a share of the wait."""
    return round(statistics.median(part / max(wait, CYCLE_SECONDS) for part, wait in parts), 3)


def _error(hits: Sequence[tuple[float, bool]]) -> float:
    """Return the standard deviation of a share when whole blocks of time are drawn anew."""
    blocks: dict[int, list[bool]] = defaultdict(list)
    for at, hit in hits:
        blocks[int(at // BLOCK_SECONDS)].append(hit)
    sums = [(sum(block), len(block)) for block in blocks.values()]
    draw = random.Random(0)
    shares = []
    for _ in range(REDRAWS):
        drawn = draw.choices(sums, k=len(sums))
        shares.append(sum(hit for hit, _ in drawn) / sum(count for _, count in drawn))
    return round(statistics.pstdev(shares), 3)


if __name__ == "__main__":
    main()
