"""Jobs to follow, a fragment to follow them by, and sockets that follow."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from asgiref.sync import sync_to_async
from asgiref.testing import ApplicationCommunicator
from channels.routing import URLRouter
from django.conf import settings
from django.test import Client as HttpClient
from redis.asyncio import Redis

from controlplane.live.routing import websocket_urlpatterns
from controlplane.pages.fragments import Fragment
from scheduling.domain.jobs import submit_job, suspend_job
from scheduling.domain.topics import LIVE_CHANNEL
from scheduling.models import Cluster, Job, Queue, QueueClosure
from scheduling.spec.job_spec import JobSpec, RoleSpec
from tenants.domain.access import Actor, Verb, load_actor, reads
from tenants.domain.errors import NotFound
from tenants.models import OrgUnit, User
from tests.people import NOW

ORIGIN = "http://testserver"
RENDERED: list[str] = []
"""Who a probe was rendered for, in order."""


def load_probe(actor: Actor, object_id: str, argument: str) -> dict[str, object]:
    RENDERED.append(actor.label)
    job = Job.objects.visible_to(reads(actor, Verb.JOB_READ)).filter(id=object_id).first()
    if job is None:
        raise NotFound("job")
    return {"job": job, "who": argument}


PROBE = Fragment(template="_probe.html", load=load_probe)


def make_queue(cluster: Cluster, unit: OrgUnit | None, parent: Queue | None, name: str) -> Queue:
    queue = Queue.objects.create(
        cluster=cluster, unit=unit, parent=parent, name=name, created_at=NOW
    )
    links = QueueClosure.objects.filter(descendant=parent) if parent else []
    pairs = [(queue, 0), *((link.ancestor, link.depth + 1) for link in links)]
    QueueClosure.objects.bulk_create(
        [QueueClosure(ancestor=above, descendant=queue, depth=depth) for above, depth in pairs]
    )
    return queue


def make_job(user: User, queue: Queue, name: str = "train") -> Job:
    role = RoleSpec(name="worker", replicas=2, min_available=2, command=("true",), cpu_milli=1000)
    spec = JobSpec(name=name, queue=queue.name, roles=(role,), min_available=2)
    return submit_job(actor=load_actor(user), spec=spec, queue=queue, now=NOW)


class Socket(ApplicationCommunicator):
    """A WebSocket spoken over ASGI, without a server."""

    def __init__(self, headers: list[tuple[bytes, bytes]], query: str = "") -> None:
        scope = {
            "type": "websocket",
            "path": "/ws/live/",
            "query_string": query.encode(),
            "headers": headers,
            "subprotocols": [],
        }
        super().__init__(  # type: ignore[no-untyped-call]  # channels has no types
            URLRouter(websocket_urlpatterns), scope
        )

    async def open(self) -> bool:
        """Shake hands; tell whether it was accepted."""
        await self.send_input({"type": "websocket.connect"})
        return bool((await self.receive_output(timeout=5))["type"] == "websocket.accept")

    async def send(self, text: str) -> None:
        await self.send_input({"type": "websocket.receive", "text": text})

    async def close(self) -> None:
        """Leave as a browser does, and wait until the server noticed."""
        if not self.future.done():
            await self.send_input({"type": "websocket.disconnect", "code": 1001})
            await self.wait(timeout=5)


@dataclass(slots=True)
class Page:
    """An open page: a socket, and its regions' HTML as the frames left it."""

    socket: Socket
    html: dict[str, str] = field(default_factory=dict)
    updates: list[dict[str, Any]] = field(default_factory=list)
    frames: list[int] = field(default_factory=list)

    async def say(self, message: object) -> None:
        await self.socket.send(json.dumps(message))

    async def follow(self, *keys: str, has: str = "") -> None:
        await self.say({"do": "subscribe", "regions": [{"key": key, "has": has} for key in keys]})

    async def frame(self) -> list[dict[str, Any]]:
        """Take the next frame as the page's script does."""
        frame = json.loads((await self.socket.receive_output(timeout=5))["text"])
        self.frames.append(frame["seq"])
        for update in frame["updates"]:
            self.updates.append(update)
            if "html" in update:
                self.html[update["key"]] = update["html"]
            if update.get("gone"):
                self.html[update["key"]] = ""
        updates: list[dict[str, Any]] = frame["updates"]
        return updates

    async def until(self, key: str, words: str) -> str:
        """Take frames until the region shows `words`."""
        while words not in self.html.get(key, ""):
            await self.frame()
        return self.html[key]


OpenPage = Callable[..., Awaitable[Page]]


async def open_socket(user: User | None, origin: str | None, host: str, query: str = "") -> Page:
    """Open a page as `user`.

    Raises:
        ConnectionRefusedError: the handshake was refused.
    """
    headers = [(b"host", host.encode())]
    if origin is not None:
        headers.append((b"origin", origin.encode()))
    if user is not None:
        headers.append((b"cookie", await sync_to_async(_cookie)(user)))
    socket = Socket(headers, query)
    if not await socket.open():
        raise ConnectionRefusedError
    return Page(socket)


def _cookie(user: User) -> bytes:
    client = HttpClient()
    client.force_login(user)
    name = settings.SESSION_COOKIE_NAME
    return f"{name}={client.cookies[name].value}".encode()


def key_of(job: Job, fragment: str = "probe", argument: str = "") -> str:
    return f"job:{job.id}/fragment/{fragment}/{argument}"


async def hint(topic: str, kind: str = "state") -> None:
    """Publish as the relay does."""
    async with Redis.from_url(settings.REDIS_URL) as redis:
        await redis.publish(LIVE_CHANNEL, json.dumps({"topic": topic, "seq": 1, "kind": kind}))


async def suspend(job: Job, user: User) -> None:
    actor = await sync_to_async(load_actor)(user)
    await sync_to_async(suspend_job)(actor=actor, job_id=job.id, now=NOW)
