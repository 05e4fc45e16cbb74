"""Keep one node connected: open a session, exchange messages, and try again when it breaks."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Callable
from typing import Final
from urllib.parse import urlsplit

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import InvalidStatus, WebSocketException

from worker import protocol
from worker.agent.identity import Identity, tls_context
from worker.agent.node import Node
from worker.protocol import (
    Ack,
    CommandDone,
    Heartbeat,
    Launch,
    Refused,
    Stop,
    Welcome,
)
from worker.shim import linux

logger = logging.getLogger(__name__)

FIRST_PAUSE_SECONDS: Final = 0.2
LONGEST_PAUSE_SECONDS: Final = 15.0
REFUSED_PAUSE_SECONDS: Final = 30.0
WELCOME_SECONDS: Final = 10.0
SILENT_HEARTBEATS: Final = 3
OUTPUT_SECONDS: Final = 0.1
MEASURE_SECONDS: Final = 5.0
TIDY_SECONDS: Final = 600.0
UNAUTHORIZED: Final = frozenset({401, 403})
SOON: Final = frozenset({protocol.LAPSED, "bad_frame", "silent", "not_committed", "failed"})
"""Refusals of a connection, not of the node."""
LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})


class SessionRefusedError(Exception):
    """The gateway does not want this session."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code


class SilentGatewayError(Exception):
    """The connection is open, but nobody answers."""


LOST: Final = (
    OSError,
    WebSocketException,
    SilentGatewayError,
    TimeoutError,
    protocol.ProtocolError,
)


class NodeSession:
    """The connection of one node."""

    def __init__(
        self, *, node: Node, identity: Identity, turn: asyncio.Semaphore, ca_file: str = ""
    ) -> None:
        """`turn` limits how many nodes of one process open a session at the same time."""
        self._node = node
        self._identity = identity
        self._turn = turn
        self._ca_file = ca_file
        self._last_answer = 0.0

    async def run(self) -> str:
        """Stay connected until another session of this node took over; return why it ended."""
        pause = Backoff()
        side_work = [
            asyncio.create_task(_repeat(self._measure, MEASURE_SECONDS)),
            asyncio.create_task(_repeat(self._tidy, TIDY_SECONDS)),
        ]
        if not self._node.machine.is_simulated:
            side_work.append(asyncio.create_task(_repeat(self._look_for_output, OUTPUT_SECONDS)))
        try:
            while True:
                wait = await self._once_or_why_not(pause)
                if wait is None:
                    return "superseded: a newer session of this node was opened"
                await asyncio.sleep(max(wait, pause.next()))
        finally:
            for work in side_work:
                work.cancel()
            await asyncio.gather(*side_work, return_exceptions=True)

    async def _once_or_why_not(self, pause: Backoff) -> float | None:
        """Hold a session until it breaks; return how long to wait, None: do not come back."""
        try:
            await self._once(pause.reset)
        except SessionRefusedError as error:
            logger.warning("session.refused %s", error)
            if error.code == protocol.SUPERSEDED:
                return None
            return 0.0 if error.code in SOON else REFUSED_PAUSE_SECONDS
        except InvalidStatus as error:
            status = error.response.status_code
            logger.warning("session.no_websocket status=%s", status)
            return REFUSED_PAUSE_SECONDS if status in UNAUTHORIZED else 0.0
        except LOST as error:
            logger.warning("session.lost error=%s", str(error) or type(error).__name__)
        return 0.0

    async def _once(self, on_open: Callable[[], None]) -> None:
        """Hold one session until it breaks."""
        parts = urlsplit(self._identity.server)
        scheme = "wss" if parts.scheme == "https" else "ws"
        context = None
        if scheme == "wss":
            context = tls_context(self._ca_file)
        opening = connect(
            f"{scheme}://{parts.netloc}{parts.path}/agent/session",
            additional_headers={"Authorization": f"Bearer {self._identity.credential}"},
            ssl=context,
            proxy=None if parts.hostname in LOOPBACK else True,
            max_size=2 * protocol.MAX_FRAME_BYTES,
            compression=None,
            ping_interval=None,
            close_timeout=2,
        )
        async with contextlib.AsyncExitStack() as stack:
            async with self._turn:
                connection = await stack.enter_async_context(opening)
                sent_at = linux.boot_seconds()
                await connection.send(protocol.encode(self._node.hello()))
                welcome = await self._read_welcome(connection)
            on_open()
            self._last_answer = linux.boot_seconds()
            self._node.begin_session(welcome.session)
            self._node.machine.renew_lease(sent_at + welcome.lease_seconds)
            for attempt in welcome.stop:
                self._node.end(attempt, grace_seconds=0.0, reason="NotWanted")
            logger.info("session.open session=%s", welcome.session)
            await self._exchange(connection, welcome)

    async def _read_welcome(self, connection: ClientConnection) -> Welcome:
        async with asyncio.timeout(WELCOME_SECONDS):
            answer = protocol.decode(await connection.recv())
        if isinstance(answer, Refused):
            raise SessionRefusedError(answer.code, answer.message)
        if not isinstance(answer, Welcome):
            raise protocol.ProtocolError(f"expected Welcome, got {type(answer).__name__}")
        return answer

    async def _exchange(self, connection: ClientConnection, welcome: Welcome) -> None:
        """Read, report and beat at once; the first that fails ends all three."""
        work = [
            asyncio.create_task(self._read(connection)),
            asyncio.create_task(self._write(connection)),
            asyncio.create_task(self._beat(connection, welcome)),
        ]
        try:
            done, _ = await asyncio.wait(work, return_when=asyncio.FIRST_COMPLETED)
            for ended in done:
                ended.result()
        finally:
            for task in work:
                task.cancel()
            await asyncio.gather(*work, return_exceptions=True)

    async def _read(self, connection: ClientConnection) -> None:
        while True:
            message = protocol.decode(await connection.recv())
            self._last_answer = linux.boot_seconds()
            if isinstance(message, Ack):
                self._take_ack(message)
            elif isinstance(message, Refused):
                raise SessionRefusedError(message.code, message.message)
            else:
                await connection.send(protocol.encode(self._obey(message)))

    def _take_ack(self, ack: Ack) -> None:
        if ack.echo > 0:
            self._node.machine.renew_lease(ack.echo + ack.lease_seconds)
        self._node.acknowledge(ack.seq)

    def _obey(self, message: protocol.Message) -> CommandDone:
        match message:
            case Launch():
                if not self._node.machine.may_start():
                    raise SilentGatewayError("a Launch came after the lease had lapsed")
                return self._node.launch(message)
            case Stop():
                return self._node.stop(message)
            case _:
                raise protocol.ProtocolError(f"unexpected {type(message).__name__}")

    async def _write(self, connection: ClientConnection) -> None:
        while True:
            await self._node.dirty.wait()
            while (report := self._node.next_report()) is not None:
                await connection.send(protocol.encode(report))

    async def _beat(self, connection: ClientConnection, welcome: Welcome) -> None:
        while True:
            await asyncio.sleep(welcome.heartbeat_seconds)
            silence = linux.boot_seconds() - self._last_answer
            if silence > SILENT_HEARTBEATS * welcome.heartbeat_seconds:
                raise SilentGatewayError(f"no answer for {silence:.0f} s")
            beat = Heartbeat(session=welcome.session, sent=linux.boot_seconds())
            await connection.send(protocol.encode(beat))

    async def _measure(self) -> None:
        await self._node.measure()

    async def _tidy(self) -> None:
        self._node.tidy()

    async def _look_for_output(self) -> None:
        self._node.look_for_output()


class Backoff:
    """Pauses that double up to a limit, each anywhere below its ceiling (full jitter)."""

    def __init__(self) -> None:
        self._ceiling = FIRST_PAUSE_SECONDS

    def next(self) -> float:
        """Return how long to wait now."""
        pause = random.uniform(0.05, self._ceiling)  # noqa: S311 -- spreads load, hides nothing
        self._ceiling = min(LONGEST_PAUSE_SECONDS, self._ceiling * 2)
        return pause

    def reset(self) -> None:
        """Begin small again: the last attempt worked."""
        self._ceiling = FIRST_PAUSE_SECONDS


async def _repeat(work: Callable[[], object], seconds: float) -> None:
    while True:
        await asyncio.sleep(seconds)
        result = work()
        if asyncio.iscoroutine(result):
            await result
