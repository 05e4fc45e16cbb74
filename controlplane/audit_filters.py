"""The filters of the record as an address carries them, for its page, its export and the API."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from uuid import UUID

from django.utils.dateparse import parse_date, parse_datetime

from scheduling.domain.queries.activity import AuditFilter
from tenants.domain.errors import Param, Problem

LONGEST = 200
NAMES = ("action", "person", "subject", "unit", "since", "until", "request_id")


def filter_of(given: Mapping[str, str]) -> tuple[AuditFilter, list[Problem]]:
    """Read the filters; what cannot be read filters nothing and is named.

    A day as the end of a span is the whole day.
    """
    text = {name: given.get(name, "").replace("\0", "").strip()[:LONGEST] for name in NAMES}
    problems: list[Problem] = []
    unit_id = None
    if text["unit"]:
        try:
            unit_id = UUID(text["unit"])
        except ValueError:
            problems.append(Problem("unit", "bad_uuid", {"value": text["unit"][:40]}))
    times: dict[str, datetime | None] = {}
    for name in ("since", "until"):
        times[name] = _time(text[name], is_end=name == "until") if text[name] else None
        if text[name] and times[name] is None:
            params: dict[str, Param] = {"value": text[name][:40]}
            problems.append(Problem(name, "not_a_time", params))
    where = AuditFilter(
        action=text["action"],
        person=text["person"],
        subject=text["subject"],
        unit_id=unit_id,
        since=times["since"],
        until=times["until"],
        request_id=text["request_id"],
    )
    return where, problems


def _time(text: str, *, is_end: bool) -> datetime | None:
    try:
        day = parse_date(text)
        if day is not None:
            start = datetime(day.year, day.month, day.day, tzinfo=UTC)
            return start + timedelta(days=1) if is_end else start
        moment = parse_datetime(text)
    except (ValueError, OverflowError):
        return None
    if moment is None:
        return None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
