"""Filters and tags of the templates: amounts, times, states, reasons, links of the frame."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from django import template
from django.http import HttpRequest
from django.template.context import Context
from django.urls import reverse
from django.utils import timezone
from django.utils.html import conditional_escape, format_html
from django.utils.safestring import SafeString, mark_safe
from django.utils.translation import gettext as _
from django.utils.translation import ngettext, pgettext, pgettext_lazy

from controlplane.charts.states import attempt_token, phase_token
from controlplane.units import GPU, UNKNOWN, amount, bytes_, milli, plain, resource_name
from scheduling.domain.wording import sentence as wording_sentence

register = template.Library()

GO_KEYS = {
    "pages:home": "h",
    "pages:ops": "o",
    "pages:job_list": "j",
    "pages:job_new": "n",
    "pages:queue_tree": "q",
    "pages:cluster": "c",
    "pages:activity": "a",
    "pages:sessions": "s",
    "pages:insights": "i",
}
"""Page -> the letter that opens it after `g`."""
_ENDED = frozenset({"Completed", "Terminated", "Failed", "Aborted"})
register.filter("milli", milli)
register.filter("bytes", bytes_)
register.filter("amount", amount)
register.filter("resource_name", resource_name)


@register.filter
def resource_list(amounts: Mapping[str, int] | None) -> str:
    """Write amounts in one line: `8 GPU, 32 CPU, 64 GiB memory`."""
    parts = [
        f"{amount(value, name)} {resource_name(name)}"
        for name, value in sorted((amounts or {}).items(), key=_resource_order)
        if value
    ]
    return ", ".join(parts) or UNKNOWN


def _resource_order(item: tuple[str, int]) -> tuple[int, str]:
    order = ("nvidia.com/gpu", "cpu", "memory")
    return (order.index(item[0]) if item[0] in order else len(order), item[0])


@register.filter
def item(mapping: Mapping[str, Any] | None, key: str) -> Any:
    """Return the value of a mapping at a key that is a variable, None if there is none."""
    return (mapping or {}).get(key)


@register.filter
def percent(part: float | None, whole: float | None = None) -> str:
    """Write a share in percent; an unknown one is a dash, never zero."""
    if part is None or whole == 0:
        return UNKNOWN
    return f"{plain(100 * part / (whole or 1), 0)} %" if whole else f"{plain(part, 0)} %"


@register.filter
def duration(value: timedelta | float | None) -> str:
    """Write a span in its two largest units: `2 h 03 min`."""
    if value is None:
        return UNKNOWN
    seconds = max(0, int(value.total_seconds() if isinstance(value, timedelta) else value))
    minutes, second = divmod(seconds, 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    if days:
        return _("%(days)d d %(hours)d h") % {"days": days, "hours": hour}
    if hours:
        return _("%(hours)d h %(minutes)02d min") % {"hours": hours, "minutes": minute}
    if minutes:
        return _("%(minutes)d min %(seconds)02d s") % {"minutes": minutes, "seconds": second}
    return _("%(seconds)d s") % {"seconds": second}


@register.filter
def ago(value: datetime | None) -> str:
    """Write how long ago something was, roughly."""
    if value is None:
        return UNKNOWN
    seconds = int((datetime.now(UTC) - value).total_seconds())
    if seconds < 45:  # noqa: PLR2004 -- from here on a minute is the better word
        return _("just now")
    minutes = max(1, round(seconds / 60))
    if minutes < 60:  # noqa: PLR2004 -- minutes in an hour
        return ngettext("%(n)d min ago", "%(n)d min ago", minutes) % {"n": minutes}
    hours = round(minutes / 60)
    if hours < 48:  # noqa: PLR2004 -- two days read better as hours
        return ngettext("%(n)d h ago", "%(n)d h ago", hours) % {"n": hours}
    days = round(hours / 24)
    return ngettext("%(n)d day ago", "%(n)d days ago", days) % {"n": days}


@register.filter
def clock(value: datetime | None) -> str:
    """Write a time of day today, with the date on any other day."""
    if value is None:
        return UNKNOWN
    local = timezone.localtime(value)
    if local.date() == timezone.localtime().date():
        return local.strftime("%H:%M:%S")
    if local.year == timezone.localtime().year:
        return local.strftime("%m-%d %H:%M")
    return local.strftime("%Y-%m-%d")


@register.filter
def iso(value: datetime | None) -> str:
    """Write a time for machines, in UTC."""
    return value.astimezone(UTC).isoformat(timespec="seconds") if value else ""


@register.filter
def ran_for(attempt: Any, now: datetime) -> str:
    """Write how long an attempt ran, up to now if it still does."""
    if attempt.started_at is None:
        return UNKNOWN
    return duration((attempt.finished_at or now) - attempt.started_at)


@register.filter
def tasks_of(job: Any) -> str:
    """Write how many tasks run of how many; of a job that ended, how many succeeded."""
    count = job.tasks_succeeded if job.phase in _ENDED else job.tasks_running
    return f"{count}/{job.tasks_total}"


@register.filter
def job_state(job: Any) -> str:
    """Return the state token of a job, by which glyph and colour are chosen."""
    return phase_token(job.phase, job.gang_phase)


@register.filter
def phase_state(phase: str) -> str:
    """Return the state token of a phase alone."""
    return phase_token(phase, "")


@register.filter
def attempt_state(state: str) -> str:
    """Return the state token of a task or an attempt."""
    return attempt_token(state)


# Lazily: a page of 1,000 tasks asks for 1,000 of them, and each needs one.
STATE_LABELS = {
    "Pending": pgettext_lazy("state", "Pending"),
    "Aborting": pgettext_lazy("state", "Suspending"),
    "Aborted": pgettext_lazy("state", "Suspended"),
    "Running": pgettext_lazy("state", "Running"),
    "Restarting": pgettext_lazy("state", "Restarting"),
    "Completing": pgettext_lazy("state", "Completing"),
    "Completed": pgettext_lazy("state", "Completed"),
    "Terminating": pgettext_lazy("state", "Cancelling"),
    "Terminated": pgettext_lazy("state", "Cancelled"),
    "Failed": pgettext_lazy("state", "Failed"),
    "Bound": pgettext_lazy("state", "Bound"),
    "Starting": pgettext_lazy("state", "Starting"),
    "Stopping": pgettext_lazy("state", "Stopping"),
    "Succeeded": pgettext_lazy("state", "Succeeded"),
    "Evicted": pgettext_lazy("state", "Evicted"),
    "Cancelled": pgettext_lazy("state", "Cancelled"),
    "Lost": pgettext_lazy("state", "Lost"),
    "Ready": pgettext_lazy("state", "Ready"),
    "NotReady": pgettext_lazy("state", "Not ready"),
    "Joining": pgettext_lazy("state", "Joining"),
    "Removed": pgettext_lazy("state", "Removed"),
    "Open": pgettext_lazy("state", "Open"),
    "Closing": pgettext_lazy("state", "Closing"),
    "Closed": pgettext_lazy("state", "Closed"),
    "Unknown": pgettext_lazy("state", "Unknown"),
}


@register.filter
def phase_label(phase: str) -> str:
    """Return the shown name of a phase or state."""
    return str(STATE_LABELS.get(phase, phase))


@register.simple_tag
def sentence(code: str, params: Mapping[str, Any] | None = None) -> str:
    """Return the words of a reason or problem code."""
    return wording_sentence(code, params or {}) if code else ""


@register.filter
def figure_json(figure: Mapping[str, Any]) -> str:
    """Write a figure for a `data-figure` attribute; the template escapes it."""
    return json.dumps(figure, separators=(",", ":"), ensure_ascii=False)


@register.simple_tag(takes_context=True)
def with_query(context: Context, **changes: object) -> str:
    """Return the query of this address with some parameters changed; an empty one is dropped."""
    request: HttpRequest = context["request"]
    query = request.GET.copy()
    for name, value in changes.items():
        if value in {None, ""}:
            query.pop(name, None)
        else:
            query[name] = str(value)
    text = query.urlencode()
    return f"?{text}" if text else "?"


@register.inclusion_tag("_rail_link.html", takes_context=True)
def rail_link(context: Context, name: str, icon: str, label: str) -> dict[str, object]:
    """Draw one link of the rail; the one whose section is shown says so."""
    url = reverse(name)
    return {
        "url": url,
        "icon": icon,
        "label": label,
        "is_current": context.get("section") == name,
        "key": GO_KEYS.get(name, ""),
    }


@register.simple_tag
def span_of(job: Any, which: str, now: datetime) -> SafeString:
    """Write how long a job waited or ran; a span that goes on counts up in the browser."""
    begin, end = (
        (job.created_at, job.started_at or job.finished_at)
        if which == "wait"
        else (job.started_at, job.finished_at)
    )
    if begin is None:
        return SafeString("")
    if end is None and job.phase not in _ENDED:
        return format_html(
            '<time datetime="{}" data-since>{}</time>', iso(begin), duration(now - begin)
        )
    return format_html("{}", duration(end - begin) if end else "")


@register.inclusion_tag("_task_bar.html")
def task_bar(job: Any) -> dict[str, object]:
    """Draw a job's tasks as one bar, by state."""
    parts = [
        ("succeeded", job.tasks_succeeded, _("succeeded")),
        ("running", job.tasks_running, _("running")),
        ("terminating", job.tasks_stopping, _("stopping")),
        ("queued", job.tasks_starting, _("starting")),
        ("failed", job.tasks_failed, _("failed")),
        ("pending", job.tasks_pending, _("pending")),
    ]
    total = max(1, job.tasks_total, sum(count for _token, count, _label in parts))
    segments, at = [], 0.0
    for token, count, label in parts:
        width = 100 * count / total
        if count:
            segments.append(
                {
                    "token": token,
                    "x": f"{at:.4g}",
                    "width": f"{width:.4g}",
                    "label": f"{count} {label}",
                }
            )
        at += width
    words = ", ".join(str(segment["label"]) for segment in segments)
    gang = _("gang of %(n)d") % {"n": job.min_available}
    return {"segments": segments, "summary": f"{words} · {gang}" if words else gang}


@register.simple_tag
def job_request(job: Any) -> str:
    """Write what all tasks of a job ask for together."""
    amounts = {GPU: job.gpu_milli, "cpu": job.cpu_milli, "memory": job.memory_bytes}
    return resource_list(amounts)


@register.filter
def without_pods(amounts: Mapping[str, int]) -> dict[str, int]:
    """Leave out the pod that every task implies."""
    return {name: value for name, value in amounts.items() if name != "pods"}


@register.simple_tag
def chip(state: str, label: object, size: str = "") -> SafeString:
    """Draw a state, glyph and label: as text, since a page has hundreds of them."""
    look = f"chip chip-{size}" if size else "chip"
    return mark_safe(  # noqa: S308 -- state and size are ours, the label is escaped
        f'<span class="{look}"><svg class="chip-glyph state-{state}" aria-hidden="true">'
        f'<use href="#icon-state-{state}"/></svg>'
        f'<span class="chip-label">{conditional_escape(str(label))}</span></span>'
    )


@register.simple_tag
def icon(name: str) -> SafeString:
    """Draw a symbol of `_icons.html`: for rows, as `chip`."""
    return mark_safe(  # noqa: S308 -- templates name symbols of ours
        f'<svg class="icon" aria-hidden="true"><use href="#icon-{name}"/></svg>'
    )


@register.simple_tag
def node_chip(node: Any) -> SafeString:
    """Draw a node's state; cordon and drain come before Ready."""
    if node.state == "Ready" and node.is_draining:
        return chip("terminating", pgettext("state", "Draining"))
    if node.state == "Ready" and node.is_cordoned:
        return chip("held", pgettext("state", "Cordoned"))
    tokens = {"Ready": "succeeded", "NotReady": "failed", "Joining": "queued"}
    return chip(tokens.get(node.state, "unknown"), phase_label(node.state))


@register.simple_tag
def queue_chip(state: str) -> SafeString:
    """Draw a queue's state."""
    tokens = {"Open": "succeeded", "Closing": "terminating", "Closed": "held"}
    return chip(tokens.get(state, "unknown"), phase_label(state))


@register.simple_tag
def changes(row: Any) -> str:
    """Write what an audit row changed: `weight: 1 → 3`."""
    before, after = row.before or {}, row.after or {}
    names = [
        name
        for name in {**before, **after}
        if before.get(name) != after.get(name) and name != "version"
    ]
    return ", ".join(
        f"{name}: {_recorded(before[name])} → {_recorded(after.get(name))}"
        if name in before
        else f"{name}: {_recorded(after.get(name))}"
        for name in names
    )


def _recorded(value: Any) -> str:
    """Write a value of the record: amounts with their units, yes and no, a dash for nothing."""
    if isinstance(value, bool):
        return _("yes") if value else _("no")
    if value is None or value in ("", {}, []):
        return UNKNOWN
    if isinstance(value, dict) and all(type(one) is int for one in value.values()):
        return resource_list(value)
    return str(value)


@register.simple_tag
def spec_request(spec: Any) -> str:
    """Write what all tasks of a spec ask for together."""
    total: dict[str, int] = {}
    for role in spec.roles:
        for name, value in role.request.items():
            total[name] = total.get(name, 0) + value * role.replicas
    return resource_list(total)


@register.inclusion_tag("_rung_glyph.html")
def rung_glyph(state: str) -> dict[str, str]:
    """Draw whether a rung is passed, fails, or was not reached."""
    return {"token": {"passed": "succeeded", "failed": "pending"}.get(str(state), "queued")}
