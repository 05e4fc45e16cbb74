"""How long a cycle takes from rows to rows, on the real database: `python -m benchmarks.cycle`.

Prints one JSON object a line: 20 gangs of 500 tasks on 1,000 nodes from pending to all bound in the
database, the idle cycle after that, and single submissions from the call to the bound row. Uses an
empty database named by DATABASE_URL, which it migrates and fills.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from datetime import datetime
from typing import Any

from benchmarks import _empty
from scheduling.domain import apply_plan, jobs, leases, plan_words
from scheduling.domain.bulk_rows import copy_rows
from scheduling.domain.clock import database_now
from scheduling.domain.launches import scheduler_scope
from scheduling.domain.snapshot import SnapshotCache
from scheduling.engine import cycle
from scheduling.models import Cluster, Job, Node
from scheduling.models.node import NodeState
from scheduling.spec.job_spec import JobSpec, RoleSpec
from tenants.domain.access import Actor, load_actor

GIB = 1024**3


class Bench:
    """An installation with simulated nodes, and a scheduler turned by hand."""

    def __init__(self, nodes: int) -> None:
        """Fill an empty database."""
        made = _empty.installation()
        self.actor: Actor = load_actor(made.admin)
        self.cluster: Cluster = made.cluster
        self.scope = scheduler_scope(self.cluster.id)
        self.cache = SnapshotCache()
        self.memo = cycle.Memo()
        self.told = plan_words.Told(self.cache.versions)
        epoch = leases.acquire(scope=self.scope, holder="benchmark", ttl_seconds=3600)
        if epoch is None:
            raise SystemExit("a scheduler runs on this database; stop it first.")
        self.epoch = epoch
        now = database_now()
        copy_rows([self._node(number, now) for number in range(nodes)])

    def _node(self, number: int, now: datetime) -> Node:
        amounts = {"cpu": 64_000, "memory": 256 * GIB, "pods": 110_000}
        return Node(
            cluster=self.cluster,
            name=f"node-{number:05}",
            state=NodeState.READY,
            is_simulated=True,
            capacity=amounts,
            allocatable=amounts,
            last_seen_at=now,
            created_at=now,
        )

    def submit(self, name: str, tasks: int) -> Job:
        """Submit a gang."""
        role = RoleSpec(
            name="worker",
            replicas=tasks,
            min_available=tasks,
            cpu_milli=4000,
            memory_bytes=8 * GIB,
            command=("true",),
        )
        spec = JobSpec(name=name, roles=(role,), min_available=tasks)
        return jobs.submit_job(actor=self.actor, spec=spec, now=database_now())

    def cycle(self) -> dict[str, float]:
        """Run one cycle; return how long its parts took, in seconds."""
        begun, cpu = time.perf_counter(), time.process_time()
        now = database_now()
        snapshot = self.cache.refresh(self.cluster.id, now)
        read = time.perf_counter()
        plan = cycle.plan(snapshot, memo=self.memo)
        planned = time.perf_counter()
        applied = apply_plan.apply(
            plan,
            cluster_id=self.cluster.id,
            scope=self.scope,
            epoch=self.epoch,
            snapshot=snapshot,
            now=now,
            told=self.told,
        )
        done = time.perf_counter()
        return {
            "snapshot": read - begun,
            "plan": planned - read,
            "apply": done - planned,
            "total": done - begun,
            "own_cpu": time.process_time() - cpu,
            "binds": float(applied.binds),
            "rejected": float(len(applied.rejected)),
        }


def emit(name: str, value: float, reference: float, **more: Any) -> None:  # Any: figures beside it
    """Print one line of figures."""
    line = {
        "benchmark": name,
        "value": round(value, 4),
        "reference": reference,
        "ratio": round(value / reference, 3),
        **{
            key: {k: round(v, 4) for k, v in one.items()} if isinstance(one, dict) else one
            for key, one in more.items()
        },
    }
    print(json.dumps(line), flush=True)


def main() -> None:
    """Run all measurements."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--gangs", type=int, default=20)
    parser.add_argument("--tasks", type=int, default=500)
    parser.add_argument("--singles", type=int, default=50)
    given = parser.parse_args()
    bench = Bench(given.nodes)
    bench.cycle()
    begun = time.perf_counter()
    for number in range(given.gangs):
        bench.submit(f"gang-{number}", given.tasks)
    submitted = time.perf_counter() - begun
    parts = bench.cycle()
    emit(
        "gangs_pending_to_bound_seconds", parts["total"], 3.0, parts=parts, submit_seconds=submitted
    )
    bench.cycle()
    idle = [bench.cycle()["total"] * 1000 for _ in range(20)]
    emit("idle_cycle_p99_ms", max(idle), 50.0, median=statistics.median(idle))
    waits = []
    for number in range(given.singles):
        begun = time.perf_counter()
        bench.submit(f"single-{number}", 1)
        bench.cycle()
        waits.append((time.perf_counter() - begun) * 1000)
    emit(
        "submit_to_bound_p99_ms",
        sorted(waits)[int(len(waits) * 0.99) - 1],
        500.0,
        median=statistics.median(waits),
    )
    leases.release(scope=bench.scope, holder="benchmark", epoch=bench.epoch)


if __name__ == "__main__":
    main()
