"""Measured use of CPU, memory and GPU over time, by task."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from django.utils.translation import gettext as _

from controlplane.charts.chart import Chart
from controlplane.charts.lines import line_chart
from scheduling.domain.queries.jobs import Series

MIB = 1024**2
GIB = 1024**3


def charts(series: Mapping[str, Sequence[Series]]) -> list[Chart]:
    """Return the charts for which something was measured; what was not is left out, not zero."""
    found = []
    most = max((y for one in series.get("memory", ()) for _x, y in one.points), default=0.0)
    memory = (" GiB", 1.0 / GIB) if most >= GIB else (" MiB", 1.0 / MIB)
    for name, title, unit, scale in (
        ("gpu", _("GPU"), " %", 1.0),
        ("cpu", _("CPU cores"), "", 1.0),
        ("memory", _("Memory"), *memory),
    ):
        lines = [
            Series(one.name, tuple((x, y * scale) for x, y in one.points))
            for one in series.get(name, ())
        ]
        if lines:
            layout = {"yaxis": {"ticksuffix": unit, "rangemode": "tozero"}}
            found.append(
                line_chart(title, lines, x_title=_("time"), write=_writer(unit), layout=layout)
            )
    return found


def _writer(unit: str) -> Callable[[float], str]:
    return lambda value: f"{value:.3g}{unit}"
