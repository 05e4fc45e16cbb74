"""What happened to jobs, tasks and attempts: a page of it, or a stream that goes on."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime
from typing import Any, ClassVar

import structlog
from django.contrib.auth import HASH_SESSION_KEY
from django.db import DatabaseError
from django.http import StreamingHttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.exceptions import APIException
from rest_framework.renderers import BaseRenderer, JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response

from controlplane.api.base import ApiView
from controlplane.api.schema import problems
from controlplane.live.authority import Reader, SignedIn, reader_again, still_signed_in
from controlplane.live.threads import in_thread
from scheduling.domain import events
from scheduling.domain.events import Cursor
from tenants.domain.access import Actor
from tenants.domain.errors import Invalid, Problem

log = structlog.get_logger(__name__)

LOOK_SECONDS = 1.0
RECHECK_SECONDS = 3.0
CALM_SECONDS = 15.0
"""After so long without an event a comment says that the stream lives."""
SILENT_SECONDS = 60.0
"""A stream that has not looked for so long waits for a reader that is gone: it counts no more."""
MOST_STREAMS = 64
"""Of one web process: each looks at the rows once a second."""
STREAM = "text/event-stream"


class StreamsFull(APIException):
    """503: this web process has as many streams as it serves."""

    status_code = 503
    default_code = "streams_full"
    default_detail = f"{MOST_STREAMS} streams of events are open here; try again soon."


class EventStreamRenderer(BaseRenderer):
    """Lets `Accept: text/event-stream` choose the stream; refusals are JSON all the same."""

    media_type = STREAM
    format = "event-stream"

    def render(self, data: Any, *_: object) -> bytes:
        """Write a refusal."""
        return JSONRenderer().render(data)


class EventJobOut(serializers.Serializer[Any]):
    """The job that an event belongs to."""

    id = serializers.UUIDField()
    name = serializers.CharField()
    queue = serializers.CharField()
    unit = serializers.UUIDField()
    owner = serializers.CharField()


class EventTaskOut(serializers.Serializer[Any]):
    """The task that an event belongs to."""

    role = serializers.CharField()
    index = serializers.IntegerField()


class EventOut(serializers.Serializer[Any]):
    """One thing that happened; `id` is the cursor by which one reads on after it."""

    id = serializers.CharField()
    at = serializers.DateTimeField()
    subject = serializers.CharField(help_text="job, task or attempt.")
    event = serializers.CharField()
    to = serializers.CharField(help_text="The phase or state that it is in now.")
    reason = serializers.CharField()
    job = EventJobOut()
    task = EventTaskOut(allow_null=True)
    attempt = serializers.IntegerField(allow_null=True)

    def get_fields(self) -> dict[str, Any]:
        """Add the field whose name Python keeps for itself."""
        return {**super().get_fields(), "from": serializers.CharField()}


class EventPageOut(serializers.Serializer[Any]):
    """Some events, and where to read on."""

    items = EventOut(many=True)
    next = serializers.CharField(help_text="Give it as `after` to read on.")
    is_end = serializers.BooleanField(help_text="Nothing more has happened yet.")


class EventsView(ApiView):
    """The events of all jobs that one may see."""

    renderer_classes = (JSONRenderer, EventStreamRenderer)
    streams: ClassVar[dict[object, float]] = {}
    """Open streams of this process, with the time at which each last looked."""

    @extend_schema(
        operation_id="events_list",
        parameters=[
            OpenApiParameter(
                "after", description="The id of the last event that you have; `now`: none of old."
            ),
            OpenApiParameter("subject", enum=list(events.SUBJECTS), many=True),
            OpenApiParameter(
                "Last-Event-ID", str, OpenApiParameter.HEADER, description="The same for streams."
            ),
        ],
        responses=problems(
            {(200, "application/json"): EventPageOut, (200, STREAM): OpenApiTypes.STR}, 404, 422
        ),
    )
    def get(self, request: Request) -> Response | StreamingHttpResponse:
        """Answer with the next events, or with `Accept: text/event-stream` with all that follow.

        A stream begins now unless it is told after what; a page begins with the oldest.
        """
        is_stream = getattr(request, "accepted_media_type", "").startswith(STREAM)
        given = request.query_params.get("after") or request.headers.get("Last-Event-ID", "")
        subjects = request.query_params.getlist("subject")
        if unknown := sorted(set(subjects) - set(events.SUBJECTS)):
            params = {"value": unknown[0][:40], "allowed": ", ".join(events.SUBJECTS)}
            raise Invalid([Problem("subject", "invalid_choice", params)])
        if given == "now" or (is_stream and not given):
            after = events.newest()
        else:
            after = events.parse_cursor(given) if given else Cursor()
        if is_stream:
            return self._stream(after, subjects)
        page = events.read(actor=self.actor, after=after, subjects=subjects)
        items = [events.body(event) for event in page.events]
        return Response({"items": items, "next": str(page.cursor), "is_end": page.is_end})

    def _stream(self, after: Cursor, subjects: Sequence[str]) -> StreamingHttpResponse:
        oldest = time.monotonic() - SILENT_SECONDS
        if sum(looked_at > oldest for looked_at in self.streams.values()) >= MOST_STREAMS:
            raise StreamsFull
        token_id = self.actor.token_id
        key, auth_hash = "", ""
        if token_id is None:
            session = self.request.session
            key = session.session_key or ""
            auth_hash = session.get(HASH_SESSION_KEY, "")
        signed_in = SignedIn(key, self.user.pk, auth_hash, token_id)
        text = follow(Reader(self.actor, "", ""), signed_in, after, subjects)
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        return StreamingHttpResponse(text, content_type=STREAM, headers=headers)


async def follow(
    reader: Reader, signed_in: SignedIn, after: Cursor, subjects: Sequence[str]
) -> AsyncIterator[str]:
    """Write events as they happen, until the reader goes or may not read any more."""
    this = object()
    checked_at = said_at = time.monotonic()
    try:
        yield f"retry: 2000\n: after {after}\n\n"
        while True:
            EventsView.streams[this] = now = time.monotonic()
            try:
                if now - checked_at > RECHECK_SECONDS:
                    checked_at = now
                    if not await in_thread(still_signed_in, {signed_in}, datetime.now(UTC)):
                        return
                    reader = await in_thread(reader_again, reader)
                text, after, is_end = await in_thread(_next, reader.actor, after, subjects)
            except DatabaseError as error:
                log.warning("events_not_read", error=str(error))
                return  # who reads comes again with the last id
            if text:
                said_at = now
                yield text
            elif now - said_at > CALM_SECONDS:
                said_at = now
                # The cursor moves on over what is not this reader's, so that it need not be read
                # again after a break.
                yield f"id: {after}\n: calm\n\n"
            if is_end:
                await asyncio.sleep(LOOK_SECONDS)
    finally:
        EventsView.streams.pop(this, None)


def _next(actor: Actor, after: Cursor, subjects: Sequence[str]) -> tuple[str, Cursor, bool]:
    """Return the next events as text, and where to read on."""
    page = events.read(actor=actor, after=after, subjects=subjects)
    parts = []
    for event in page.events:
        data = json.dumps(events.body(event), separators=(",", ":"))
        parts.append(f"id: {event.cursor}\nevent: {event.row.subject}\ndata: {data}\n\n")
    return "".join(parts), page.cursor, page.is_end
