"""Begin a coroutine at once: only one that has to wait becomes a task.

A frame that is sent to thousands of sockets hardly ever waits, and a task for each would cost more
than the sending. Python 3.12 has such tasks itself; 3.11 has not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from functools import partial
from typing import Any


def begin(work: Coroutine[Any, Any, None]) -> asyncio.Task[None] | None:
    """Run a coroutine up to its first wait; return the task of its rest, None if it is done.

    Raises:
        Exception: what the coroutine raised before it waited.
    """
    try:
        waited_for = work.send(None)
    except StopIteration:
        return None
    return asyncio.get_running_loop().create_task(_finish(_Rest(work, waited_for)))


async def _finish(rest: _Rest) -> None:
    await rest


class _Rest:
    """A coroutine that was begun elsewhere, as something to await."""

    def __init__(self, work: Coroutine[Any, Any, None], waited_for: Any) -> None:
        self._work = work
        self._waited_for = waited_for

    def __await__(self) -> Generator[Any, Any, None]:
        waited_for = self._waited_for
        while True:
            try:
                sent = yield waited_for
            except BaseException as error:  # noqa: BLE001 -- passed on, a cancellation too
                step: Callable[[], Any] = partial(self._work.throw, error)
            else:
                step = partial(self._work.send, sent)
            try:
                waited_for = step()
            except StopIteration:
                return
