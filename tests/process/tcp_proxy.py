"""A TCP proxy of our own that cuts, slows and stalls what goes through it.

It listens on the loopback interface, in front of a port or of a Unix socket, and runs on an event
loop in a thread of its own, so that a test's thread only says what the link is like now.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Self, TypeVar

from controlplane.supervisor.ports import listen

PIECE_BYTES = 16 * 1024
FIRST_PORT = 20_000
T = TypeVar("T")


class Link(StrEnum):
    """What a link does with what is sent over it."""

    PASS = "pass"
    CUT = "cut"
    """Connections are reset, and new ones too."""
    SLOW = "slow"
    """Each piece waits before it goes on, both ways."""
    STALL = "stall"
    """Nothing goes through and nobody is told, until it passes again: a half-open line."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where a proxy leads to: a port of this machine, or a Unix socket."""

    port: int = 0
    socket: Path | None = None

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Open a connection to it."""
        if self.socket is not None:
            return await asyncio.open_unix_connection(str(self.socket))
        return await asyncio.open_connection("127.0.0.1", self.port)


class TcpProxy:
    """One link, passing everything on until told otherwise."""

    def __init__(self, target: Address | None = None) -> None:
        """Take a port; connections wait until it runs and knows its target."""
        self.target = target
        self.connections = 0
        """How many there have been."""
        self._socket = listen(FIRST_PORT)
        self.port: int = self._socket.getsockname()[1]
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name=f"proxy {self.port}", daemon=True
        )
        self._link = Link.PASS
        self._delay_seconds = 0.0
        self._writers: set[asyncio.StreamWriter] = set()
        self._pumps: set[asyncio.Task[None]] = set()
        self._may_pass = asyncio.Event()
        self._may_pass.set()

    def __enter__(self) -> Self:
        """Begin to pass on."""
        self._thread.start()
        self._server = self._do(asyncio.start_server(self._serve, sock=self._socket))
        return self

    def __exit__(self, *_: object) -> None:
        """Reset what is open, and end."""
        self._do(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def be(self, link: Link, *, delay_seconds: float = 0.0) -> None:
        """Make the link such from now on; if it is slow, each piece waits `delay_seconds`."""
        self._do(self._become(link, delay_seconds))

    def _do(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _become(self, link: Link, delay_seconds: float) -> None:
        self._link, self._delay_seconds = link, delay_seconds
        if link is Link.STALL:
            self._may_pass.clear()
        else:
            self._may_pass.set()
        if link is Link.CUT:
            self._reset_all()

    def _reset_all(self) -> None:
        for writer in list(self._writers):
            writer.transport.abort()

    async def _end(self) -> None:
        self._server.close()
        self._may_pass.set()
        self._reset_all()
        for pump in self._pumps:
            pump.cancel()
        await asyncio.gather(*self._pumps, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self._may_pass.wait()
        if self._link is Link.CUT or self.target is None:
            writer.transport.abort()
            return
        try:
            back, forth = await self.target.connect()
        except OSError:
            writer.transport.abort()  # the client learns what it would without us: nobody is there
            return
        self.connections += 1
        pair = {writer, forth}
        self._writers |= pair
        pumps = {
            asyncio.create_task(self._pump(reader, forth)),
            asyncio.create_task(self._pump(back, writer)),
        }
        self._pumps |= pumps
        await asyncio.wait(pumps)
        for each in pair:
            each.close()
        self._writers -= pair
        self._pumps -= pumps

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        """Carry pieces one way until the source ends or either side breaks."""
        try:
            while piece := await source.read(PIECE_BYTES):
                if self._link is Link.SLOW:
                    await asyncio.sleep(self._delay_seconds)
                await self._may_pass.wait()
                sink.write(piece)
                await sink.drain()
            if sink.can_write_eof():
                sink.write_eof()
        except OSError:
            sink.transport.abort()
