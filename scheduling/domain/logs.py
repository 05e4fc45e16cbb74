"""What tasks wrote to stdout and stderr: read in part, searched, downloaded, folded when final.

While an attempt lives its output comes in chunks, which lie in the database. When it is over they
are folded into one file of the store, so that a row of 1 GB of output is one row. A gap between
chunks (a cap was reached, a spool was lost) stays a gap: offsets are those of the stream.
"""

from __future__ import annotations

import io
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import groupby
from uuid import UUID

from django.core.files.base import File
from django.core.files.storage import default_storage
from django.db import transaction
from django.db.models import F, Max, Window
from django.db.models.functions import RowNumber

from scheduling.domain.stored_bytes import open_stored, require_stored
from scheduling.models import Attempt, Job, LogChunk
from scheduling.models.attempt import LIVE_STATES
from tenants.domain import access
from tenants.domain.access import Actor
from tenants.domain.errors import Gone

STREAMS = ("stdout", "stderr")
MOST_BYTES = 1_048_576
FOLD_AFTER = timedelta(seconds=30)
"""How long after the end the last chunks may still come in."""
PART = 1024 * 1024
LONGEST_LINE = 4096
TAIL_CHUNKS = 8
"""How many of the newest chunks the end of a stream is put together of."""


@dataclass(frozen=True, slots=True)
class LogPart:
    """Bytes of a stream from `offset` on; `size` is the length of the stream so far."""

    data: bytes
    offset: int
    size: int
    is_final: bool
    """Whether the attempt is over and nothing more will come."""
    is_lost: bool = False
    """Whether the store has lost these bytes; then there are none here."""


@dataclass(frozen=True, slots=True)
class LogHit:
    """A line that holds the text looked for; `offset` is where the line begins."""

    offset: int
    number: int
    line: str


def require_logs(actor: Actor, job: Job) -> None:
    """Return if the actor may read the logs of a job, by the setting of its queue.

    Raises:
        NotFound: the actor does not see the job.
        Denied: the actor sees it and may not read its logs.
    """
    verb = access.logs_verb(are_logs_shared=job.queue.are_logs_shared)
    access.require(actor, verb, job.unit_id, owner_id=job.owner_id, what="job")


def read_log(*, attempt: Attempt, stream: str, offset: int = 0, length: int = 65_536) -> LogPart:
    """Return up to `length` bytes from `offset` on; a negative offset counts from the end.

    What is missing before the first byte that is there is skipped: look at `offset` of the answer.

    Raises:
        Gone: the store has lost these bytes.
    """
    size = stream_size(attempt, stream)
    start = max(0, size + offset) if offset < 0 else offset
    wanted = min(length, MOST_BYTES)
    rows = (
        LogChunk.objects.filter(attempt=attempt, stream=stream)
        .annotate(end=F("offset") + F("size_bytes"))
        .filter(end__gt=start)
        .order_by("offset")
    )
    data, begin = _join(rows, start, wanted)
    is_final = attempt.state not in LIVE_STATES
    return LogPart(data, begin, size, is_final)


def tails(*, attempts: Collection[Attempt], stream: str, length: int = 8192) -> dict[UUID, LogPart]:
    """Return the end of each attempt's stream, up to `length` bytes without a gap in them.

    One query for all, and one reading of the store for each stream that is folded.
    """
    newest = Window(RowNumber(), partition_by=[F("attempt_id")], order_by=F("offset").desc())
    rows = (
        LogChunk.objects.filter(attempt__in=attempts, stream=stream)
        .annotate(rank=newest)
        .filter(rank__lte=TAIL_CHUNKS)
        .order_by("attempt_id", "offset")
    )
    found: dict[UUID, LogPart] = {}
    final = {one.id: one.state not in LIVE_STATES for one in attempts}
    for attempt_id, group in groupby(rows, key=lambda row: row.attempt_id):
        last = list(_contiguous(group))[-1]
        size = last[-1].offset + last[-1].size_bytes
        start = max(last[0].offset, size - length)
        later = [row for row in last if row.offset + row.size_bytes > start]
        try:
            data, begin = _join(later, start, length)
        except Gone:  # the other attempts' ends are still there to be read
            found[attempt_id] = LogPart(b"", size, size, final[attempt_id], is_lost=True)
            continue
        found[attempt_id] = LogPart(data, begin, size, final[attempt_id])
    return found


def _join(rows: Iterable[LogChunk], start: int, wanted: int) -> tuple[bytes, int]:
    """Join bytes that follow one another, from the first that is there at or after `start`."""
    parts: list[bytes] = []
    begin = position = start
    for row in rows:
        if parts and row.offset > position:
            break  # a gap: the reader asks again from behind it
        if not parts:
            begin = position = max(start, row.offset)
        part = _bytes_of(row, position - row.offset, wanted - sum(map(len, parts)))
        parts.append(part)
        position += len(part)
        if sum(map(len, parts)) >= wanted:
            break
    return b"".join(parts), begin


def _bytes_of(row: LogChunk, skip: int, most: int) -> bytes:
    if row.data is not None:
        return bytes(row.data)[skip : skip + most]
    with open_stored(row.storage_name, shown_as=row.stream) as stored:
        stored.seek(skip)
        return bytes(stored.read(min(most, row.size_bytes - skip)))


def stream_size(attempt: Attempt, stream: str) -> int:
    """Return where the stream ends as far as it is known."""
    rows = LogChunk.objects.filter(attempt=attempt, stream=stream)
    return rows.aggregate(end=Max(F("offset") + F("size_bytes")))["end"] or 0


def download(*, attempt: Attempt, stream: str) -> Iterator[bytes]:
    """Give a whole stream in parts, gaps left out.

    Raises:
        Gone: the store has lost a part of it; said before the first byte.
    """
    rows = LogChunk.objects.filter(attempt=attempt, stream=stream).order_by("offset")
    found = list(rows.values_list("id", "storage_name"))
    for _, name in found:
        if name:
            require_stored(name, shown_as=stream)
    return _parts([chunk_id for chunk_id, _ in found])


def _parts(chunk_ids: Iterable[int]) -> Iterator[bytes]:
    for chunk_id in chunk_ids:
        row = LogChunk.objects.filter(id=chunk_id).first()
        if row is None:
            continue  # folded while we read: the rest follows in the next part
        for skip in range(0, row.size_bytes, PART):
            yield _bytes_of(row, skip, PART)


def search(*, attempt: Attempt, stream: str, text: str, limit: int = 200) -> list[LogHit]:
    """Return the first lines that hold the text, whatever its case.

    Raises:
        Gone: the store has lost a part of the stream.
    """
    needle = text.casefold()
    hits: list[LogHit] = []
    for number, (offset, line) in enumerate(_lines(attempt, stream), start=1):
        if needle in line.casefold():
            hits.append(LogHit(offset, number, line[:LONGEST_LINE]))
            if len(hits) >= limit:
                break
    return hits


def _lines(attempt: Attempt, stream: str) -> Iterator[tuple[int, str]]:
    rest, position = b"", 0
    for part in download(attempt=attempt, stream=stream):
        whole = (rest + part).split(b"\n")
        rest = whole.pop()
        for line in whole:
            yield position, line.decode(errors="replace")
            position += len(line) + 1
    if rest:
        yield position, rest.decode(errors="replace")


# --- folding --------------------------------------------------------------------------------------


def to_fold(now: datetime, *, limit: int) -> list[UUID]:
    """Return attempts that are over and whose output still lies in the database."""
    rows = LogChunk.objects.filter(data__isnull=False, attempt__finished_at__lte=now - FOLD_AFTER)
    return list(rows.values_list("attempt_id", flat=True).distinct()[:limit])


def fold(attempt_id: UUID) -> int:
    """Move the output of an attempt that is over into the store; return how many files it became.

    The bytes are written first and the rows changed after, so a crash in between costs a file in
    the store that nobody names, and no output. Safe to repeat.
    """
    attempt = Attempt.objects.select_related("job").get(id=attempt_id)
    folded = 0
    for stream in STREAMS:
        rows = LogChunk.objects.filter(attempt=attempt, stream=stream, data__isnull=False)
        for group in _contiguous(rows.order_by("offset")):
            _fold_group(attempt, stream, group)
            folded += 1
    return folded


def _contiguous(rows: Iterable[LogChunk]) -> Iterator[list[LogChunk]]:
    group: list[LogChunk] = []
    for row in rows:
        if group and row.offset != group[-1].offset + group[-1].size_bytes:
            yield group
            group = []
        group.append(row)
    if group:
        yield group


def _fold_group(attempt: Attempt, stream: str, group: list[LogChunk]) -> None:
    data = b"".join(bytes(row.data or b"") for row in group)
    job = attempt.job
    wanted = f"logs/{job.tenant_id}/{job.id}/{attempt.id}/{stream}-{group[0].offset}"
    name = default_storage.save(wanted, File(io.BytesIO(data)))
    with transaction.atomic():
        LogChunk.objects.filter(id__in=[row.id for row in group[1:]]).delete()
        LogChunk.objects.filter(id=group[0].id).update(
            data=None, storage_name=name, size_bytes=len(data)
        )
