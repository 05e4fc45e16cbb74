"""Threads in which the event loop asks the database and renders, a few for each web process."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from django.db import close_old_connections

P = ParamSpec("P")
T = TypeVar("T")

# More would not render faster under the interpreter's lock; these hide the database's latency.
_executor = ThreadPoolExecutor(max_workers=4, thread_name_prefix="live")


async def in_thread(call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Run a synchronous call that may use the database, giving its connection back afterwards."""

    def run() -> T:
        try:
            return call(*args, **kwargs)
        finally:
            close_old_connections()

    context = contextvars.copy_context()
    return await asyncio.get_running_loop().run_in_executor(_executor, context.run, run)
