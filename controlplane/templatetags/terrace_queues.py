"""Draws numbers and shares of queues."""

from typing import Any

from django import template
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import pgettext_lazy

from controlplane.charts.bullets import bullet
from controlplane.forms.queues import QueueFields
from controlplane.templatetags.terrace import chip
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


_CHANGE_STATES = {
    "draft": ("queued", pgettext_lazy("state", "Draft")),
    "validated": ("queued", pgettext_lazy("state", "Checked")),
    "in_review": ("pending", pgettext_lazy("state", "In review")),
    "approved": ("succeeded", pgettext_lazy("state", "Approved")),
    "scheduled": ("pending", pgettext_lazy("state", "Scheduled")),
    "applied": ("running", pgettext_lazy("state", "In force")),
    "reverted": ("held", pgettext_lazy("state", "Reverted")),
    "rejected": ("failed", pgettext_lazy("state", "Sent back")),
    "failed": ("failed", pgettext_lazy("state", "Refused")),
}


@register.simple_tag
def change_chip(state: str) -> SafeString:
    """Draw how far a change set has come."""
    return chip(*_CHANGE_STATES.get(state, ("unknown", state)))
