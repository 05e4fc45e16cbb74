"""When the slots of a schedule are."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduling.lifecycle.cron import (
    NotAScheduleError,
    count_slots,
    latest_slot,
    next_slot,
    parse,
)

NEW_YORK = ZoneInfo("America/New_York")


def at(text: str) -> datetime:
    """Read a time in UTC."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("expression", "after", "expected"),
    [
        ("*/15 * * * *", "2025-03-11T10:05", "2025-03-11T10:15"),
        ("0 0 1 jan *", "2025-03-11T10:05", "2026-01-01T00:00"),
        ("30 6-16/4 * * 1-5", "2025-03-14T14:30", "2025-03-17T06:30"),
        ("0 12 * * SUN", "2025-03-11T10:05", "2025-03-16T12:00"),
        ("0 0 13 * 5", "2025-03-11T10:05", "2025-03-13T00:00"),
        ("0 0 ? * 5", "2025-03-11T10:05", "2025-03-14T00:00"),
        ("5/20 * * * *", "2025-03-11T10:05", "2025-03-11T10:25"),
        ("0 0 29 2 *", "2025-03-11T10:05", "2028-02-29T00:00"),
        ("@daily", "2025-03-11T10:05", "2025-03-12T00:00"),
        ("@every 1h30m", "2025-03-11T10:05", "2025-03-11T11:35"),
    ],
)
def test_the_next_slot(expression: str, after: str, expected: str) -> None:
    """Lists, ranges, steps, names and shortcuts; day or weekday where both are restricted."""
    assert next_slot(parse(expression), at(after)) == at(expected)


@pytest.mark.parametrize(
    "expression",
    [
        "",
        "* * * *",
        "60 * * * *",
        "* 24 * * *",
        "* * 0 * *",
        "* * * 13 *",
        "* * * * 8",
        "5-1 * * * *",
        "*/0 * * * *",
        "a * * * *",
        "1,,2 * * * *",
        "@every",
        "@every soon",
        "@sometimes",
        "* * * * * *",
    ],
)
def test_what_is_no_schedule(expression: str) -> None:
    """Each is refused."""
    with pytest.raises(NotAScheduleError):
        parse(expression)


def test_a_day_that_never_comes() -> None:
    """31 February has no slot."""
    assert next_slot(parse("59 23 31 2 *"), at("2025-03-11T10:00")) is None


def test_a_time_that_the_clock_leaves_out_is_skipped() -> None:
    """2:30 does not exist on the day on which summer time begins."""
    cron = parse("30 2 * * *")

    found = next_slot(cron, datetime(2025, 3, 8, 12, tzinfo=NEW_YORK), NEW_YORK)

    assert found == at("2025-03-10T06:30")


def test_a_time_that_the_clock_brings_twice_counts_twice() -> None:
    """1:30 comes once in summer time and once an hour later."""
    cron = parse("30 1 2 11 *")
    first = next_slot(cron, at("2025-11-01T00:00"), NEW_YORK)
    assert first is not None

    second = next_slot(cron, first, NEW_YORK)

    assert (first, second) == (at("2025-11-02T05:30"), at("2025-11-02T06:30"))


def test_slots_are_counted_up_to_a_limit() -> None:
    """Nobody counts the minutes of a year."""
    cron, year = parse("* * * * *"), at("2024-01-01T00:00")

    assert count_slots(cron, year, at("2025-01-01T00:00"), most=101) == 101
    assert count_slots(cron, year, at("2024-01-01T00:03"), most=101) == 3


START = datetime(2024, 1, 1, tzinfo=UTC)


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(
        ["*/7 * * * *", "30 6-16/4 * * 1-5", "0 0 1,15 * *", "@every 50m", "0 9 * * 1"]
    ),
    st.integers(0, 60 * 24 * 700),
    st.integers(0, 60 * 24 * 4),
)
def test_the_latest_slot_is_the_last_of_all_next_ones(
    expression: str, start: int, minutes: int
) -> None:
    """Searching backwards finds what going forward step by step finds."""
    cron = parse(expression)
    since = START + timedelta(minutes=start)
    until = since + timedelta(minutes=minutes)
    last, slot = None, next_slot(cron, since)
    while slot is not None and slot <= until:
        last, slot = slot, next_slot(cron, slot)

    assert latest_slot(cron, since, until) == last
