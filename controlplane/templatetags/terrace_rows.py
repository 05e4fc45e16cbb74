"""What a page draws hundreds of times, as text: a template for each takes ten times as long.

A name that may hold anything is escaped here, since no template does it.
"""

from typing import Any
from uuid import UUID

from django import template
from django.utils.html import escape
from django.utils.safestring import SafeString, mark_safe
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from controlplane.charts.slot_groups import IDLE_PERCENT, Grouped
from controlplane.charts.states import attempt_token
from controlplane.links import job_url, task_url_prefix
from controlplane.templatetags.terrace import chip, phase_label
from controlplane.units import UNKNOWN

register = template.Library()

SLOT_PIXELS = 20
_SLOT_WORDS = {
    "free": gettext_lazy("free"),
    "busy": gettext_lazy("held"),
    "idle": gettext_lazy("held, idle"),
    "bad": gettext_lazy("not healthy"),
}


@register.simple_tag
def task_cells(job: Any, group: Any) -> SafeString:
    """Draw the tasks of a role as cells with their index, each a link to its task."""
    prefix = escape(task_url_prefix(job.id, group.role.name))
    name = escape(group.role.name)
    labels: dict[str, tuple[str, str]] = {}
    cells = []
    for task in group.tasks:
        if task.state not in labels:
            labels[task.state] = (attempt_token(task.state), escape(phase_label(task.state)))
        token, label = labels[task.state]
        words = f"{name}-{task.index}: {label}"
        if task.node:
            words += f", {escape(task.node.name)}"
        if task.attempt_number > 1:
            words += ", " + escape(_("attempt %(n)s") % {"n": task.attempt_number})
        cells.append(
            f'<a class="matrix-cell" href="{prefix}{task.index}/" title="{words}">'
            f'{chip(token, task.index)}<span class="visually-hidden">{label}</span></a>'
        )
    return mark_safe("\n".join(cells))  # noqa: S308 -- every part is escaped above


@register.simple_tag
def attempt_options(names: Any, chosen: UUID | None) -> SafeString:
    """Write the attempts of a job as choices of a menu."""
    numbered = _("attempt %(n)s")
    labels: dict[str, str] = {}
    options = []
    for one in names:
        label = labels.get(one.state) or labels.setdefault(one.state, phase_label(one.state))
        words = f"{one.role}-{one.index} · {numbered % {'n': one.number}} · {label}"
        selected = " selected" if one.id == chosen else ""
        options.append(f'<option value="{one.id}"{selected}>{escape(words)}</option>')
    return mark_safe("".join(options))  # noqa: S308 -- words are escaped, ids are UUIDs


@register.simple_tag
def slot_bar(load: Any) -> SafeString:
    """Draw a node's GPUs as squares: free, busy, held but idle, or broken."""
    squares = []
    for number, slot in enumerate(load.slots):
        is_idle = slot.percent is not None and slot.percent < IDLE_PERCENT
        look = "idle" if slot.state == "busy" and is_idle else slot.state
        job = f" · {slot.job.name}" if slot.job else ""
        title = f"GPU {slot.device.index}: {_SLOT_WORDS[look]}, {_percent(slot.percent)}{job}"
        squares.append(
            f'<rect class="slot-{look}" x="{number * SLOT_PIXELS + 1}" y="1" width="16" height="16"'
            f' rx="3"><title>{escape(title)}</title></rect>'
        )
    summary = _("%(free)d of %(all)d GPUs free") % {
        "free": load.free_gpus,
        "all": len(load.slots),
    }
    width = max(1, len(squares) * SLOT_PIXELS)
    head = f'<svg width="{width}" height="18" role="img" aria-label="{escape(summary)}">'
    return mark_safe(f"{head}{''.join(squares)}</svg>")  # noqa: S308 -- every part is escaped above


@register.simple_tag
def slot_words(load: Any, groups: Grouped | None = None) -> SafeString:
    """Write a node's GPUs with their use, who holds them and their group, for a chart's table."""
    words = []
    names = groups.words if groups else {}
    for slot in load.slots:
        job = slot.job
        holder = f' (<a href="{job_url(job.id)}">{escape(job.name)}</a>)' if job else ""
        group = f" {escape(names[slot.device.id])}" if names else ""
        words.append(f"{slot.device.index}: {_percent(slot.percent)}{holder}{group}")
    return mark_safe(", ".join(words))  # noqa: S308 -- names are escaped above


def _percent(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:.0f} %"
