"""The rules that a schedule must keep: expression, zone, name and limits."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from zoneinfo import ZoneInfo

from scheduling.lifecycle.cron import NotAScheduleError, parse
from scheduling.lifecycle.schedules import Concurrency
from scheduling.spec.problems import Problem
from scheduling.spec.rules import is_subdomain

LONGEST_NAME = 52
"""A job's name ends in the minutes since 1970, and must still be a host's name."""
_ZONE = re.compile(r"[A-Za-z0-9._+][A-Za-z0-9._+-]{0,13}(/[A-Za-z0-9._+][A-Za-z0-9._+-]{0,13})*")


def check_schedule(
    *,
    expression: str,
    zone: str | None = None,
    name: str | None = None,
    concurrency: str | None = None,
    numbers: Mapping[str, int | None] | None = None,
) -> list[Problem]:
    """Return everything that is wrong with a schedule. `zone` None: not stated, UTC."""
    return [
        *_expression(expression),
        *_zone(zone),
        *_name(name),
        *_concurrency(concurrency),
        *(
            Problem(field, "negative_number", {"value": number})
            for field, number in (numbers or {}).items()
            if number is not None and number < 0
        ),
    ]


def _expression(expression: str) -> Iterator[Problem]:
    if not expression:
        yield Problem("schedule", "required")
    elif "TZ=" in expression:
        yield Problem("schedule", "zone_in_schedule")
    else:
        try:
            parse(expression)
        except NotAScheduleError as error:
            yield Problem("schedule", "not_a_schedule", {"detail": str(error)[:200]})


def _zone(zone: str | None) -> Iterator[Problem]:
    if zone is None:
        return
    if not zone:
        yield Problem("time_zone", "empty")
    elif zone.lower() == "local":
        yield Problem("time_zone", "local_zone")
    elif not _ZONE.fullmatch(zone) or not {".", ".."}.isdisjoint(zone.split("/")):
        yield Problem("time_zone", "unknown_zone", {"zone": zone[:80]})
    else:
        try:
            ZoneInfo(zone)
        except (KeyError, ValueError, OSError):
            yield Problem("time_zone", "invalid_zone", {"zone": zone[:80]})


def _name(name: str | None) -> Iterator[Problem]:
    if name is None:
        return
    if len(name) > LONGEST_NAME:
        yield Problem("name", "too_long", {"length": len(name), "limit": LONGEST_NAME})
    elif not is_subdomain(name):
        yield Problem("name", "invalid_name", {"name": name[:80]})


def _concurrency(concurrency: str | None) -> Iterator[Problem]:
    if concurrency and concurrency not in set(Concurrency):
        params = {"value": concurrency[:80], "allowed": ", ".join(Concurrency)}
        yield Problem("concurrency", "invalid_choice", params)
