"""Refusals as RFC 9457 problem documents: a status, a stable code, words, and each wrong field."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import Any

import psycopg
import structlog
from django.core.exceptions import PermissionDenied, RequestDataTooBig
from django.db import InterfaceError, InternalError, OperationalError
from django.http import Http404, HttpRequest, JsonResponse
from rest_framework import exceptions
from rest_framework.response import Response
from rest_framework.settings import api_settings

from scheduling.domain.queue_changes import QueueDifference
from scheduling.domain.wording import sentence
from tenants.domain.errors import Conflict, Denied, DomainError, Gone, Invalid

log = structlog.get_logger(__name__)

CONTENT_TYPE = "application/problem+json"
RETRY_AFTER_SECONDS = 2
NOT_FOUND = "There is nothing here that you may see."


def problem(http_status: int, code: str, detail: str, **more: object) -> dict[str, object]:
    """Return a problem document; `more` are its further members, empty ones left out."""
    document: dict[str, object] = {
        "type": "about:blank",
        "title": HTTPStatus(http_status).phrase,
        "status": http_status,
        "code": code,
        "detail": detail,
    }
    return document | {name: value for name, value in more.items() if value}


_DJANGO: Mapping[type[Exception], dict[str, object]] = {
    Http404: problem(404, "not_found", NOT_FOUND),
    PermissionDenied: problem(403, "denied", "You may not do this."),
    RequestDataTooBig: problem(413, "body_too_large", "The body is larger than is read here."),
}


def field_errors(problems: Iterable[Any]) -> list[dict[str, str]]:
    """Write problems of a spec or of a domain function, each with its place and words."""
    return [
        {
            "field": one.path,
            "code": one.code,
            "message": sentence(one.code, one.params),
            "hint": _hint(one.params),
        }
        for one in problems
    ]


def invalid(problems: Iterable[Any]) -> dict[str, object]:
    """Return the document for an input that breaks rules."""
    errors = field_errors(problems)
    detail = errors[0]["message"] if len(errors) == 1 else f"{len(errors)} things are wrong."
    return problem(422, "invalid", detail, errors=errors)


def handle(error: Exception, context: Mapping[str, Any]) -> Response:
    """Turn any exception of a view into a problem document; DRF calls this.

    What nobody foresaw is logged whole and answered with the request's id, nothing else.
    """
    request = context["request"]
    document, headers = _document(error)
    if document is None:
        log.error("api_failed", exc_info=error, path=request.path)
        document = problem(500, "internal", "Something failed here; the request id names it.")
    document["request_id"] = getattr(request, "request_id", "")
    code = document["status"]
    assert isinstance(code, int)  # noqa: S101 - problem() took an int
    return Response(document, status=code, headers=headers, content_type=CONTENT_TYPE)


def _document(error: Exception) -> tuple[dict[str, object] | None, dict[str, str]]:
    if isinstance(error, DomainError):
        return document_of(error), {}
    if isinstance(error, exceptions.APIException):
        return _framework(error)
    if _may_do_later(error):
        log.warning("api_database_busy", error=str(error))
        detail = f"The database is busy; try again in {RETRY_AFTER_SECONDS} s with the same key."
        return problem(503, "busy", detail), {"Retry-After": str(RETRY_AFTER_SECONDS)}
    for kind, document in _DJANGO.items():
        if isinstance(error, kind):
            return dict(document), {}
    return None, {}


def _may_do_later(error: Exception) -> bool:
    """Tell whether the same request may do later, and has done nothing yet.

    A deadlock, a lock that took too long, an empty pool; a connection that was closed, or that the
    server ended since this process had slept in a transaction, which Django calls internal.
    """
    if isinstance(error, OperationalError | InterfaceError):
        return True
    cause = error.__cause__
    return isinstance(error, InternalError) and isinstance(
        cause, psycopg.errors.IdleInTransactionSessionTimeout
    )


def document_of(error: DomainError) -> dict[str, object]:
    """Return the document for a refusal by a domain function."""
    if isinstance(error, Denied):
        return problem(403, error.code, sentence(error.code, error.params), ask=list(error.ask))
    if isinstance(error, Invalid):
        return invalid(error.problems)
    if isinstance(error, Conflict):
        is_version = error.code == "version"
        return problem(
            412 if is_version else 409,
            "version_conflict" if is_version else error.code,
            sentence(error.code, error.params),
            params=dict(error.params),
            difference=difference_of(error.current),
            current=_table(error.current),
        )
    if isinstance(error, Gone):
        return problem(410, error.code, sentence(error.code, error.params))
    # NotFound: the same body for what is not there and what is not to be seen.
    return problem(404, "not_found", NOT_FOUND)


def difference_of(current: object) -> list[dict[str, object]]:
    """Write what others changed meanwhile: each field as it was, as it is, as was wanted."""
    if not isinstance(current, list | tuple):
        return []
    return [
        {
            "id": str(one.queue.id),
            "name": one.queue.name,
            "version": one.queue.version,
            "fields": [
                dataclasses.asdict(each) | {"is_contested": each.is_contested}
                for each in one.fields
            ],
        }
        for one in current
        if isinstance(one, QueueDifference)
    ]


def _table(current: object) -> list[Mapping[str, object]]:
    """Write a table that is changed as a whole, as it is now."""
    if not isinstance(current, list | tuple):
        return []
    return [line for line in current if isinstance(line, Mapping)]


def _framework(error: exceptions.APIException) -> tuple[dict[str, object], dict[str, str]]:
    """Write what DRF raises by itself: sign-in, media types, methods, serializers."""
    headers = {}
    if getattr(error, "auth_header", None):
        headers["WWW-Authenticate"] = error.auth_header  # type: ignore[attr-defined]  # set by DRF
    if getattr(error, "wait", None):
        headers["Retry-After"] = str(int(error.wait))  # type: ignore[attr-defined]  # Throttled
    if isinstance(error, exceptions.ValidationError):
        errors = list(_flattened("", error.detail))
        detail = errors[0]["message"] if len(errors) == 1 else f"{len(errors)} things are wrong."
        return problem(422, "invalid", detail, errors=errors), headers
    codes = error.get_codes()
    code = codes if isinstance(codes, str) else "invalid"
    return problem(error.status_code, code, str(error.detail)), headers


def _flattened(path: str, detail: Any) -> Iterable[dict[str, str]]:
    """Walk DRF's nested errors; each leaf becomes one error with its path."""
    if isinstance(detail, Mapping):
        for name, below in detail.items():
            is_whole = name == api_settings.NON_FIELD_ERRORS_KEY
            yield from _flattened(path if is_whole else f"{path}.{name}" if path else name, below)
    elif isinstance(detail, list):
        for number, below in enumerate(detail):
            is_leaf = isinstance(below, exceptions.ErrorDetail)
            yield from _flattened(path if is_leaf else f"{path}[{number}]", below)
    else:
        code = getattr(detail, "code", "invalid")
        yield {"field": path or "$", "code": str(code), "message": str(detail), "hint": ""}


def _hint(params: Mapping[str, Any]) -> str:
    hint = str(params.get("hint", ""))
    return "" if hint == "-" else hint


def not_found(request: HttpRequest, **_: object) -> JsonResponse:
    """Answer an address of the API that does not exist."""
    del request
    document = problem(404, "not_found", NOT_FOUND)
    return JsonResponse(document, status=404, content_type=CONTENT_TYPE)
