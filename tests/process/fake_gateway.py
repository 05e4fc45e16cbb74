"""The smallest gateway an agent can talk to: real HTTP and WebSocket, everything recorded.

It stands for the other side of the border only; the agent and the shims under test are real.
"""

from __future__ import annotations

import asyncio
import base64
import http
import itertools
import json
import os
import threading
import time
from collections.abc import Callable
from typing import Any, Self, TypeVar

from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response

from worker import protocol
from worker.protocol import (
    Ack,
    AttemptReport,
    CommandDone,
    Heartbeat,
    Hello,
    Launch,
    Report,
    Stop,
    Welcome,
)

NODE = f"node-test-{os.getpid()}"
"""A name of this run: an agent ends what is left of its node, and runs may go side by side."""
CREDENTIAL = "test-credential"
T = TypeVar("T")


class FakeGateway:
    """Runs in a thread of its own; the test's thread sends commands and waits for what comes."""

    def __init__(self, *, lease_seconds: float = 30.0, heartbeat_seconds: float = 0.2) -> None:
        self.lease_seconds = lease_seconds
        self.heartbeat_seconds = heartbeat_seconds
        self.is_answering = True
        self.hellos: list[Hello] = []
        self.reports: list[Report] = []
        self.done: list[CommandDone] = []
        self.stop_at_welcome: list[str] = []
        self.files: dict[str, bytes] = {}
        self.port = 0
        self._commands = itertools.count(1)
        self._connection: ServerConnection | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._is_listening = threading.Event()
        self._stopped: asyncio.Event | None = None

    # --- for the test ---------------------------------------------------------------------

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._is_listening.wait(10)
        return self

    def __exit__(self, *_: object) -> None:
        assert self._stopped is not None
        self._loop.call_soon_threadsafe(self._stopped.set)
        self._thread.join(10)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def launch(self, attempt: str, argv: list[str], **fields: Any) -> Launch:
        command = Launch(
            command_id=next(self._commands),
            attempt=attempt,
            argv=argv,
            **{
                "epoch": 1,
                "job": "job-1",
                "task": "job-worker-0",
                "tenant": "tenant-1",
                "runtime": "host",
                **fields,
            },
        )
        self.send(command)
        return command

    def stop(self, attempt: str, *, grace_seconds: float, reason: str = "", epoch: int = 1) -> Stop:
        command = Stop(next(self._commands), epoch, attempt, grace_seconds, reason)
        self.send(command)
        return command

    def send(self, message: protocol.Message) -> None:
        wait_for(lambda: self._connection)
        assert self._connection is not None
        sending = self._connection.send(protocol.encode(message))
        asyncio.run_coroutine_threadsafe(sending, self._loop).result(10)

    def disconnect(self) -> None:
        assert self._connection is not None
        closing = self._connection.close()
        asyncio.run_coroutine_threadsafe(closing, self._loop).result(10)

    def states(self, attempt: str) -> list[str]:
        return [item.state for item in self.of(attempt)]

    def of(self, attempt: str) -> list[AttemptReport]:
        return [
            item for report in self.reports for item in report.attempts if item.attempt == attempt
        ]

    def wait_for_state(self, attempt: str, state: str, seconds: float = 20.0) -> AttemptReport:
        return wait_for(
            lambda: next((item for item in self.of(attempt) if item.state == state), None), seconds
        )

    def output(self, attempt: str, stream: str = "stdout") -> bytes:
        pieces = {
            chunk.offset: base64.b64decode(chunk.data)
            for report in self.reports
            for chunk in report.logs
            if (chunk.attempt, chunk.stream) == (attempt, stream)
        }
        joined = b""
        for offset in sorted(pieces):
            assert offset <= len(joined), "a piece of the log is missing"
            joined = joined[:offset] + pieces[offset]
        return joined

    # --- the other thread -----------------------------------------------------------------

    def _run(self) -> None:
        self._loop.run_until_complete(self._serve())

    async def _serve(self) -> None:
        self._stopped = asyncio.Event()
        async with serve(
            self._session, "127.0.0.1", self.port, process_request=self._http
        ) as server:
            self.port = next(iter(server.sockets)).getsockname()[1]
            self._is_listening.set()
            await self._stopped.wait()

    def _http(self, connection: ServerConnection, request: Request) -> Response | None:
        if request.headers.get("Authorization") != f"Bearer {CREDENTIAL}":
            return connection.respond(http.HTTPStatus.UNAUTHORIZED, "no\n")
        if request.path == "/agent/session":
            return None
        content = self.files.get(request.path)
        if content is None:
            return connection.respond(http.HTTPStatus.NOT_FOUND, "no\n")
        response = connection.respond(http.HTTPStatus.OK, "")
        response.body = content
        del response.headers["Content-Length"]
        response.headers["Content-Length"] = str(len(content))
        return response

    async def _session(self, connection: ServerConnection) -> None:
        hello = protocol.decode(await connection.recv())
        assert isinstance(hello, Hello)
        while not self.is_answering:  # noqa: ASYNC110 -- set by another thread
            await asyncio.sleep(0.01)
        session = f"s{len(self.hellos)}"
        welcome = Welcome(
            version=protocol.VERSION,
            session=session,
            session_epoch=len(self.hellos) + 1,
            lease_seconds=self.lease_seconds,
            heartbeat_seconds=self.heartbeat_seconds,
            stop=self.stop_at_welcome,
        )
        await connection.send(protocol.encode(welcome))
        self.hellos.append(hello)
        self._connection = connection
        try:
            async for frame in connection:
                await self._answer(connection, session, protocol.decode(frame))
        except ConnectionClosed:
            return
        finally:
            if self._connection is connection:
                self._connection = None

    async def _answer(
        self, connection: ServerConnection, session: str, message: protocol.Message
    ) -> None:
        if not self.is_answering:
            return
        match message:
            case Report():
                assert message.session == session
                self.reports.append(message)
                await connection.send(
                    protocol.encode(Ack(session, message.seq, self.lease_seconds))
                )
            case Heartbeat():
                seq = self.reports[-1].seq if self.reports else 0
                answer = Ack(session, seq, self.lease_seconds, echo=message.sent)
                await connection.send(protocol.encode(answer))
            case CommandDone():
                self.done.append(message)


def wait_for(condition: Callable[[], T | None], seconds: float = 20.0) -> T:
    """Return the condition's first true value; fail when there is none in time."""
    give_up_at = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < give_up_at, "the condition did not come true in time"
        time.sleep(0.01)


def write_identity(data: Any, url: str) -> None:
    """Make the data folder look as after a join."""
    path = data / "node.json"
    path.write_text(json.dumps({"server": url, "node": NODE, "credential": CREDENTIAL}))
    path.chmod(0o600)
