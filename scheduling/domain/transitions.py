"""The one writer of the states of jobs, tasks and attempts.

What is allowed and what follows is said by `scheduling.lifecycle`; this module persists it. A
`Batch` is one transaction over any number of jobs:

1. lock the jobs in order of id (two batches never wait for each other in a circle),
2. apply events to them in memory, following every effect (`scheduling.domain.job_work`),
3. `flush`: write each table once, history rows with the next numbers of their job, holds released,
   commands and live hints into the outbox, and a NOTIFY for the scheduler.
"""

from collections.abc import Callable, Collection, Sequence
from datetime import datetime
from typing import Any, TypeVar
from uuid import UUID

from django.db import connection, models, transaction

from scheduling.domain import holds, topics
from scheduling.domain.bulk_rows import Group, insert_groups, update_rows
from scheduling.domain.job_work import JobWork
from scheduling.domain.lifecycle_views import COUNTER_NAMES
from scheduling.domain.transition_rows import (
    ATTEMPT_FIELDS,
    JOB_FIELDS,
    ROLE_FIELDS,
    SIZE_FIELDS,
    TASK_FIELDS,
    OutboxLine,
    attempt_values,
    task_values,
)
from scheduling.lifecycle.values import AttemptEvent
from scheduling.models import Attempt, DelayedAction, History, Job, Role, Task
from tenants.domain import notify, outbox
from tenants.models import OutboxRow

M = TypeVar("M", bound=models.Model)

LAUNCH_TOPIC = "attempt.launch"
STOP_TOPIC = "attempt.stop"


class Batch:
    """Jobs that one transaction changes; `lock` them, change them, then `flush`."""

    def __init__(self, *, now: datetime, actor_label: str = "") -> None:
        """Begin with no job."""
        if not connection.in_atomic_block:
            raise transaction.TransactionManagementError("transitions need one transaction")
        self.now = now
        self.actor_label = actor_label
        self.works: dict[UUID, JobWork] = {}
        self.messages: list[outbox.Message] = []
        self.hints: list[topics.Hint] = []
        self._after_attempts: list[Callable[[], None]] = []
        self._alongside: list[Group] = []

    def insert_alongside(self, rows: Sequence[object], model: type[models.Model]) -> None:
        """Insert rows of another table with the flush, in the same statement if all are few."""
        self._alongside.append((rows, model))

    def write_first(self, write: Callable[[], None]) -> None:
        """Call `write` in the flush, once the new attempts are there and before the rest."""
        self._after_attempts.append(write)

    def lock(self, job_ids: Collection[UUID]) -> list[JobWork]:
        """Lock the jobs in order of id and return their works; one that is gone is left out."""
        wanted = sorted(set(job_ids) - self.works.keys())
        jobs = list(
            Job.objects.select_for_update(of=("self",))
            .select_related("queue")
            .filter(id__in=wanted)
            .order_by("id")
        )
        roles: dict[UUID, list[Role]] = {job.id: [] for job in jobs}
        for role in Role.objects.filter(job__in=jobs).order_by("position"):
            roles[role.job_id].append(role)
        delayed: dict[UUID, list[DelayedAction]] = {job.id: [] for job in jobs}
        if _have_delayed(delayed.keys()):
            waiting = DelayedAction.objects.filter(job__in=jobs, state="waiting")
            for row in waiting.select_related("task").order_by("id"):
                delayed[row.job_id].append(row)
        for job in jobs:
            self.works[job.id] = self._work(job, roles[job.id], delayed[job.id])
        return [self.works[job_id] for job_id in job_ids if job_id in self.works]

    def adopt(self, job: Job, roles: list[Role]) -> JobWork:
        """Take up a new job and its roles, which have ids and no rows: the flush inserts them."""
        self.works[job.id] = self._work(job, roles, [], is_new=True)
        return self.works[job.id]

    def _work(
        self,
        job: Job,
        roles: list[Role],
        delayed: list[DelayedAction],
        *,
        is_new: bool = False,
    ) -> JobWork:
        return JobWork(
            job, roles, delayed, now=self.now, actor_label=self.actor_label, is_new=is_new
        )

    def flush(self) -> None:
        """Write everything, each table once."""
        works = list(self.works.values())
        for work in works:
            work.settle()
        self._retract_unsent(works)
        for work in works:
            self._prepare(work)
        new = [work for work in works if work.is_new]
        groups: list[Group] = [
            ([work.job for work in new], Job),
            ([role for work in new for role in work.roles.values()], Role),
            ([task for work in works for task in work.new_tasks], Task),
            ([one for work in works for one in work.new_attempts], Attempt),
        ]
        if self._after_attempts or any(work.new_delayed for work in works):
            insert_groups(groups)  # what follows looks for them
            groups = []
        for write in self._after_attempts:
            write()
        _update_differing(
            [task for work in works for task in _versioned(work.changed_tasks)],
            [known for work in works for known in work.tasks_as_read.values()],
            TASK_FIELDS,
            task_values,
        )
        _update_differing(
            [attempt for work in works for attempt in _versioned(work.changed_attempts)],
            [known for work in works for known in work.attempts_as_read.values()],
            ATTEMPT_FIELDS,
            attempt_values,
        )
        self._update_jobs([work for work in works if not work.is_new])
        self._write_delayed(works)
        holds.release([attempt.id for work in works for attempt in work.ended], now=self.now)
        messages = self._messages(works)
        groups += [
            ([line for work in works for line in work.history], History),
            ([_outbox_line(message, self.now) for message in messages], OutboxRow),
            *self._alongside,
        ]
        insert_groups(groups, _wakes(messages, works))

    def _update_jobs(self, works: list[JobWork]) -> None:
        """Write the columns that differ from what was read; the large spec hardly ever does."""
        roles = [
            (role, work.changed_fields(role)) for work in works for role in work.roles.values()
        ]
        _update_changed([(role, fields) for role, fields in roles if fields], ROLE_FIELDS)
        update_rows([work.job for work in works if work.is_resized], SIZE_FIELDS)
        _update_changed([(work.job, work.changed_fields(work.job)) for work in works], JOB_FIELDS)

    def _prepare(self, work: JobWork) -> None:
        job = work.job
        for name in COUNTER_NAMES:
            setattr(job, name, sum(getattr(role, name) for role in work.roles.values()))
        job.tasks_total = sum(role.replicas for role in work.roles.values())
        job.version += 1

    def _retract_unsent(self, works: list[JobWork]) -> None:
        """End at once what was to be stopped before its launch was ever sent.

        The command is deleted only while nobody has claimed it: a gateway that is just claiming it
        holds the row's lock, and after the wait the count of tries is not 0 any more.
        """
        for work in works:
            if not work.maybe_unsent:
                continue
            unsent = _delete_unsent(work.maybe_unsent.keys())
            work.stops = [one for one in work.stops if str(one.id) not in unsent]
            for key in sorted(unsent):
                work.attempt_event(work.maybe_unsent[key], AttemptEvent.GONE)
            work.settle()

    def _write_delayed(self, works: list[JobWork]) -> None:
        for work in works:
            for row in work.new_delayed:
                if row.task is not None and row.task.pk is None:
                    row.task = Task.objects.get(role=row.task.role, index=row.task.index)
        fresh = [row for work in works for row in work.new_delayed]
        if fresh:
            DelayedAction.objects.bulk_create(fresh)
        gone = [row.id for work in works for row in work.dropped_delayed]
        if gone:
            DelayedAction.objects.filter(id__in=gone).update(state="dropped")

    def _messages(self, works: list[JobWork]) -> list[outbox.Message]:
        messages = [*self.messages]
        hints = [*self.hints]
        for work in works:
            messages += [_stop_message(attempt, work) for attempt in work.stops]
            hints.append(topics.Hint(topics.job(work.job.id), "state"))
            hints.append(topics.Hint(topics.jobs(work.job.queue_id), "state"))
        message = topics.message(hints)
        if message is not None:
            messages.append(message)
        return messages


def _wakes(messages: list[outbox.Message], works: list[JobWork]) -> set[tuple[str, str]]:
    """Return whom to NOTIFY of a batch's messages, and of jobs that a cycle would look at."""
    return (
        {(notify.OUTBOX, "") for one in messages if one.node_id is None}
        | {(notify.NODE, str(one.node_id)) for one in messages if one.node_id}
        | {(notify.SCHEDULE, str(w.job.queue.cluster_id)) for w in works if w.wants_a_cycle}
    )


def _have_delayed(job_ids: Collection[UUID]) -> bool:
    """Whether any action waits for its time; most jobs have none, so this is asked first."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT EXISTS (SELECT 1 FROM scheduling_delayedaction"
            " WHERE job_id = ANY(%s) AND state = 'waiting')",
            [list(job_ids)],
        )
        return bool(cursor.fetchone()[0])


def _outbox_line(message: outbox.Message, now: datetime) -> OutboxLine:
    not_before = message.not_before or now
    return OutboxLine(message.topic, message.key, message.payload, message.node_id, now, not_before)


def _update_changed(rows: Sequence[tuple[Job | Role, list[str]]], fields: tuple[str, ...]) -> None:
    """Write with one statement every column that changed in any of the rows."""
    changed = {name for _, names in rows for name in names}
    update_rows([row for row, _ in rows], [name for name in fields if name in changed])


def _update_differing(
    rows: Sequence[M],
    before: Sequence[tuple[Any, ...]],
    fields: tuple[str, ...],
    values_of: Callable[[M], tuple[Any, ...]],
) -> None:
    """Write the columns that differ in any row from what was read before, in the same order."""
    differs = {
        name
        for row, known in zip(rows, before, strict=True)
        for name, was, now in zip(fields, known, values_of(row), strict=True)
        if was != now
    }
    update_rows(rows, [name for name in fields if name in differs])


def _versioned(rows: dict[Any, Any]) -> list[Any]:
    for row in rows.values():
        row.version += 1
    return list(rows.values())


def _delete_unsent(attempt_ids: Collection[str]) -> set[str]:
    with connection.cursor() as cursor:
        cursor.execute(
            f'DELETE FROM "{OutboxRow._meta.db_table}"'  # noqa: S608, SLF001 -- the table's own name
            " WHERE topic = %s AND key = ANY(%s) AND attempts = 0 RETURNING key",
            [LAUNCH_TOPIC, list(attempt_ids)],
        )
        return {row[0] for row in cursor.fetchall()}


def _stop_message(attempt: Attempt, work: JobWork) -> outbox.Message:
    role = work.roles[work.task(attempt.task_id).role_id]
    spec = next(part for part in work.job.spec["roles"] if part["name"] == role.name)
    payload = {
        "attempt": str(attempt.id),
        "grace_seconds": spec.get("grace_seconds", 30),
        "reason": attempt.stop_reason,
    }
    return outbox.Message(STOP_TOPIC, str(attempt.id), payload, node_id=attempt.node_id)
