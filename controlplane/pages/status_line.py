"""A job's state in one sentence; how long it lasts already is counted beside it."""

from __future__ import annotations

from django.utils.translation import gettext as _

from controlplane.templatetags.terrace import duration
from controlplane.templatetags.terrace_forecast import start_range
from scheduling.domain.wording import sentence
from scheduling.models import Job, StartForecast
from scheduling.models.job import JobPhase


def status_line(job: Job, forecast: StartForecast | None = None) -> str:
    """Say where a job stands, what it waits for, and when it will start."""
    teller = _TELLERS.get(JobPhase(job.phase))
    words = teller(job) if teller else ""
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
    words = _("%(running)d of %(total)d tasks run.") % {
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
    counts = _("%(failed)d of %(total)d tasks failed.") % {
        "failed": job.tasks_failed,
        "total": job.tasks_total,
    }
    return " ".join(part for part in (reason, counts, _ended(job)) if part)


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
