"""The list of jobs: tabs, filters in the address, keyset pages."""

from dataclasses import asdict

from django.contrib import messages
from django.http import HttpResponse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from controlplane.pages.frame import PageRequest, now, page, render_page
from scheduling.domain.queries.jobs import (
    TABS,
    JobFilter,
    JobPage,
    count_by_phase,
    count_by_tab,
    list_jobs,
)
from scheduling.spec.job_spec import JobKind
from tenants.domain.errors import Invalid

LABELS = {
    "all": gettext_lazy("All"),
    "waiting": gettext_lazy("Waiting"),
    "running": gettext_lazy("Running"),
    "suspended": gettext_lazy("Suspended"),
    "completed": gettext_lazy("Completed"),
    "failed": gettext_lazy("Failed"),
    "cancelled": gettext_lazy("Cancelled"),
}


@page
def listing(request: PageRequest) -> HttpResponse:
    """Show one page of the jobs that the filters let through."""
    where = filter_of(request)
    counts = count_by_tab(count_by_phase(request.actor, queue=where.queue))
    found = _load(request, where)
    context = {
        "where": asdict(where),
        "is_narrowing": where.is_narrowing,
        "tabs": [(name, LABELS[name], counts[name]) for name in TABS],
        "jobs": found.jobs,
        "next_cursor": found.next_cursor,
        "is_later": "after" in request.GET,
        "kinds": list(JobKind),
        "now": now(),
    }
    return render_page(request, "jobs/list.html", context, section="pages:job_list")


def filter_of(request: PageRequest) -> JobFilter:
    """Read the filters from the address; `me` stands for the viewer."""
    tab = request.GET.get("state", "all")
    owner = request.GET.get("user", "").strip()
    return JobFilter(
        tab=tab if tab in TABS else "all",
        queue=request.GET.get("queue", "").strip(),
        owner=request.user.username if owner == "me" else owner,
        text=request.GET.get("q", "").strip()[:100],
        kind=request.GET.get("kind", ""),
    )


def _load(request: PageRequest, where: JobFilter) -> JobPage:
    try:
        return list_jobs(request.actor, where, cursor=request.GET.get("after", ""))
    except Invalid:
        messages.warning(request, _("That page's address was damaged; here is the first page."))
        return list_jobs(request.actor, where)
