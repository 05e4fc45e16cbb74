"""Lines over a step or over time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from controlplane.charts.chart import LINES, Chart, PlotlyJson
from scheduling.domain.queries.jobs import Series

TABLE_ROWS = 60
MOST_SUMMED = 3


def line_chart(
    title: str,
    series: Sequence[Series],
    *,
    x_title: str,
    write: Callable[[float], str],
    layout: PlotlyJson | None = None,
) -> Chart:
    """Draw series as lines; the summary gives the last value and the range of each."""
    data = [
        {
            "type": "scatter",
            "mode": "lines",
            "name": one.name,
            "x": [_x(x) for x, _y in one.points],
            "y": [y for _x_, y in one.points],
            "line": {"color": f"token:{LINES[at % len(LINES)]}", "width": 1.6},
        }
        for at, one in enumerate(series)
    ]
    base = {"xaxis": {"title": {"text": x_title}}, "yaxis": {}, "showlegend": len(series) > 1}
    return Chart(
        title=title,
        summary=_gist(series, write),
        data=data,
        layout={**base, **(layout or {})},
        columns=(x_title, *(one.name for one in series)),
        rows=_rows(series, write),
    )


def _gist(series: Sequence[Series], write: Callable[[float], str]) -> str:
    """Sum up the first lines; the table has all."""
    words = " ".join(_summary(one, write) for one in series[:MOST_SUMMED])
    rest = len(series) - MOST_SUMMED
    if rest > 0:
        words += " " + ngettext(
            "%(n)d more line is in the table.", "%(n)d more lines are in the table.", rest
        ) % {"n": rest}
    return words


def _x(value: float | datetime) -> float | str:
    return value.isoformat() if isinstance(value, datetime) else value


def _summary(one: Series, write: Callable[[float], str]) -> str:
    values = [y for _x_, y in one.points]
    return _("%(name)s: last %(last)s, between %(low)s and %(high)s.") % {
        "name": one.name,
        "last": write(values[-1]),
        "low": write(min(values)),
        "high": write(max(values)),
    }


def _rows(series: Sequence[Series], write: Callable[[float], str]) -> list[list[str]]:
    """Return the newest points as rows, one column a series."""
    by_x: dict[float | datetime, dict[str, float]] = {}
    for one in series:
        for x, y in one.points:
            by_x.setdefault(x, {})[one.name] = y
    newest = sorted(by_x, key=_sortable, reverse=True)[:TABLE_ROWS]
    return [
        [
            _shown(x),
            *(write(by_x[x][one.name]) if one.name in by_x[x] else "" for one in series),
        ]
        for x in newest
    ]


def _sortable(x: float | datetime) -> float:
    return x.timestamp() if isinstance(x, datetime) else x


def _shown(x: float | datetime) -> str:
    return x.strftime("%H:%M:%S") if isinstance(x, datetime) else f"{x:g}"
