"""When a job will start, in words."""

from datetime import datetime, timedelta

from django import template
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import ngettext_lazy

from controlplane.templatetags.terrace import clock
from controlplane.units import UNKNOWN
from scheduling.models import StartForecast

register = template.Library()
HALF_A_MINUTE = timedelta(seconds=30)


@register.filter
def start_range(forecast: StartForecast) -> str:
    """Say when it will start: even odds by the first time, nine in ten by the second."""
    if forecast.p50_at is None:
        return _("When it starts cannot be told.")
    begin = about(forecast.p50_at)
    if forecast.p90_at is None:
        return _("It starts about %(from)s, or much later.") % {"from": begin}
    end = about(forecast.p90_at)
    if begin == end:
        return _("It starts about %(from)s.") % {"from": begin}
    return _("It starts about %(from)s to %(to)s.") % {"from": begin, "to": end}


@register.filter
def last_start(forecast: StartForecast) -> str:
    """Say when the last of those that wait in a queue starts, as far as that can be told."""
    if forecast.p50_at is None:
        return _("When the jobs that wait in this queue start cannot be told.")
    return _("The last start that is foretold in this queue: about %(range)s.") % {
        "range": _range(forecast.p50_at, forecast.p90_at)
    }


def about(value: datetime) -> str:
    """Write a foretold time, which no forecast knows better than to the minute."""
    local = timezone.localtime(value + HALF_A_MINUTE)
    is_today = local.date() == timezone.localtime().date()
    return local.strftime("%H:%M") if is_today else clock(value)


def _range(early: datetime, late: datetime | None) -> str:
    begin = about(early)
    if late is None:
        return _("%(from)s or later") % {"from": begin}
    end = about(late)
    return begin if begin == end else _("%(from)s to %(to)s") % {"from": begin, "to": end}


@register.filter
def told_beside_start(forecast: StartForecast | None, started_at: datetime) -> str:
    """Say the range that was first told of a job, and whether it started within it."""
    if forecast is None or forecast.p50_at is None:
        return UNKNOWN
    told = _range(forecast.p50_at, forecast.p90_at)
    if forecast.p90_at is None:
        return told
    if started_at <= forecast.p50_at:
        return _("%(range)s: it came sooner") % {"range": told}
    if started_at <= forecast.p90_at:
        return _("%(range)s: as told") % {"range": told}
    return _("%(range)s: it came later") % {"range": told}


@register.filter
def forecast_basis(forecast: StartForecast) -> str:
    """Say by what the run times of the cluster's jobs were guessed, most trusted first."""
    told = (
        (
            "history",
            ngettext_lazy(
                "%(n)d job by what its owner's earlier jobs took.",
                "%(n)d jobs by what their owners' earlier jobs took.",
                "n",
            ),
        ),
        (
            "limit",
            ngettext_lazy("%(n)d job by its time limit.", "%(n)d jobs by their time limits.", "n"),
        ),
        (
            "size",
            ngettext_lazy(
                "%(n)d job by what others of as many GPUs took.",
                "%(n)d jobs by what others of as many GPUs took.",
                "n",
            ),
        ),
        (
            "others",
            ngettext_lazy(
                "%(n)d job by what other jobs took.", "%(n)d jobs by what other jobs took.", "n"
            ),
        ),
        (
            "unknown",
            ngettext_lazy(
                "Of %(n)d job nothing is known: set a time limit.",
                "Of %(n)d jobs nothing is known: set time limits.",
                "n",
            ),
        ),
    )
    counts = forecast.basis
    return " ".join(words % {"n": counts[name]} for name, words in told if counts.get(name))
