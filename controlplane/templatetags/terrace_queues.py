"""Draws numbers and shares of queues."""

from typing import Any

from django import template
from django.utils.translation import gettext as _

from controlplane.charts.bullets import bullet
from controlplane.forms.queues import QueueFields
from scheduling.domain.queries.queues import QueueRow

register = template.Library()


@register.inclusion_tag("_share_bar.html")
def share_bar(row: QueueRow, resource: str) -> dict[str, Any]:
    """Draw allocated against deserved; nothing before the first cycle."""
    if row.allocated is None or row.deserved is None:
        return {"bar": None}
    return {
        "bar": bullet(
            resource,
            minimum=row.min.get(resource, 0),
            deserved=row.deserved.get(resource),
            allocated=row.allocated.get(resource, 0),
            maximum=row.max.get(resource),
        )
    }


@register.inclusion_tag("_queue_input.html")
def queue_input(fields: QueueFields, name: str, queue: str) -> dict[str, Any]:
    """Draw one field of the tree-grid."""
    label = {
        "weight": _("Weight of %(queue)s"),
        "min": _("Min of %(queue)s"),
        "max": _("Max of %(queue)s"),
    }[name]
    return {
        "name": f"q-{fields.id}-{name}",
        "value": fields.values[name],
        "label": label % {"queue": queue},
        "errors": fields.errors.get(name, []),
    }
