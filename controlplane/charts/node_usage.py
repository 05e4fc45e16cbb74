"""Measured use of one node over the last hour: CPU, memory, each GPU."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime

from django.utils.translation import gettext as _

from controlplane.charts.chart import Chart
from controlplane.charts.lines import line_chart
from scheduling.domain.queries.jobs import Series, thinned
from scheduling.models import Usage

GIB = 1024**3


def charts(samples: Sequence[Usage], names: Mapping[str, str]) -> list[Chart]:
    """Return the charts for which something was measured; what was not is a gap, not zero.

    `names`: a GPU's UUID -> what it is called on the page.
    """
    whole = [one for one in samples if not one.device_uuid]
    gpus: dict[str, list[tuple[float | datetime, float]]] = {}
    for one in samples:
        if one.device_uuid and one.gpu_percent is not None:
            gpus.setdefault(one.device_uuid, []).append((one.at, one.gpu_percent))
    cpu = [(one.at, one.cpu_milli / 1000) for one in whole if one.cpu_milli is not None]
    memory = [(one.at, one.memory_bytes / GIB) for one in whole if one.memory_bytes is not None]
    named = [
        (
            _("GPU"),
            " %",
            [
                Series(names.get(uuid, uuid[-12:]), thinned(gpus[uuid]))
                for uuid in _in_order(gpus, names)
            ],
        ),
        (_("CPU cores"), "", [Series(_("CPU"), thinned(cpu))] if cpu else []),
        (_("Memory"), " GiB", [Series(_("memory"), thinned(memory))] if memory else []),
    ]
    return [
        line_chart(
            title,
            series,
            x_title=_("time"),
            write=_writer(unit),
            layout={"yaxis": {"ticksuffix": unit, "rangemode": "tozero"}},
        )
        for title, unit, series in named
        if series
    ]


def _in_order(uuids: Iterable[str], names: Mapping[str, str]) -> list[str]:
    """Return them as the node counts its GPUs; those that it has no more come last."""
    places = {uuid: place for place, uuid in enumerate(names)}
    return sorted(uuids, key=lambda uuid: (places.get(uuid, len(places)), uuid))


def _writer(unit: str) -> Callable[[float], str]:
    return lambda value: f"{value:.3g}{unit}"
