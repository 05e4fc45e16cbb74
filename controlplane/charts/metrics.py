"""What tasks report of themselves: one chart a metric (loss, accuracy, ...)."""

from __future__ import annotations

from collections.abc import Sequence

from django.utils.translation import gettext as _

from controlplane.charts.chart import Chart
from controlplane.charts.lines import line_chart
from scheduling.domain.queries.jobs import Series

CHARTS = 6
SEPARATOR = " · "


def charts(series: Sequence[Series]) -> list[Chart]:
    """Return one chart for each metric, its tasks as lines."""
    by_metric: dict[str, list[Series]] = {}
    for one in series:
        metric, _sep, task = one.name.partition(SEPARATOR)
        by_metric.setdefault(metric, []).append(Series(task or metric, one.points))
    return [
        line_chart(metric, lines, x_title=_("step"), write=lambda value: f"{value:.4g}")
        for metric, lines in sorted(by_metric.items(), key=_losses_first)[:CHARTS]
    ]


def _losses_first(named: tuple[str, list[Series]]) -> bool:
    return "loss" not in named[0].lower()
