"""Read and make rows by the thousand as instances of their models, at a quarter of the cost."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Generic, TypeVar

from django.db import connection, models
from django.db.models.base import ModelState
from pydantic_core import from_json

from scheduling.models import Attempt, Task

M = TypeVar("M", bound=models.Model)


def _own(text: str) -> Any:
    return {} if text == "{}" else from_json(text)


@lru_cache(maxsize=10_000)
def _shared(text: str) -> Any:
    return from_json(text)


class BareRows(Generic[M]):
    """Makes instances of a model out of the values of its columns, as unpickling does.

    `from_db` would call `__init__`, which sets field by field and sends two signals: four times as
    much. A column that is left out is read when somebody asks for it, as after `defer`.
    """

    def __init__(
        self, model: type[M], *, without: Collection[str] = (), shared: Collection[str] = ()
    ) -> None:
        """Look at the model's columns once.

        `shared` names columns of JSON that nobody changes: equal ones may be one object.
        """
        self.model = model
        fields = [one for one in model._meta.concrete_fields if one.name not in without]  # noqa: SLF001 -- Django's documented model API
        self.names = [field.attname for field in fields]
        self._columns = [
            (str(field.column), isinstance(field, models.DateTimeField)) for field in fields
        ]
        self._json = [
            (field.attname, _shared if field.name in shared else _own)
            for field in fields
            if isinstance(field, models.JSONField)
        ]
        self._times = [field.attname for field in fields if isinstance(field, models.DateTimeField)]

    def columns(self, alias: str) -> str:
        """Return what to select for `instance`: times as seconds since 1970.

        The driver takes longer to read a time than all the rest of a row.
        """
        return ", ".join(
            f'extract(epoch FROM {alias}."{name}")::float8' if is_time else f'{alias}."{name}"'
            for name, is_time in self._columns
        )

    def instance(self, values: Sequence[Any]) -> M:
        """Return a row, given its columns as the driver has them: JSON is text yet."""
        row = self.model.__new__(self.model)
        state = ModelState()
        state.db, state.adding = "default", False
        known = row.__dict__
        known.update(zip(self.names, values, strict=True), _state=state)
        for name, read in self._json:
            known[name] = read(known[name])
        for name in self._times:
            if (seconds := known[name]) is not None:
                known[name] = datetime.fromtimestamp(seconds, tz=UTC)
        return row

    def where(self, condition: str, values: Sequence[Any]) -> list[M]:
        """Return the rows for which a condition on `t` holds.

        The condition is a constant of the program; what it compares with is in `values`.
        """
        with connection.cursor() as cursor:
            cursor.execute(self._statement(condition), values)
            return [self.instance(row) for row in cursor.fetchall()]

    def in_parts(
        self, condition: str, values: Sequence[Any], *, size: int, are_many: bool
    ) -> Iterator[list[M]]:
        """Yield the same rows, so many at once; if they are many, the server keeps the others.

        That takes a transaction and a statement for each part.
        """
        with connection.chunked_cursor() if are_many else connection.cursor() as cursor:
            cursor.execute(self._statement(condition), values)
            while part := cursor.fetchmany(size):
                yield [self.instance(row) for row in part]

    def _statement(self, condition: str) -> str:
        table = self.model._meta.db_table  # noqa: SLF001 -- as above
        return f'SELECT {self.columns("t")} FROM "{table}" AS t WHERE {condition}'  # noqa: S608 -- names are the model's own


class NewRows(Generic[M]):
    """Makes instances of a model that have no row yet, with the model's defaults.

    What stays the same is looked up once: `__init__` does it for each field of each instance.
    """

    def __init__(self, model: type[M]) -> None:
        """Look at the model's columns and defaults once."""
        self.model = model
        fields = model._meta.concrete_fields  # noqa: SLF001 -- Django's documented model API
        self._made = [
            (field.attname, field.default)
            for field in fields
            if field.has_default() and callable(field.default)
        ]
        made = {name for name, _ in self._made}
        self._same = {
            field.attname: field.get_default() for field in fields if field.attname not in made
        }

    def make(self, *, related: dict[str, models.Model], **columns: Any) -> M:
        """Return a new instance; `related` has what its foreign keys point at, by field."""
        row = self.model.__new__(self.model)
        state = ModelState()
        state.fields_cache.update(related)
        values = row.__dict__
        values.update(self._same)
        for name, default in self._made:
            if name not in columns:
                values[name] = default()
        values.update(columns, _state=state)
        for name, one in related.items():
            values[f"{name}_id"] = one.pk
        return row


# Nobody asks a report's attempt when it was bound.
_ATTEMPTS, _TASKS = BareRows(Attempt, without=("bound_at",)), BareRows(Task)
_WITH_TASKS = f"""
SELECT {_ATTEMPTS.columns("attempt")}, {_TASKS.columns("task")}
FROM scheduling_attempt AS attempt JOIN scheduling_task AS task ON task.id = attempt.task_id
WHERE """  # noqa: S608 -- names are the models' own


def attempts_with_tasks(condition: str, values: Sequence[Any]) -> list[Attempt]:
    """Return the attempts for which `condition`, on `attempt` and `task`, holds; with their tasks.

    The condition is a constant of the program; what it compares with is in `values`.
    """
    with connection.cursor() as cursor:
        cursor.execute(_WITH_TASKS + condition, values)
        rows = cursor.fetchall()
    split = len(_ATTEMPTS.names)
    found = []
    for row in rows:
        attempt = _ATTEMPTS.instance(row[:split])
        attempt._state.fields_cache["task"] = _TASKS.instance(row[split:])  # noqa: SLF001 -- what select_related does
        found.append(attempt)
    return found


def tasks_by_id(ids: Collection[int]) -> dict[int, Task]:
    """Return the tasks with these keys that there are, as `in_bulk` does."""
    return {task.id: task for task in _TASKS.where("t.id = ANY(%s)", [list(ids)])}
