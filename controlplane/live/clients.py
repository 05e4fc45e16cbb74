"""The sockets of a web process, and what gives each its news at its pace.

One loop serves all sockets that have news and may be sent a frame now. It never waits for any of
them: a socket that does not take its frame is left to a task of its own until it has.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

import structlog

from controlplane.live import eager, frames
from controlplane.live.authority import Reader, SignedIn
from controlplane.live.pace import Pace
from controlplane.live.regions import Region

log = structlog.get_logger(__name__)

AT_ONCE = 100
"""Sockets that are served before the event loop may do something else."""


@dataclass(slots=True, eq=False)
class Client:
    """One socket: who reads, what it follows, and what of it is news that was not sent yet."""

    reader: Reader
    signed_in: SignedIn
    send: Callable[[str], Coroutine[Any, Any, None]]
    close: Callable[[int], Awaitable[None]]
    has: dict[Region, str] = field(default_factory=dict)
    """What the page has of each region: a digest or a cursor."""
    news: dict[Region, None] = field(default_factory=dict)
    notices: list[str] = field(default_factory=list)
    """Parts of a frame that belong to no rendering: a refusal, the mode."""
    seq: int = 0
    pace: Pace = field(default_factory=Pace)
    sending: asyncio.Task[None] | None = None
    """The rest of a frame that the socket did not take at once."""
    timer: asyncio.TimerHandle | None = None
    is_gone: bool = False


Compose = Callable[[Client], list[str]]


class Pump:
    """Sends every client what is new for it, in the order in which it became due."""

    def __init__(self, compose: Compose) -> None:
        """`compose` takes a client's news: the encoded parts of its next frame, maybe none."""
        self._compose = compose
        self._due: dict[Client, None] = {}
        self._is_due = asyncio.Event()
        self._work: asyncio.Task[None] | None = None

    def wake(self, client: Client) -> None:
        """Take notice that a client has news; it is sent as soon as its pace allows."""
        if client.timer is not None or client.sending is not None or client.is_gone:
            return  # looked at again when that is over
        self._due[client] = None
        self._is_due.set()
        if self._work is None:
            self._work = asyncio.create_task(self._run())

    def forget(self, client: Client) -> None:
        """Send a client nothing more."""
        client.is_gone = True
        if client.timer is not None:
            client.timer.cancel()
        if client.sending is not None:
            client.sending.cancel()

    async def stop(self) -> None:
        """End the loop."""
        if self._work is not None:
            self._work.cancel()
            await asyncio.gather(self._work, return_exceptions=True)

    async def _run(self) -> None:
        """Serve due clients for ever."""
        while True:
            await self._is_due.wait()
            self._is_due.clear()
            due, self._due = self._due, {}
            for number, client in enumerate(due, 1):
                try:
                    self._serve(client)
                except Exception:  # top of a loop: one socket must not stop the others
                    log.exception("live_frame_not_sent")
                if number % AT_ONCE == 0:
                    await asyncio.sleep(0)

    def _serve(self, client: Client) -> None:
        if client.is_gone:
            return
        loop = asyncio.get_running_loop()
        now = loop.time()
        if (wait := client.pace.wait_seconds(now)) > 0:
            client.timer = loop.call_later(wait, self._pace_allows, client)
            return
        parts = self._compose(client)
        if not parts:
            return
        client.seq += 1
        client.pace.note(now)
        try:
            client.sending = eager.begin(client.send(frames.frame(client.seq, parts)))
        except OSError:
            return  # the page is gone; its disconnect takes it out of the hub
        if client.sending is not None:
            client.sending.add_done_callback(lambda sent: self._has_sent(client, sent))
        elif client.news or client.notices:
            self.wake(client)

    def _pace_allows(self, client: Client) -> None:
        client.timer = None
        self.wake(client)

    def _has_sent(self, client: Client, sent: asyncio.Task[None]) -> None:
        client.sending = None
        if sent.cancelled():
            return
        error = sent.exception()
        if error is None:
            self.wake(client)
        elif not isinstance(error, OSError):
            log.error("live_frame_not_sent", exc_info=error)
