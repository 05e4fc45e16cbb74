"""Cron expressions: when the next and the latest slot of a schedule is.

Five fields (minute hour day month weekday) with lists, ranges, steps, names and `?`; `@hourly` and
its like; `@every 1h30m`. Where day and weekday are both restricted, one of them is enough. A time
that a change of the clock leaves out is skipped; one that it brings twice counts twice.
Source: robfig/cron v3, standard parser.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, tzinfo

_NAMES = {
    "month": ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"],
    "weekday": ["sun", "mon", "tue", "wed", "thu", "fri", "sat"],
}
_FIELDS = (("minute", 0, 59), ("hour", 0, 23), ("day", 1, 31), ("month", 1, 12), ("weekday", 0, 6))
_SHORTCUTS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_SEARCHED_DAYS = 5 * 366
"""A slot that does not come within five years never comes."""
_DURATION_PART = re.compile(r"(\d{1,9})(h|m|s)")
_SECONDS = {"h": 3600, "m": 60, "s": 1}


class NotAScheduleError(ValueError):
    """A text that is no cron expression."""


@dataclass(frozen=True, slots=True)
class Cron:
    """A parsed expression. `every_seconds` is set for `@every`, else the sets of values count."""

    minutes: tuple[int, ...] = ()
    hours: tuple[int, ...] = ()
    days: frozenset[int] = frozenset()
    months: frozenset[int] = frozenset()
    weekdays: frozenset[int] = frozenset()
    any_day: bool = True
    any_weekday: bool = True
    every_seconds: int = 0

    def matches_day(self, day: date) -> bool:
        """Whether slots fall on this day."""
        if day.month not in self.months:
            return False
        is_day, is_weekday = day.day in self.days, (day.isoweekday() % 7) in self.weekdays
        if self.any_day or self.any_weekday:
            return is_day and is_weekday
        return is_day or is_weekday


def parse(expression: str) -> Cron:
    """Return the parsed expression.

    Raises:
        NotAScheduleError: it is none.
    """
    text = expression.strip()
    if text.startswith("@every "):
        return Cron(every_seconds=_every(text.removeprefix("@every ").strip()))
    parts = _SHORTCUTS.get(text, text).split()
    if len(parts) != len(_FIELDS):
        raise NotAScheduleError(f"{expression!r} does not have five fields")
    values = [
        _field(part.lower(), name, low, high)
        for part, (name, low, high) in zip(parts, _FIELDS, strict=True)
    ]
    minutes, hours, days, months, weekdays = values
    return Cron(
        tuple(sorted(minutes)),
        tuple(sorted(hours)),
        frozenset(days),
        frozenset(months),
        frozenset(weekdays),
        any_day=parts[2][0] in "*?",
        any_weekday=parts[4][0] in "*?",
    )


def _every(text: str) -> int:
    parts = _DURATION_PART.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise NotAScheduleError(f"{text!r} is not a duration in h, m and s")
    return max(sum(int(number) * _SECONDS[unit] for number, unit in parts), 1)


def _field(text: str, name: str, low: int, high: int) -> set[int]:
    values: set[int] = set()
    for part in text.split(","):
        values.update(_range(part, name, low, high))
    return values


def _range(text: str, name: str, low: int, high: int) -> range:
    body, slash, step_text = text.partition("/")
    step = _number(step_text, "", 1, high) if slash else 1
    if body in ("*", "?"):
        first, last = low, high
    else:
        begin, dash, end = body.partition("-")
        first = _number(begin, name, low, high)
        last = _number(end, name, low, high) if dash else (high if slash else first)
    if first > last or step < 1:
        raise NotAScheduleError(f"{text!r} is no range")
    return range(first, last + 1, step)


def _number(text: str, name: str, low: int, high: int) -> int:
    names = _NAMES.get(name, [])
    if text in names:
        return names.index(text) + low
    if not re.fullmatch(r"[0-9]{1,3}", text) or not low <= int(text) <= high:
        raise NotAScheduleError(f"{text!r} is not from {low} to {high}")
    return int(text)


def next_slot(cron: Cron, after: datetime, zone: tzinfo = UTC) -> datetime | None:
    """Return the first slot after an instant, in UTC; None if none ever comes."""
    if cron.every_seconds:
        return after.replace(microsecond=0) + timedelta(seconds=cron.every_seconds)
    local = after.astimezone(zone)
    for offset in range(_SEARCHED_DAYS):
        day = local.date() + timedelta(days=offset)
        if cron.matches_day(day):
            # A change of the clock moves a slot by an hour at most: the hour before may still come.
            found = _first_of_day(cron, day, zone, after, local.hour - 1 if offset == 0 else 0)
            if found is not None:
                return found
    return None


def _first_of_day(
    cron: Cron, day: date, zone: tzinfo, after: datetime, first_hour: int
) -> datetime | None:
    best: datetime | None = None
    best_hour = 24
    for hour in cron.hours:
        if hour > best_hour + 1:
            break
        if hour >= first_hour:
            slots = [slot for slot in _slots_of_hour(cron, day, hour, zone) if slot > after]
            if slots and (best is None or min(slots) < best):
                best, best_hour = min(slots), min(best_hour, hour)
    return best


def latest_slot(
    cron: Cron, since: datetime, until: datetime, zone: tzinfo = UTC
) -> datetime | None:
    """Return the last slot after `since` and not after `until`, in UTC; None if there is none."""
    if cron.every_seconds:
        count = int((until - since).total_seconds() // cron.every_seconds)
        return since + timedelta(seconds=count * cron.every_seconds) if count > 0 else None
    last = until.astimezone(zone).date()
    days = (last - since.astimezone(zone).date()).days
    for offset in range(days + 1):
        day = last - timedelta(days=offset)
        if cron.matches_day(day):
            slots = [
                slot
                for hour in cron.hours
                for slot in _slots_of_hour(cron, day, hour, zone)
                if since < slot <= until
            ]
            if slots:
                return max(slots)
    return None


def count_slots(
    cron: Cron, since: datetime, until: datetime, zone: tzinfo = UTC, *, most: int
) -> int:
    """Count the slots after `since` and not after `until`, stopping at `most`."""
    count, at = 0, since
    while count < most:
        following = next_slot(cron, at, zone)
        if following is None or following > until:
            break
        count, at = count + 1, following
    return count


def _slots_of_hour(cron: Cron, day: date, hour: int, zone: tzinfo) -> Iterator[datetime]:
    """Yield the instants at which the clock shows a slot: none in a gap, two in a repeated hour."""
    for minute in cron.minutes:
        wall = datetime(day.year, day.month, day.day, hour, minute, tzinfo=zone)
        seen: set[datetime] = set()
        for fold in (0, 1):
            instant = wall.replace(fold=fold).astimezone(UTC)
            is_real = instant.astimezone(zone).replace(tzinfo=None) == wall.replace(tzinfo=None)
            if is_real and instant not in seen:
                seen.add(instant)
                yield instant
