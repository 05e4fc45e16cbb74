"""Pages by keyset: a cursor says after which row the next one begins, whatever came meanwhile."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Sequence
from typing import Any, TypeVar

from django.core.exceptions import ValidationError
from django.db.models import Model, QuerySet
from rest_framework.request import Request

from scheduling.domain.queries.keyset import beyond
from tenants.domain.errors import Invalid, Problem

DEFAULT_LIMIT = 50
LARGEST_LIMIT = 500

_NUMBER = re.compile(r"-?[0-9]{1,18}")
M = TypeVar("M", bound=Model)


def number_of(field: str, text: str, *, least: int = 0, most: int = 2**53) -> int:
    """Read a whole number of the query.

    Raises:
        Invalid: it is none, or out of range.
    """
    if _NUMBER.fullmatch(text) and least <= int(text) <= most:
        return int(text)
    raise Invalid([Problem(field, "out_of_range", {"value": text[:40], "min": least, "max": most})])


def limit_of(request: Request, default: int = DEFAULT_LIMIT) -> int:
    """Read `?limit=`.

    Raises:
        Invalid: it is no whole number from 1 to 500.
    """
    text = request.query_params.get("limit") or str(default)
    return number_of("limit", text, least=1, most=LARGEST_LIMIT)


def page(rows: QuerySet[M], order: Sequence[str], request: Request) -> tuple[list[M], str | None]:
    """Return one page of `rows` in `order` (names, `-` for descending, the last one unique).

    Raises:
        Invalid: the limit or cursor is not one of ours.
    """
    limit = limit_of(request)
    after = request.query_params.get("after", "")
    if after:
        rows = rows.filter(beyond(order, _decode(after, len(order))))
    try:
        found = list(rows.order_by(*order)[: limit + 1])
    except (ValidationError, ValueError) as error:
        raise _bad_cursor(after) from error
    shown = found[:limit]
    if len(found) <= limit:
        return shown, None
    return shown, _encode([getattr(shown[-1], name.lstrip("-")) for name in order])


def _encode(values: Sequence[object]) -> str:
    text = json.dumps([value if isinstance(value, int) else str(value) for value in values])
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def _decode(cursor: str, length: int) -> list[Any]:
    try:
        values = json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    except (ValueError, binascii.Error) as error:
        raise _bad_cursor(cursor) from error
    if not isinstance(values, list) or len(values) != length:
        raise _bad_cursor(cursor)
    return values


def _bad_cursor(cursor: str) -> Invalid:
    return Invalid([Problem("after", "bad_cursor", {"cursor": cursor[:80]})])
