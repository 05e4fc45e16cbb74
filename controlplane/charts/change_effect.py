"""What a change of queues moves: deserved amounts before and after, as bars and as rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from controlplane.charts.bullets import RESOURCES
from controlplane.charts.chart import Chart
from controlplane.units import amount, resource_name
from scheduling.domain.queue_preview import Preview

MOST_BARS = 40


@dataclass(frozen=True, slots=True)
class ShareRow:
    """One resource of one queue whose share would change, as text."""

    queue: str
    resource: str
    before: str
    after: str
    allocated: str
    requested: str


def share_rows(preview: Preview) -> list[ShareRow]:
    """Return each (queue, resource) whose share would change."""
    return [
        ShareRow(
            share.queue,
            name,
            amount(share.deserved_before.get(name), name),
            amount(share.deserved_after.get(name), name),
            amount(share.allocated.get(name, 0), name),
            amount(share.requested.get(name, 0), name),
        )
        for share in preview.shares
        for name in RESOURCES
        if share.deserved_before.get(name) != share.deserved_after.get(name)
    ]


def chart(preview: Preview) -> Chart | None:
    """Draw the first resource that moves, before and after; None where nothing moves."""
    resource = next(
        (
            name
            for name in RESOURCES
            for share in preview.shares
            if share.deserved_before.get(name) != share.deserved_after.get(name)
        ),
        None,
    )
    if resource is None:
        return None
    moved = [
        share
        for share in preview.shares
        if share.deserved_before.get(resource) != share.deserved_after.get(resource)
    ][:MOST_BARS]
    names = [share.queue for share in moved]
    scale = 1024**3 if resource == "memory" else 1000
    before = [share.deserved_before.get(resource, 0) / scale for share in moved]
    after = [share.deserved_after.get(resource, 0) / scale for share in moved]
    return Chart(
        title=_("Deserved %(name)s") % {"name": resource_name(resource)},
        summary=_summary(resource, len(moved)),
        data=[
            _bars(_("now"), names, before, "state-queued"),
            _bars(_("then"), names, after, "data-4"),
        ],
        layout={"barmode": "group", "showlegend": True, "xaxis": {"type": "category"}},
        columns=(_("Queue"), _("Now"), _("Then")),
        rows=[
            [
                share.queue,
                amount(share.deserved_before.get(resource), resource),
                amount(share.deserved_after.get(resource), resource),
            ]
            for share in moved
        ],
    )


def _bars(
    name: str, queues: Sequence[str], values: Sequence[float], token: str
) -> dict[str, object]:
    return {
        "type": "bar",
        "name": name,
        "x": list(queues),
        "y": list(values),
        "marker": {"color": f"token:{token}"},
    }


def _summary(resource: str, moved: int) -> str:
    text = ngettext(
        "%(n)d queue would deserve another amount of %(name)s.",
        "%(n)d queues would deserve another amount of %(name)s.",
        moved,
    )
    return text % {"n": moved, "name": resource_name(resource)}
