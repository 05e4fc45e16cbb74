"""Gives each request an id: in the record of what it changes, in its log lines and in its reply."""

import re
from collections.abc import Callable
from uuid import uuid4

import structlog
from django.http import HttpRequest, HttpResponse

from tenants.domain import audit

HEADER = "X-Request-ID"
_USABLE = re.compile(r"[A-Za-z0-9._-]{1,64}")


class RequestIdMiddleware:
    """Takes the id that a proxy or client sent, if it can be one, else makes one up."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        wanted = request.headers.get(HEADER, "")
        request_id = wanted if _USABLE.fullmatch(wanted) else uuid4().hex
        request.request_id = request_id  # type: ignore[attr-defined]  # ours
        token = audit.REQUEST_ID.set(request_id)
        try:
            with structlog.contextvars.bound_contextvars(request_id=request_id):
                response = self.get_response(request)
        finally:
            audit.REQUEST_ID.reset(token)
        response.setdefault(HEADER, request_id)
        return response
