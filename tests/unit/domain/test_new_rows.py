"""Instances made without the model's `__init__` are what it would have made."""

from __future__ import annotations

from uuid import uuid4

import pytest
from django.db import models

from scheduling.domain.bare_rows import NewRows
from scheduling.models import Job, Queue, Role, Task


def columns(row: models.Model) -> dict[str, object]:
    fields = row._meta.concrete_fields
    return {one.attname: getattr(row, one.attname) for one in fields if one.attname != "id"}


@pytest.mark.parametrize("model", [Job, Role, Task])
def test_new_row_has_the_models_defaults(model: type[models.Model]) -> None:
    """Every column, and that it is not in the database yet."""
    made = NewRows(model).make(related={})

    assert columns(made) == columns(model())
    assert made._state.adding


def test_new_rows_share_nothing() -> None:
    """What one puts into a default of its own is not in the next one's."""
    jobs = NewRows(Job)
    first, second = jobs.make(related={}), jobs.make(related={})

    first.reason_params["a"] = 1

    assert second.reason_params == {}
    assert first.id != second.id


def test_new_row_points_at_what_it_was_given() -> None:
    """A foreign key has its column, and its row without a question to the database."""
    queue = Queue(id=uuid4(), name="q")

    job = NewRows(Job).make(related={"queue": queue}, name="j")

    assert (job.queue_id, job.queue, job.name) == (queue.id, queue, "j")
