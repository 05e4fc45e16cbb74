"""The record as a file: CSV for spreadsheets, JSON lines for programs, streamed page by page."""

from __future__ import annotations

import csv
import json
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from enum import StrEnum
from io import StringIO

from asgiref.sync import sync_to_async
from django.core.serializers.json import DjangoJSONEncoder
from django.http import StreamingHttpResponse

from scheduling.domain.queries.activity import AuditFilter, list_activity
from tenants.domain.access import Actor
from tenants.models import AuditRow

ROWS_AT_ONCE = 1000
COLUMNS = (
    "id",
    "at",
    "actor",
    "action",
    "subject_type",
    "subject_id",
    "subject",
    "unit_id",
    "unit",
    "before",
    "after",
    "reason",
    "request_id",
)
FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")
"""How a text begins that a spreadsheet would run."""


class ExportFormat(StrEnum):
    """What the file is written as."""

    CSV = "csv"
    JSON_LINES = "jsonl"


CONTENT_TYPES = {
    ExportFormat.CSV: "text/csv; charset=utf-8",
    ExportFormat.JSON_LINES: "application/x-ndjson; charset=utf-8",
}


def stream(
    actor: Actor, where: AuditFilter, form: ExportFormat, *, name: str, is_async: bool
) -> StreamingHttpResponse:
    """Answer with all rows that the actor may read and the filter leaves, newest first."""
    pages = _Pages(actor, where, form)
    reply = StreamingHttpResponse(
        pages.later() if is_async else pages.now(), content_type=CONTENT_TYPES[form]
    )
    reply["Content-Disposition"] = f'attachment; filename="{name}.{form}"'
    reply["X-Content-Type-Options"] = "nosniff"
    return reply


class _Pages:
    """Parts of a file; each is read by a query of its own, so that memory stays bounded."""

    def __init__(self, actor: Actor, where: AuditFilter, form: ExportFormat) -> None:
        self.actor, self.where = actor, where
        self.write: Callable[[Iterable[AuditRow]], str] = (
            _csv if form is ExportFormat.CSV else _json_lines
        )
        self.head = csv_lines([COLUMNS]) if form is ExportFormat.CSV else ""

    def now(self) -> Iterator[str]:
        """Give the parts one after another."""
        yield self.head
        cursor: str | None = ""
        while cursor is not None:
            text, cursor = self.part(cursor)
            yield text

    async def later(self) -> AsyncIterator[str]:
        """Like `now`, without holding the event loop."""
        yield self.head
        cursor: str | None = ""
        while cursor is not None:
            text, cursor = await sync_to_async(self.part)(cursor)
            yield text

    def part(self, cursor: str) -> tuple[str, str | None]:
        """Return the rows after a cursor as text, and the next cursor; None: there are no more."""
        before = int(cursor) if cursor else None
        found = list_activity(self.actor, self.where, before=before, limit=ROWS_AT_ONCE)
        return self.write(found.rows), found.next_cursor or None


def _fields(row: AuditRow) -> dict[str, object]:
    return {
        "id": row.id,
        "at": row.at,
        "actor": row.actor_label,
        "action": row.action,
        "subject_type": row.subject_type,
        "subject_id": row.subject_id,
        "subject": row.subject_label,
        "unit_id": row.unit_id,
        "unit": row.unit.name if row.unit else None,
        "before": row.before,
        "after": row.after,
        "reason": row.reason,
        "request_id": row.request_id,
    }


def _json_lines(rows: Iterable[AuditRow]) -> str:
    lines = (json.dumps(_fields(row), cls=DjangoJSONEncoder, ensure_ascii=False) for row in rows)
    return "".join(f"{line}\n" for line in lines)


def _csv(rows: Iterable[AuditRow]) -> str:
    return csv_lines([_cells(row) for row in rows])


def _cells(row: AuditRow) -> list[object]:
    fields = _fields(row)
    fields["at"] = row.at.isoformat(timespec="milliseconds")
    for name in ("before", "after"):
        value = fields[name]
        fields[name] = "" if value is None else json.dumps(value, ensure_ascii=False)
    return ["" if fields[name] is None else fields[name] for name in COLUMNS]


def csv_lines(rows: Iterable[Sequence[object]]) -> str:
    """Write rows as CSV; a text that a spreadsheet would run as a formula gets an apostrophe."""
    buffer = StringIO()
    writer = csv.writer(buffer, lineterminator="\r\n")
    writer.writerows([_harmless(value) for value in row] for row in rows)
    return buffer.getvalue()


def _harmless(value: object) -> object:
    is_formula = isinstance(value, str) and value.lstrip(" ").startswith(FORMULA)
    return f"'{value}" if is_formula else value
