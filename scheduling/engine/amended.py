"""Tables with a few jobs changed for a moment: what a question supposes, without reading anew."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from scheduling.engine.tables import Memo, Tables, prepare
from scheduling.engine.types import Job, Snapshot


@contextmanager
def amended(tables: Tables, *, gone: Iterable[Job] = (), new: Iterable[Job] = ()) -> Iterator[None]:
    """Take some jobs out and others in until the block ends; all their resources must be known."""
    left, come = tuple(gone), tuple(new)
    _exchange(tables, left, come)
    try:
        yield
    finally:
        _exchange(tables, come, left)


def _exchange(tables: Tables, left: tuple[Job, ...], come: tuple[Job, ...]) -> None:
    for job in left:
        tables.remove(job)
    for job in come:
        tables.add(job)


def prepare_for(snapshot: Snapshot, memo: Memo, job: Job) -> Tables:
    """Return the tables of a snapshot that know the resources which another job asks for."""
    tables = prepare(snapshot, memo)
    if all(name in tables.resources.index for role in job.roles for name in role.request):
        return tables
    prepare(replace(snapshot, jobs=(*snapshot.jobs, job)), memo)
    return prepare(snapshot, memo)
