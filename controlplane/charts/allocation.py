"""What queues held over time: stacked areas below the line of what the cluster could give."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from django.utils.translation import gettext as _

from controlplane.charts.chart import LINES, Chart, PlotlyJson
from controlplane.units import amount, resource_name
from scheduling.domain.queries.operations import Allocation, Line

TABLE_ROWS = 40
BINARY = frozenset({"memory", "ephemeral-storage"})


def stacked(found: Allocation) -> Chart | None:
    """Stack what each queue held; None while none of them held anything."""
    shown = [line for line in found.queues if any(value is not None for value in line.values)]
    if not any(value for line in shown for value in line.values):
        return None
    # Stacked areas take a gap for zero, so they begin where something was sampled.
    first = next(
        at for at, _time in enumerate(found.times) if _sampled([*shown, found.capacity], at)
    )
    times = [at.isoformat() for at in found.times[first:]]
    data: list[PlotlyJson] = [
        {
            "type": "scatter",
            "mode": "lines",
            "stackgroup": "held",
            "name": line.name,
            "x": times,
            "y": _units(line.values[first:], found.resource),
            "line": {"shape": "hv", "width": 0.5, "color": f"token:{LINES[at % len(LINES)]}"},
        }
        for at, line in enumerate(shown)
    ]
    data.append(_line(_("capacity"), times, found.capacity.values[first:], found.resource))
    return Chart(
        title=_("Allocated %(name)s by queue") % {"name": resource_name(found.resource)},
        summary=_summary(shown, found),
        data=data,
        layout={"yaxis": {"rangemode": "tozero"}, "showlegend": True},
        columns=(_("Time"), *(line.name for line in shown), _("capacity")),
        rows=_rows(shown, found),
    )


def _sampled(lines: Sequence[Line], at: int) -> bool:
    return any(line.values[at] is not None for line in lines)


def against_deserved(found: Allocation) -> Chart | None:
    """Draw one queue's allocated amount as an area, and what it deserved as a line.

    None while it neither held nor deserved anything.
    """
    line = found.queues[0] if found.queues else None
    if line is None or not any((*line.values, *line.deserved)):
        return None
    times = [at.isoformat() for at in found.times]
    now, owed = line.values[-1], line.deserved[-1]
    summary = _("It holds %(held)s and deserves %(owed)s.") % {
        "held": amount(now, found.resource),
        "owed": amount(owed, found.resource),
    }
    return Chart(
        title=_("Allocated against deserved %(name)s") % {"name": resource_name(found.resource)},
        summary=summary,
        data=[
            {
                "type": "scatter",
                "mode": "lines",
                "fill": "tozeroy",
                "name": _("allocated"),
                "x": times,
                "y": _units(line.values, found.resource),
                "line": {"shape": "hv", "width": 1, "color": "token:data-4"},
            },
            _line(_("deserved"), times, line.deserved, found.resource),
        ],
        layout={"yaxis": {"rangemode": "tozero"}, "showlegend": True},
        columns=(_("Time"), _("Allocated"), _("Deserved")),
        rows=[
            [at.strftime("%H:%M"), *(amount(value, found.resource) for value in values)]
            for at, values in _newest(found, line.values, line.deserved)
        ],
    )


def _line(name: str, times: list[str], values: Sequence[int | None], resource: str) -> PlotlyJson:
    return {
        "type": "scatter",
        "mode": "lines",
        "name": name,
        "x": times,
        "y": _units(values, resource),
        "line": {"shape": "hv", "width": 1.6, "dash": "dot", "color": "token:text"},
    }


def _units(values: Sequence[int | None], resource: str) -> list[float | None]:
    scale = 1024**3 if resource in BINARY else 1000
    return [None if value is None else value / scale for value in values]


def _summary(shown: Sequence[Line], found: Allocation) -> str:
    held = sum(line.values[-1] or 0 for line in shown)
    capacity = next((one for one in reversed(found.capacity.values) if one is not None), None)
    most = max(shown, key=lambda line: line.values[-1] or 0)
    if not held:
        return _("Nothing of %(capacity)s %(name)s is allocated now.") % {
            "capacity": amount(capacity, found.resource),
            "name": resource_name(found.resource),
        }
    return _("%(held)s of %(capacity)s %(name)s are allocated now, most of them to %(queue)s.") % {
        "held": amount(held, found.resource),
        "capacity": amount(capacity, found.resource),
        "name": resource_name(found.resource),
        "queue": most.name,
    }


def _rows(shown: Sequence[Line], found: Allocation) -> list[list[str]]:
    columns = [line.values for line in shown] + [found.capacity.values]
    return [
        [at.strftime("%H:%M"), *(amount(value, found.resource) for value in values)]
        for at, values in _newest(found, *columns)
    ]


def _newest(
    found: Allocation, *columns: Sequence[int | None]
) -> list[tuple[datetime, tuple[int | None, ...]]]:
    rows = list(zip(found.times, zip(*columns, strict=True), strict=True))
    return rows[: -TABLE_ROWS - 1 : -1]
