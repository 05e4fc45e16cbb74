"""One socket for each page: it says what it follows, the hub says what changed."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import structlog
from channels.exceptions import StopConsumer
from channels.generic.websocket import AsyncWebsocketConsumer
from django.db import DatabaseError

from controlplane.live.clients import Client
from controlplane.live.handshake import enter, is_allowed_origin, ticket_of
from controlplane.live.hub import MAX_REGIONS, Hub
from controlplane.live.regions import MalformedError, Region, parse_wanted
from controlplane.live.threads import in_thread
from controlplane.live.watch import Watch

log = structlog.get_logger(__name__)

MAX_FRAME = 64 * 1024
MESSAGES_A_SECOND = 20
BURST = 60
BAD_MESSAGE = 4400
TOO_MUCH = 4429
TOO_BIG = 1009
TRY_AGAIN = 1013

_hubs: dict[asyncio.AbstractEventLoop, tuple[Hub, Watch]] = {}


def hub_of_this_process() -> Hub:
    """Return the hub of the running loop, started when first asked for."""
    loop = asyncio.get_running_loop()
    if loop not in _hubs:
        for stopped in [one for one in _hubs if one.is_closed()]:
            del _hubs[stopped]
        hub = Hub()
        watch = Watch(hub)
        watch.start()
        _hubs[loop] = hub, watch
    return _hubs[loop][0]


async def stop_hub() -> None:
    """End the hub of the running loop, if there is one."""
    hub, watch = _hubs.pop(asyncio.get_running_loop(), (None, None))
    if watch is not None and hub is not None:
        await watch.stop()
        await hub.stop()


class LiveConsumer(AsyncWebsocketConsumer):  # type: ignore[misc]  # channels ships no types
    """The socket of one page."""

    # Without a channel layer: the hub has the one connection to Redis that the process needs.
    channel_layer_alias = "none"

    client: Client | None = None
    tokens: float = BURST
    tokens_at: float = 0.0

    async def dispatch(self, message: dict[str, Any]) -> None:
        """Handle one event. Channels would first visit a thread to close old connections.

        None are opened outside `in_thread`, which closes them itself.
        """
        handler = {
            "websocket.connect": self.websocket_connect,
            "websocket.receive": self.websocket_receive,
            "websocket.disconnect": self.websocket_disconnect,
        }[message["type"]]
        await handler(message)

    async def websocket_disconnect(self, message: dict[str, Any]) -> None:
        """Leave the hub. Channels would visit a thread once more to close connections."""
        await self.disconnect(message["code"])
        raise StopConsumer

    async def connect(self) -> None:
        """Accept a signed-in user from our own origin, or a ticket; anybody else gets 403."""
        headers, ticket = self.scope["headers"], ticket_of(self.scope)
        entry = None
        if is_allowed_origin(headers, has_ticket=ticket is not None):
            entry = await in_thread(enter, headers, ticket)
        if entry is None:
            await self.close()
            return
        await self.accept()
        self.client = Client(entry.reader, entry.signed_in, self._send_text, self._end)
        hub_of_this_process().join(self.client)

    async def disconnect(self, code: int) -> None:
        """Leave the hub."""
        del code
        if self.client is not None:
            hub_of_this_process().leave(self.client)

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        """Do what the page asks; a page that does not keep to the protocol is cut off."""
        if self.client is None:
            return
        del bytes_data
        if text_data is None or len(text_data.encode()) > MAX_FRAME:
            await self._end(TOO_BIG)
        elif not self._may_speak():
            await self._end(TOO_MUCH)
        else:
            try:
                await self._do(self.client, json.loads(text_data))
            except (ValueError, RecursionError) as error:
                log.info("live_bad_message", error=str(error)[:200])
                await self._end(BAD_MESSAGE)
            except DatabaseError as error:
                log.warning("live_database_busy", error=str(error))
                await self._end(TRY_AGAIN)

    async def _do(self, client: Client, message: Any) -> None:
        """Carry out one message.

        Raises:
            MalformedError: the message is not in the protocol (docs/live.md).
        """
        if not isinstance(message, dict):
            raise MalformedError("a message is an object")
        hub = hub_of_this_process()
        match message.get("do"):
            case "subscribe":
                wanted = [parse_wanted(one) for one in _regions(message)]
                await hub.subscribe(client, wanted)
            case "unsubscribe":
                hub.unsubscribe(client, [Region.parse(one) for one in _regions(message)])
            case "resync":
                hub.resync(client)
            case "ping":
                await self._send_text('{"pong":true}')
            case other:
                raise MalformedError(f"do is subscribe, unsubscribe, resync or ping, not {other!r}")

    def _may_speak(self) -> bool:
        """Tell whether the page keeps within its budget of messages: a bucket of tokens."""
        now = asyncio.get_running_loop().time()
        self.tokens = min(BURST, self.tokens + (now - self.tokens_at) * MESSAGES_A_SECOND) - 1
        self.tokens_at = now
        return self.tokens >= 0

    async def _send_text(self, text: str) -> None:
        await self.base_send({"type": "websocket.send", "text": text})

    async def _end(self, code: int) -> None:
        if self.client is not None:
            hub_of_this_process().leave(self.client)
            self.client = None
            await self.close(code)


def _regions(message: dict[str, Any]) -> list[Any]:
    regions = message.get("regions")
    if not isinstance(regions, list) or len(regions) > 2 * MAX_REGIONS:
        raise MalformedError(f"regions is a list of at most {2 * MAX_REGIONS}")
    return regions
