"""What happened to jobs, tasks and attempts, as a stream that can be read on from any place.

An event is a row of the history. Its cursor is (transaction, id), since rows are numbered before
they are committed: only rows of transactions before which all others have ended are read, and in
this order nothing can appear before them any more. Whoever reads on from a cursor misses nothing.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from django.db import connection, transaction
from django.db.models import QuerySet

from scheduling.models import History, Job
from tenants.domain import webhooks
from tenants.domain.access import Actor, Verb, reads
from tenants.domain.errors import Invalid, Problem
from tenants.models import OrgClosure, Webhook

WINDOW: Final = 2_000
"""Rows that one read looks at, whoever they belong to: its cost does not depend on the reader."""
MOST: Final = 200
SUBJECTS: Final = webhooks.SUBJECTS
CURSOR: Final = re.compile(r"(\d{1,18})\.(\d{1,18})", re.ASCII)

NEWEST = """
SELECT written_xid, id FROM scheduling_history
WHERE written_xid < pg_snapshot_xmin(pg_current_snapshot())::text::bigint
ORDER BY written_xid DESC, id DESC LIMIT 1
"""
AFTER = """
SELECT written_xid, id FROM scheduling_history
WHERE (written_xid, id) > (%s, %s)
    AND written_xid < pg_snapshot_xmin(pg_current_snapshot())::text::bigint
ORDER BY written_xid, id LIMIT %s
"""
NOW = "SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint"
MEND = """
UPDATE scheduling_history SET written_xid = 0
WHERE written_xid > pg_snapshot_xmax(pg_current_snapshot())::text::bigint
"""


@dataclass(frozen=True, slots=True, order=True)
class Cursor:
    """A place in the stream: after the row `id`, written by the transaction `xid`."""

    xid: int = 0
    id: int = 0

    def __str__(self) -> str:
        return f"{self.xid}.{self.id}"


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened, and the cursor by which a reader goes on after it."""

    cursor: Cursor
    row: History


@dataclass(frozen=True, slots=True)
class Page:
    """Events in order, and where to read on."""

    events: tuple[Event, ...]
    cursor: Cursor
    is_end: bool


def parse_cursor(text: str) -> Cursor:
    """Read a cursor as events carry it.

    Raises:
        Invalid: it is none.
    """
    match = CURSOR.fullmatch(text)
    if match is None:
        raise Invalid([Problem("after", "event_cursor", {"value": text[:40]})])
    return Cursor(int(match[1]), int(match[2]))


def newest() -> Cursor:
    """Return the cursor of now: what follows it has not happened yet."""
    with connection.cursor() as cursor:
        cursor.execute(NEWEST)
        row = cursor.fetchone()
    return Cursor(*row) if row else Cursor()


def read(*, actor: Actor, after: Cursor, limit: int = MOST, subjects: Sequence[str] = ()) -> Page:
    """Return what the actor may see of what followed a cursor. Four queries."""
    jobs = Job.objects.visible_to(reads(actor, Verb.JOB_EVENTS))
    return _read(jobs, after, limit, subjects or SUBJECTS)


def body(event: Event) -> dict[str, object]:
    """Write an event as other services get it: what changed, and codes instead of sentences."""
    row, job = event.row, event.row.job
    return {
        "id": str(event.cursor),
        "at": row.at.isoformat(),
        "subject": row.subject,
        "event": row.event,
        "from": row.from_state,
        "to": row.to_state,
        "reason": row.reason_code,
        "job": {
            "id": str(job.id),
            "name": job.name,
            "queue": job.queue.name,
            "unit": str(job.unit_id),
            "owner": job.owner.get_username(),
        },
        "task": None if row.task is None else {"role": row.task.role.name, "index": row.task.index},
        "attempt": None if row.attempt is None else row.attempt.number,
    }


def queue_deliveries(now: datetime) -> int:
    """Give every webhook that is behind and waits for no answer its next batch; return how many.

    Called by the relay, in its transaction.
    """
    with connection.cursor() as cursor:
        cursor.execute(MEND)
    end = newest()
    count = 0
    for webhook in webhooks.idle_webhooks():
        after = parse_cursor(webhook.cursor)
        if after == end:
            continue
        page = _read_for(webhook, after)
        bodies = [body(event) for event in page.events]
        webhooks.queue_delivery(webhook, bodies, str(page.cursor), now)
        count += bool(bodies)
    return count


def _read_for(webhook: Webhook, after: Cursor) -> Page:
    below = OrgClosure.objects.filter(ancestor=webhook.unit_id).values("descendant")
    return _read(Job.objects.filter(unit__in=below), after, MOST, webhook.subjects)


def _read(jobs: QuerySet[Job], after: Cursor, limit: int, subjects: Sequence[str]) -> Page:
    window = _window(after)
    if not window:
        return Page((), after, is_end=True)
    job_of = dict(
        History.objects.filter(id__in=[one.id for one in window], subject__in=subjects).values_list(
            "id", "job_id"
        )
    )
    # Asked by the jobs at hand: in one question the planner reads all that the reader may see.
    seen = set(jobs.filter(id__in=set(job_of.values())).values_list("id", flat=True))
    places = [one for one in window if job_of.get(one.id) in seen]
    told = places[:limit]  # only these are read in full: the window may hold ten times as many
    rows = (
        History.objects.select_related("job__queue", "job__owner", "task__role", "attempt")
        .defer("job__spec", "job__queue__annotations")
        .in_bulk([one.id for one in told])
    )
    found = tuple(Event(one, rows[one.id]) for one in told)
    if len(places) > limit:
        return Page(found, told[-1], is_end=False)
    return Page(found, window[-1], is_end=len(window) < WINDOW)


def _window(after: Cursor) -> list[Cursor]:
    """Return the next rows of the stream, whoever they belong to.

    A cursor of transactions that have not happened yet is from before the database was restored
    from a backup; ids went on, and so does the stream.
    """
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(NOW)
        (now,) = cursor.fetchone()
        xid = after.xid if after.xid <= now else 0
        cursor.execute(AFTER, [xid, after.id, WINDOW])
        return [Cursor(*row) for row in cursor.fetchall()]
