"""Rows of a large installation, written as the domain would have written them."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

from django.db import connection, transaction

from benchmarks import _empty
from scheduling.domain import jobs
from scheduling.domain.bootstrap import DEFAULT
from scheduling.domain.bulk_rows import copy_rows
from scheduling.domain.clock import database_now
from scheduling.models import Cluster, Job, Node
from scheduling.models.node import NodeState
from scheduling.spec.job_spec import JobSpec, RoleSpec
from tenants.domain.access import Actor, load_actor
from tenants.models import User

GIB = 1024**3
NODE_CPU_MILLI = 64_000

# Tasks are laid on the nodes in turn; what a task, its attempt and its hold say goes together.
RUN_TASKS = """
CREATE TEMPORARY TABLE placed ON COMMIT DROP AS
SELECT t.id AS task_id, t.job_id, j.queue_id, r.request, gen_random_uuid() AS attempt_id,
       (%(nodes)s::uuid[])[1 + (row_number() OVER (ORDER BY t.id) - 1) %% %(count)s] AS node_id
FROM scheduling_task t
JOIN scheduling_job j ON j.id = t.job_id
JOIN scheduling_role r ON r.id = t.role_id
WHERE t.job_id = ANY(%(jobs)s);
UPDATE scheduling_task t SET state = 'Running', attempt_number = 1, node_id = p.node_id
FROM placed p WHERE p.task_id = t.id;
INSERT INTO scheduling_attempt (id, task_id, job_id, node_id, number, generation, epoch, state,
    stop_reason, is_oom, reason_code, message, address, ports, bound_at, started_at, version)
SELECT attempt_id, task_id, job_id, node_id, 1, 1, 1, 'Running', '', false, '', '', '', '{}',
    %(now)s, %(now)s, 2 FROM placed;
INSERT INTO scheduling_hold (attempt_id, node_id, queue_id, cpu_milli, memory_bytes, gpu_milli,
    extended, cpus, created_at)
SELECT attempt_id, node_id, queue_id, (request ->> 'cpu')::bigint, (request ->> 'memory')::bigint,
    0, '{}', '[]', %(now)s FROM placed;
UPDATE scheduling_role SET tasks_running = replicas, tasks_pending = 0 WHERE job_id = ANY(%(jobs)s);
UPDATE scheduling_job SET phase = 'Running', gang_phase = 'Running', tasks_running = tasks_total,
    tasks_pending = 0, started_at = %(now)s WHERE id = ANY(%(jobs)s);
"""
STATISTICS = (
    "scheduling_job", "scheduling_role", "scheduling_task", "scheduling_attempt", "scheduling_hold",
    "scheduling_node", "scheduling_history", "scheduling_jobcount", "tenants_auditrow",
)  # fmt: skip


class Rows:
    """An installation that exists in rows only."""

    def __init__(self) -> None:
        """Migrate and fill an empty database."""
        made = _empty.installation()
        self.admin: User = made.admin
        self.admin.must_change_password = False
        self.admin.save(update_fields=["must_change_password"])
        self.actor: Actor = load_actor(made.admin)
        self.cluster: Cluster = made.cluster
        self.nodes: list[Node] = []

    def add_nodes(self, count: int) -> None:
        """Add nodes that are ready and never seen again."""
        now = database_now()
        amounts = {"cpu": NODE_CPU_MILLI, "memory": 256 * GIB, "pods": 110_000}
        self.nodes += [
            Node(
                cluster=self.cluster,
                name=f"node-{number:05}",
                state=NodeState.READY,
                is_simulated=True,
                capacity=amounts,
                allocatable=amounts,
                last_seen_at=now,
                session_id="benchmark",
                created_at=now,
            )
            for number in range(len(self.nodes), len(self.nodes) + count)
        ]
        copy_rows(self.nodes[-count:])

    def submit(
        self,
        name: str,
        jobs_count: int,
        *,
        tasks: int = 1,
        cpu_milli: int = 3000,
        queue: str = DEFAULT,
    ) -> list[Job]:
        """Submit jobs of one gang each."""
        specs = [
            spec(f"{name}-{number}", tasks, cpu_milli).model_copy(update={"queue": queue})
            for number in range(jobs_count)
        ]
        results = jobs.submit_many(actor=self.actor, specs=specs, now=database_now())
        accepted = [one for one in results if isinstance(one, Job)]
        if len(accepted) != jobs_count:
            raise SystemExit(f"{jobs_count - len(accepted)} jobs were refused")
        return accepted

    def run(self, accepted: Sequence[Job]) -> None:
        """Make all tasks of these jobs run, spread over the nodes."""
        nodes = [node.id for node in self.nodes]
        values: dict[str, Any] = {
            "nodes": nodes,
            "count": len(nodes),
            "jobs": [job.id for job in accepted],
            "now": database_now(),
        }
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(RUN_TASKS, values)

    def settle(self) -> None:
        """Bring the planner's statistics up to date, as autovacuum does after a while."""
        with connection.cursor() as cursor:
            for table in STATISTICS:
                cursor.execute(f"VACUUM ANALYZE {table}")


def spec(name: str, tasks: int = 1, cpu_milli: int = 3000) -> JobSpec:
    """Return a job of one role whose tasks start together."""
    role = RoleSpec(
        name="worker",
        replicas=tasks,
        min_available=tasks,
        cpu_milli=cpu_milli,
        memory_bytes=4 * GIB,
        command=("true",),
    )
    return JobSpec(name=name, roles=(role,), min_available=tasks)


def percentile(values: Sequence[float], percent: float) -> float:
    """Return the smallest value that so many percent of the values do not pass."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]


def emit(name: str, value: float, reference: float, **more: object) -> None:
    """Print one line; `ratio` is the value over the reference, whichever of them is better."""
    line = {
        "benchmark": name,
        "value": round(value, 3),
        "reference": reference,
        "ratio": round(value / reference, 3),
        **more,
    }
    print(json.dumps(line), flush=True)
