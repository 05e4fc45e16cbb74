"""The charts of a replayed day: who held what, who waited, how long, in how many pieces."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from scheduling.engine.types import CPU, GPU
from scheduling.simulator.replay import Day, Record, Sample

MOST_POINTS = 600
"""A line on a screen shows no more."""

COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#8c6bb1")
"""Six of Okabe and Ito's, which colour-blind people tell apart, and one more."""

OTHERS = "other queues"
OTHERS_COLOUR = "#8a939e"

TIME_UNITS = ((2 * 86_400.0, "days", 86_400.0), (7200.0, "hours", 3600.0), (600.0, "minutes", 60.0))
"""A span of so many seconds or more is drawn in this unit, of so many seconds."""

Figure = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Chart:
    """A heading and the figure below it; None where there is nothing to draw."""

    name: str
    heading: str
    figure: Figure | None


@dataclass(frozen=True, slots=True)
class _Line:
    """What is drawn in one colour: a queue, or all that got no colour of their own."""

    name: str
    colour: str
    queues: frozenset[str]


def charts(day: Day) -> list[Chart]:
    """Return the charts of a day; a queue has the same colour in each."""
    resource = GPU if any(sample.used.get(GPU) for sample in day.samples) else CPU
    held = "GPUs" if resource == GPU else "CPUs"
    lines = _lines(day)
    return [
        Chart("allocated", f"{held} held by queue", _allocated(day, lines, resource, held)),
        Chart("waiting", "Tasks that wait, by queue", _waiting(day, lines)),
        Chart(
            "waits",
            "Share of jobs that had started after so long",
            _shares(day, lines, lambda record: record.started_at),
        ),
        Chart(
            "completions",
            "Share of jobs that had ended after so long",
            _shares(day, lines, lambda record: record.ended_at),
        ),
        Chart(
            "fragmentation",
            "Share of the free GPUs that lies on partly taken machines",
            _fragmentation(day),
        ),
    ]


def _lines(day: Day) -> list[_Line]:
    """Give colours to the queues with the most task-seconds, and one to all others together."""
    weights: dict[str, float] = {}
    for record in day.records:
        weight = len(record.job.tasks) * record.seconds
        weights[record.job.queue] = weights.get(record.job.queue, 0.0) + weight
    ordered = sorted(weights, key=lambda name: (-weights[name], name))
    lines = [
        _Line(name, colour, frozenset({name}))
        for name, colour in zip(ordered, COLOURS, strict=False)
    ]
    if rest := frozenset(ordered[len(COLOURS) :]):
        lines.append(_Line(OTHERS, OTHERS_COLOUR, rest))
    return lines


def _thinned(samples: Sequence[Sample]) -> Sequence[Sample]:
    return samples[:: max(1, -(-len(samples) // MOST_POINTS))]


def _unit(span: float) -> tuple[str, float]:
    return next(((name, size) for least, name, size in TIME_UNITS if span >= least), ("seconds", 1))


class _Clock:
    """The time axis of a day's samples, from its first."""

    def __init__(self, samples: Sequence[Sample]) -> None:
        self.start = samples[0].at if samples else 0.0
        self.unit, self._size = _unit(samples[-1].at - self.start if samples else 0.0)

    def __call__(self, samples: Sequence[Sample]) -> list[float]:
        return [(sample.at - self.start) / self._size for sample in samples]


def _allocated(day: Day, lines: Sequence[_Line], resource: str, held: str) -> Figure:
    """Return a stacked area of what the queues held, and the capacity as a line."""
    samples, clock = _thinned(day.samples), _Clock(day.samples)
    times = clock(samples)
    traces = [
        _trace(
            line,
            times,
            [
                sum(sample.allocated.get(queue, {}).get(resource, 0) for queue in line.queues)
                / 1000
                for sample in samples
            ],
            stackgroup="queues",
        )
        for line in lines
    ]
    capacity = sum(node.allocatable.get(resource, 0) for node in day.world.nodes) / 1000
    if times:
        traces.append(
            {
                "type": "scatter",
                "mode": "lines",
                "line": {"dash": "dot", "color": OTHERS_COLOUR},
                "name": "capacity",
                "x": [times[0], times[-1]],
                "y": [capacity, capacity],
            }
        )
    return _figure(traces, clock.unit, held)


def _waiting(day: Day, lines: Sequence[_Line]) -> Figure | None:
    """Return a line by queue of the tasks that wait."""
    if not any(any(sample.waiting.values()) for sample in day.samples):
        return None
    samples, clock = _thinned(day.samples), _Clock(day.samples)
    traces = [
        _trace(
            line,
            clock(samples),
            [sum(sample.waiting.get(queue, 0) for queue in line.queues) for sample in samples],
        )
        for line in lines
    ]
    return _figure(traces, clock.unit, "tasks")


def _shares(
    day: Day, lines: Sequence[_Line], reached: Callable[[Record], float | None]
) -> Figure | None:
    """Return by queue which share of its jobs had come so far after so long (their ECDF)."""
    times = [(record, reached(record)) for record in day.records]
    taken = {
        line.name: sorted(
            at - record.job.created_at
            for record, at in times
            if at is not None and record.job.queue in line.queues
        )
        for line in lines
    }
    longest = max((values[-1] for values in taken.values() if values), default=0.0)
    if not longest:
        return None
    unit, size = _unit(longest)
    traces = []
    for line in lines:
        values = taken[line.name]
        jobs = sum(record.job.queue in line.queues for record in day.records)
        step = max(1, -(-len(values) // MOST_POINTS))
        picked = sorted({*range(0, len(values), step), *([len(values) - 1] if values else [])})
        # From nothing at 0, so that a queue none of whose jobs waited is seen as well.
        x = [0.0, *(values[index] / size for index in picked)]
        y = [0.0, *((index + 1) / jobs for index in picked)]
        traces.append(_trace(line, x, y))
    return _figure(traces, unit, "share of jobs")


def _fragmentation(day: Day) -> Figure | None:
    """Return the fragmentation over the day."""
    samples = _thinned([sample for sample in day.samples if sample.fragmentation is not None])
    if not samples:
        return None
    clock = _Clock(samples)
    line = _Line("fragmentation", COLOURS[0], frozenset())
    shares = [sample.fragmentation or 0.0 for sample in samples]
    return _figure([_trace(line, clock(samples), shares)], clock.unit, "share of free GPUs")


def _trace(
    line: _Line, x: Sequence[float], y: Sequence[float], **more: object
) -> dict[str, object]:
    return {
        "type": "scatter",
        "mode": "lines",
        "line": {"width": 1.5, "shape": "hv", "color": line.colour},
        "name": line.name,
        "x": [round(value, 4) for value in x],
        "y": [round(value, 4) for value in y],
        **more,
    }


def _figure(traces: Sequence[Mapping[str, object]], x: str, y: str) -> Figure:
    layout = {
        "margin": {"l": 60, "r": 20, "t": 40, "b": 45},
        "xaxis": {"title": {"text": x}},
        "yaxis": {"title": {"text": y}, "rangemode": "tozero"},
        "legend": {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom"},
        "hovermode": "x unified",
    }
    return {"data": list(traces), "layout": layout}
