"""Submits the jobs of a trace through the public API as they came, and measures what follows."""

from __future__ import annotations

import json
import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from fractions import Fraction
from typing import Any

import httpx

from controlplane.client.rest import RefusedError, RestClient, UnreachableError
from controlplane.demo.fair import Claim, divide
from controlplane.demo.organisation import researchers
from controlplane.demo.traces import VirtualCluster
from scheduling.engine.types import CPU, GPU, MEMORY
from scheduling.simulator.replay import Arrival

SUBMITTERS = 8
TRIES = 12
"""How often a request is sent while nobody answers: long enough for a web process to come back."""
SAMPLE_SECONDS = 0.5
MOST_WAITING = 2_000
POLL_SECONDS = 1.0
MOST_IN_A_BATCH = 10_000
SHORTEST_SECONDS = 10.0
"""What the bounded slowdown takes for the run time of shorter jobs, in the trace's time."""
FINISHED = frozenset({"Completed", "Failed", "Cancelled"})
NODE_LABEL = "demo"

Json = dict[str, Any]


def connect(url: str, token: str) -> RestClient:
    """Return a client that goes straight there: a proxy in the environment is not for this."""
    return RestClient(url, token, tries=TRIES, transport=httpx.HTTPTransport())


def gpus_of(arrival: Arrival) -> int:
    """Return how many GPUs a job of the trace asks for, all its tasks together."""
    return sum(role.replicas * role.request.get(GPU, 0) for role in arrival.job.roles) // 1000


@dataclass(frozen=True, slots=True)
class Submission:
    """A job that was acknowledged."""

    job_id: str
    trace_seconds: float
    late_seconds: float


@dataclass(slots=True)
class Replayer:
    """A trace, and the people who submit it."""

    url: str
    tokens: Mapping[str, str]
    clusters: Sequence[VirtualCluster]
    speed: float
    _clients: dict[str, RestClient] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Connect everybody at once, so that no two threads do it."""
        names = [name for one in self.clusters for name in researchers(one)]
        self._clients = {name: connect(self.url, self.tokens[name]) for name in names}

    def play(self, run: str, arrivals: Sequence[Arrival], *, at_once: bool) -> list[Submission]:
        """Submit each job when its time has come, or all without a pause."""
        begun, first = time.monotonic(), arrivals[0].job.created_at

        def submit(place: int) -> Submission:
            arrival = arrivals[place]
            after = 0.0 if at_once else (arrival.job.created_at - first) / self.speed
            pause = begun + after - time.monotonic()
            if pause > 0:
                time.sleep(pause)
            name = arrival.job.queue.removeprefix("vc_")
            people = researchers(VirtualCluster(name, 1))
            client = self._clients[people[place % len(people)]]
            job = client.post("jobs", self._document(run, arrival, name))
            late = time.monotonic() - begun - after
            return Submission(str(job["id"]), arrival.seconds, late)

        with ThreadPoolExecutor(SUBMITTERS) as pool:
            return list(pool.map(submit, range(len(arrivals))))

    def _document(self, run: str, arrival: Arrival, cluster: str) -> Json:
        (role,) = arrival.job.roles
        return {
            "name": f"{run}-{arrival.job.name}",
            "queue": VirtualCluster(cluster, 1).queue,
            "annotations": {"terrace.io/simulate-seconds": f"{arrival.seconds / self.speed:.3f}"},
            "policies": [{"event": "PodEvicted", "action": "RestartJob"}],
            "roles": [
                {
                    "name": role.name,
                    "replicas": role.replicas,
                    "command": ["train"],
                    "cpu_milli": role.request[CPU],
                    "memory_bytes": role.request[MEMORY],
                    "gpu_milli": role.request.get(GPU, 0),
                    "node_selector": {NODE_LABEL: "yes"},
                }
            ],
        }


@dataclass(frozen=True, slots=True)
class Share:
    """A leaf of the tree at one cycle: what it holds and what is due to it, in GPUs."""

    queue: str
    requested: Fraction
    allocated: Fraction
    deserved: Fraction
    exact: Fraction
    waiting: tuple[tuple[Fraction, int], ...] = ()
    """(GPUs, tasks) of its jobs that waited, the smallest first; a job starts as a whole."""

    @property
    def owed_tasks(self) -> int:
        """Return how many of its waiting tasks what is due to it would still have held."""
        left, tasks = self.exact - self.allocated, 0
        for gpus, count in self.waiting:
            if gpus > left:
                break
            left -= gpus
            tasks += count
        return tasks


@dataclass(frozen=True, slots=True)
class Cycle:
    """What one cycle left, while more was asked for than there is."""

    at: str
    shares: tuple[Share, ...]

    def with_waiting(self, jobs: Sequence[Json]) -> Cycle:
        """Return it with the jobs that had come before it and had not begun when it was over."""
        at = datetime.fromisoformat(self.at)
        found: dict[str, list[tuple[Fraction, int]]] = {}
        for job in jobs:
            tasks = job["tasks"]
            is_early = datetime.fromisoformat(job["created_at"]) < at
            if is_early and job["gpu_milli"] and tasks["pending"] == tasks["total"]:
                size = (Fraction(job["gpu_milli"], 1000), tasks["total"])
                found.setdefault(job["queue"], []).append(size)
        return replace(
            self,
            shares=tuple(
                replace(one, waiting=tuple(sorted(found.get(one.queue, ())))) for one in self.shares
            ),
        )


class Sampler:
    """Reads the queues again and again, and keeps each cycle at which some were backlogged."""

    def __init__(self, client: RestClient, capacity: int) -> None:
        """`capacity`: thousandths of a GPU that the nodes have."""
        self._client = client
        self._capacity = capacity
        self.cycles: list[Cycle] = []
        self.missed = 0
        self._seen: set[str] = set()
        self._end = threading.Event()

    @contextmanager
    def running(self) -> Iterator[None]:
        """Sample in a thread of its own until this is left."""
        thread = threading.Thread(target=self._run, name="sampler")
        thread.start()
        try:
            yield
        finally:
            self._end.set()
            thread.join()

    def _run(self) -> None:
        while not self._end.wait(SAMPLE_SECONDS):
            try:
                cycle = cycle_of(self._client.get("queues")["items"], self._capacity)
                if cycle is None or cycle.at in self._seen:
                    continue
                jobs = list(self._client.items("jobs", most=MOST_WAITING, tab="waiting"))
            except (RefusedError, UnreachableError):
                self.missed += 1  # said in the report
                continue
            self._seen.add(cycle.at)
            self.cycles.append(cycle.with_waiting(jobs))


def cycle_of(rows: Sequence[Mapping[str, Any]], capacity: int) -> Cycle | None:
    """Hold the queues' shares against the exact ones; None unless more is asked for than is."""
    root = next(row for row in rows if row["parent_id"] is None)
    names = {row["id"]: row["name"] for row in rows}
    if (root["requested"] or {}).get(GPU, 0) <= capacity:
        return None
    parts = [row for row in rows if row is not root]
    exact = divide(
        capacity,
        [
            Claim(
                row["name"],
                None if row["parent_id"] == root["id"] else names[row["parent_id"]],
                row["weight"],
                (row["requested"] or {}).get(GPU, 0),
                row["min"].get(GPU, 0),
                row["max"].get(GPU),
            )
            for row in parts
        ],
    )
    return Cycle(
        max(row["share_at"] for row in rows if row["share_at"]),
        tuple(
            Share(
                row["name"],
                requested=_gpus(row, "requested"),
                allocated=_gpus(row, "allocated"),
                deserved=_gpus(row, "deserved"),
                exact=exact[row["name"]] / 1000,
            )
            for row in parts
            if row["is_leaf"]
        ),
    )


def _gpus(row: Mapping[str, Any], what: str) -> Fraction:
    return Fraction((row[what] or {}).get(GPU, 0), 1000)


def wait_until_finished(client: RestClient, run: str, count: int, seconds: float) -> list[Json]:
    """Return the run's jobs when all have ended, or as they are when the time is over."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        live = [
            job
            for tab in ("waiting", "running", "suspended")
            for job in client.get("jobs", tab=tab, text=run, limit=1)["items"]
        ]
        if not live:
            break
        time.sleep(POLL_SECONDS)
    return list(client.items("jobs", most=count, text=run))


def cancel(client: RestClient, submitted: Sequence[Submission]) -> None:
    """Cancel what was submitted, in as few requests as possible."""
    ids = [one.job_id for one in submitted]
    for start in range(0, len(ids), MOST_IN_A_BATCH):
        batch = {"action": "cancel", "ids": ids[start : start + MOST_IN_A_BATCH]}
        client.post("/jobs:batch", batch)  # without the slash "jobs" would be a scheme


def waits(jobs: Sequence[Json], submitted: Sequence[Submission], speed: float) -> Json:
    """Return waits and bounded slowdown of all jobs and by queue; seconds of this day's clock."""
    known = {one.job_id: one for one in submitted}
    by_queue: dict[str, list[Json]] = {}
    for job in jobs:
        if job["id"] in known:
            by_queue.setdefault(job["queue"], []).append(job)
    everything = [job for part in by_queue.values() for job in part]
    return {
        "all": _figures(everything, known, speed),
        "queues": {name: _figures(part, known, speed) for name, part in sorted(by_queue.items())},
    }


def _figures(jobs: Sequence[Json], known: Mapping[str, Submission], speed: float) -> Json:
    started = [_between(job, "created_at", "started_at") for job in jobs if job["started_at"]]
    ended = [job for job in jobs if job["phase"] == "Completed"]
    slowdowns = [
        _between(job, "created_at", "finished_at")
        / (max(known[job["id"]].trace_seconds, SHORTEST_SECONDS) / speed)
        for job in ended
    ]
    return {
        "jobs": len(jobs),
        "completed": len(ended),
        "unfinished": sum(job["phase"] not in FINISHED for job in jobs),
        "wait_p50_s": percentile(started, 50),
        "wait_p95_s": percentile(started, 95),
        "slowdown_mean": round(sum(slowdowns) / len(slowdowns), 2) if slowdowns else None,
    }


def fairness(cycles: Sequence[Cycle], write: Callable[[str], object]) -> Json:
    """Return how far the backlogged queues were from the exact division; `write` gets each cycle.

    Three distances: in waiting tasks that would have had room in what was due to their queue and
    not held by it, where a job of several starts as a whole; in GPUs *held*, which cannot be nearer
    than such a job is large; in GPUs that the scheduler computed as *deserved*, which ought to be
    the same to the rounding.
    """
    held: list[tuple[Fraction, str, Share]] = []
    deserved: list[Fraction] = []
    for cycle in cycles:
        shares = {one.queue: _plain(one) for one in cycle.shares if one.requested}
        write(json.dumps({"at": cycle.at, "gpus": shares}) + "\n")
        backlogged = [one for one in cycle.shares if one.requested > one.allocated]
        held += [(abs(one.allocated - one.exact), cycle.at, one) for one in backlogged]
        deserved += [abs(one.deserved - one.exact) for one in backlogged]
    owed = sorted(
        ((one.owed_tasks, at, one) for _, at, one in held), key=lambda one: one[0], reverse=True
    )
    furthest = float(max(held, key=lambda one: one[0])[0]) if held else None
    return {
        "cycles": len(cycles),
        "backlogged_queues_seen": len(held),
        "worst_difference_tasks": owed[0][0] if owed else None,
        "worst": {"at": owed[0][1], "queue": owed[0][2].queue, **_plain(owed[0][2])}
        if owed
        else None,
        "difference_p95_tasks": percentile([one[0] for one in owed], 95),
        "without_difference": sum(not one[0] for one in owed),
        "worst_difference_held_gpus": furthest,
        "difference_p50_held_gpus": percentile([float(one[0]) for one in held], 50),
        "difference_p95_held_gpus": percentile([float(one[0]) for one in held], 95),
        "worst_difference_deserved_gpus": float(max(deserved)) if deserved else None,
    }


def _plain(share: Share) -> Json:
    amounts = {
        name: round(float(getattr(share, name)), 3)
        for name in ("requested", "allocated", "deserved", "exact")
    }
    return amounts | {"waiting_jobs": len(share.waiting), "owed_tasks": share.owed_tasks}


def percentile(values: Sequence[float], percent: int) -> float | None:
    """Return the least value that so many percent do not exceed; None of nothing."""
    if not values:
        return None
    return round(sorted(values)[max(0, math.ceil(len(values) * percent / 100) - 1)], 3)


def _between(job: Mapping[str, Any], first: str, last: str) -> float:
    begun, ended = (datetime.fromisoformat(job[name]) for name in (first, last))
    return (ended - begun).total_seconds()
