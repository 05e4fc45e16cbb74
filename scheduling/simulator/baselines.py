"""FIFO, SJF, SRTF and QSSF on one pool of equal GPU servers, to hold a replay against.

Source: Hu et al., "Characterization and Prediction of Deep Learning Workloads in Large-Scale GPU
Datacenters", SC 2021, section 4.2 (QSSF) and its comparisons. Written anew from the paper: a job
takes whole servers for every 8 GPUs and the fullest server that fits for the rest; a queue is
served strictly from its head, but for SRTF, which takes whoever fits in order of what is left.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum


class Order(StrEnum):
    """Whom a pool serves first."""

    FIFO = "fifo"
    SJF = "sjf"
    """Shortest job first; it knows every run time."""
    SRTF = "srtf"
    """Shortest remaining time first: it also stops running jobs, at no cost, and goes on later."""
    QSSF = "qssf"
    """Quasi-shortest service first: GPUs times a run time foretold from the jobs before."""


@dataclass(frozen=True, slots=True)
class PoolJob:
    """A job for a pool; `kind` is what tells alike jobs of one owner (a name, a model)."""

    key: str
    arrives_at: float
    seconds: float
    gpus: int
    owner: str = ""
    kind: str = ""


_NOTHING_SECONDS = 1e-9
"""What rounding leaves of a job that is done."""


@dataclass(frozen=True, slots=True)
class Ended:
    """When a job started first and when it ended, in seconds of the trace."""

    job: PoolJob
    started_at: float
    ended_at: float


def run(jobs: Iterable[PoolJob], *, servers: int, gpus: int, order: Order) -> list[Ended]:
    """Play the jobs on `servers` machines with `gpus` each.

    Raises: ValueError for a job that is larger than the pool.
    """
    listed = sorted(jobs, key=lambda job: (job.arrives_at, job.key))
    for job in listed:
        if job.gpus > servers * gpus:
            raise ValueError(f"{job.key} asks for {job.gpus} GPUs, the pool has {servers * gpus}")
    if order is Order.SRTF:
        return _shortest_remaining(listed, servers * gpus)
    return _from_the_head(listed, servers, gpus, order)


@dataclass(slots=True)
class _Pool:
    """Free GPUs of each server."""

    free: list[int]
    size: int
    places: dict[str, list[tuple[int, int]]] = field(default_factory=dict)

    def take(self, job: PoolJob) -> bool:
        """Place a job, or say that it does not fit."""
        whole, rest = divmod(job.gpus, self.size)
        empty = [index for index, free in enumerate(self.free) if free == self.size][:whole]
        if len(empty) < whole:
            return False
        places = [(index, self.size) for index in empty]
        if rest:
            fits = [i for i, free in enumerate(self.free) if free >= rest and i not in empty]
            if not fits:
                return False
            places.append((min(fits, key=lambda index: (self.free[index], index)), rest))
        for index, count in places:
            self.free[index] -= count
        self.places[job.key] = places
        return True

    def give_back(self, job: PoolJob) -> None:
        """Free what a job held."""
        for index, count in self.places.pop(job.key):
            self.free[index] += count


def _from_the_head(jobs: list[PoolJob], servers: int, gpus: int, order: Order) -> list[Ended]:
    pool = _Pool([gpus] * servers, gpus)
    foreteller = Foreteller()
    key_of: dict[Order, Callable[[PoolJob], float]] = {
        Order.FIFO: lambda job: job.arrives_at,
        Order.SJF: lambda job: job.seconds,
        Order.QSSF: lambda job: max(job.gpus, 1) * foreteller.seconds(job),
    }
    rank = key_of[order]
    waiting: list[tuple[float, float, str, PoolJob]] = []
    running: list[tuple[float, str, PoolJob, float]] = []
    ended: list[Ended] = []
    arrivals = iter(jobs)
    coming = next(arrivals, None)
    while coming is not None or running:
        now = min(
            coming.arrives_at if coming is not None else float("inf"),
            running[0][0] if running else float("inf"),
        )
        while running and running[0][0] <= now:
            _, _, job, started = heapq.heappop(running)
            pool.give_back(job)
            foreteller.learn(job)
            ended.append(Ended(job, started, now))
        while coming is not None and coming.arrives_at <= now:
            heapq.heappush(waiting, (rank(coming), coming.arrives_at, coming.key, coming))
            coming = next(arrivals, None)
        while waiting and pool.take(waiting[0][3]):
            job = heapq.heappop(waiting)[3]
            heapq.heappush(running, (now + job.seconds, job.key, job, now))
    return ended


def _shortest_remaining(jobs: list[PoolJob], capacity: int) -> list[Ended]:
    """Count GPUs only: a job that is stopped and started at will finds its place anywhere."""
    left: dict[str, float] = {}
    known: dict[str, PoolJob] = {}
    started: dict[str, float] = {}
    running: set[str] = set()
    ended: list[Ended] = []
    arrivals: Iterator[PoolJob] = iter(jobs)
    coming = next(arrivals, None)
    now = 0.0
    while coming is not None or left:
        soonest = min((left[key] for key in running), default=float("inf"))
        arrival = coming.arrives_at - now if coming is not None else float("inf")
        passed = max(min(soonest, arrival), 0.0)
        now = coming.arrives_at if coming is not None and arrival <= soonest else now + passed
        for key in running:
            left[key] -= passed
        for key in sorted(key for key in running if left[key] <= _NOTHING_SECONDS):
            ended.append(Ended(known[key], started[key], now))
            running.discard(key)
            del left[key], known[key]
        while coming is not None and coming.arrives_at <= now:
            left[coming.key], known[coming.key] = coming.seconds, coming
            coming = next(arrivals, None)
        free, running = capacity, set()
        for key in sorted(left, key=lambda key: (left[key], key)):
            if known[key].gpus <= free:
                free -= known[key].gpus
                running.add(key)
                started.setdefault(key, now)
    return ended


@dataclass(slots=True)
class Foreteller:
    """Means of the run times of ended jobs: of the same owner and kind, of the owner, of all."""

    _sums: dict[tuple[str, ...], tuple[float, int]] = field(default_factory=dict)

    def learn(self, job: PoolJob) -> None:
        """Take in a job that has ended."""
        for key in _circles(job):
            total, count = self._sums.get(key, (0.0, 0))
            self._sums[key] = (total + job.seconds, count + 1)

    def seconds(self, job: PoolJob) -> float:
        """Return the foretold run time; 0 while nothing has ended yet."""
        for key in _circles(job):
            total, count = self._sums.get(key, (0.0, 0))
            if count:
                return total / count
        return 0.0


def _circles(job: PoolJob) -> tuple[tuple[str, ...], ...]:
    """Return whom a job is compared with, nearest first."""
    return (job.owner, job.kind, str(job.gpus)), (job.owner, job.kind), (job.owner,), ()
