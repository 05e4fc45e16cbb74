"""Write many rows with one statement: new ones, of several tables if they are few, and old ones."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from operator import attrgetter
from typing import Any, TypeVar
from uuid import UUID

from django.db import connection, models

from tenants.domain.prepared import prepared

M = TypeVar("M", bound=models.Model)

# Encoders are kept, since `json.dumps` would make one each time.
_compact = json.JSONEncoder(separators=(",", ":")).encode


def copy_rows(rows: Sequence[object], model: type[models.Model] | None = None) -> None:
    """Insert rows by COPY; the caller gives primary keys or lets the database count.

    The rows are instances of the model, or of a light class (a slotted dataclass) that has each
    column of it as an attribute: a model's instance costs 25 times as much to make.
    """
    if not rows:
        return
    _copy(rows, _shape_of(rows, model))


def _copy(rows: Sequence[object], shape: _Shape) -> None:
    with (
        connection.cursor() as cursor,
        connection.wrap_database_errors,
        cursor.copy(f"COPY {shape.target} FROM STDIN") as copy,
    ):
        for row in rows:
            copy.write_row(shape.values(row))


Group = tuple[Sequence[object], type[models.Model]]
"""Rows as `copy_rows` takes them, and their model."""
FEW_ROWS = 20
"""So many rows of several tables cost less in one statement than by a COPY for each table."""


def insert_groups(groups: Iterable[Group], wakes: Iterable[tuple[str, str]] = ()) -> None:
    """Insert rows of several tables and NOTIFY, with one statement if the rows are few.

    A COPY is four messages each way; of a single job they would cost more than all else. Rows may
    point at one another however they are ordered: foreign keys are checked when we commit.
    """
    filled = [(rows, _shape_of(rows, model)) for rows, model in groups if rows]
    if sum(len(rows) for rows, _ in filled) > FEW_ROWS:
        for rows, shape in filled:
            _copy(rows, shape)
        notify_each(wakes)
        return
    distinct = sorted(set(wakes))
    if filled or distinct:
        values = [[shape.record(row) for row in rows] for rows, shape in filled]
        texts = [_encoded(one) for one in (*values, distinct)]
        with prepared() as cursor:
            cursor.execute(_together(tuple(shape.insert for _, shape in filled)), texts)


@cache
def _together(inserts: tuple[str, ...]) -> str:
    """Return the statement for rows of some tables: one value of JSON each, and the wake-ups."""
    parts = ", ".join(f"w{number} AS ({insert})" for number, insert in enumerate(inserts))
    told = "SELECT pg_notify(one ->> 0, one ->> 1) FROM json_array_elements(%s::json) AS wakes(one)"
    return f"WITH {parts} {told}" if parts else told


def _worded(value: object) -> str:
    """Write for JSON what it has no form of its own for."""
    if isinstance(value, UUID | datetime):
        return str(value)
    raise TypeError(f"{type(value).__name__} is not written in a row: {value!r}")


_encoded = json.JSONEncoder(default=_worded).encode


@dataclass(frozen=True, slots=True)
class _Shape:
    """How rows of one table are written."""

    target: str
    """The table and its columns."""
    insert: str
    """A statement that takes the rows as a list of objects in JSON."""
    columns: tuple[str, ...]
    read: Callable[[object], tuple[Any, ...]]
    odd: tuple[tuple[int, models.Field[Any, Any]], ...]
    """Columns whose values need a word to the database, by position."""

    def values(self, row: object) -> list[Any]:
        """Return what COPY is given for a row."""
        values = list(self.read(row))
        for position, field in self.odd:
            values[position] = _plain(field, values[position])
        return values

    def record(self, row: object) -> dict[str, Any]:
        """Return a row by its columns, for JSON."""
        return dict(zip(self.columns, self.read(row), strict=True))


def _shape_of(rows: Sequence[object], model: type[models.Model] | None) -> _Shape:
    kind = model or type(rows[0])
    assert issubclass(kind, models.Model)  # noqa: S101 -- a light row comes with its model
    key = kind._meta.pk  # noqa: SLF001 -- Django's documented model API
    return _shape(kind, getattr(rows[0], key.attname, None) is not None)


@cache
def _shape(model: type[models.Model], has_key: bool) -> _Shape:  # noqa: FBT001 -- a part of the key
    meta = model._meta  # noqa: SLF001 -- as above
    fields = [field for field in meta.concrete_fields if has_key or field is not meta.pk]
    columns = ", ".join(f'"{field.column}"' for field in fields)
    target = f'"{meta.db_table}" ({columns})'
    return _Shape(
        target=target,
        insert=f"INSERT INTO {target} SELECT {columns}"  # noqa: S608 -- names are the models' own
        f' FROM json_populate_recordset(NULL::"{meta.db_table}", %s::json)',
        columns=tuple(str(field.column) for field in fields),
        read=attrgetter(*(field.attname for field in fields)),
        odd=tuple(
            (position, field)
            for position, field in enumerate(fields)
            if isinstance(field, models.JSONField | models.CharField)
        ),
    )


def update_rows(rows: Sequence[models.Model], fields: Sequence[str]) -> int:
    """Write the named fields of all instances with one UPDATE; return how many rows it hit.

    The rows are joined by primary key, so one that is gone is simply not hit: compare counts.
    """
    if not rows or not fields:
        return 0
    change = _change(type(rows[0]), tuple(fields))
    records = [dict(zip(change.columns, change.read(row), strict=True)) for row in rows]
    with prepared() as cursor:
        cursor.execute(change.statement, [_encoded(records)])
        return int(cursor.rowcount)


@dataclass(frozen=True, slots=True)
class _Change:
    """How some columns of rows of one table are written anew."""

    statement: str
    """It takes the rows as a list of objects in JSON."""
    columns: tuple[str, ...]
    read: Callable[[object], tuple[Any, ...]]


@cache
def _change(model: type[models.Model], names: tuple[str, ...]) -> _Change:
    meta = model._meta  # noqa: SLF001 -- as above
    known = {field.name: field for field in meta.concrete_fields}
    key = meta.pk
    assert key is not None  # noqa: S101 -- every model has one
    fields = [key, *(known[name] for name in names)]
    assignments = ", ".join(f'"{field.column}" = v."{field.column}"' for field in fields[1:])
    return _Change(
        statement=f'UPDATE "{meta.db_table}" AS t SET {assignments}'  # noqa: S608 -- as above
        f' FROM json_populate_recordset(NULL::"{meta.db_table}", %s::json) AS v'
        f' WHERE t."{key.column}" = v."{key.column}"',
        columns=tuple(str(field.column) for field in fields),
        read=attrgetter(*(field.attname for field in fields)),
    )


def next_ids(model: type[models.Model], count: int) -> list[int]:
    """Take `count` numbers from the sequence of the model's primary key."""
    table = model._meta.db_table  # noqa: SLF001 -- as above
    with connection.cursor() as cursor:
        cursor.execute(
            # Named once: to look the sequence up costs three times as much as to count.
            "WITH own AS MATERIALIZED (SELECT pg_get_serial_sequence(%s, 'id')::regclass AS name)"
            " SELECT nextval(own.name) FROM own, generate_series(1, %s)",
            [table, count],
        )
        return [row[0] for row in cursor.fetchall()]


def notify_each(wakes: Iterable[tuple[str, str]]) -> None:
    """NOTIFY once for each distinct (channel, payload); delivered when the transaction commits."""
    distinct = sorted(set(wakes))
    if distinct:
        channels, payloads = zip(*distinct, strict=True)
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT pg_notify(c, p) FROM unnest(%s::text[], %s::text[]) AS wakes(c, p)",
                [list(channels), list(payloads)],
            )


def _plain(field: models.Field[Any, Any], value: Any) -> Any:
    if isinstance(field, models.JSONField) and value is not None:
        return "{}" if value == {} else _compact(value)
    if isinstance(value, str):
        return str(value)  # an enum's member is adapted as what it is, not as its type
    return value
