"""An organisation with a million tasks behind it, in rows: what the benchmark of pages asks for."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from django.db import connection, models, transaction

from benchmarks._rows import Rows
from scheduling.domain import counters
from scheduling.domain.clock import database_now
from scheduling.models import Job, Queue, Role
from tenants.models import User
from tests.factories.organisation import Organisation, Size, make_organisation
from tests.web.walls.reads import Things
from tests.web.walls.scene import make_scene

# Every GPU is held: what waits, waits, as it does where a scheduler has been at work.
SIZE = Size(departments=15, teams=15, people=500, nodes=200, running=1_600, waiting=2_000)

COPY_HISTORY = """
CREATE TEMPORARY TABLE ended ON COMMIT DROP AS
SELECT t.id AS task_id, t.index, j.id AS job_id, j.queue_id, j.started_at, j.finished_at,
    gen_random_uuid() AS attempt_id, r.request,
    (%(nodes)s::uuid[])[1 + (t.id %% %(node_count)s)] AS node_id
FROM scheduling_task t JOIN scheduling_job j ON j.id = t.job_id
JOIN scheduling_role r ON r.id = t.role_id
WHERE t.state = 'Succeeded';
INSERT INTO scheduling_history (job_id, seq, task_id, subject, event, from_state, to_state, at,
    reason_code, params, actor_label)
SELECT job_id, 2 + index, task_id, 'task', 'closed', 'Running', 'Succeeded', finished_at, '', '{}',
    'benchmark' FROM ended;
INSERT INTO scheduling_attempt (id, task_id, job_id, node_id, number, generation, epoch, state,
    stop_reason, is_oom, reason_code, message, address, ports, bound_at, started_at, finished_at,
    version)
SELECT attempt_id, task_id, job_id, node_id, 1, 1, 1,
    CASE WHEN task_id %% 50 = 0 THEN 'Evicted' ELSE 'Succeeded' END, '', false, '', '', '', '{}',
    started_at, started_at, finished_at, 2 FROM ended;
INSERT INTO scheduling_hold (attempt_id, node_id, queue_id, cpu_milli, memory_bytes, gpu_milli,
    extended, cpus, created_at, released_at)
SELECT attempt_id, node_id, queue_id, (request ->> 'cpu')::bigint, (request ->> 'memory')::bigint,
    0, '{}', '[]', started_at, finished_at FROM ended;
INSERT INTO tenants_auditrow (tenant_id, unit_id, at, actor_id, actor_label, action, subject_type,
    subject_id, subject_label, before, after, reason, request_id)
SELECT j.tenant_id, j.unit_id, j.created_at, j.owner_id, 'bench', 'job.create', 'job', j.id::text,
    j.name, NULL, '{}', '', '' FROM scheduling_job j;
"""


@dataclass(frozen=True, slots=True)
class Shape:
    """Who looks, and at what: a large running job and one that waits."""

    admin_id: str
    things: tuple[Things, ...]

    def write(self, file: Path) -> None:
        """Keep it beside the database that it is about."""
        file.write_text(json.dumps(asdict(self)), encoding="utf-8")

    @classmethod
    def read(cls, file: Path) -> Shape:
        """Read what `write` kept."""
        kept = json.loads(file.read_text(encoding="utf-8"))
        return cls(kept["admin_id"], tuple(Things(**one) for one in kept["things"]))


def fill(*, large: int, small: int) -> Shape:
    """Write so many finished jobs of 1,000 tasks and of one task, and a living organisation."""
    rows = Rows()
    scene = make_scene()  # one of everything that an address can name
    top = Queue.objects.get(cluster=rows.cluster, unit__isnull=False)
    made = make_organisation(rows.cluster, top, SIZE, database_now())
    rows.nodes = list(made.nodes)
    team = made.teams[0].name
    (shown,) = rows.submit("shown", 1, tasks=1_000, cpu_milli=1_000, queue=team)
    rows.run([shown])
    for name, tasks, count in (("large", 1_000, large), ("small", 1, small)):
        (template,) = rows.submit(name, 1, tasks=tasks, queue=team)
        _copies(template, count, made, rows.admin)
        Job.objects.filter(id=template.id).update(phase="Completed", finished_at=database_now())
    with transaction.atomic(), connection.cursor() as cursor:
        nodes = [node.id for node in made.nodes]
        cursor.execute(COPY_HISTORY, {"nodes": nodes, "node_count": len(nodes)})
    counters.fold(least=1)
    rows.settle()
    large_job = Things(
        values={
            **scene.values,
            "job_id": str(shown.id),
            "cluster_id": str(rows.cluster.id),
            "queue_id": str(made.teams[0].id),
            "node_id": str(made.nodes[0].id),
            "unit_id": str(top.unit_id),
        },
        queue=team,
        node=made.nodes[0].name,
    )
    waiting = large_job.other(job_id=str(made.waiting[0].id), queue_id=str(top.id))
    return Shape(str(rows.admin.id), (large_job, replace(waiting, queue=top.name)))


def _copies(template: Job, count: int, made: Organisation, admin: User) -> None:
    """Copy a job, its roles and its tasks, as jobs that ended one after the other.

    They are spread over the teams and their people; the administrator owns some.
    """
    at = "t.created_at - n * interval '1 minute'"
    people = [admin.id, *(one.id for one in made.people)]
    changes = {
        "id": "gen_random_uuid()",
        "name": "t.name || '-' || n",
        "queue_id": "(%(queues)s::uuid[])[1 + n %% cardinality(%(queues)s::uuid[])]",
        "unit_id": "(%(units)s::uuid[])[1 + n %% cardinality(%(queues)s::uuid[])]",
        "owner_id": "(%(people)s::uuid[])[1 + n %% cardinality(%(people)s::uuid[])]",
        "phase": "CASE WHEN n %% 10 = 0 THEN 'Failed' ELSE 'Completed' END",
        "created_at": at,
        "started_at": f"{at} + interval '5 seconds'",
        "finished_at": f"{at} + interval '30 seconds'",
        "tasks_pending": "0",
        "tasks_succeeded": "t.tasks_total",
    }
    values: dict[str, Any] = {
        "queues": [team.id for team in made.teams],
        "units": [team.unit_id for team in made.teams],
        "people": people,
        "job": template.id,
        "count": count,
    }
    counts = {"tasks_pending": "0", "tasks_succeeded": "t.replicas", "job_id": "copies.id"}
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
            " AND c.finished_at IS NOT NULL"
        ),
        (
            f"INSERT INTO scheduling_role ({_listed(roles)})"  # noqa: S608 -- as above
            f" SELECT {_picked(roles, counts)}"
            " FROM scheduling_role t, copies WHERE t.job_id = %(job)s"
        ),
        (
            "INSERT INTO scheduling_task (job_id, role_id, index, state, attempt_number,"
            " reason_code, reason_params, state_at, version)"
            " SELECT r.job_id, r.id, i, 'Succeeded', 1, '', '{}', now(), 2 FROM scheduling_role r"
            " JOIN copies ON copies.id = r.job_id, generate_series(0, r.replicas - 1) AS i"
        ),
    )
    with transaction.atomic(), connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement, values)


def _columns(model: type[models.Model]) -> list[str]:
    return [str(field.column) for field in model._meta.concrete_fields]  # noqa: SLF001 -- Django's documented model API


def _listed(columns: list[str]) -> str:
    return ", ".join(f'"{name}"' for name in columns)


def _picked(columns: list[str], changes: Mapping[str, str]) -> str:
    return ", ".join(changes.get(name, f't."{name}"') for name in columns)
