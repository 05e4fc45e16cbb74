"""What cycles took, part by part, over time."""

from __future__ import annotations

from collections.abc import Sequence

from django.utils.translation import gettext as _

from controlplane.charts.chart import Chart
from controlplane.charts.lines import line_chart
from scheduling.domain.queries.jobs import Series
from scheduling.models import CycleRecord

MOST_POINTS = 300


def chart(cycles: Sequence[CycleRecord]) -> Chart | None:
    """Draw snapshot, plan and apply of each cycle as lines; None without a cycle."""
    if not cycles:
        return None
    oldest_first = sorted(cycles, key=lambda one: one.number)
    step = max(1, -(-len(oldest_first) // MOST_POINTS))
    shown = oldest_first[::step]
    series = [
        Series(name, tuple((one.started_at, getattr(one, field)) for one in shown))
        for name, field in (
            (_("Snapshot"), "snapshot_ms"),
            (_("Plan"), "plan_ms"),
            (_("Apply"), "apply_ms"),
        )
    ]
    return line_chart(
        _("What a cycle takes"),
        series,
        x_title=_("Time"),
        write=lambda ms: f"{ms:.1f} ms",
        layout={"yaxis": {"ticksuffix": " ms", "rangemode": "tozero"}},
    )
