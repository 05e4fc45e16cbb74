"""What the gateway answers: joins, sessions and files for agents; health for operators.

- `POST /agent/join`: a token for a node and its credential, or for many simulated ones.
- WebSocket `/agent/session`: the node's session.
- `GET /agent/v1/files/ID`: a file that an attempt of the node needs.
- `POST /agent/v1/outputs/ATTEMPT?path=PATH`: a file that a task left.
- `GET /healthz`, `/readyz`, `/metrics`.
"""

from __future__ import annotations

import asyncio
import json
import re
import tempfile
from collections.abc import Callable, Coroutine
from typing import IO, Any, Final
from urllib.parse import parse_qs
from uuid import UUID

import structlog
from django.db import Error as DatabaseError
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from scheduling.domain import files
from scheduling.domain.wording import sentence
from tenants.domain.errors import Conflict, Denied, Gone, Invalid, NotFound
from worker.gateway import border, metrics
from worker.gateway.collector import Collector, stale
from worker.gateway.database import in_thread
from worker.gateway.dispatcher import Dispatcher
from worker.gateway.hub import Hub
from worker.gateway.session import AgentSession, EndSession, Receive, Send, refuse
from worker.protocol import SUPERSEDED

log = structlog.get_logger(__name__)

JOIN_BODY_BYTES: Final = 65_536
JOIN_NAMES: Final = 200
"""With names of the greatest length so many fit into the body."""
AGAIN_SECONDS: Final = 1.0
FILE_CHUNK_BYTES: Final = 1 << 18
BEARER: Final = "Bearer "
NODE_NAME: Final = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")

Scope = dict[str, Any]


class HttpError(Exception):
    """An answer other than 2xx, as problem+json."""

    def __init__(self, status: int, code: str, detail: str) -> None:
        super().__init__(detail)
        self.status, self.code, self.detail = status, code, detail


class Gateway:
    """The ASGI application. Its own work starts with the first request, in that request's loop."""

    def __init__(self) -> None:
        self._hub = Hub()
        self._collector: Collector | None = None
        self._dispatcher: Dispatcher | None = None
        self._work: list[asyncio.Task[None]] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one connection."""
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
            return
        self._start()
        if scope["type"] == "websocket":
            await self._websocket(scope, receive, send)
        else:
            await self._http(scope, receive, send)

    # --- life -----------------------------------------------------------------------------

    def _start(self) -> None:
        if self._work:
            return
        self._collector = Collector()
        self._dispatcher = Dispatcher(self._hub)
        self._work = [
            asyncio.create_task(_for_ever(self._collector.run_reports)),
            asyncio.create_task(_for_ever(self._collector.run_beats)),
            asyncio.create_task(_for_ever(self._dispatcher.listen)),
            asyncio.create_task(_for_ever(self._dispatcher.run)),
        ]

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        while True:
            event = await receive()
            await send({"type": f"{event['type']}.complete"})
            if event["type"] == "lifespan.shutdown":
                for work in self._work:
                    work.cancel()
                await asyncio.gather(*self._work, return_exceptions=True)
                self._work = []
                return

    # --- sessions -------------------------------------------------------------------------

    async def _websocket(self, scope: Scope, receive: Receive, send: Send) -> None:
        await receive()  # websocket.connect
        node = None
        if scope["path"] == "/agent/session":
            node = await self._authenticate(scope)
        if node is None:
            metrics.REFUSED.labels("unauthorized").inc()
            await send({"type": "websocket.close"})  # before accept: answered with 403
            return
        await send({"type": "websocket.accept"})
        session = AgentSession(node_id=node, receive=receive, send_event=send)
        try:
            await self._hold(session, (scope.get("client") or ("", 0))[0])
        except EndSession as reason:
            log.info("session.ended", node=node, code=reason.code, detail=reason.message)
            if reason.code != "gone":
                await refuse(send, reason)
        finally:
            self._hub.detach(session)

    async def _hold(self, session: AgentSession, peer: str) -> None:
        """Open the session and serve it until it ends, by EndSession."""
        if self._collector is None or self._dispatcher is None:
            raise RuntimeError("the gateway was not started")
        hello = await session.read_hello()
        try:
            opened = await in_thread(border.open_session, session.node_id, hello, peer)
        except border.HelloRefusedError as error:
            raise EndSession("hello_refused", str(error)) from error
        session.session = opened.session_id
        session.lease_seconds = opened.lease_seconds
        session.heartbeat_seconds = opened.heartbeat_seconds
        older = self._hub.attach(session)
        if older is not None:
            older.end(stale(SUPERSEDED))
        await session.welcome(opened.epoch, [str(one) for one in opened.stop])
        self._dispatcher.look_at([session.node_id])
        log.info("session.open", node=session.node_id, session=session.session)
        await session.run(self._collector)

    async def _authenticate(self, scope: Scope) -> UUID | None:
        for name, value in scope["headers"]:
            if name == b"authorization":
                text = value.decode("latin-1")
                if text.startswith(BEARER):
                    return await in_thread(border.authenticate, text.removeprefix(BEARER))
        return None

    # --- plain requests -------------------------------------------------------------------

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._answer(scope, receive, send)
        except HttpError as error:
            problem = {"type": "about:blank", "code": error.code, "detail": error.detail}
            await _respond(send, error.status, problem, "application/problem+json")
        except DatabaseError as error:
            log.warning("gateway.database_away", error=str(error))
            problem = {"type": "about:blank", "code": "database_away", "detail": "try again soon"}
            await _respond(send, 503, problem, "application/problem+json")

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        match scope["method"], scope["path"].split("/")[1:]:
            case "GET", ["healthz"]:
                await _respond(send, 200, {"status": "ok"})
            case "GET", ["readyz"]:
                await in_thread(border.ping)
                await _respond(send, 200, {"status": "ready"})
            case "GET", ["metrics"]:
                await _respond_bytes(send, 200, generate_latest(), CONTENT_TYPE_LATEST)
            case "POST", ["agent", "join"]:
                await _respond(send, 200, await self._join(receive))
            case "GET", ["agent", "v1", "files", file_id]:
                await self._send_file(scope, file_id, send)
            case "POST", ["agent", "v1", "outputs", attempt]:
                await self._take_output(scope, attempt, receive)
                await _respond(send, 201, {})
            case _:
                raise HttpError(404, "not_found", "there is nothing here")

    async def _join(self, receive: Receive) -> dict[str, Any]:
        body = await _read_body(receive, JOIN_BODY_BYTES)
        token, names, is_fleet = _read_join(body)
        try:
            joined = await in_thread(border.join, token, names)
        except (Denied, Conflict) as error:
            metrics.REFUSED.labels("join").inc()
            log.warning("join.refused", code=error.code, name=names[0], nodes=len(names))
            status = 403 if isinstance(error, Denied) else 409
            raise HttpError(status, error.code, sentence(error.code, error.params)) from error
        log.info("join.accepted", node=joined[0].node, name=names[0], nodes=len(names))
        replies = [{"node": one.node, "credential": one.credential} for one in joined]
        return {"nodes": replies} if is_fleet else replies[0]

    async def _send_file(self, scope: Scope, file_id: str, send: Send) -> None:
        node = await self._authenticate(scope)
        if node is None:
            raise HttpError(401, "unauthorized", "the node's credential is missing or unknown")
        try:
            opened = await in_thread(border.open_file, node, file_id)
        except Gone as error:
            raise HttpError(410, error.code, sentence(error.code, error.params)) from error
        if opened is None:
            raise HttpError(404, "not_found", "no file that an attempt of this node needs")
        headers = [
            (b"content-type", b"application/octet-stream"),
            (b"content-length", str(opened.size).encode()),
        ]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        try:
            while data := await in_thread(opened.stream.read, FILE_CHUNK_BYTES):
                await send({"type": "http.response.body", "body": data, "more_body": True})
            await send({"type": "http.response.body", "body": b""})
        finally:
            await in_thread(opened.stream.close)

    async def _take_output(self, scope: Scope, attempt: str, receive: Receive) -> None:
        node = await self._authenticate(scope)
        if node is None:
            raise HttpError(401, "unauthorized", "the node's credential is missing or unknown")
        query = parse_qs(scope["query_string"].decode("latin-1"))
        path = (query.get("path") or [""])[0]
        with tempfile.TemporaryFile(prefix="terrace-output-") as content:
            await _read_into(receive, content, files.LARGEST_OUTPUT)
            try:
                await in_thread(border.store_output, node, attempt, path, content)
            except NotFound as error:
                raise HttpError(404, "not_found", "no such attempt of this node") from error
            except Invalid as error:
                raise HttpError(422, error.problems[0].code, str(error)) from error


async def _for_ever(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Begin again work that should never end, and say so: without it the gateway is deaf."""
    while True:
        try:
            await work()
        except Exception:  # top of a loop
            log.exception("gateway.work_ended", work=work.__qualname__)
        await asyncio.sleep(AGAIN_SECONDS)


def _read_join(body: bytes) -> tuple[str, list[str], bool]:
    """Return token, names, and whether they are those of a fleet: `names` instead of `name`.

    Raises:
        HttpError: the body is not such an object, or a name cannot be one.
    """
    try:
        document = json.loads(body)
        token, is_fleet = document["token"], "names" in document
        names = document["names"] if is_fleet else [document["name"]]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise HttpError(
            400, "bad_request", 'expected {"token": "...", "name": "..."} or "names": [...]'
        ) from None
    if not isinstance(names, list) or not 1 <= len(names) <= JOIN_NAMES:
        raise HttpError(400, "bad_request", f"names is a list of 1 to {JOIN_NAMES} names")
    if not all(isinstance(one, str) for one in (token, *names)):
        raise HttpError(400, "bad_request", "token and name are strings")
    if not all(NODE_NAME.fullmatch(name) for name in names):
        raise HttpError(
            400, "bad_name", "name: 1 to 253 of a-z, 0-9, - and ., as in a host name; --name"
        )
    return token, names, is_fleet


async def _read_body(receive: Receive, limit: int) -> bytes:
    body = b""
    while True:
        event: dict[str, Any] = await receive()
        if event["type"] == "http.disconnect":
            raise HttpError(400, "bad_request", "the connection was closed")
        body += bytes(event.get("body", b""))
        if len(body) > limit:
            raise HttpError(413, "too_large", f"at most {limit} bytes")
        if not event.get("more_body"):
            return body


async def _read_into(receive: Receive, target: IO[bytes], limit: int) -> None:
    """Write a body to a file as it comes; what comes is never all in memory."""
    size = 0
    while True:
        event = await receive()
        if event["type"] == "http.disconnect":
            raise HttpError(400, "bad_request", "the connection was closed")
        size += target.write(event.get("body", b""))
        if size > limit:
            raise HttpError(413, "too_large", f"at most {limit} bytes")
        if not event.get("more_body"):
            target.seek(0)
            return


async def _respond(
    send: Send, status: int, document: object, content_type: str = "application/json"
) -> None:
    await _respond_bytes(send, status, json.dumps(document).encode(), content_type)


async def _respond_bytes(send: Send, status: int, body: bytes, content_type: str) -> None:
    headers = [
        (b"content-type", content_type.encode()),
        (b"content-length", str(len(body)).encode()),
        (b"cache-control", b"no-store"),
        (b"x-content-type-options", b"nosniff"),
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
