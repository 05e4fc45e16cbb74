"""PostgreSQL's NOTIFY: wake-ups that travel with the transaction, and who listens to them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from types import TracebackType
from typing import Any, Self

import psycopg
import structlog
from django.db import connection
from psycopg import sql

log = structlog.get_logger(__name__)

OUTBOX = "terrace_outbox"
"""Something is due for the relay; no payload."""
NODE = "terrace_node"
"""A command waits for a node; the payload is the node's id."""
SCHEDULE = "terrace_schedule"
"""Something changed that a cycle would look at; the payload is the cluster's id."""

RECONNECT_SECONDS = 0.5


def notify(channel: str, payload: str = "") -> None:
    """Wake the listeners of `channel` when the current transaction commits, and only then.

    Equal notifications of one transaction arrive once.
    """
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_notify(%s, %s)", [channel, payload])


class Listener:
    """Hears a channel on a connection of its own, so that waiting blocks no transaction.

    A lost connection is made again by the next `wait`; what was sent meanwhile is lost, which is
    why every user of a listener also looks by itself from time to time.
    """

    def __init__(self, channel: str) -> None:
        """Listen from now on."""
        self.channel = channel
        self._connection: psycopg.Connection[tuple[Any, ...]] | None = None
        self._connect()

    def __enter__(self) -> Self:
        """Give itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the connection."""
        self.close()

    def close(self) -> None:
        """Stop listening."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def wait(self, timeout: float) -> list[str]:
        """Return the payloads that arrived, at once if there are any, after `timeout` seconds else.

        The order is that of the commits. Repeats are kept.
        """
        try:
            if self._connection is None:
                self._connect()
            assert self._connection is not None  # noqa: S101 - _connect sets it or raises
            return [
                notice.payload
                for notice in self._connection.notifies(timeout=timeout, stop_after=1)
            ]
        except psycopg.OperationalError as error:
            log.warning("listener_disconnected", channel=self.channel, error=str(error))
            self.close()
            time.sleep(min(timeout, RECONNECT_SECONDS))
            return []

    def _connect(self) -> None:
        self._connection = psycopg.connect(**_parameters(), autocommit=True)
        self._connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(self.channel)))


class AsyncListener:
    """The same for code on an event loop."""

    def __init__(self, channel: str) -> None:
        """Connect at the first `wait`."""
        self.channel = channel
        self._connection: psycopg.AsyncConnection[tuple[Any, ...]] | None = None

    async def close(self) -> None:
        """Stop listening."""
        if self._connection is not None:
            await self._connection.close()
            self._connection = None

    async def connect(self) -> None:
        """Listen from now on; `wait` does it by itself where the beginning may be missed."""
        self._connection = await psycopg.AsyncConnection.connect(**_parameters(), autocommit=True)
        await self._connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(self.channel)))

    async def wait(self, timeout: float) -> list[str]:  # noqa: ASYNC109 - how long to listen, no limit on work
        """Return the payloads that arrived; without any, an empty list after `timeout` seconds."""
        try:
            if self._connection is None:
                await self.connect()
            assert self._connection is not None  # noqa: S101 - connect sets it or raises
            return [
                notice.payload
                async for notice in self._connection.notifies(timeout=timeout, stop_after=1)
            ]
        except psycopg.OperationalError as error:
            log.warning("listener_disconnected", channel=self.channel, error=str(error))
            await self.close()
            await asyncio.sleep(min(timeout, RECONNECT_SECONDS))
            return []


def _parameters() -> dict[str, Any]:
    """Say how to reach the database that Django uses, past any pool."""
    settings = connection.settings_dict
    given = {
        "dbname": settings["NAME"],
        "user": settings["USER"],
        "password": settings["PASSWORD"],
        "host": settings["HOST"],
        "port": settings["PORT"],
    }
    options = _without(settings["OPTIONS"], ("pool", "server_side_binding", "isolation_level"))
    return {name: value for name, value in (given | options).items() if value}


def _without(options: dict[str, Any], names: Iterable[str]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if name not in set(names)}
