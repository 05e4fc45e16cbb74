"""One job: overview, tasks, timeline, logs, metrics, why, spec, events, files."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from uuid import UUID

import yaml
from django.http import HttpResponse, StreamingHttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils.dateparse import parse_datetime
from django.utils.http import content_disposition_header
from django.utils.translation import gettext_lazy

from controlplane.pages import fragments
from controlplane.pages.frame import PageRequest, now, page, render_page
from controlplane.pages.job_logs import (
    ALL,
    Choice,
    chosen_attempt,
    log_context,
    log_tail,
    merged_context,
)
from controlplane.pages.job_remedies import remedies
from scheduling.domain import files as job_files
from scheduling.domain import logs as job_logs
from scheduling.domain.queries import explain, forecasts
from scheduling.domain.queries import jobs as job_queries
from scheduling.domain.queries.activity import subject_activity
from scheduling.domain.queries.efficiency import efficiency
from scheduling.domain.queries.waits import waits_of
from scheduling.models import Job
from scheduling.models.job import FINISHED_PHASES
from tenants.domain.access import Verb, may
from tenants.domain.errors import NotFound

TABS = (
    ("job", gettext_lazy("Overview")),
    ("job_tasks", gettext_lazy("Tasks")),
    ("job_timeline", gettext_lazy("Timeline")),
    ("job_logs", gettext_lazy("Logs")),
    ("job_metrics", gettext_lazy("Metrics")),
    ("job_why", gettext_lazy("Why")),
    ("job_files", gettext_lazy("Files")),
    ("job_spec", gettext_lazy("Spec")),
    ("job_events", gettext_lazy("Events")),
)
CALIBRATED = timedelta(days=7)
"""How far back it is counted how often forecasts came true."""
WAITS = 50
"""Reasons of the past on a page."""
TAB_KEYS = {"job_why": "w", "job_logs": "l"}
"""Tab -> the letter that opens it."""


def _render(
    request: PageRequest,
    job: Job,
    tab: str,
    template: str,
    context: Mapping[str, object],
    *,
    header: Mapping[str, object] | None = None,
) -> HttpResponse:
    """Render a tab below the job's header, read here unless it is at hand."""
    full = {
        **(header or fragments.job_header_of(request.actor, job)),
        "tabs": [
            (reverse(f"pages:{name}", args=[job.id]), label, name == tab, TAB_KEYS.get(name, ""))
            for name, label in TABS
        ],
        **context,
    }
    return render_page(request, template, full, section="pages:job_list")


def _efficiency(job: Job) -> dict[str, object]:
    found = efficiency(job)
    return {"efficiency": found, "has_suggestion": any(one.suggested for one in found)}


@page
def overview(request: PageRequest, job_id: UUID) -> HttpResponse:
    """Show what matters first: tasks, the newest log lines, what was reported, facts."""
    job = job_queries.load_job(request.actor, job_id)
    roles = job_queries.tasks_by_role(request.actor, job)
    metrics = fragments.job_metrics_of(job, fragments.OVERVIEW)
    context = {"roles": roles, **log_tail(request.actor, job, Choice()), **metrics}
    if job.phase in FINISHED_PHASES:
        context |= _efficiency(job)
    return _render(request, job, "job", "jobs/overview.html", context)


@page
def tasks(request: PageRequest, job_id: UUID) -> HttpResponse:
    """Show the first tasks of each role as cells, and all of them in pages."""
    job = job_queries.load_job(request.actor, job_id)
    after = request.GET.get("after", "")
    context = {
        "roles": [] if after else job_queries.tasks_by_role(request.actor, job),
        "page": job_queries.task_page(request.actor, job, after=after),
        "after": after,
    }
    return _render(request, job, "job_tasks", "jobs/tasks.html", context)


@page
def task(request: PageRequest, job_id: UUID, role: str, index: int) -> HttpResponse:
    """Show one task with its attempts."""
    job = job_queries.load_job(request.actor, job_id)
    found = job_queries.task_of(request.actor, job, role, index)
    attempts = job_queries.attempts_of_task(found)
    peaks = job_queries.peaks_of(attempts)
    context = {
        "task": found,
        "attempts": [(attempt, peaks.get(attempt.id)) for attempt in attempts],
        "now": now(),
    }
    return _render(request, job, "job_tasks", "jobs/task.html", context)


@page
def timeline(request: PageRequest, job_id: UUID) -> HttpResponse:
    """Show the attempts over time."""
    job = job_queries.load_job(request.actor, job_id)
    context = fragments.job_timeline_of(request.actor, job)
    return _render(request, job, "job_timeline", "jobs/timeline.html", context)


@page
def logs(request: PageRequest, job_id: UUID) -> HttpResponse:
    """Show one attempt's output, followed live, or the lines in which a text occurs."""
    job = job_queries.load_job(request.actor, job_id)
    job_logs.require_logs(request.actor, job)
    choice = Choice(
        request.GET.get("attempt", ""),
        request.GET.get("stream", ""),
        request.GET.get("find", "")[:200],
    )
    read = merged_context if choice.attempt == ALL else log_context
    return _render(request, job, "job_logs", "jobs/logs.html", read(request.actor, job, choice))


@page
def log_download(request: PageRequest, job_id: UUID) -> HttpResponse | StreamingHttpResponse:
    """Send the whole log of one attempt as a file."""
    job = job_queries.load_job(request.actor, job_id)
    job_logs.require_logs(request.actor, job)
    attempt = chosen_attempt(job, request.GET.get("attempt", ""))
    if attempt is None:
        raise NotFound("log")
    stream = request.GET.get("stream", "")
    stream = stream if stream in job_logs.STREAMS else job_logs.STREAMS[0]
    task = attempt.task
    name = f"{job.name}-{task.role.name}-{task.index}-{attempt.number}.{stream}.log"
    reply = StreamingHttpResponse(
        job_logs.download(attempt=attempt, stream=stream), content_type="text/plain"
    )
    reply["Content-Disposition"] = content_disposition_header(as_attachment=True, filename=name)
    return reply


@page
def metrics(request: PageRequest, job_id: UUID) -> HttpResponse:
    """Show what tasks reported and what was measured."""
    job = job_queries.load_job(request.actor, job_id)
    reported = fragments.job_metrics_of(job, "")
    used = fragments.job_usage_of(job)
    context = {
        "charts": reported["charts"],
        "usage_charts": used["charts"],
        **_efficiency(job),
    }
    return _render(request, job, "job_metrics", "jobs/metrics.html", context)


@page
def why(request: PageRequest, job_id: UUID) -> HttpResponse:
    """Show why it waits as the last cycle said; what would start it is worked out after that."""
    job = job_queries.load_job(request.actor, job_id)
    header = fragments.job_header_of(request.actor, job)
    before = _time(request.GET.get("before", ""))
    waits = waits_of(request.actor, job, before=before, limit=WAITS + 1)
    context: dict[str, object] = {
        "ladder": explain.told(job).ladder,
        "waits": waits[:WAITS],
        "more": waits[WAITS - 1].since if len(waits) > WAITS else None,
        "is_later": before is not None,
    }
    if header["forecast"] is not None:
        at = now()
        context["calibration"] = forecasts.calibration(
            job.queue.cluster_id, since=at - CALIBRATED, now=at
        )
    return _render(request, job, "job_why", "jobs/why.html", context, header=header)


def _time(text: str) -> datetime | None:
    """Read a time of the address; what is none means the newest, as without it."""
    try:
        found = parse_datetime(text)
    except ValueError:
        return None
    return found if found is not None and found.tzinfo is not None else None


@page
def why_now(request: PageRequest, job_id: UUID) -> HttpResponse:
    """Plan the cluster as it is now: every rung with its numbers, and what would start the job."""
    job = job_queries.load_job(request.actor, job_id)
    at = now()
    found = explain.explain_job(request.actor, job, now=at)
    may_control = may(request.actor, Verb.JOB_CONTROL, job.unit_id, owner_id=job.owner_id)
    context = {
        "job": job,
        "ladder": found.ladder,
        "is_planned": True,
        "planned_at": at,
        "changes": remedies(job, found.changes, may_control=may_control),
    }
    if request.htmx:
        return render(request, "jobs/_why.html", context)
    return _render(request, job, "job_why", "jobs/why.html", context)


@page
def spec(request: PageRequest, job_id: UUID) -> HttpResponse:
    """Show the spec as YAML; values of variables only to those who may see them."""
    job = job_queries.load_job(request.actor, job_id)
    document = _redacted(job.spec) if not _may_read_env(request, job) else job.spec
    text = yaml.safe_dump(document, sort_keys=False, allow_unicode=True)
    return _render(request, job, "job_spec", "jobs/spec.html", {"yaml": text})


def _may_read_env(request: PageRequest, job: Job) -> bool:
    return may(request.actor, Verb.JOB_READ_ENV, job.unit_id, owner_id=job.owner_id)


@page
def events(request: PageRequest, job_id: UUID) -> HttpResponse:
    """Show the history of states, and what people did to the job."""
    job = job_queries.load_job(request.actor, job_id)
    before = request.GET.get("before", "")
    limit = 100
    rows = job_queries.history_of(
        request.actor, job, before=int(before) if before.isdecimal() else None, limit=limit + 1
    )
    context = {
        "history": rows[:limit],
        "more": rows[limit - 1].seq if len(rows) > limit else 0,
        "is_later": before.isdecimal(),
        "acts": subject_activity(request.actor, "job", str(job.id)),
    }
    return _render(request, job, "job_events", "jobs/events.html", context)


@page
def files(request: PageRequest, job_id: UUID) -> HttpResponse:
    """Show uploaded code and outputs."""
    job = job_queries.load_job(request.actor, job_id)
    context = {
        "outputs": job_queries.files_of(job, "output"),
        "code": job_queries.files_of(job, "code"),
    }
    return _render(request, job, "job_files", "jobs/files.html", context)


@page
def file_download(
    request: PageRequest, job_id: UUID, file_id: UUID
) -> HttpResponse | StreamingHttpResponse:
    """Send one file of a job."""
    job = job_queries.load_job(request.actor, job_id)
    job_logs.require_logs(request.actor, job)
    found = job.files.filter(id=file_id).first()
    if found is None:
        raise NotFound("file")
    reply = StreamingHttpResponse(job_files.read(found), content_type="application/octet-stream")
    reply["Content-Length"] = str(found.size_bytes)
    name = found.path.rsplit("/", 1)[-1]
    reply["Content-Disposition"] = content_disposition_header(as_attachment=True, filename=name)
    return reply


def _redacted(spec: object) -> object:
    """Hide the values of variables, which may be secrets; their names stay."""
    if isinstance(spec, dict):
        return {
            key: dict.fromkeys(value, "***")
            if key == "env" and isinstance(value, dict)
            else _redacted(value)
            for key, value in spec.items()
            if key != "template"
        }
    return [_redacted(one) for one in spec] if isinstance(spec, list) else spec
