"""A job's state in one sentence; how long it lasts already is counted beside it."""

from __future__ import annotations

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from controlplane.templatetags.terrace import duration
from controlplane.templatetags.terrace_forecast import start_range
from scheduling.domain.wording import sentence
from scheduling.models import Attempt, Job, StartForecast
from scheduling.models.job import JobPhase

EXIT_ADVICE = {
    126: gettext_lazy("Its command is there and cannot be run: check its permissions."),
    127: gettext_lazy("Its command was not found: check its spelling and what the image holds."),
    137: gettext_lazy("It was killed from outside, most often because memory was short."),
}
"""Exit code -> what it most often means."""


def status_line(
    job: Job, forecast: StartForecast | None = None, failure: Attempt | None = None
) -> str:
    """Say where a job stands, what it waits for, when it will start, or what failed first."""
    teller = _TELLERS.get(JobPhase(job.phase))
    words = teller(job) if teller else ""
    if failure is not None:
        words = f"{_failure(failure)} {words}"
    if forecast is not None and forecast.p50_at is not None:
        words = f"{words} {start_range(forecast)}"
    if job.message:
        words = f"{words} {job.message}"
    return words


def _pending(job: Job) -> str:
    if not job.reason_code:
        return _("It is queued; the scheduler has not looked at it yet.")
    return sentence(job.reason_code, job.reason_params)


def _running(job: Job) -> str:
    if job.tasks_running == job.tasks_total:
        return ngettext(
            "Its one task is running.", "All %(n)d tasks are running.", job.tasks_total
        ) % {"n": job.tasks_total}
    words = _("%(running)d of %(total)d tasks are running.") % {
        "running": job.tasks_running,
        "total": job.tasks_total,
    }
    if job.tasks_pending and job.reason_code:
        words = f"{words} {sentence(job.reason_code, job.reason_params)}"
    return words


def _ended(job: Job) -> str:
    if job.started_at is None or job.finished_at is None:
        return _("It ended before it started.")
    values = {
        "time": duration(job.finished_at - job.started_at),
        "wait": duration(job.started_at - job.created_at),
    }
    return _("It ran for %(time)s after waiting %(wait)s.") % values


def _failed(job: Job) -> str:
    reason = sentence(job.reason_code, job.reason_params) if job.reason_code else ""
    return " ".join(part for part in (reason, _ended(job)) if part)


def _failure(attempt: Attempt) -> str:
    """Say how the task that failed first ended, and what that most often means."""
    task = f"{attempt.task.role.name}-{attempt.task.index}"
    if attempt.is_oom:
        return _("%(task)s: %(words)s") % {"task": task, "words": sentence("OutOfMemory", {})}
    if attempt.signal:
        return _("%(task)s was ended by signal %(n)d.") % {"task": task, "n": attempt.signal}
    if attempt.exit_code is None:
        told = sentence(attempt.reason_code, {}) if attempt.reason_code else attempt.message
        return _("%(task)s: %(words)s") % {"task": task, "words": told} if told else ""
    words = _("%(task)s ended with exit code %(n)d.") % {"task": task, "n": attempt.exit_code}
    advice = EXIT_ADVICE.get(attempt.exit_code)
    return f"{words} {advice}" if advice else words


def _aborted(_job: Job) -> str:
    return _("Suspended: it holds nothing and waits to be resumed.")


def _leaving(job: Job) -> str:
    return _("%(count)d tasks are being stopped, with their time of grace.") % {
        "count": job.tasks_stopping
    }


_TELLERS = {
    JobPhase.PENDING: _pending,
    JobPhase.RUNNING: _running,
    JobPhase.COMPLETING: _leaving,
    JobPhase.RESTARTING: _leaving,
    JobPhase.ABORTING: _leaving,
    JobPhase.TERMINATING: _leaving,
    JobPhase.ABORTED: _aborted,
    JobPhase.COMPLETED: _ended,
    JobPhase.TERMINATED: _ended,
    JobPhase.FAILED: _failed,
}
