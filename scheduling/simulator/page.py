"""A replayed day as one HTML file: no server, no network, all in it."""

from __future__ import annotations

import html
import json
from collections.abc import Iterable, Mapping, Sequence

from scheduling.simulator.figures import Chart, charts
from scheduling.simulator.replay import Day
from scheduling.simulator.report import Report, Spread
from scheduling.spec.quantities import write_duration

SHORT = {"nvidia.com/gpu": "GPUs", "cpu": "CPUs"}

STYLE = """
:root { color-scheme: light dark; --text: light-dark(#1c2128, #e6edf3); --line: #8885; }
body { font: 14px/20px system-ui, sans-serif; margin: 24px auto; max-width: 1200px;
  padding: 0 16px; color: var(--text); background: light-dark(#fff, #0d1117); }
h1 { font-size: 20px; line-height: 28px; overflow-wrap: anywhere; }
h2 { font-size: 16px; line-height: 24px; margin: 32px 0 8px; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: 4px 12px; text-align: right; white-space: nowrap;
  border-bottom: 1px solid var(--line); }
th:first-child, td:first-child { text-align: left; padding-left: 0; white-space: normal; }
.chart { height: 360px; }
"""

DRAW = """
const colour = getComputedStyle(document.body).color;
const clear = "rgba(0,0,0,0)";
const axis = { gridcolor: "#8883", linecolor: "#8885", zerolinecolor: "#8885" };
for (const place of document.querySelectorAll(".chart")) {
  const { data, layout } = JSON.parse(document.getElementById(place.dataset.figure).textContent);
  const look = { ...layout, font: { color: colour }, paper_bgcolor: clear, plot_bgcolor: clear };
  for (const name of ["xaxis", "yaxis"]) look[name] = { ...axis, ...layout[name] };
  Plotly.newPlot(place, data, look, { responsive: true, displaylogo: false });
}
"""


def page(day: Day, report: Report, *, title: str, plotly: str, beside: Report | None = None) -> str:
    """Return the page.

    Args:
        day: what is drawn.
        report: its sums.
        title: the heading.
        plotly: the text of the script library that draws the charts.
        beside: the sums of another replay, to compare with.
    """
    drawn = "".join(_chart(chart) for chart in charts(day))
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{html.escape(title)}</title><style>{STYLE}</style>"
        f"<h1>{html.escape(title)}</h1>{_totals(report, beside)}"
        f"<h2>Queues</h2>{_queues(report)}{drawn}"
        f"<script>{plotly}</script><script>{DRAW}</script></html>"
    )


def _chart(chart: Chart) -> str:
    heading = f"<h2>{html.escape(chart.heading)}</h2>"
    if chart.figure is None:
        return f"{heading}<p>Nothing to draw: it was 0 all the time, or is not known.</p>"
    return (
        f'{heading}<div class="chart" data-figure="{chart.name}"></div>'
        f'<script type="application/json" id="{chart.name}">{_script(chart.figure)}</script>'
    )


def _script(value: Mapping[str, object]) -> str:
    """Return JSON that cannot end the element it stands in."""
    return json.dumps(value).replace("<", "\\u003c")


def _totals(report: Report, beside: Report | None) -> str:
    rows = _measures(report)
    if beside is None:
        return _table(["the whole day", ""], rows.items())
    before = _measures(beside)
    names = [*rows, *(name for name in before if name not in rows)]
    return _table(
        ["the whole day", "this replay", "the one beside"],
        ([name, rows.get(name, "none"), before.get(name, "none")] for name in names),
    )


def _measures(report: Report) -> dict[str, str]:
    """Return what is compared, in the words and numbers that are shown."""
    return {
        "jobs that ended": f"{report.ended:,} of {report.jobs:,}",
        "first arrival to last end": _time(report.makespan_seconds),
        **_spread("wait", report.wait),
        **_spread("completion", report.completion),
        "bounded slowdown, mean": _number(report.slowdown, 2),
        **{
            f"held of {SHORT.get(name, name)}": f"{share:.1%}"
            for name, share in report.utilisation.items()
            if share > 0
        },
        "fragmentation, mean": _number(report.fragmentation, 3),
        "fairness of slowdowns among queues (Jain)": _number(report.jain, 3),
        "evictions": f"{report.evictions:,}",
        "task-seconds lost": f"{report.lost_task_seconds:,.0f}",
    }


def _spread(what: str, value: Spread) -> dict[str, str]:
    return {
        f"{what}, mean": _time(value.mean),
        f"{what}, p50": _time(value.p50),
        f"{what}, p95": _time(value.p95),
        f"{what}, most": _time(value.most),
    }


def _queues(report: Report) -> str:
    heads = ("queue", "ended", "wait, mean", "wait, p95", "completion, mean", "slowdown")
    rows = (
        (
            queue.queue,
            f"{queue.ended:,} of {queue.jobs:,}",
            _time(queue.wait.mean),
            _time(queue.wait.p95),
            _time(queue.completion.mean),
            _number(queue.slowdown, 2),
            f"{queue.evictions:,}",
        )
        for queue in report.queues
    )
    return _table([*heads, "evictions"], rows)


def _table(heads: Sequence[str], rows: Iterable[Iterable[str]]) -> str:
    body = "".join(
        "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in rows
    )
    head = "".join(f"<th>{html.escape(name)}</th>" for name in heads)
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return f'<div class="wide">{table}</div>'


def _time(seconds: float | None) -> str:
    return "none" if seconds is None else write_duration(round(seconds))


def _number(value: float | None, digits: int = 1) -> str:
    return "none" if value is None else f"{value:,.{digits}f}"
