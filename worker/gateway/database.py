"""Call the domain, which is synchronous, from the event loop without stopping it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, ParamSpec, TypeVar

from django.db import close_old_connections

P = ParamSpec("P")
T = TypeVar("T")

THREADS: Final = 4
"""Connections that one copy uses at once, next to the one that listens."""

_threads = ThreadPoolExecutor(max_workers=THREADS, thread_name_prefix="gateway-db")


async def in_thread(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run a function that uses the database in one of a few threads."""

    def call() -> T:
        close_old_connections()
        try:
            return function(*args, **kwargs)
        finally:
            close_old_connections()  # back to the pool

    return await asyncio.get_running_loop().run_in_executor(_threads, call)
