"""A process that dies at any statement of an operation leaves all of it or nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection, transaction

from scheduling.domain import invariants, jobs, topics
from scheduling.domain.snapshot import SnapshotCache
from scheduling.models import Attempt, DeviceHold, History, Hold, Job, Role, Task
from tenants.models import AuditRow, OutboxRow
from tests.factories.cluster import Site, role

COUNTED = (Job, Role, Task, Attempt, Hold, DeviceHold, History, AuditRow)
FEWEST_STATEMENTS = 4
GANG = 3
Operation = Callable[[Site], None]
Look = tuple[tuple[int, ...], Counter[str], Counter[str]]


class Crash(BaseException):
    """The process is gone: nothing of it may handle this."""


class Statements:
    """Counts the statements of an operation, and dies at one of them."""

    def __init__(self, dies_at: int = 0) -> None:
        self.count = 0
        self._dies_at = dies_at

    def __call__(
        self, execute: Callable[..., Any], sql: str, params: Any, many: bool, context: Any
    ) -> Any:
        # In production these are BEGIN and COMMIT, or what follows from the death.
        if not sql.startswith(("SAVEPOINT", "RELEASE", "ROLLBACK")):
            self.count += 1
            if self.count == self._dies_at:
                raise Crash
        return execute(sql, params, many, context)


def look() -> Look:
    """Return how many rows there are, and in which states; a hint for pages may be missing."""
    commands = OutboxRow.objects.exclude(topic=topics.OUTBOX_TOPIC)
    return (
        (commands.count(), *(model.objects.count() for model in COUNTED)),
        Counter(Task.objects.values_list("state", flat=True)),
        Counter(Attempt.objects.values_list("state", flat=True)),
    )


def broken() -> list[invariants.Violation]:
    """Return the invariants that do not hold; nobody carries the outbox away here."""
    return [one for one in invariants.check() if one.rule != "I14.outbox"]


def submit(site: Site) -> None:
    site.submit(role(replicas=GANG))


def bind(site: Site) -> None:
    site.cache = SnapshotCache()  # who comes after a crash has read nothing yet
    site.cycle()


def cancel(site: Site) -> None:
    jobs.cancel_job(actor=site.admin, job_id=Job.objects.get().id, now=site.now)


def start(site: Site) -> None:
    site.running(site.live(Job.objects.get())[0])


def finish(site: Site) -> None:
    site.exited(site.live(Job.objects.get())[0])


@pytest.mark.parametrize(
    ("earlier", "operation"),
    [
        ((), submit),
        ((submit,), bind),
        ((submit,), cancel),
        ((submit, bind), start),
        ((submit, bind), cancel),
        ((submit, bind, start), finish),
    ],
)
def test_operation_is_done_wholly_or_not_at_all(
    site: Site, earlier: tuple[Operation, ...], operation: Operation
) -> None:
    """Wherever it dies, the rows are those of before or of after, and it can be done again."""
    site.node()
    for one in earlier:
        one(site)
    before = look()
    start_of_all = transaction.savepoint()
    statements = Statements()
    with connection.execute_wrapper(statements):
        operation(site)
    after = look()
    transaction.savepoint_rollback(start_of_all)
    assert before != after
    assert statements.count >= FEWEST_STATEMENTS

    found = []
    for number in range(1, statements.count + 1):
        here = transaction.savepoint()
        with connection.execute_wrapper(Statements(number)), pytest.raises(Crash):
            operation(site)
        found.append(look())
        assert found[-1] in (before, after), f"dead at statement {number}"
        assert broken() == [], f"dead at statement {number}"
        transaction.savepoint_rollback(here)

    assert found[0] == before
    operation(site)
    assert look() == after
