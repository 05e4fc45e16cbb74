"""Who did what to what, and why: the record, its filters and its files."""

from __future__ import annotations

from urllib.parse import urlencode

from django.core.handlers.asgi import ASGIRequest
from django.http import Http404, HttpResponse, StreamingHttpResponse
from django.urls import reverse

from controlplane import audit_export
from controlplane.audit_export import ExportFormat
from controlplane.audit_filters import NAMES, filter_of
from controlplane.pages.frame import PageRequest, now, page, render_page
from scheduling.domain.queries.activity import list_activity
from scheduling.domain.wording import sentence
from tenants.domain.access import Verb, reads
from tenants.models import OrgClosure, OrgUnit

MOST_UNITS = 500
"""So many units the filter offers; a link from a unit's page works for any."""


@page
def feed(request: PageRequest) -> HttpResponse:
    """Show the record as far as the viewer may read it."""
    given = {name: request.GET.get(name, "").strip() for name in NAMES}
    where, wrong = filter_of(request.GET.dict())
    before = request.GET.get("before", "")
    found = list_activity(request.actor, where, before=int(before) if before.isdecimal() else None)
    chosen = {name: text for name, text in given.items() if text}
    query = urlencode(chosen)
    context = {
        "rows": found.rows,
        "next_cursor": found.next_cursor,
        "where": given,
        "is_filtered": bool(chosen),
        "errors": {one.path: sentence(one.code, one.params) for one in wrong},
        "units": _units(request),
        "exports": [
            (form, f"{reverse('pages:activity_export', args=[str(form)])}?{query}")
            for form in ExportFormat
        ],
    }
    return render_page(request, "activity/list.html", context, section="pages:activity")


def _units(request: PageRequest) -> list[OrgUnit]:
    """Return the units by whose record the viewer may narrow the list."""
    scope = reads(request.actor, Verb.AUDIT_READ)
    units = OrgUnit.objects.select_related("parent").order_by("name", "id")
    if not scope.sees_everything:
        below = OrgClosure.objects.filter(ancestor__in=scope.readable_units)
        units = units.filter(id__in=below.values("descendant_id"))
    return list(units[:MOST_UNITS])


@page
def export(request: PageRequest, form: str) -> StreamingHttpResponse:
    """Give the filtered record as a file."""
    if form not in set(ExportFormat):
        raise Http404
    where, _wrong = filter_of(request.GET.dict())
    return audit_export.stream(
        request.actor,
        where,
        ExportFormat(form),
        name=f"audit-{now():%Y%m%d-%H%M%S}",
        is_async=isinstance(request, ASGIRequest),
    )
