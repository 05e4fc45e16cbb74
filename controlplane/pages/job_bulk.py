"""An action for all jobs that the list's filters let through: shown first, then done one by one."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from uuid import UUID

from django.http import HttpResponse, QueryDict
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_POST

from controlplane.pages.frame import PageRequest, now, page, render_page
from controlplane.pages.job_actions import action_of, error_text
from controlplane.pages.jobs import filter_of, filters_query
from scheduling.domain import jobs
from scheduling.domain.jobs import JobAction
from scheduling.domain.queries.jobs import LARGEST_PAGE, list_jobs
from scheduling.models import Job
from scheduling.models.job import FINISHED_PHASES, JobPhase

TITLES = {
    JobAction.CANCEL: gettext_lazy("Cancel jobs"),
    JobAction.SUSPEND: gettext_lazy("Suspend jobs"),
    JobAction.RESUME: gettext_lazy("Resume jobs"),
    JobAction.RETRY: gettext_lazy("Begin jobs anew"),
}
SUSPENDED = (JobPhase.ABORTING, JobPhase.ABORTED)
LEAVING = (JobPhase.TERMINATING, JobPhase.COMPLETING)


@dataclass(frozen=True, slots=True)
class Outcome:
    """How it went for one job."""

    job: Job | None
    job_id: UUID
    text: str
    is_done: bool


@page
@require_POST
def by_query(request: PageRequest) -> HttpResponse:
    """Show what an action would concern; when that is confirmed, do it to exactly those jobs."""
    action = action_of(request)
    query = filters_query(QueryDict(request.POST.get("query", "")))
    context: dict[str, object] = {"action": action.value, "title": TITLES[action], "query": query}
    if request.POST.get("confirmed"):
        outcomes = _done(request, action)
        context |= {"outcomes": outcomes, "done": sum(one.is_done for one in outcomes)}
        return render_page(request, "jobs/bulk_result.html", context, section="pages:job_list")
    found = list_jobs(request.actor, filter_of(request, QueryDict(query)), limit=LARGEST_PAGE)
    concerned = [job for job in found.jobs if _is_concerned(job, action)]
    phases = Counter(job.phase for job in concerned)
    context |= {
        "jobs": concerned,
        "phases": sorted(phases.items()),
        "left_out": len(found.jobs) - len(concerned),
        "ids": " ".join(str(job.id) for job in concerned),
        "limit": LARGEST_PAGE if found.next_cursor else 0,
        "now": now(),
    }
    return render_page(request, "jobs/bulk_preview.html", context, section="pages:job_list")


def _is_concerned(job: Job, action: JobAction) -> bool:
    """Whether the action can change a job in its phase; rights are judged when it is done."""
    if action is JobAction.RESUME:
        return job.phase in SUSPENDED
    if action is JobAction.CANCEL:
        return job.phase not in {*FINISHED_PHASES, *LEAVING}
    return job.phase not in {*FINISHED_PHASES, *LEAVING, *SUSPENDED}


def _done(request: PageRequest, action: JobAction) -> list[Outcome]:
    ids = [found for text in request.POST.get("jobs", "").split() if (found := _uuid(text))]
    results = jobs.bulk(
        actor=request.actor,
        action=action,
        job_ids=ids[:LARGEST_PAGE],
        now=now(),
        reason=request.POST.get("reason", "")[:500],
    )
    rows = Job.objects.visible_to(request.actor).filter(id__in=ids).only("id", "name", "phase")
    by_id = {job.id: job for job in rows}
    return [
        Outcome(
            by_id.get(one.job_id),
            one.job_id,
            error_text(one.error) if one.error else _("Done."),
            one.error is None,
        )
        for one in results
    ]


def _uuid(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None
