"""Read what is new in an attempt's output and metrics, from a place that was confirmed.

The files themselves are the spool: nothing is copied, and after a broken connection or a restart
reading begins again at the last acknowledged byte.
"""

from __future__ import annotations

import base64
import itertools
import json
import math
import os
import stat
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from worker.protocol import LogChunk, MetricPoint

STREAMS: Final = ("stdout", "stderr")
CHUNK_BYTES: Final = 65_536
METRIC_LINE_BYTES: Final = 16_384
METRIC_NAMES: Final = 64
METRIC_NAME_LENGTH: Final = 100


@dataclass(slots=True)
class LogTail:
    """One stream of one attempt: how far it was sent and how far it was acknowledged."""

    attempt: str
    stream: str
    path: Path
    acknowledged: int = 0
    sent: int = 0

    def has_more(self) -> bool:
        """Tell whether there is something to send."""
        return self.size() > self.sent

    def size(self) -> int:
        """Return the length of the stream so far."""
        try:
            return self.path.stat().st_size
        except FileNotFoundError:
            return 0

    def read(self, limit: int = CHUNK_BYTES) -> LogChunk | None:
        """Return the next piece, at most `limit` bytes long, and count it as sent."""
        if not self.has_more():
            return None
        cut = self._cut_offset()
        if cut is not None and self.sent < cut:
            limit = min(limit, cut - self.sent)
        data = read_range(self.path, self.sent, min(limit, CHUNK_BYTES))
        chunk = LogChunk(
            attempt=self.attempt,
            stream=self.stream,
            offset=self.sent,
            data=base64.b64encode(data).decode("ascii"),
            is_dropped=cut is not None and self.sent >= cut,
        )
        self.sent += len(data)
        return chunk

    def _cut_offset(self) -> int | None:
        """Return where the marker of a capped stream begins; the supervisor notes it."""
        try:
            return int(self.path.with_name(f"{self.path.name}.cut").read_text("ascii"))
        except (FileNotFoundError, ValueError):
            return None


def read_range(path: Path, offset: int, length: int) -> bytes:
    """Return bytes of a file; fewer at its end, none where there is no file."""
    try:
        with path.open("rb") as stream:
            stream.seek(offset)
            return stream.read(length)
    except FileNotFoundError:
        return b""


@dataclass(slots=True)
class MetricsTail:
    """The metrics file of one attempt. Its owner is the task, so nothing about it is believed."""

    attempt: str
    path: Path
    acknowledged: tuple[int, int] = (0, 0)
    """Byte offset and number of lines before it."""
    sent: tuple[int, int] = (0, 0)

    def has_more(self) -> bool:
        """Tell whether the file grew."""
        try:
            return self.path.lstat().st_size > self.sent[0]
        except OSError:
            return False

    def read(self, limit: int) -> list[MetricPoint]:
        """Return at most `limit` further points; lines that are none are only counted."""
        offset, line = self.sent
        points: list[MetricPoint] = []
        data = self._read_file(offset)
        position = 0
        while len(points) < limit and (newline := data.find(b"\n", position)) >= 0:
            values = parse_line(data[position:newline])
            if values:
                at = values.pop("time", None) or time.time()
                points.append(MetricPoint(attempt=self.attempt, line=line, at=at, values=values))
            position, line = newline + 1, line + 1
        if position == 0 and len(data) >= METRIC_LINE_BYTES:
            position = len(data)  # one endless line: step over what there is
        self.sent = (offset + position, line)
        return points

    def _read_file(self, offset: int) -> bytes:
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            fd = os.open(self.path, flags)
        except OSError:
            return b""
        try:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                return b""
            return os.pread(fd, CHUNK_BYTES, offset)
        finally:
            os.close(fd)


def parse_line(raw: bytes) -> dict[str, float]:
    """Return the numbers of one line; none where it is no flat JSON object within the limits."""
    if len(raw) > METRIC_LINE_BYTES:
        return {}
    try:
        document: Any = json.loads(raw)
    except (ValueError, RecursionError):
        return {}
    if not isinstance(document, dict):
        return {}
    numbers = ((name, _number(value)) for name, value in document.items())
    taken = (
        (name, number)
        for name, number in numbers
        if number is not None and len(name) <= METRIC_NAME_LENGTH
    )
    return dict(itertools.islice(taken, METRIC_NAMES))


def _number(value: object) -> float | None:
    """Return a finite number, None for anything else; true and false are none."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


@dataclass(slots=True)
class AttemptTails:
    """All that is read of one attempt."""

    logs: list[LogTail]
    metrics: MetricsTail

    def has_more(self) -> bool:
        """Tell whether anything is to be sent."""
        return self.metrics.has_more() or any(tail.has_more() for tail in self.logs)

    def is_drained(self) -> bool:
        """Tell whether everything there is was acknowledged."""
        return all(tail.acknowledged >= tail.size() for tail in self.logs)

    def rewind(self) -> None:
        """Begin again at what was acknowledged: the connection is a new one."""
        for tail in self.logs:
            tail.sent = tail.acknowledged
        self.metrics.sent = self.metrics.acknowledged
