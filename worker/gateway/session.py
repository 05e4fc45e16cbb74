"""One agent's session: says who it is, takes reports, gets commands.

A session ends when the agent goes, is silent, breaks the protocol, or when a newer session of the
same node was opened, here or at another copy: the database decides which one is current.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final, Protocol
from uuid import UUID

import structlog

from scheduling.domain.reports import Frame
from worker import protocol
from worker.gateway import metrics, translation
from worker.protocol import (
    Ack,
    CommandDone,
    Heartbeat,
    Launch,
    Refused,
    Report,
    Stop,
    Welcome,
)

log = structlog.get_logger(__name__)

Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]

HELLO_SECONDS: Final = 10.0
SEND_SECONDS: Final = 10.0
SILENT_HEARTBEATS: Final = 4
UNCOMMITTED_REPORTS: Final = 64
"""So many reports of one session may wait for their commit; then nothing more is read from it."""
UNCONFIRMED_COMMANDS: Final = 10_000
REPORT_LIMITS: Final = {
    "attempts": 1_000,
    "logs": 64,
    "metrics": 2_000,
    "usage": 2_000,
    "devices": 256,
}

CLOSE_POLICY: Final = 1008
CLOSE_TOO_BIG: Final = 1009
CLOSE_INTERNAL: Final = 1011

BAD_FRAME: Final = "bad_frame"
SILENT: Final = "silent"


class EndSession(Exception):  # noqa: N818 - an order to end, no error
    """The session is over; the agent is told why."""

    def __init__(self, code: str, message: str, close: int = CLOSE_POLICY) -> None:
        super().__init__(message)
        self.code, self.message, self.close = code, message, close


@dataclass(slots=True)
class Arrived:
    """A report that waits to be committed."""

    session: AgentSession
    frame: Frame
    at: float

    @property
    def is_urgent(self) -> bool:
        """Tell whether somebody waits for it: anything but measurements of use."""
        frame = self.frame
        return bool(frame.observations or frame.logs or frame.metrics or frame.devices)


class Handler(Protocol):
    """What is done with what a session hears."""

    async def report(self, arrived: Arrived) -> None:
        """Commit a report soon and acknowledge it."""

    async def heartbeat(self, session: AgentSession, beat: Heartbeat) -> None:
        """Renew the node's lease and answer."""

    async def done(
        self, session: AgentSession, command: Launch | Stop, answer: CommandDone
    ) -> None:
        """Take a confirmed command out of the outbox."""


@dataclass(slots=True, eq=False)
class AgentSession:
    """The gateway's end of one WebSocket."""

    node_id: UUID
    receive: Receive
    send_event: Send
    session: str = ""
    lease_seconds: float = 0.0
    heartbeat_seconds: float = 0.0
    committed_seq: int = 0
    unconfirmed: dict[int, Launch | Stop] = field(default_factory=dict)
    """Commands that were sent here: only these may be confirmed through this session."""
    _room: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(UNCOMMITTED_REPORTS))
    _last_seq: int = 0
    _ending: asyncio.Future[EndSession] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )

    # --- the agent's frames ---------------------------------------------------------------

    async def read_hello(self) -> protocol.Hello:
        """Return the first frame.

        Raises:
            EndSession: it is no Hello, of a version that is not spoken here, or does not come.
        """
        try:
            async with asyncio.timeout(HELLO_SECONDS):
                hello = await self._next()
        except TimeoutError:
            raise EndSession(SILENT, f"no Hello within {HELLO_SECONDS:g} s") from None
        if not isinstance(hello, protocol.Hello):
            raise EndSession(BAD_FRAME, "the first frame has to be a Hello")
        spoken = (protocol.VERSION, protocol.VERSION - 1)
        if hello.version not in spoken:
            raise EndSession(
                "version",
                f"the agent speaks version {hello.version}, this gateway {spoken[0]} and "
                f"{spoken[1]}; install the agent that belongs to this release",
            )
        return hello

    async def run(self, handle: Handler) -> None:
        """Read frames until the session ends.

        Raises:
            EndSession: always; its code says why.
        """
        silence = SILENT_HEARTBEATS * self.heartbeat_seconds
        while True:
            reading = asyncio.ensure_future(self._next())
            waited_for: set[asyncio.Future[Any]] = {reading, self._ending}
            done, _ = await asyncio.wait(
                waited_for, timeout=silence, return_when=asyncio.FIRST_COMPLETED
            )
            if reading not in done:
                reading.cancel()
                await asyncio.gather(reading, return_exceptions=True)
                if self._ending in done:
                    raise self._ending.result()
                raise EndSession(SILENT, f"nothing heard for {silence:g} s")
            await self._dispatch(reading.result(), handle)

    def end(self, reason: EndSession) -> None:
        """End the session from outside; the first reason counts."""
        if not self._ending.done():
            self._ending.set_result(reason)

    # --- to the agent ---------------------------------------------------------------------

    async def send(self, message: protocol.FromGateway) -> None:
        """Send one message; an agent that takes nothing for long loses its session."""
        frame = protocol.encode(message)
        try:
            async with asyncio.timeout(SEND_SECONDS):
                await self.send_event({"type": "websocket.send", "text": frame})
        except TimeoutError:
            self.end(EndSession(SILENT, "the agent does not take what it is sent", CLOSE_INTERNAL))
        except OSError:
            # What sends here serves all sessions, and must not end because one agent has gone.
            self.end(EndSession("gone", "the connection broke while something was sent"))

    async def welcome(self, session_epoch: int, stop: list[str]) -> None:
        """Tell the agent that its session is open."""
        await self.send(
            Welcome(
                version=protocol.VERSION,
                session=self.session,
                session_epoch=session_epoch,
                lease_seconds=self.lease_seconds,
                heartbeat_seconds=self.heartbeat_seconds,
                stop=stop,
            )
        )

    async def commands(self, commands: list[Launch | Stop]) -> None:
        """Send commands in order and remember each until it is confirmed."""
        for command in commands:
            if len(self.unconfirmed) >= UNCONFIRMED_COMMANDS:
                return  # due again soon; an agent that confirms nothing gets nothing more
            self.unconfirmed[command.command_id] = command
            metrics.COMMANDS.labels(type(command).__name__).inc()
            await self.send(command)

    async def committed(self, seq: int, count: int) -> None:
        """Acknowledge reports up to `seq`; `count` of them were waiting."""
        self.committed_seq = max(self.committed_seq, seq)
        for _ in range(count):
            self._room.release()
        await self.send(Ack(self.session, self.committed_seq, self.lease_seconds))

    async def renewed(self, beat: Heartbeat) -> None:
        """Answer a heartbeat, once the database knows that the node lives."""
        await self.send(Ack(self.session, self.committed_seq, self.lease_seconds, echo=beat.sent))

    # --- inside ---------------------------------------------------------------------------

    async def _dispatch(self, message: protocol.Message, handle: Handler) -> None:
        match message:
            case Report():
                frame = self._frame(message)
                await self._room.acquire()
                arrived = Arrived(self, frame, asyncio.get_running_loop().time())
                await handle.report(arrived)
            case Heartbeat():
                self._check_session(message.session)
                await handle.heartbeat(self, message)
            case CommandDone():
                command = self.unconfirmed.pop(message.command_id, None)
                if command is not None:
                    await handle.done(self, command, message)
            case _:
                raise EndSession(BAD_FRAME, f"unexpected {type(message).__name__}")

    async def _next(self) -> protocol.Message:
        event = await self.receive()
        if event["type"] == "websocket.disconnect":
            raise EndSession("gone", "the agent closed the connection")
        frame = event.get("text")
        if frame is None:
            raise EndSession(BAD_FRAME, "frames are text")
        if len(frame) > protocol.MAX_FRAME_BYTES:
            raise EndSession(
                BAD_FRAME,
                f"a frame of {len(frame)} bytes; the limit is {protocol.MAX_FRAME_BYTES}",
                CLOSE_TOO_BIG,
            )
        try:
            message = protocol.decode(frame)
        except protocol.ProtocolError as error:
            raise EndSession(BAD_FRAME, str(error)) from error
        metrics.FRAMES.labels(type(message).__name__).inc()
        return message

    def _frame(self, report: Report) -> Frame:
        """Translate what continues this session; anything else ends it.

        Raises:
            EndSession: another session, a gap or repetition in `seq`, too much of something.
        """
        self._check_session(report.session)
        if report.seq != self._last_seq + 1:
            raise EndSession(
                BAD_FRAME, f"seq {report.seq} after {self._last_seq}: reports count up by one"
            )
        for name, limit in REPORT_LIMITS.items():
            count = len(getattr(report, name))
            if count > limit:
                raise EndSession(BAD_FRAME, f"{name}: {count} in one report; the limit is {limit}")
        try:
            frame = translation.frame(self.node_id, self.session, report)
        except translation.UntranslatableError as error:
            raise EndSession(BAD_FRAME, str(error)) from error
        self._last_seq = report.seq
        return frame

    def _check_session(self, session: str) -> None:
        if session != self.session:
            raise EndSession(BAD_FRAME, f"session {session!r} is not this one")


async def refuse(send: Send, reason: EndSession) -> None:
    """Say why, then close."""
    metrics.REFUSED.labels(reason.code).inc()
    refused = protocol.encode(Refused(reason.code, reason.message[:1_000]))
    try:
        async with asyncio.timeout(SEND_SECONDS):
            await send({"type": "websocket.send", "text": refused})
            await send({"type": "websocket.close", "code": reason.close})
    except (TimeoutError, RuntimeError, OSError) as error:
        log.info("session.not_told", code=reason.code, error=str(error))
