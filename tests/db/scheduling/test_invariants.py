"""Each invariant is planted as a violation in rows and found by its name, and by no other name."""

from __future__ import annotations

from collections.abc import Callable
from io import StringIO
from uuid import UUID, uuid4

import pytest
from django.core.management import CommandError, call_command
from django.db import connection

from scheduling.domain import invariants
from scheduling.models import (
    Attempt,
    DeviceHold,
    History,
    Hold,
    Job,
    JobCount,
    Queue,
    Role,
    Task,
)
from tenants.domain import audit, outbox
from tenants.models import AuditRow, IdempotencyKey, OutboxRow, User
from tests.factories.cluster import Site, role
from tests.people import make_unit


@pytest.fixture
def job(site: Site) -> Job:
    """A running job of two tasks with a GPU each, so that there is something of everything."""
    site.node(gpus=2)
    job = site.started(role(replicas=2, gpu_milli=1000))
    deliver()
    return job


def deliver() -> None:
    """Do what relay and gateway do."""
    outbox.done(OutboxRow.objects.values_list("id", flat=True))


def rules() -> set[str]:
    return {one.rule for one in invariants.check()}


def test_a_running_system_breaks_nothing(site: Site, job: Job) -> None:
    """After binding, running and ending a job every invariant holds."""
    assert invariants.check() == []

    site.exited(*site.live(job))
    deliver()

    assert invariants.check() == []


Plant = Callable[[Site, Job], object]


def first(job: Job) -> Attempt:
    return Attempt.objects.filter(job=job).order_by("task_id").first()  # type: ignore[return-value]  # there are two


def sql(statement: str, *values: str | int | UUID) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement, values)


def without(constraint: str, table: str) -> None:
    sql("SET CONSTRAINTS ALL IMMEDIATE")  # what waits for the end would forbid to alter the table
    sql(f"ALTER TABLE {table} DROP CONSTRAINT IF EXISTS {constraint}")
    sql(f"DROP INDEX IF EXISTS {constraint}")


def as_owner(table: str) -> None:
    """Do what only the database's owner can: switch the table's own guard off."""
    sql("SET CONSTRAINTS ALL IMMEDIATE")
    sql(f"ALTER TABLE {table} DISABLE TRIGGER USER")


def no_audit_row(_site: Site, job: Job) -> None:
    as_owner("tenants_auditrow")
    AuditRow.objects.filter(subject_id=str(job.id)).delete()


def two_live_attempts(site: Site, job: Job) -> None:
    without("attempt_one_live", "scheduling_attempt")
    one = first(job)
    Attempt.objects.create(
        task=one.task,
        job=job,
        node_id=one.node_id,
        number=9,
        generation=1,
        epoch=site.epoch,
        state="Running",
        bound_at=one.bound_at,
    )


def device_twice(_site: Site, _job: Job) -> None:
    without("device_held_whole_once", "scheduling_devicehold")
    one, other = DeviceHold.objects.order_by("id")
    DeviceHold.objects.filter(id=other.id).update(device=one.device)


def queue_over_max(site: Site, _job: Job) -> None:
    Queue.objects.filter(id=site.root.id).update(max={"cpu": 1999})


def partial_gang(_site: Site, job: Job) -> None:
    Job.objects.filter(id=job.id).update(phase="Pending", started_at=None, min_available=3)


def old_epoch(_site: Site, job: Job) -> None:
    earlier, later = Attempt.objects.filter(job=job).order_by("task_id")
    update = "UPDATE scheduling_attempt SET bound_at = now() - %s::interval, epoch = %s"
    update += " WHERE id = %s"
    sql(update, "2 minutes", 1, earlier.id)
    sql(update, "1 minute", 0, later.id)


def jump(subject: str) -> Plant:
    def plant(_site: Site, job: Job) -> None:
        last = History.objects.filter(job=job, subject=subject).latest("seq")
        History.objects.filter(id=last.id).update(from_state="Stopping")

    return plant


def illegal_event(_site: Site, job: Job) -> None:
    row = History.objects.filter(job=job, subject="attempt", event="started").latest("seq")
    History.objects.filter(id=row.id).update(event="exited_zero")


def terminal_moved(_site: Site, job: Job) -> None:
    rows = History.objects.filter(job=job, subject="attempt").order_by("attempt_id", "seq")
    bound, started = rows[0], rows[1]
    History.objects.filter(id=bound.id).update(to_state="Failed")
    History.objects.filter(id=started.id).update(from_state="Failed")


def tampered_audit(site: Site, _job: Job) -> None:
    audit.seal(site.now)
    as_owner("tenants_auditrow")
    AuditRow.objects.filter(action="job.create").update(actor_label="nobody")


def repeated_key(site: Site, _job: Job) -> None:
    without("idempotency_key_unique", "tenants_idempotencykey")
    for _ in range(2):
        IdempotencyKey.objects.create(
            user=User.objects.get(username="operator"),
            key="k",
            request_hash="h",
            created_at=site.now,
        )


def foreign_tenant(_site: Site, job: Job) -> None:
    Job.objects.filter(id=job.id).update(tenant=make_unit("another"))


def lost_launch(_site: Site, job: Job) -> None:
    one = first(job)
    sql(
        "UPDATE scheduling_attempt SET state = 'Bound', bound_at = now() - interval '1 hour'"
        " WHERE id = %s",
        one.id,
    )
    Task.objects.filter(id=one.task_id).update(state="Bound")
    OutboxRow.objects.filter(key=str(one.id)).delete()


def stuck_message(_site: Site, _job: Job) -> None:
    sql(
        "INSERT INTO tenants_outboxrow (topic, key, payload, created_at, not_before, attempts,"
        " last_error, is_dead) VALUES ('mail', %s, '{}', now() - interval '1 hour', now(), 3, '',"
        " false)",
        str(uuid4()),
    )


PLANTS: dict[str, Plant] = {
    "I1.accepted": no_audit_row,
    "I2.one_live_attempt": two_live_attempts,
    "I2.task_is_its_attempt": lambda _, job: Task.objects.filter(id=first(job).task_id).update(
        state="Starting"
    ),
    "I3.device": device_twice,
    "I3.device_released": lambda site, job: Hold.objects.filter(attempt=first(job)).update(
        released_at=site.now
    ),
    "I4.attempt_holds": lambda site, job: Hold.objects.filter(attempt=first(job)).update(
        released_at=site.now
    ),
    "I4.ended_holds_nothing": lambda site, job: Attempt.objects.filter(id=first(job).id).update(
        state="Failed", finished_at=site.now
    ),
    "I4.node": lambda *_: Hold.objects.update(cpu_milli=16_000),
    "I4.queue_max": queue_over_max,
    "I5.gang": partial_gang,
    "I6.epoch_order": old_epoch,
    "I6.epoch_known": lambda _, job: Attempt.objects.filter(job=job).update(epoch=99),
    "I8.table": illegal_event,
    "I8.attempt_path": jump("attempt"),
    "I8.job_path": jump("job"),
    "I8.terminal": terminal_moved,
    "I8.finished": lambda _, job: (
        Job.objects.filter(id=job.id).update(phase="Completed"),
        Task.objects.filter(id=first(job).task_id).update(state="Pending"),
    ),
    "I9.history": lambda _, job: History.objects.filter(job=job, seq=2).delete(),
    "I9.state_is_history": lambda _, job: Attempt.objects.filter(id=first(job).id).update(
        state="Stopping"
    ),
    "I9.seals": tampered_audit,
    "I10.keys": repeated_key,
    "I11.retries": lambda _, job: Job.objects.filter(id=job.id).update(retry_count=9),
    "I13.tenant": foreign_tenant,
    "I14.role_counters": lambda _, job: Role.objects.filter(job=job).update(tasks_running=7),
    "I14.job_counters": lambda _, job: Job.objects.filter(id=job.id).update(tasks_failed=7),
    "I14.job_counts": lambda *_: JobCount.objects.all().delete(),
    "I14.launch": lost_launch,
    "I14.outbox": stuck_message,
}


@pytest.mark.parametrize("name", [rule.name for rule in invariants.RULES])
def test_planted_violation_is_named(site: Site, job: Job, name: str) -> None:
    """A violation planted in rows is found under the name of its invariant."""
    PLANTS[name](site, job)

    assert name in rules()


def test_command_fails_and_names_the_row(site: Site, job: Job) -> None:
    """The command prints rule and row, and its exit says that something is wrong."""
    del site
    Job.objects.filter(id=job.id).update(retry_count=9)
    said = StringIO()

    with pytest.raises(CommandError, match="1 violations of 1 rules"):
        call_command("check_invariants", stdout=said)

    assert f"I11.retries: {job.id}: {job.name} was restarted 9 times" in said.getvalue()


def test_command_says_that_all_hold(site: Site, job: Job) -> None:
    """On sound rows the command counts the invariants that hold."""
    del site, job
    said = StringIO()

    call_command("check_invariants", stdout=said)

    assert said.getvalue() == f"{len(invariants.RULES)} invariants hold.\n"
