"""Data that only grows and is appended by the page: log bytes, a task's own metrics, usage."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import UUID

from django.db.models import QuerySet

from controlplane.live.authority import Reader
from controlplane.live.frames import Update, encode
from controlplane.live.regions import Region
from scheduling.models import Attempt, Job, LogChunk, MetricSample, Usage
from tenants.domain.access import Verb, logs_verb, may

LOG_BYTES = 32 * 1024
"""Most bytes of a log in one frame; what is left follows in the next."""
LOG_LAG_BYTES = 1024 * 1024
"""A page that lags further behind is moved to the tail and told where it continues."""
ROWS = 500
MOST_DIGITS = 18
"""Of a cursor that counts, so that it is a bigint."""


@dataclass(frozen=True, slots=True)
class Feed:
    """How a feed is read on from a cursor, and which hints say that it grew."""

    read: Callable[[Region, str], Update | None]
    kind: str


def is_known(region: Region) -> bool:
    """Tell whether there is a feed of this name for topics of this word."""
    return region.name in FEEDS and region.topic.startswith("job:")


def is_concerned(region: Region, kind: str) -> bool:
    """Tell whether a hint of this kind may have made the feed grow."""
    return kind in {FEEDS[region.name].kind, "state"}


def read(region: Region, cursor: str) -> Update | None:
    """Return what came after `cursor`, None when nothing did."""
    return FEEDS[region.name].read(region, cursor)


def may_read(region: Region, reader: Reader) -> bool:
    """Tell whether a reader who sees the job may also read this feed of it."""
    jobs = Job.objects.select_related("queue").only("unit", "owner", "queue__are_logs_shared")
    job = jobs.filter(id=region.object_id).first()
    if job is None:
        return False
    is_log = region.name == "log"
    verb = logs_verb(are_logs_shared=job.queue.are_logs_shared) if is_log else Verb.JOB_METRICS
    return may(reader.actor, verb, job.unit_id, owner_id=job.owner_id)


def _read_log(region: Region, cursor: str) -> Update | None:
    attempt_id, _, stream = region.argument.partition(":")
    chunks = LogChunk.objects.filter(
        attempt_id=_uuid(attempt_id), attempt__job_id=region.object_id, stream=stream
    )
    last = chunks.order_by("-offset").values_list("offset", "size_bytes").first()
    end = sum(last) if last else 0
    offset = _number(cursor)
    if end <= offset:
        return None
    if end - offset > LOG_LAG_BYTES:
        offset = end - LOG_BYTES
    start, data = offset, b""
    for chunk_offset, chunk in _chunks_from(chunks, offset):
        if chunk is None or chunk_offset > start + len(data):
            break  # folded into a file, or a hole: the page reads on by the API
        data += bytes(chunk)[start + len(data) - chunk_offset :]
        if len(data) >= LOG_BYTES:
            break
    if not data:
        return None
    after = start + len(data)
    encoded = base64.b64encode(data).decode("ascii")
    news = {"key": region.key, "has": str(after), "from": start, "bytes": encoded}
    return Update(encode(news), str(after), has_more=after < end)


def _chunks_from(
    chunks: QuerySet[LogChunk], offset: int
) -> Iterable[tuple[int, bytes | memoryview | None]]:
    """Return (offset, data) of the chunk that holds the byte at `offset` and of those after it."""
    first = chunks.filter(offset__lte=offset).order_by("-offset").values_list("offset", flat=True)
    rows = chunks.filter(offset__gte=first.first() or 0).order_by("offset")
    return rows.values_list("offset", "data")[:64]


def _read_metrics(region: Region, cursor: str) -> Update | None:
    samples = MetricSample.objects.filter(job_id=region.object_id, id__gt=_number(cursor))
    found = list(samples.order_by("id")[:ROWS])
    rows: list[dict[str, object]] = [
        {
            "attempt": str(one.attempt_id),
            "line": one.line,
            "at": one.at.isoformat(),
            "values": one.values,
        }
        for one in found
    ]
    return _rows(region, rows, str(found[-1].id) if found else cursor)


def _read_usage(region: Region, cursor: str) -> Update | None:
    samples = Usage.objects.filter(
        attempt__in=Attempt.objects.filter(job_id=region.object_id).values("id")
    )
    if cursor:
        samples = samples.filter(at__gt=_time(cursor))
    found = list(samples.order_by("at")[:ROWS])
    rows: list[dict[str, object]] = [
        {
            "attempt": str(one.attempt_id),
            "at": one.at.isoformat(),
            "device": one.device_uuid,
            "cpu_milli": one.cpu_milli,
            "memory_bytes": one.memory_bytes,
            "gpu_percent": one.gpu_percent,
            "gpu_memory_bytes": one.gpu_memory_bytes,
        }
        for one in found
    ]
    return _rows(region, rows, found[-1].at.isoformat() if found else cursor)


def _rows(region: Region, rows: list[dict[str, object]], after: str) -> Update | None:
    if not rows:
        return None
    news = {"key": region.key, "has": after, "rows": rows}
    return Update(encode(news), after, has_more=len(rows) == ROWS)


def _number(cursor: str) -> int:
    """Read a cursor that counts; nonsense begins at the beginning."""
    return (
        int(cursor) if cursor.isascii() and cursor.isdecimal() and len(cursor) <= MOST_DIGITS else 0
    )


def _uuid(text: str) -> UUID:
    """Read an attempt's id; nonsense is the id of none."""
    try:
        return UUID(text)
    except ValueError:
        return UUID(int=0)


def _time(cursor: str) -> datetime:
    """Read a cursor in time; nonsense begins at the beginning."""
    try:
        at = datetime.fromisoformat(cursor)
    except ValueError:
        return datetime.min.replace(tzinfo=UTC)
    return at if at.tzinfo else at.replace(tzinfo=UTC)


FEEDS = {
    "log": Feed(_read_log, "log"),
    "metrics": Feed(_read_metrics, "metrics"),
    "usage": Feed(_read_usage, "usage"),
}
