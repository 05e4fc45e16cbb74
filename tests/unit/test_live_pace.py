"""How often a page hears of changes, and coroutines that are begun at once."""

from __future__ import annotations

import asyncio

import pytest

from controlplane.live import eager
from controlplane.live.pace import Pace


def test_four_a_second_never_wait() -> None:
    """What comes four times a second, some of it early, is never held up."""
    pace = Pace()
    waits = []

    for number in range(40):
        now = number * 0.25 - (0.1 if number % 3 == 1 else 0.0)
        waits.append(pace.wait_seconds(now))
        pace.note(now)

    assert waits == [0.0] * 40


def test_faster_ones_wait_for_an_interval_at_most() -> None:
    """Of a burst two pass at once; from then on one each 250 ms, however many there are."""
    pace = Pace()
    now, times = 100.0, []

    for _ in range(6):
        wait = pace.wait_seconds(now)
        now += wait
        pace.note(now)
        times.append(round(now - 100, 3))

    assert times == [0.0, 0.0, 0.25, 0.5, 0.75, 1.0]


async def test_coroutine_that_need_not_wait_is_done_at_once() -> None:
    """It makes no task, and what it raises is raised where it was begun."""
    said = []

    async def say() -> None:
        said.append("now")

    async def fail() -> None:
        raise OSError("gone")

    assert eager.begin(say()) is None
    assert said == ["now"]
    with pytest.raises(OSError, match="gone"):
        eager.begin(fail())


async def test_coroutine_that_waits_goes_on_as_a_task() -> None:
    """It takes up results and errors of what it waits for, like a task from the start."""
    first: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    second: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    said: list[object] = []

    async def follow() -> None:
        said.append(await first)
        await asyncio.sleep(0)
        try:
            await second
        except OSError as error:
            said.append(str(error))

    task = eager.begin(follow())
    assert task is not None
    first.set_result(1)
    second.set_exception(OSError("gone"))
    await task

    assert said == [1, "gone"]


async def test_coroutine_that_waits_can_be_cancelled() -> None:
    """The cancellation reaches the place where it waits, and its clean-up runs."""
    said = []

    async def wait() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            said.append("cleaned up")

    task = eager.begin(wait())
    assert task is not None
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)

    assert task.cancelled()
    assert said == ["cleaned up"]
