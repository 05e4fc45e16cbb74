"""Tags for quotas: amounts, names and bars."""

from django import template
from django.utils.translation import gettext as _

from controlplane.forms import quotas as forms
from scheduling.domain.queries.quotas import Line
from scheduling.models import Quota, QuotaResource, QuotaScope

register = template.Library()


@register.filter
def quota_amount(value: int, resource: str) -> str:
    """Write an amount of what a quota counts."""
    return forms.shown(QuotaResource(resource), value)


@register.filter
def quota_label(resource: str) -> str:
    """Name what a quota counts."""
    return str(forms.LABELS[QuotaResource(resource)])


@register.filter
def quota_whom(quota: Quota) -> str:
    """Say whom a quota is around."""
    if quota.user is not None:
        return quota.user.get_username()
    return _("every person") if quota.scope == QuotaScope.EACH_USER else _("the unit as a whole")


@register.filter
def quota_percent(line: Line) -> int:
    """Return how much of a limit is used, for the width of a bar."""
    if line.limit == 0:
        return 100
    return min(100, round(100 * line.used / line.limit))
