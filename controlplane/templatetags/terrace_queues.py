"""Draws numbers and shares of queues."""

from typing import Any

from django import template
from django.utils.html import escape, format_html
from django.utils.safestring import SafeString, mark_safe
from django.utils.translation import gettext as _
from django.utils.translation import pgettext_lazy

from controlplane.charts.bullets import bullet
from controlplane.forms.changes import policies
from controlplane.forms.queues import QueueFields
from controlplane.templatetags.terrace import chip
from controlplane.units import UNKNOWN
from scheduling.domain.queries.queues import QueueRow

register = template.Library()


@register.simple_tag
def share_bar(row: QueueRow, resource: str) -> SafeString:
    """Draw allocated against deserved, as text for rows; a dash before the first cycle."""
    if row.allocated is None or row.deserved is None:
        return format_html('<span class="meta">{}</span>', UNKNOWN)
    bar = bullet(
        resource,
        minimum=row.min.get(resource, 0),
        deserved=row.deserved.get(resource),
        allocated=row.allocated.get(resource, 0),
        maximum=row.max.get(resource),
    )
    words = escape(bar.summary)
    used = _rect("used", x="0", y=5, width=f"{bar.used_percent}%", height=4)
    over = mark = ""
    if bar.over_percent != "0":
        over = _rect(
            "over", x=f"{bar.deserved_percent}%", y=5, width=f"{bar.over_percent}%", height=4
        )
    if bar.has_min:
        mark = _rect("mark", x=f"{bar.min_percent}%", y=1, width="2", height=12)
    return mark_safe(  # noqa: S308 -- words are escaped, the rest are numbers of ours
        f'<svg class="bullet" role="img" aria-label="{words}"><title>{words}</title>'
        '<rect class="bullet-track" x="0" y="3" width="100%" height="8" rx="2"/>'
        f'<rect class="bullet-deserved" x="0" y="3" width="{bar.deserved_percent}%" height="8"'
        f' rx="2"/>{used}{over}{mark}</svg>'
    )


def _rect(part: str, *, x: str, y: int, width: str, height: int) -> str:
    return f'<rect class="bullet-{part}" x="{x}" y="{y}" width="{width}" height="{height}"/>'


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


@register.filter
def order_of_jobs(policy: str) -> str:
    """Say in which order a queue serves its jobs."""
    return dict(policies()).get(policy, policy)


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
