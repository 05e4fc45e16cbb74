"""How long measurements, logs and files are kept; jobs, tasks, attempts and history stay."""

from datetime import datetime, timedelta
from uuid import UUID

from django.core.files.storage import default_storage
from django.db import connection

from scheduling.models import (
    CycleRecord,
    Job,
    JobFile,
    LogChunk,
    MetricSample,
    StartForecast,
    Usage,
)

FINE_USAGE = timedelta(hours=6)
"""How long every sample of usage is kept; older ones: one a minute."""
KEPT_USAGE = timedelta(days=30)
KEPT_CYCLES = timedelta(days=14)
KEPT_FORECASTS = timedelta(days=30)

_THIN = """
    DELETE FROM scheduling_usage WHERE at < %(before)s AND id NOT IN (
        SELECT min(id) FROM scheduling_usage WHERE at < %(before)s
        GROUP BY node_id, attempt_id, device_uuid, date_trunc('minute', at)
    )
"""


def thin(*, now: datetime) -> None:
    """Make usage coarser with age, and delete what is too old."""
    with connection.cursor() as cursor:
        cursor.execute(_THIN, {"before": now - FINE_USAGE})
    Usage.objects.filter(at__lt=now - KEPT_USAGE).delete()
    CycleRecord.objects.filter(started_at__lt=now - KEPT_CYCLES).delete()
    StartForecast.objects.filter(made_at__lt=now - KEPT_FORECASTS).delete()


def expired_jobs(now: datetime, *, limit: int) -> list[UUID]:
    """Return jobs whose time to live is over."""
    rows = Job.objects.filter(delete_after__lte=now).order_by("delete_after")
    return list(rows.values_list("id", flat=True)[:limit])


def clean_up(*, job_id: UUID) -> None:
    """Delete what a job left behind besides its rows: logs, metrics, files. Safe to repeat.

    The bytes go first: a crash in between leaves rows that lead here again, never bytes that
    nobody knows of.
    """
    names = [
        *LogChunk.objects.filter(attempt__job_id=job_id)
        .exclude(storage_name="")
        .values_list("storage_name", flat=True),
        *JobFile.objects.filter(job_id=job_id).values_list("storage_name", flat=True),
    ]
    for name in dict.fromkeys(names):
        default_storage.delete(name)
    LogChunk.objects.filter(attempt__job_id=job_id).delete()
    MetricSample.objects.filter(job_id=job_id).delete()
    JobFile.objects.filter(job_id=job_id).delete()
    Job.objects.filter(id=job_id).update(delete_after=None)
