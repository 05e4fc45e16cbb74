"""The tree of queues as an icicle: width by what each may use, colour by its share ratio."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from uuid import UUID

from django.urls import reverse
from django.utils.translation import gettext as _

from controlplane.charts.chart import Chart
from controlplane.units import amount, resource_name
from scheduling.domain.queries.queues import QueueRow

SCALE = [[0, "token:share-below"], [0.5, "token:share-even"], [1, "token:share-above"]]


def chart(rows: Sequence[QueueRow], resource: str) -> Chart | None:
    """Draw deserved amounts; a queue coloured above the middle holds more than it deserves.

    None while nobody holds or deserves anything: equal grey fields would say nothing.
    """
    if not any(
        amounts and amounts.get(resource)
        for row in rows
        for amounts in (row.deserved, row.allocated)
    ):
        return None
    size = _sizes(rows, resource)
    return Chart(
        title=_("Deserved by queue"),
        summary=_summary(rows, resource),
        data=[
            {
                "type": "icicle",
                "ids": [str(row.id) for row in rows],
                "labels": [row.name for row in rows],
                "parents": [str(row.parent_id) if row.parent_id else "" for row in rows],
                "values": [size[row.id] for row in rows],
                "branchvalues": "total",
                "sort": False,
                "marker": {
                    "colors": [_ratio(row) for row in rows],
                    "colorscale": SCALE,
                    "cmin": 0,
                    "cmid": 1,
                    "cmax": 2,
                    "line": {"width": 1, "color": "token:surface-raised"},
                },
                "textfont": {"color": "token:text"},
                "text": [_text(row, resource) for row in rows],
                "textinfo": "label+text",
                "hovertemplate": "%{label}: %{text}<extra></extra>",
                "customdata": [reverse("pages:queue", args=[row.name]) for row in rows],
                "tiling": {"orientation": "v", "pad": 1},
                "pathbar": {"visible": False},
            }
        ],
        layout={"margin": {"l": 0, "r": 0, "t": 0, "b": 0}},
    )


def _sizes(rows: Sequence[QueueRow], resource: str) -> dict[UUID, int]:
    """Return widths: what is deserved, at least the sum of what lies below (children come last)."""
    below: dict[UUID | None, int] = defaultdict(int)
    sizes: dict[UUID, int] = {}
    for row in reversed(rows):
        sizes[row.id] = max(1, (row.deserved or {}).get(resource, 0), below[row.id])
        below[row.parent_id] += sizes[row.id]
    return sizes


def _ratio(row: QueueRow) -> float:
    """Return the colour's value; a queue without a share is even."""
    return 1.0 if row.share_ratio is None else min(2.0, row.share_ratio)


def _text(row: QueueRow, resource: str) -> str:
    if row.allocated is None or row.deserved is None:
        return ""
    return _("%(used)s of %(deserved)s") % {
        "used": amount(row.allocated.get(resource, 0), resource),
        "deserved": amount(row.deserved.get(resource, 0), resource),
    }


def _summary(rows: Sequence[QueueRow], resource: str) -> str:
    known = [
        row
        for row in rows
        if row.is_leaf and row.allocated is not None and row.deserved is not None
    ]
    if not known:
        return _("No cycle has computed shares yet.")
    over = [row.name for row in known if (row.share_ratio or 0) > 1]
    used = sum((row.allocated or {}).get(resource, 0) for row in known)
    head = _("%(amount)s %(name)s are in use by %(count)d queues.") % {
        "amount": amount(used, resource),
        "name": resource_name(resource),
        "count": len(known),
    }
    tail = (
        _("Above what they deserve: %(names)s.") % {"names": ", ".join(over[:6])}
        if over
        else _("None holds more than it deserves.")
    )
    return f"{head} {tail}"
