"""Statements that are said again and again: parsed and planned once for each connection.

Django puts values into a statement's text, so that PostgreSQL sees a new one each time; to plan it
costs more than to carry it out. Here the text stays and the values go beside it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import psycopg
from django.conf import settings
from django.db import connection
from django.db.backends.utils import CursorWrapper

KEPT = 100
"""Statements that a connection remembers; the one not used for longest is forgotten first."""


@contextmanager
def prepared() -> Iterator[CursorWrapper]:
    """Give a cursor for a constant text; all that varies must be a value.

    `%s` is a parameter here and no text: where its type cannot be told, the text says it
    (`%s::int`), and a list is compared by `= ANY(%s)`.
    """
    # Who logs statements wants to see their values, which here are no part of them.
    if connection.queries_logged or not settings.TERRACE_DATABASE_PREPARE:
        with connection.cursor() as plain:
            yield plain
        return
    connection.ensure_connection()
    raw = cast("psycopg.Connection[tuple[Any, ...]]", connection.connection)
    raw.prepare_threshold, raw.prepared_max = 0, KEPT  # at once; Django's cursors never prepare
    usual, raw.cursor_factory = raw.cursor_factory, psycopg.Cursor
    try:
        cursor = connection.cursor()
    finally:
        raw.cursor_factory = usual
    with cursor:
        yield cursor
