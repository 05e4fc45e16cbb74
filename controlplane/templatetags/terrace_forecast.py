"""When a job will start, in words."""

from datetime import datetime

from django import template
from django.utils.translation import gettext as _
from django.utils.translation import ngettext_lazy

from controlplane.templatetags.terrace import clock
from controlplane.units import UNKNOWN
from scheduling.models import StartForecast

register = template.Library()


@register.filter
def start_range(forecast: StartForecast) -> str:
    """Say when it will start: even odds by the first time, nine in ten by the second."""
    if forecast.p50_at is None:
        return _("When it starts cannot be told.")
    begin, end = clock(forecast.p50_at), clock(forecast.p90_at)
    if forecast.p90_at is None:
        return _("It starts about %(from)s, or much later.") % {"from": begin}
    if begin == end:
        return _("It starts about %(from)s.") % {"from": begin}
    return _("It starts about %(from)s to %(to)s.") % {"from": begin, "to": end}


@register.filter
def told_beside_start(forecast: StartForecast | None, started_at: datetime) -> str:
    """Say the range that was first told of a job, and whether it started within it."""
    if forecast is None or forecast.p50_at is None:
        return UNKNOWN
    begin, end = clock(forecast.p50_at), clock(forecast.p90_at)
    if forecast.p90_at is None:
        return _("%(from)s or later") % {"from": begin}
    told = begin if begin == end else _("%(from)s to %(to)s") % {"from": begin, "to": end}
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
