"""The map of a cluster: nodes x GPU index, coloured by measured use or by what GPUs share."""

from __future__ import annotations

from django.urls import reverse
from django.utils.translation import gettext as _

from controlplane.charts.chart import Chart, PlotlyJson
from controlplane.charts.slot_groups import Grouped
from controlplane.links import job_url
from scheduling.domain.queries.cluster import ClusterMap, NodeLoad, Slot

ROW_PIXELS = 26
SCALE = [
    [0, "token:data-0"],
    [0.25, "token:data-1"],
    [0.5, "token:data-2"],
    [0.75, "token:data-3"],
    [1, "token:data-4"],
]


def chart(found: ClusterMap, *, groups: Grouped | None = None, is_small: bool = False) -> Chart:
    """Draw a heat map; a GPU without a measurement is a gap, never zero.

    With groups, each GPU has the colour and the mark of its group instead. A small one is as high
    as its place, whatever the number of nodes, and has no letters.
    """
    loads = [load for load in found.loads if load.slots]
    width = max((len(load.slots) for load in loads), default=0)
    names = [_name(load) for load in loads]
    links = [_padded(_links(load), width) for load in loads]
    cells = {
        "type": "heatmap",
        "y": names,
        "x": [str(index) for index in range(width)],
        "customdata": links,
        "texttemplate": "" if is_small else "%{text}",
        "xgap": 2,
        "ygap": 2,
        "hoverongaps": False,
        "showscale": False,  # a colour bar sets style attributes; the policy forbids them
    }
    return Chart(
        title=_("GPUs by node"),
        summary=_summary(found, groups),
        data=[cells | _by_group(loads, groups, width)]
        if groups
        else [_unmeasured(loads, names, links, width), cells | _by_use(loads, width)],
        layout={
            **({} if is_small else {"height": max(160, 60 + ROW_PIXELS * len(loads))}),
            "xaxis": {"title": {"text": _("GPU")}, "type": "category", "showgrid": False},
            "yaxis": {"autorange": "reversed", "type": "category", "showgrid": False},
        },
    )


def _by_use(loads: list[NodeLoad], width: int) -> PlotlyJson:
    return {
        "z": [_padded([slot.percent for slot in load.slots], width) for load in loads],
        "text": [_padded([_letter(slot) for slot in load.slots], width, "") for load in loads],
        "hovertemplate": _("%{y} GPU %{x}: %{z} % used") + "<extra></extra>",
        "colorscale": SCALE,
        "zmin": 0,
        "zmax": 100,
    }


def _by_group(loads: list[NodeLoad], found: Grouped, width: int) -> PlotlyJson:
    """Paint each cell in its group's colour: a scale of as many even steps as there are groups."""
    numbers = [[found.of_device[slot.device.id] for slot in load.slots] for load in loads]
    steps = len(found.groups)
    return {
        "z": [_padded([*row], width) for row in numbers],
        "text": [_padded([found.groups[one].mark for one in row], width, "") for row in numbers],
        "hovertext": [
            _padded([found.groups[one].name for one in row], width, "") for row in numbers
        ],
        "hovertemplate": "%{y} GPU %{x}: %{hovertext}<extra></extra>",
        "colorscale": [
            [edge / steps, f"token:{group.token}"]
            for number, group in enumerate(found.groups)
            for edge in (number, number + 1)
        ],
        "zmin": -0.5,
        "zmax": steps - 0.5,
    }


def _unmeasured(
    loads: list[NodeLoad], names: list[str], links: list[list[object]], width: int
) -> PlotlyJson:
    """Draw every slot in grey below the measured ones, so that a gap is seen as a slot."""
    return {
        "type": "heatmap",
        "y": names,
        "x": [str(index) for index in range(width)],
        "z": [_padded([0 for _slot in load.slots], width) for load in loads],
        "customdata": [
            [
                None if slot.percent is not None else link
                for slot, link in zip(load.slots, row, strict=False)
            ]
            for load, row in zip(loads, links, strict=True)
        ],
        "colorscale": [[0, "token:surface-hover"], [1, "token:surface-hover"]],
        "showscale": False,
        "xgap": 2,
        "ygap": 2,
        "hoverongaps": False,
        "hovertemplate": _("%{y} GPU %{x}: not measured") + "<extra></extra>",
    }


def _padded(values: list[object], width: int, missing: object = None) -> list[object]:
    return values + [missing] * (width - len(values))


def _name(load: NodeLoad) -> str:
    """Return the name of a row; what is wrong with the node stands beside it."""
    return load.node.name if load.is_schedulable else f"{load.node.name} ⊘"


def _letter(slot: Slot) -> str:
    if slot.state == "bad":
        return "!"
    if not slot.held_milli:
        return ""
    return slot.job.name[:1].upper() if slot.job else "·"


def _links(load: NodeLoad) -> list[object]:
    """Return where each slot of a node leads: to its job, else to the node."""
    node = reverse("pages:node", args=[load.node.name])
    return [job_url(slot.job.id) if slot.job is not None else node for slot in load.slots]


def _summary(found: ClusterMap, groups: Grouped | None) -> str:
    nodes, size = found.largest_gang
    fits = (
        _("The largest job that fits now: %(nodes)d x %(size)d GPUs.")
        % {"nodes": nodes, "size": size}
        if nodes
        else _("No GPU is free.")
    )
    counts = _("%(free)d of %(all)d GPUs are free.") % {"free": found.free_gpus, "all": found.gpus}
    shown = ", ".join(f"{one.name} {one.count}" for one in groups.groups) if groups else ""
    return " ".join(part for part in (counts, fits, shown and f"{shown}.") if part)
