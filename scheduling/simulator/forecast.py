"""When will what waits start: the days that may come, played several times.

1. Each job's run time is unknown, but how long like jobs last is (`history`). Each play takes
   another part of it, so that over all plays every job has been short, middling and long once.
2. A running job has already survived so long: only longer times can come true.
3. Each play goes on from the snapshot under the same configuration, without new arrivals.
4. The start times of a waiting job over the plays give its p50 and p90.

New jobs that will overtake, and failures, are not foretold: that is why what came true is kept
beside each forecast, and its error is shown.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from scheduling.engine.config import DEFAULT_CONFIG
from scheduling.engine.types import Config, Job, Snapshot, TaskState
from scheduling.simulator.replay import Replay, Settings, World
from scheduling.simulator.survival import Survival

PLAYS = 11
"""A prime, so that any step but 0 visits every quantile once."""
HORIZON_SECONDS = 7 * 86_400.0
FEWER_PLAYS = (PLAYS, 7, 5, 3)
"""Primes too, for who cannot afford as many."""


class Basis(StrEnum):
    """Where the run times of a forecast come from."""

    HISTORY = "history"
    """Jobs of the same owner and image."""
    LIMIT = "limit"
    """Its own time limit."""
    SIZE = "size"
    """Jobs on this cluster that ask for as many GPUs."""
    OTHERS = "others"
    """Whatever has run on this cluster."""
    UNKNOWN = "unknown"
    """Nothing is known: it is taken to run on without end."""


@dataclass(frozen=True, slots=True)
class RunTime:
    """What is known of how long a job runs in all."""

    lasts: Survival = field(default_factory=Survival)
    basis: Basis = Basis.UNKNOWN


@dataclass(frozen=True, slots=True)
class Forecast:
    """When a waiting job starts, as seconds since the epoch; None: not within the horizon."""

    p50: float | None
    p90: float | None
    plays: int
    is_cut: bool
    """Some play ended before the job had started, at the horizon or at the limit of cycles."""


def forecast(
    snapshot: Snapshot,
    run_times: Mapping[str, RunTime],
    *,
    config: Config = DEFAULT_CONFIG,
    plays: int = PLAYS,
    most_cycles: int = 400,
    cycle_seconds: float = 1.0,
) -> dict[str, Forecast]:
    """Return a forecast for every job that waits as a whole.

    `run_times`: job key -> its run time; a job that is not named runs on without end. Cost: at
    most `plays` x `most_cycles` engine cycles; where more ends than that, ends are gathered.
    """
    waiting = [job for job in snapshot.jobs if job.is_runnable and _waits_whole(job)]
    starts: dict[str, list[float]] = {job.key: [] for job in waiting}
    if not waiting:
        return {}
    settings = Settings(
        cycle_seconds=cycle_seconds,
        until=snapshot.now + HORIZON_SECONDS,
        most_cycles=most_cycles,
        start=snapshot.now,
        is_gathering=True,
        awaited=frozenset(starts),
    )
    for play in range(plays):
        for key, at in _play(snapshot, _left(snapshot, run_times, play, plays), config, settings):
            if key in starts:
                starts[key].append(at)
    return {key: _summary(found, plays) for key, found in starts.items()}


def _left(
    snapshot: Snapshot, run_times: Mapping[str, RunTime], play: int, plays: int
) -> dict[str, float]:
    """Return by job for how many seconds it goes on in a play."""
    return {
        job.key: remaining(
            run_times.get(job.key, RunTime()),
            elapsed=_elapsed(job, snapshot.now),
            limit=job.time_limit_seconds,
            quantile=quantile_of(job.key, play, plays),
        )
        for job in snapshot.jobs
    }


def _play(
    snapshot: Snapshot, left: Mapping[str, float], config: Config, settings: Settings
) -> list[tuple[str, float]]:
    """Go on from the snapshot; return who started when."""
    replay = Replay(
        World(snapshot.nodes, snapshot.queues, snapshot.hypernodes),
        (),
        config=config,
        settings=settings,
        like=snapshot,
    )
    replay.resume(snapshot, left)
    day = replay.run()
    return [(r.job.key, r.started_at) for r in day.records if r.started_at is not None]


def quantile_of(key: str, play: int, plays: int) -> float:
    """Return the quantile that a job takes in a play: over all plays one of each equal part.

    Neighbours take theirs in different orders: not all jobs are short in the same play. Where in
    its part a quantile lies is as good as random: were it always the middle, none of a thousand
    jobs would ever be among the longest twentieth, which holds most of what long ones take.
    """
    seed = zlib.crc32(key.encode())
    stride = 1 + seed % (plays - 1) if plays > 1 else 1
    within = (zlib.crc32(f"{key}/{play}".encode()) + 0.5) / 2**32
    return ((seed // plays + play * stride) % plays + within) / plays


def remaining(run_time: RunTime, *, elapsed: float, limit: float | None, quantile: float) -> float:
    """Return how many seconds a job goes on, at a quantile of what like jobs took.

    A job that outlives all that is known is given as long again: of things whose age is all that is
    known, that is the best guess (Gott, Nature 363, 1993).
    """
    end = run_time.lasts.quantile(quantile, beyond=elapsed)
    if end is None and run_time.basis is not Basis.UNKNOWN:
        end = 2 * max(run_time.lasts.longest, elapsed, 0.5)
    left = math.inf if end is None else end - elapsed
    return left if limit is None else max(min(left, limit - elapsed), 0.0)


def _elapsed(job: Job, now: float) -> float:
    started = [
        t.started_at
        for t in job.tasks
        if t.started_at is not None and t.state in (TaskState.RUNNING, TaskState.BOUND)
    ]
    return max(now - min(started), 0.0) if started else 0.0


def _waits_whole(job: Job) -> bool:
    return all(task.state is TaskState.PENDING for task in job.tasks) and bool(job.tasks)


def _summary(starts: Sequence[float], plays: int) -> Forecast:
    """Return p50 and p90 by nearest rank; a play in which it did not start counts as never."""
    ordered = [*sorted(starts), *([math.inf] * (plays - len(starts)))]
    p50 = ordered[math.ceil(0.5 * plays) - 1]
    p90 = ordered[math.ceil(0.9 * plays) - 1]
    return Forecast(
        p50 if p50 < math.inf else None,
        p90 if p90 < math.inf else None,
        plays,
        is_cut=len(starts) < plays,
    )
