"""The program's own handler: one thread from the first middleware to the commit."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from asgiref.testing import ApplicationCommunicator
from django.core import signals
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.urls import path

from controlplane.handler import OneThreadHandler

SEEN: list[str] = []
"""The threads that worked on a request, in order."""
ENDED = asyncio.Event()


class Noting:
    """A middleware that notes its thread, as all of the program's do their work in one."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        SEEN.append(threading.current_thread().name)
        return self.get_response(request)


def echo(request: HttpRequest) -> HttpResponse:
    """Note the thread and answer with the body."""
    SEEN.append(threading.current_thread().name)
    return HttpResponse(request.body)


async def _for_ever() -> AsyncIterator[str]:
    try:
        while True:
            yield "more"
            await asyncio.sleep(0)
    finally:
        ENDED.set()


def stream(request: HttpRequest) -> StreamingHttpResponse:
    """Answer without an end."""
    del request
    return StreamingHttpResponse(_for_ever())


urlpatterns = [path("echo", echo), path("stream", stream)]


@pytest.fixture
def handler(settings: Any) -> OneThreadHandler:
    """The handler with the addresses above, behind Django's middleware and one more."""
    settings.ROOT_URLCONF = __name__
    settings.MIDDLEWARE = [
        f"{__name__}.Noting",
        "django.middleware.common.CommonMiddleware",
        f"{__name__}.Noting",
    ]
    SEEN.clear()
    ENDED.clear()
    return OneThreadHandler()


def _scope(address: str, method: str = "GET") -> dict[str, Any]:
    return {
        "type": "http",
        "method": method,
        "path": address,
        "query_string": b"",
        "headers": [(b"host", b"testserver")],
    }


def test_one_thread_does_all_of_a_request(handler: OneThreadHandler) -> None:
    """Middleware, view and the end of the request are the work of one thread of the handler's."""

    def note(**_: object) -> None:
        SEEN.append(threading.current_thread().name)

    async def ask() -> dict[str, Any]:
        sent = ApplicationCommunicator(handler, _scope("/echo", "POST"))
        await sent.send_input({"type": "http.request", "body": b"a", "more_body": True})
        await sent.send_input({"type": "http.request", "body": b"b"})
        await sent.receive_output()
        reply: dict[str, Any] = await sent.receive_output()
        await sent.wait()
        return reply

    signals.request_finished.connect(note)
    try:
        reply = asyncio.run(ask())
    finally:
        signals.request_finished.disconnect(note)

    assert reply["body"] == b"ab"
    assert len(SEEN) == 4
    assert set(SEEN) == {SEEN[0]}
    assert SEEN[0].startswith("web")


def test_a_stream_ends_when_its_reader_goes(handler: OneThreadHandler) -> None:
    """A response without an end is given up once nobody reads it any more."""

    async def ask() -> bool:
        sent = ApplicationCommunicator(handler, _scope("/stream"))
        await sent.send_input({"type": "http.request", "body": b""})
        await sent.receive_output()
        await sent.receive_output()
        await sent.send_input({"type": "http.disconnect"})
        await sent.wait()
        return ENDED.is_set()

    assert asyncio.run(ask())


def test_a_request_that_breaks_off_is_not_answered(handler: OneThreadHandler) -> None:
    """Whoever goes before the body has come gets nothing, and no view is called."""

    async def ask() -> bool:
        sent = ApplicationCommunicator(handler, _scope("/echo", "POST"))
        await sent.send_input({"type": "http.disconnect"})
        await sent.wait()
        return bool(await sent.receive_nothing())

    assert asyncio.run(ask())
    assert SEEN == []
