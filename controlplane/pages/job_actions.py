"""What people do to jobs from pages: cancel, suspend, resume, retry, move; one or many."""

from uuid import UUID

from django.contrib import messages
from django.http import HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils.http import url_has_allowed_host_and_scheme
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext
from django.views.decorators.http import require_POST

from controlplane.pages.frame import PageRequest, now, page
from scheduling.domain import jobs, queue_draining
from scheduling.domain.jobs import BulkResult, JobAction
from scheduling.domain.queries import jobs as job_queries
from scheduling.domain.queries import queues as queue_queries
from scheduling.domain.wording import sentence
from scheduling.models import Job
from tenants.domain.errors import Conflict, Denied, DomainError, Invalid, Problem

DONE = {
    JobAction.CANCEL: gettext_lazy("The job is being cancelled."),
    JobAction.SUSPEND: gettext_lazy("The job is being suspended."),
    JobAction.RESUME: gettext_lazy("The job waits for its place again."),
    JobAction.RETRY: gettext_lazy("The job begins anew."),
}
SHOWN_ERRORS = 5


@page
@require_POST
def act(request: PageRequest, job_id: UUID) -> HttpResponse:
    """Do one action to one job and go back to its page."""
    if request.POST.get("action") == "move":
        return _move(request, job_id)
    action = action_of(request)
    result = jobs.bulk(
        actor=request.actor,
        action=action,
        job_ids=[job_id],
        now=now(),
        reason=request.POST.get("reason", "")[:500],
    )[0]
    if result.error is None:
        messages.success(request, str(DONE[action]))
    elif isinstance(result.error, Conflict):
        messages.error(request, error_text(result.error))
    else:
        raise result.error
    return HttpResponseRedirect(reverse("pages:job", args=[job_id]))


def _move(request: PageRequest, job_id: UUID) -> HttpResponse:
    """Let a job that has not started wait in another queue of its cluster."""
    job = job_queries.load_job(request.actor, job_id)
    name = request.POST.get("queue", "")[:253]
    queue = queue_queries.by_name(request.actor, job.queue.cluster_id, name)
    try:
        queue_draining.move_job(actor=request.actor, job_id=job.id, queue_id=queue.id, now=now())
    except (Conflict, Invalid) as error:
        messages.error(request, error_text(error))
    else:
        text = _("It waits in “%(queue)s” now; the scheduler looks at it at once.")
        messages.success(request, text % {"queue": name})
    return HttpResponseRedirect(reverse("pages:job", args=[job_id]))


@page
@require_POST
def bulk(request: PageRequest) -> HttpResponse:
    """Do one action to the chosen jobs and tell how it went for each."""
    action = action_of(request)
    chosen = [UUID(text) for text in request.POST.getlist("job") if _is_uuid(text)]
    results = jobs.bulk(actor=request.actor, action=action, job_ids=chosen[:500], now=now())
    _tell(request, results)
    target = request.POST.get("next", "")
    if not url_has_allowed_host_and_scheme(target, allowed_hosts={request.get_host()}):
        target = reverse("pages:job_list")
    return HttpResponseRedirect(target)


def action_of(request: PageRequest) -> JobAction:
    """Read the wanted action.

    Raises:
        Invalid: it is none of the four.
    """
    name = request.POST.get("action", "")
    try:
        return JobAction(name)
    except ValueError:
        raise Invalid([Problem("action", "unknown_action", {"action": name[:40]})]) from None


def error_text(error: DomainError) -> str:
    """Write a refusal as a sentence."""
    if isinstance(error, Conflict | Denied):
        return sentence(error.code, error.params)
    if isinstance(error, Invalid):
        return " ".join(sentence(one.code, one.params) for one in error.problems)
    return _("It is not there any more.")


def _is_uuid(text: str) -> bool:
    try:
        UUID(text)
    except ValueError:
        return False
    return True


def _tell(request: PageRequest, results: list[BulkResult]) -> None:
    failed = [result for result in results if result.error is not None]
    done = len(results) - len(failed)
    if done:
        text = ngettext("Done for %(n)d job.", "Done for %(n)d jobs.", done) % {"n": done}
        messages.success(request, text)
    if not results:
        messages.warning(request, _("Choose at least one job first."))
    names = dict(
        Job.objects.visible_to(request.actor)
        .filter(id__in=[result.job_id for result in failed])
        .values_list("id", "name")
    )
    for result in failed[:SHOWN_ERRORS]:
        assert result.error is not None  # noqa: S101 -- filtered above
        name = names.get(result.job_id, str(result.job_id))
        messages.error(request, f"{name}: {error_text(result.error)}")
    if len(failed) > SHOWN_ERRORS:
        more = len(failed) - SHOWN_ERRORS
        text = ngettext("%(n)d more was refused.", "%(n)d more were refused.", more) % {"n": more}
        messages.error(request, text)
