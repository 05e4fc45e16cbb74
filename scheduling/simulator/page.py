"""A replayed day as one HTML file with charts: no server, no network, all in it."""

from __future__ import annotations

import html
import json
from collections.abc import Mapping, Sequence

from scheduling.engine.types import GPU
from scheduling.simulator.replay import Day, Sample
from scheduling.simulator.report import Report, Spread

MOST_POINTS = 600
"""A line on a screen shows no more."""

STYLE = """
body { font: 14px/20px system-ui, sans-serif; margin: 24px auto; max-width: 1200px; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: 4px 12px; text-align: right; border-bottom: 1px solid #8888; }
th:first-child, td:first-child { text-align: left; }
.chart { height: 360px; }
"""

DRAW = """
for (const place of document.querySelectorAll(".chart")) {
  const figure = JSON.parse(document.getElementById(place.dataset.figure).textContent);
  Plotly.newPlot(place, figure.data, figure.layout, { responsive: true, displaylogo: false });
}
"""


def page(day: Day, report: Report, *, title: str, plotly: str) -> str:
    """Return the page; `plotly` is the text of the script library that draws the charts."""
    figures = {
        "allocated": allocated_figure(day),
        "waiting": waiting_figure(day),
        "waits": waits_figure(day),
    }
    headings = {
        "allocated": "GPUs held by queue",
        "waiting": "Tasks that wait, by queue",
        "waits": "Share of jobs that had started after so many seconds",
    }
    charts = "".join(
        f"<h2>{headings[name]}</h2>"
        f'<div class="chart" data-figure="{name}"></div>'
        f'<script type="application/json" id="{name}">{_script(figure)}</script>'
        for name, figure in figures.items()
    )
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{html.escape(title)}</title>'
        f"<style>{STYLE}</style><h1>{html.escape(title)}</h1>"
        f"{_summary(report)}{_table(report)}{charts}"
        f"<script>{plotly}</script><script>{DRAW}</script></html>"
    )


def _script(value: object) -> str:
    """Return JSON that cannot end the element it stands in."""
    return json.dumps(value).replace("<", "\\u003c")


def _summary(report: Report) -> str:
    parts = [
        f"{report.ended} of {report.jobs} jobs ended in {report.makespan_seconds:,.0f} s",
        f"completion {_spread(report.completion)}",
        f"wait {_spread(report.wait)}",
        f"{report.evictions} evictions, {report.lost_task_seconds:,.0f} task-seconds lost",
    ]
    if GPU in report.utilisation:
        parts.append(f"GPUs held {report.utilisation[GPU]:.1%}")
    return f"<p>{'; '.join(html.escape(part) for part in parts)}.</p>"


def _spread(value: Spread) -> str:
    if value.mean is None or value.p95 is None:
        return "none"
    return f"mean {value.mean:,.0f} s, p95 {value.p95:,.0f} s"


def _table(report: Report) -> str:
    rows = "".join(
        "<tr>"
        + "".join(
            f"<td>{html.escape(cell)}</td>"
            for cell in (
                queue.queue,
                f"{queue.ended}/{queue.jobs}",
                _number(queue.wait.mean),
                _number(queue.wait.p95),
                _number(queue.completion.mean),
                _number(queue.slowdown),
                str(queue.evictions),
            )
        )
        + "</tr>"
        for queue in report.queues
    )
    heads = ("queue", "ended", "wait, mean", "p95", "completion, mean", "slowdown", "evictions")
    return (
        "<table><thead><tr>"
        + "".join(f"<th>{head}</th>" for head in heads)
        + f"</tr></thead><tbody>{rows}</tbody></table>"
    )


def _number(value: float | None) -> str:
    return "none" if value is None else f"{value:,.1f}"


def _thinned(samples: Sequence[Sample]) -> list[Sample]:
    step = max(1, -(-len(samples) // MOST_POINTS))
    return list(samples[::step])


def allocated_figure(day: Day) -> Mapping[str, object]:
    """Return a stacked area of GPUs held by the leaf queues, and the capacity as a line."""
    samples = _thinned(day.samples)
    times = [sample.at for sample in samples]
    parents = {queue.parent for queue in day.world.queues}
    traces: list[Mapping[str, object]] = [
        {
            "type": "scatter",
            "mode": "lines",
            "line": {"width": 0.5, "shape": "hv"},
            "stackgroup": "queues",
            "name": queue.name,
            "x": times,
            "y": [sample.allocated.get(queue.name, {}).get(GPU, 0) / 1000 for sample in samples],
        }
        for queue in day.world.queues
        if queue.name not in parents
    ]
    capacity = sum(node.allocatable.get(GPU, 0) for node in day.world.nodes) / 1000
    traces.append(
        {
            "type": "scatter",
            "mode": "lines",
            "line": {"dash": "dot"},
            "name": "capacity",
            "x": [times[0], times[-1]] if times else [],
            "y": [capacity, capacity] if times else [],
        }
    )
    return {"data": traces, "layout": _layout("seconds", "GPUs")}


def waiting_figure(day: Day) -> Mapping[str, object]:
    """Return a line by queue of the tasks that wait."""
    samples = _thinned(day.samples)
    names = sorted({name for sample in samples for name in sample.waiting})
    traces = [
        {
            "type": "scatter",
            "mode": "lines",
            "line": {"shape": "hv"},
            "name": name,
            "x": [sample.at for sample in samples],
            "y": [sample.waiting.get(name, 0) for sample in samples],
        }
        for name in names
    ]
    return {"data": traces, "layout": _layout("seconds", "tasks")}


def waits_figure(day: Day) -> Mapping[str, object]:
    """Return by queue which share of its jobs had started after so many seconds."""
    waits: dict[str, list[float]] = {}
    for record in day.records:
        if record.started_at is not None:
            waited = record.started_at - record.job.created_at
            waits.setdefault(record.job.queue, []).append(waited)
    traces = []
    for name, values in sorted(waits.items()):
        ordered = sorted(values)
        step = max(1, -(-len(ordered) // MOST_POINTS))
        picked = [*range(0, len(ordered), step), len(ordered) - 1]
        traces.append(
            {
                "type": "scatter",
                "mode": "lines",
                "line": {"shape": "hv"},
                "name": name,
                "x": [ordered[index] for index in picked],
                "y": [(index + 1) / len(ordered) for index in picked],
            }
        )
    return {"data": traces, "layout": _layout("seconds waited", "share of jobs")}


def _layout(x: str, y: str) -> Mapping[str, object]:
    return {
        "margin": {"l": 60, "r": 20, "t": 10, "b": 45},
        "xaxis": {"title": {"text": x}},
        "yaxis": {"title": {"text": y}, "rangemode": "tozero"},
    }
