"""How a request is answered: middleware, view and commit in one thread out of a few.

Django's own ASGI handler starts a thread for each request and goes back and forth between it and
the event loop, twice for each middleware: a third of the processor time of a small request. All of
ours is synchronous, so one step into a thread and one back will do. Only what is streamed is sent
from the event loop, piece by piece.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import IO, Any, Final

import django
from asgiref.sync import sync_to_async
from django.core import signals
from django.core.exceptions import RequestAborted
from django.core.handlers.asgi import ASGIHandler, get_script_prefix
from django.db import close_old_connections
from django.http import FileResponse, HttpResponseBase
from django.urls import set_script_prefix

THREADS: Final = 16
"""Requests that one process works on at once; the others wait their turn. More would only wait for
the interpreter's lock; so many hide what is slow elsewhere, such as a sign-in by another server."""

Scope = Mapping[str, Any]


class OneThreadHandler(ASGIHandler):
    """Answers each request in one thread from beginning to end."""

    def __init__(self) -> None:
        super().__init__()
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="web")

    def load_middleware(self, is_async: bool = False) -> None:  # noqa: FBT001, FBT002 -- Django's
        """Build the chain of middleware without a step to the event loop, as for WSGI."""
        del is_async
        super().load_middleware(is_async=False)

    async def handle(self, scope: Scope, receive: Any, send: Any) -> None:
        """Read the body, answer in a thread, send the answer."""
        try:
            body = await self.read_body(receive)
        except RequestAborted:
            return
        try:
            context = contextvars.copy_context()
            response = await asyncio.get_running_loop().run_in_executor(
                self._threads, context.run, self._answer, scope, body
            )
            if response.streaming:
                await self._stream(response, receive, send)
            else:
                await self.send_response(response, send)
        finally:
            body.close()

    def _answer(self, scope: Scope, body: IO[bytes]) -> HttpResponseBase:
        """Return the response, closed already unless it is streamed."""
        set_script_prefix(get_script_prefix(scope))
        signals.request_started.send(sender=self.__class__, scope=scope)
        request, refusal = self.create_request(scope, body)
        response = refusal if request is None else self.get_response(request)
        assert response is not None  # noqa: S101 -- one of the two was returned
        response._handler_class = self.__class__  # type: ignore[attr-defined]  # noqa: SLF001 -- as Django's handlers do
        if isinstance(response, FileResponse):
            response.block_size = self.chunk_size
        if response.streaming:
            close_old_connections()  # this thread goes on to others; the stream has its own
        else:
            response.close()
        return response

    async def _stream(self, response: HttpResponseBase, receive: Any, send: Any) -> None:
        """Send a response piece by piece until it ends or its reader goes."""
        reader_goes = asyncio.create_task(self.listen_for_disconnect(receive))
        sent = asyncio.create_task(self.send_response(response, send))
        tasks = (reader_goes, sent)
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            results = await asyncio.gather(*tasks, return_exceptions=True)
            await sync_to_async(response.close)()
        for result in results:
            if isinstance(result, Exception) and not isinstance(result, RequestAborted):
                raise result


def get_application() -> OneThreadHandler:
    """Set Django up and return its part of the web program."""
    django.setup(set_prefix=False)
    return OneThreadHandler()
