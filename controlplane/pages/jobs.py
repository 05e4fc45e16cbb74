"""The list of jobs: tabs, saved views, filters in the address, keyset pages, groups, export."""

from __future__ import annotations

import csv
from collections.abc import AsyncIterator, Iterator
from dataclasses import asdict
from io import StringIO
from urllib.parse import urlencode

from asgiref.sync import sync_to_async
from django.contrib import messages
from django.core.handlers.asgi import ASGIRequest
from django.http import HttpResponse, HttpResponseRedirect, QueryDict, StreamingHttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_POST

from controlplane.pages.frame import PageRequest, id_of, now, page, render_page
from controlplane.pages.preferences import COLUMNS, hidden_columns
from scheduling.domain.queries.jobs import (
    LARGEST_PAGE,
    TABS,
    JobFilter,
    JobPage,
    count_by_phase,
    count_by_tab,
    count_newer,
    encode_cursor,
    list_jobs,
)
from scheduling.domain.wording import sentence
from scheduling.models import Job
from scheduling.spec.job_spec import JobKind
from tenants.domain import personal
from tenants.domain.access import Actor
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
FILTERS = ("state", "q", "queue", "user", "kind", "group")
"""What of the address narrows or arranges the list, and is kept in a saved view."""
GROUPS = {"queue": gettext_lazy("Queue"), "user": gettext_lazy("User")}
MOST_EXPORTED = 100_000
MOST_NEWER = 99
EXPORTED = (
    "id",
    "name",
    "kind",
    "queue",
    "user",
    "phase",
    "reason",
    "tasks_total",
    "tasks_running",
    "tasks_succeeded",
    "tasks_failed",
    "gpu_milli",
    "cpu_milli",
    "memory_bytes",
    "priority",
    "created_at",
    "started_at",
    "finished_at",
)


@page
def listing(request: PageRequest) -> HttpResponse:
    """Show one page of the jobs that the filters let through."""
    where = filter_of(request)
    counts = count_by_tab(count_by_phase(request.actor, queue=where.queue))
    found = _load(request, where)
    group = request.GET.get("group", "")
    query = filters_query(request.GET)
    views = personal.saved_views(request.actor, "jobs")
    context = {
        "where": asdict(where),
        "is_narrowing": where.is_narrowing,
        # The maintained counters know queues and phases; with another filter they would mislead.
        "has_counts": not (where.owner or where.text or where.kind),
        "tabs": [(name, LABELS[name], counts[name]) for name in TABS],
        "views": [(view, view.query == query) for view in views],
        "jobs": found.jobs,
        "groups": _grouped(found.jobs, group),
        "group": group if group in GROUPS else "",
        "group_choices": GROUPS.items(),
        "next_cursor": found.next_cursor,
        "newest": encode_cursor(found.jobs[0]) if found.jobs else "",
        "is_later": "after" in request.GET,
        "filters_query": query,
        "column_choices": COLUMNS.items(),
        "hidden_columns": hidden_columns(request),
        "kinds": list(JobKind),
        "now": now(),
    }
    return render_page(request, "jobs/list.html", context, section="pages:job_list")


def filter_of(request: PageRequest, query: QueryDict | None = None) -> JobFilter:
    """Read the filters from the address; `me` stands for the viewer."""
    given = request.GET if query is None else query
    tab = given.get("state", "all")
    owner = given.get("user", "").strip()
    return JobFilter(
        tab=tab if tab in TABS else "all",
        queue=given.get("queue", "").strip(),
        owner=request.user.username if owner == "me" else owner,
        text=given.get("q", "").strip()[:100],
        kind=given.get("kind", ""),
    )


def filters_query(given: QueryDict) -> str:
    """Write the filters of an address again, in one order and without what is empty."""
    found = {name: given.get(name, "").strip() for name in FILTERS}
    if found["state"] == "all":
        found["state"] = ""
    return urlencode({name: value for name, value in found.items() if value})


def _load(request: PageRequest, where: JobFilter) -> JobPage:
    try:
        return list_jobs(request.actor, where, cursor=request.GET.get("after", ""))
    except Invalid:
        messages.warning(request, _("That page's address was damaged; here is the first page."))
        return list_jobs(request.actor, where)


def _grouped(jobs: tuple[Job, ...], group: str) -> list[tuple[str, str, list[Job]]]:
    """Return (title, filter of the whole group, rows); one group without a title if not asked."""
    if group not in GROUPS:
        return [("", "", list(jobs))]
    found: dict[str, list[Job]] = {}
    for job in jobs:
        found.setdefault(job.queue.name if group == "queue" else job.owner.username, []).append(job)
    return [(name, urlencode({group: name}), found[name]) for name in sorted(found)]


@page
def newer(request: PageRequest) -> HttpResponse:
    """Say how many jobs came after the newest that the page shows, and how many each tab has now.

    The first as a pill that loads them.
    """
    where = filter_of(request)
    counts = count_by_tab(count_by_phase(request.actor, queue=where.queue))
    try:
        count = count_newer(
            request.actor, where, than=request.GET.get("than", ""), most=MOST_NEWER + 1
        )
    except Invalid:
        count = 0
    context = {
        "count": min(count, MOST_NEWER),
        "is_more": count > MOST_NEWER,
        "address": f"{reverse('pages:job_list')}?{filters_query(request.GET)}",
        "counts": counts.items(),
    }
    return render(request, "jobs/_newer.html", context)


# --- saved views ----------------------------------------------------------------------------------


@page
@require_POST
def save_view(request: PageRequest) -> HttpResponse:
    """Keep the filters of the list under a name, or forget a kept view."""
    address = reverse("pages:job_list")
    query = filters_query(QueryDict(request.POST.get("query", "")))
    if forgotten := request.POST.get("forget", ""):
        personal.delete_view(actor=request.actor, view_id=id_of(forgotten, "view"))
        messages.success(request, _("The view is gone; the jobs are where they were."))
        return HttpResponseRedirect(address)
    try:
        view = personal.save_view(
            actor=request.actor,
            page="jobs",
            name=request.POST.get("name", ""),
            query=query,
            now=now(),
        )
    except Invalid as error:
        for problem in error.problems:
            messages.error(request, sentence(problem.code, problem.params))
    else:
        messages.success(request, _("“%(name)s” is a tab of your own now.") % {"name": view.name})
    return HttpResponseRedirect(f"{address}?{query}")


# --- export ---------------------------------------------------------------------------------------


@page
def export(request: PageRequest) -> StreamingHttpResponse:
    """Send all jobs that the filters let through as CSV, a page of rows at a time."""
    where = filter_of(request)
    actor = request.actor
    rows = _pages_later(actor, where) if isinstance(request, ASGIRequest) else _pages(actor, where)
    reply = StreamingHttpResponse(rows, content_type="text/csv; charset=utf-8")
    stamp = now().strftime("%Y%m%d-%H%M%S")
    reply["Content-Disposition"] = f'attachment; filename="jobs-{stamp}.csv"'
    return reply


def _pages(actor: Actor, where: JobFilter) -> Iterator[str]:
    yield csv_lines([EXPORTED])
    cursor, sent = "", 0
    while sent < MOST_EXPORTED:
        text, cursor, count = _page_of_rows(actor, where, cursor)
        yield text
        sent += count
        if not cursor:
            return
    yield csv_lines([(_limit_words(),)])


async def _pages_later(actor: Actor, where: JobFilter) -> AsyncIterator[str]:
    """Like `_pages`, without holding the event loop."""
    yield csv_lines([EXPORTED])
    cursor, sent = "", 0
    while sent < MOST_EXPORTED:
        text, cursor, count = await sync_to_async(_page_of_rows)(actor, where, cursor)
        yield text
        sent += count
        if not cursor:
            return
    yield csv_lines([(_limit_words(),)])


def _limit_words() -> str:
    return _("Only the newest %(n)d jobs are in this file; narrow the filters for others.") % {
        "n": MOST_EXPORTED
    }


def _page_of_rows(actor: Actor, where: JobFilter, cursor: str) -> tuple[str, str, int]:
    found = list_jobs(actor, where, cursor=cursor, limit=LARGEST_PAGE)
    return csv_lines(_row(job) for job in found.jobs), found.next_cursor, len(found.jobs)


def _row(job: Job) -> tuple[object, ...]:
    named = {
        "queue": job.queue.name,
        "user": job.owner.username,
        "reason": sentence(job.reason_code, job.reason_params) if job.reason_code else "",
        **{
            name: value.isoformat(timespec="seconds") if (value := getattr(job, name)) else ""
            for name in ("created_at", "started_at", "finished_at")
        },
    }
    return tuple(named.get(name, getattr(job, name, "")) for name in EXPORTED)


def csv_lines(rows: Iterator[tuple[object, ...]] | list[tuple[object, ...]]) -> str:
    """Write rows as CSV; a text that a spreadsheet would run as a formula gets an apostrophe."""
    buffer = StringIO()
    writer = csv.writer(buffer, lineterminator="\r\n")
    writer.writerows([_harmless(value) for value in row] for row in rows)
    return buffer.getvalue()


def _harmless(value: object) -> object:
    if isinstance(value, str) and value[:1] in {"=", "+", "-", "@", "\t", "\r"}:
        return f"'{value}"
    return value
