"""Pages and lists at 1,000,000 tasks: `python -m benchmarks pages`.

Rows of 100,900 jobs with a million tasks, their history and an audit trail; then each page and each
list of the API is asked for many times, in this process, signed in as an administrator. Prints one
JSON object a page: the 95th percentile of its time, the CPU time of this process in it (on a shared
machine wall time says little), its queries and its size. Uses an empty database named by
DATABASE_URL, which it migrates and fills.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from datetime import timedelta

from django.db import connection, models, transaction
from django.test import Client
from django.test.utils import CaptureQueriesContext

from benchmarks._rows import Rows, emit, percentile
from scheduling.domain.clock import database_now
from scheduling.models import Job, Role, Task
from tenants.domain import tokens

MUST_MS = 100.0
MOST_QUERIES = 15
COPY_HISTORY = """
INSERT INTO scheduling_history (job_id, seq, task_id, subject, event, from_state, to_state, at,
    reason_code, params, actor_label)
SELECT j.id, 2 + t.index, t.id, 'task', 'closed', 'Pending', 'Cancelled', j.created_at, '', '{}',
    'benchmark'
FROM scheduling_task t JOIN scheduling_job j ON j.id = t.job_id
WHERE NOT EXISTS (SELECT 1 FROM scheduling_attempt a WHERE a.task_id = t.id);
INSERT INTO tenants_auditrow (tenant_id, unit_id, at, actor_id, actor_label, action, subject_type,
    subject_id, subject_label, before, after, reason, request_id)
SELECT j.tenant_id, j.unit_id, j.created_at, j.owner_id, 'bench', 'job.create', 'job', j.id::text,
    j.name, NULL, '{}', '', '' FROM scheduling_job j;
"""


def main() -> None:
    """Fill, ask, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--large", type=int, default=900, help="finished jobs of 1,000 tasks")
    parser.add_argument("--small", type=int, default=100_000, help="finished jobs of one task")
    parser.add_argument("--times", type=int, default=30)
    given = parser.parse_args()
    rows = Rows()
    rows.add_nodes(200)
    (shown,) = rows.submit("shown", 1, tasks=1_000, cpu_milli=1_000)
    rows.run([shown])
    for name, tasks, count in (("large", 1_000, given.large), ("small", 1, given.small)):
        (template,) = rows.submit(name, 1, tasks=tasks)
        _copies(template, count)
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(COPY_HISTORY)
    rows.settle()
    print(f"{Task.objects.count()} tasks", file=sys.stderr)
    client, api = _clients(rows)
    for address in _addresses(shown):
        _measure(api if address.startswith("/api/") else client, address, given.times)


def _copies(template: Job, count: int) -> None:
    """Copy a job, its roles and its tasks, as jobs that were cancelled one after the other."""
    at = "t.created_at - n * interval '1 minute'"
    changes = {
        "id": "gen_random_uuid()",
        "name": "t.name || '-' || n",
        "phase": "'Terminated'",
        "created_at": at,
        "finished_at": f"{at} + interval '30 seconds'",
        "tasks_pending": "0",
    }
    jobs = _columns(Job)
    roles = [name for name in _columns(Role) if name != "id"]
    statements = (
        (
            f"INSERT INTO scheduling_job ({_listed(jobs)})"  # noqa: S608 -- the models' own names
            f" SELECT {_picked(jobs, changes)} FROM scheduling_job t,"
            " generate_series(1, %(count)s) AS n WHERE t.id = %(job)s"
        ),
        (
            "CREATE TEMPORARY TABLE copies ON COMMIT DROP AS SELECT c.id FROM scheduling_job c"
            " JOIN scheduling_job t ON t.id = %(job)s WHERE c.name LIKE t.name || '-%%'"
            " AND c.phase = 'Terminated'"
        ),
        (
            f"INSERT INTO scheduling_role ({_listed(roles)})"  # noqa: S608 -- as above
            f" SELECT {_picked(roles, {'job_id': 'copies.id', 'tasks_pending': '0'})}"
            " FROM scheduling_role t, copies WHERE t.job_id = %(job)s"
        ),
        (
            "INSERT INTO scheduling_task (job_id, role_id, index, state, attempt_number,"
            " reason_code, reason_params, state_at, version)"
            " SELECT r.job_id, r.id, i, 'Cancelled', 0, '', '{}', now(), 2 FROM scheduling_role r"
            " JOIN copies ON copies.id = r.job_id, generate_series(0, r.replicas - 1) AS i"
        ),
    )
    with transaction.atomic(), connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement, {"job": template.id, "count": count})


def _columns(model: type[models.Model]) -> list[str]:
    return [str(field.column) for field in model._meta.concrete_fields]  # noqa: SLF001 -- Django's documented model API


def _listed(columns: list[str]) -> str:
    return ", ".join(f'"{name}"' for name in columns)


def _picked(columns: list[str], changes: dict[str, str]) -> str:
    return ", ".join(changes.get(name, f't."{name}"') for name in columns)


def _clients(rows: Rows) -> tuple[Client, Client]:
    """Return a browser that is signed in, and a program with a token."""
    now = database_now()
    _, secret = tokens.create_token(
        actor=rows.actor,
        user=rows.admin,
        name="benchmark",
        verbs=[],
        unit=None,
        expires_at=now + timedelta(hours=1),
        now=now,
    )
    browser = Client(SERVER_NAME="127.0.0.1")
    browser.force_login(rows.admin)
    return browser, Client(SERVER_NAME="127.0.0.1", headers={"Authorization": f"Bearer {secret}"})


def _addresses(shown: Job) -> list[str]:
    job = f"/jobs/{shown.id}/"
    return [
        "/jobs/",
        "/jobs/?tab=all",
        "/jobs/?tab=all&text=small-77",
        job,
        f"{job}tasks/",
        f"{job}timeline/",
        f"{job}events/",
        f"{job}why/",
        "/queues/",
        "/cluster/",
        "/activity/",
        "/ops/",
        "/api/v1/jobs",
        f"/api/v1/jobs/{shown.id}",
        f"/api/v1/jobs/{shown.id}/tasks",
        f"/api/v1/jobs/{shown.id}/history",
        "/api/v1/queues",
        "/api/v1/nodes",
        "/api/v1/audit",
    ]


def _measure(client: Client, address: str, times: int) -> None:
    """Ask for a page, first for its queries, then for its time."""
    client.get(address)
    with CaptureQueriesContext(connection) as seen:
        reply = client.get(address)
        queries = len(seen)  # the next request begins a new count
    if reply.status_code != 200:
        raise SystemExit(f"{address}: {reply.status_code}")
    wall, cpu = [], []
    for _ in range(times):
        begun, used = time.perf_counter(), time.process_time()
        client.get(address)
        wall.append((time.perf_counter() - begun) * 1000)
        cpu.append((time.process_time() - used) * 1000)
    emit(
        f"{address}, p95 ms",
        percentile(wall, 95),
        MUST_MS,
        median=round(statistics.median(wall), 1),
        cpu_median=round(statistics.median(cpu), 1),
        queries=queries,
        queries_must=MOST_QUERIES,
        kib=round(len(reply.content) / 1024, 1),
    )


if __name__ == "__main__":
    main()
