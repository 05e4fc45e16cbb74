"""What keeps a hub awake: hints from Redis, a look at the rows without them, rights every 4 s."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Iterable
from datetime import UTC, datetime

import structlog
from django.conf import settings
from django.db import DatabaseError
from redis.asyncio import Redis
from redis.asyncio.client import PubSub
from redis.exceptions import RedisError

from controlplane.live import authority, changes
from controlplane.live.clients import Client
from controlplane.live.hub import Hub
from controlplane.live.threads import in_thread
from scheduling.domain.topics import LIVE_CHANNEL

log = structlog.get_logger(__name__)


LOOK_SECONDS = 2.0
"""How often rows are looked at while no hints arrive."""
CALM_LOOK_SECONDS = 10.0
"""How often while they do: a hint may be lost with the process that would have sent it."""
RECHECK_SECONDS = 3.0
"""A session that ends without a hint closes its sockets within 5 s, a busy moment included."""
PING_SECONDS = 1.0
SILENCE_SECONDS = 3.0
"""Redis counts as away when it has not even answered a ping for so long."""
RECONNECT_SECONDS = 1.0
SIGNED_OUT = 4401
"""The close code that tells a page to sign in again."""


class Watch:
    """The tasks of one hub."""

    def __init__(self, hub: Hub) -> None:
        """Start nothing yet."""
        self.hub = hub
        self._tasks: list[asyncio.Task[None]] = []
        self._look_now = asyncio.Event()

    def start(self) -> None:
        """Start the tasks on the running loop."""
        for call in (self._hear_forever, self._look_forever, self._recheck_forever):
            self._tasks.append(asyncio.create_task(call()))

    async def stop(self) -> None:
        """End the tasks; asked again each second, since a library may swallow a cancellation."""
        pending = set(self._tasks)
        while pending:
            for task in pending:
                task.cancel()
            _, pending = await asyncio.wait(pending, timeout=1)
        self._tasks.clear()

    # --- hints ------------------------------------------------------------------------------------

    async def _hear_forever(self) -> None:
        """Hear Redis; while it is away, say so and try again."""
        while True:
            redis = Redis.from_url(
                settings.REDIS_URL, socket_connect_timeout=2, socket_timeout=SILENCE_SECONDS
            )
            try:
                async with redis.pubsub() as heard:
                    await heard.subscribe(LIVE_CHANNEL)
                    await self._hear(heard)
            except (RedisError, OSError, TimeoutError) as error:
                if not self.hub.is_delayed:
                    log.warning("live_redis_away", error=str(error))
                self.hub.set_delayed(is_delayed=True)
                self._look_now.set()
            finally:
                await redis.aclose()
            await asyncio.sleep(RECONNECT_SECONDS)

    async def _hear(self, heard: PubSub) -> None:
        loop = asyncio.get_running_loop()
        last = loop.time()
        while True:
            message = await heard.get_message(timeout=PING_SECONDS)
            if message is None:
                if loop.time() - last > SILENCE_SECONDS:
                    raise TimeoutError("Redis does not answer")
                await heard.ping()
                continue
            last = loop.time()
            if message["type"] == "subscribe":
                self.hub.set_delayed(is_delayed=False)
                self.hub.hint_all()
            elif message["type"] == "message":
                await self.take(message["data"])

    async def take(self, data: bytes) -> None:
        """Pass on one message: a hint, or a list of them."""
        try:
            value = json.loads(data)
            hints = value if isinstance(value, list) else [value]
            parsed = [(str(one["topic"]), str(one.get("kind") or "state")) for one in hints]
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            log.warning("live_hint_unreadable", error=str(error), data=data[:200])
            return
        for topic, kind in parsed:
            self.hub.hint(topic, kind)
        changed = {topic.partition(":")[2] for topic, kind in parsed if kind == "grants"}
        if changed:
            await self.recheck(
                [one for one in self.hub.clients if str(one.reader.actor.user_id) in changed]
            )

    async def _look_forever(self) -> None:
        """Find changes in the rows: the only way without Redis, the safety net with it."""
        seen = None
        while True:
            try:
                if seen is None:
                    seen = await in_thread(changes.begin)
                elif self.hub.clients:
                    hints, seen = await in_thread(changes.since, seen, self.hub.topics)
                    for topic, kind in hints:
                        self.hub.hint(topic, kind)
            except DatabaseError as error:
                log.warning("live_look_failed", error=str(error))
            pause = LOOK_SECONDS if self.hub.is_delayed else CALM_LOOK_SECONDS
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._look_now.wait()
            self._look_now.clear()

    # --- rights -----------------------------------------------------------------------------------

    async def _recheck_forever(self) -> None:
        while True:
            await asyncio.sleep(RECHECK_SECONDS)
            try:
                await self.recheck(list(self.hub.clients))
            except DatabaseError as error:
                log.warning("live_recheck_failed", error=str(error))
                await self._close_all("rights cannot be checked")

    async def recheck(self, clients: Iterable[Client]) -> None:
        """Look again at who may see what.

        1. Close the sockets of those who signed out, were disabled or changed their password.
        2. Give those whose grants changed what they may see now.
        3. Take away what others may no longer see: a unit or job may have moved.
        """
        clients = list(clients)
        if not clients:
            return
        live = await in_thread(
            authority.still_signed_in, {one.signed_in for one in clients}, datetime.now(UTC)
        )
        ended = [one for one in clients if one.signed_in not in live]
        for client in ended:
            await client.close(SIGNED_OUT)
        await self._check_grants([one for one in clients if one.signed_in in live])

    async def _check_grants(self, clients: list[Client]) -> None:
        users = {one.signed_in.user_id for one in clients}
        grants = await in_thread(authority.grants_of, users)
        unchanged = []
        for client in clients:
            reader = client.reader
            # A token may be narrowed to a unit: its grants are not those of its user.
            if client.signed_in.token_id or grants[client.signed_in.user_id] != reader.actor.grants:
                reader = await in_thread(authority.reader_again, reader)
            if reader == client.reader:
                unchanged.append(client)
            else:
                await self.hub.change_reader(client, reader)
        await self.hub.recheck(unchanged)

    async def _close_all(self, why: str) -> None:
        """Close every socket: where rights cannot be checked, nothing more is shown."""
        log.warning("live_closed", why=why, clients=len(self.hub.clients))
        for client in list(self.hub.clients):
            await client.close(1013)
