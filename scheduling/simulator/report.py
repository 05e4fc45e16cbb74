"""What a replayed day was like: waits, completion times, use, fairness, evictions, lost work."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field

from pydantic import TypeAdapter, ValidationError

from scheduling.engine.types import Node
from scheduling.simulator.replay import Day, Record, Sample


@dataclass(frozen=True, slots=True)
class Spread:
    """A set of seconds in few numbers; None where there is nothing."""

    count: int
    mean: float | None
    p50: float | None
    p95: float | None
    most: float | None


@dataclass(frozen=True, slots=True)
class QueueReport:
    """One queue's day."""

    queue: str
    jobs: int
    ended: int
    wait: Spread
    completion: Spread
    """From arrival to end (JCT)."""
    slowdown: float | None
    """Mean of completion / run time, the run time taken as 10 s at least (bounded slowdown)."""
    evictions: int
    lost_task_seconds: float
    largest_shortfall: Mapping[str, float] = field(default_factory=dict)
    """Resource -> how far it was under its deserved amount while tasks of it waited, at most."""


@dataclass(frozen=True, slots=True)
class Report:
    """One day's report; `as_json` is its form in files."""

    jobs: int
    ended: int
    makespan_seconds: float
    cycles: int
    wait: Spread
    completion: Spread
    slowdown: float | None
    utilisation: Mapping[str, float]
    """Resource -> allocated / capacity, by time, from the first arrival to the last end."""
    fragmentation: float | None
    """Mean share of free GPUs on machines that are neither whole free nor full."""
    jain: float | None
    """Jain's index of the queues' mean slowdowns: 1 = all alike."""
    evictions: int
    lost_task_seconds: float
    queues: tuple[QueueReport, ...]

    def as_json(self) -> dict[str, object]:
        """Return plain data."""
        return asdict(self)


def read_report(text: str) -> Report:
    """Return the report whose `as_json` was written.

    Raises:
        ValueError: it is no report; the text names the first field that is wrong.
    """
    try:
        return TypeAdapter(Report).validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"]) or "the whole"
        raise ValueError(f"not a report: {place}: {first['msg']}") from None


def report(day: Day) -> Report:
    """Sum up a day."""
    by_queue: dict[str, list[Record]] = {}
    for record in day.records:
        by_queue.setdefault(record.job.queue, []).append(record)
    shortfalls = _shortfalls(day.samples)
    queues = tuple(
        _queue(name, records, shortfalls.get(name, {}))
        for name, records in sorted(by_queue.items())
    )
    first = min((r.job.created_at for r in day.records), default=0.0)
    last = max((r.ended_at for r in day.records if r.ended_at is not None), default=first)
    whole = _queue("", day.records, {})
    return Report(
        jobs=len(day.records),
        ended=whole.ended,
        makespan_seconds=last - first,
        cycles=day.cycles,
        wait=whole.wait,
        completion=whole.completion,
        slowdown=whole.slowdown,
        utilisation=_utilisation(day.world.nodes, day.samples, last),
        fragmentation=_mean([s.fragmentation for s in day.samples if s.fragmentation is not None]),
        jain=jain([q.slowdown for q in queues if q.slowdown is not None]),
        evictions=whole.evictions,
        lost_task_seconds=whole.lost_task_seconds,
        queues=queues,
    )


def _queue(name: str, records: Sequence[Record], shortfall: Mapping[str, float]) -> QueueReport:
    waits = [r.started_at - r.job.created_at for r in records if r.started_at is not None]
    done = [(r.ended_at - r.job.created_at, r.seconds) for r in records if r.ended_at is not None]
    return QueueReport(
        queue=name,
        jobs=len(records),
        ended=len(done),
        wait=spread(waits),
        completion=spread([total for total, _ in done]),
        slowdown=_mean([total / max(seconds, 10.0) for total, seconds in done]),
        evictions=sum(r.evictions for r in records),
        lost_task_seconds=sum(r.lost_task_seconds for r in records),
        largest_shortfall=shortfall,
    )


def spread(values: Iterable[float]) -> Spread:
    """Return count, mean, median, 95th percentile (nearest rank) and maximum."""
    ordered = sorted(values)
    if not ordered:
        return Spread(0, None, None, None, None)
    return Spread(
        len(ordered),
        math.fsum(ordered) / len(ordered),
        ordered[math.ceil(0.5 * len(ordered)) - 1],
        ordered[math.ceil(0.95 * len(ordered)) - 1],
        ordered[-1],
    )


def _mean(values: Sequence[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None


def jain(values: Sequence[float]) -> float | None:
    """Return Jain's index, (sum x)^2 / (n sum x^2), in 1/n..1; None of nothing.

    Source: Jain, Chiu, Hawe, "A Quantitative Measure of Fairness", DEC TR-301, 1984.
    """
    squares = math.fsum(value * value for value in values)
    return math.fsum(values) ** 2 / (len(values) * squares) if squares else None


def _utilisation(nodes: Sequence[Node], samples: Sequence[Sample], end: float) -> dict[str, float]:
    """Weigh each sample by the time until the next."""
    capacity: dict[str, int] = {}
    for node in nodes:
        for resource, amount in node.allocatable.items():
            capacity[resource] = capacity.get(resource, 0) + amount
    used = dict.fromkeys(capacity, 0.0)
    span = 0.0
    following = [sample.at for sample in samples[1:]]
    for sample, then in zip(samples, [*following, end], strict=False):
        seconds = max(min(then, end) - sample.at, 0.0)
        span += seconds
        for resource, amount in sample.used.items():
            used[resource] = used.get(resource, 0.0) + amount * seconds
    if not span:
        return {}
    return {
        resource: used[resource] / (capacity[resource] * span)
        for resource in sorted(capacity)
        if capacity[resource]
    }


def _shortfalls(samples: Iterable[Sample]) -> dict[str, dict[str, float]]:
    """Return by queue and resource how far allocated was under deserved at most while it waited."""
    found: dict[str, dict[str, float]] = {}
    for sample in samples:
        for queue in sample.waiting:
            deserved, allocated = sample.deserved.get(queue, {}), sample.allocated.get(queue, {})
            most = found.setdefault(queue, {})
            for resource, amount in deserved.items():
                gap = amount - allocated.get(resource, 0)
                if gap > most.get(resource, 0.0):
                    most[resource] = float(gap)
    return found
