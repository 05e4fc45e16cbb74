"""A small cluster with a queue, nodes whose agents are played by the test, and jobs."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import count
from typing import Any
from uuid import UUID

from scheduling.domain import apply_plan, bootstrap, jobs, leases, nodes, reports
from scheduling.domain.launches import scheduler_scope
from scheduling.domain.snapshot import SnapshotCache
from scheduling.engine import cycle
from scheduling.engine.types import Plan
from scheduling.models import Attempt, Cluster, Job, Node, Queue
from scheduling.spec.job_spec import JobSpec, RoleSpec
from tenants.domain.access import Actor, load_actor
from tests.people import NOW, make_user

GIB = 1024**3
_numbers = count(1)


def role(
    name: str = "worker", replicas: int = 1, **fields: Any
) -> RoleSpec:  # Any: a spec's fields
    """Return a role that asks for one CPU."""
    fields.setdefault("min_available", replicas)
    fields.setdefault("cpu_milli", 1000)
    fields.setdefault("command", ("true",))
    return RoleSpec(name=name, replicas=replicas, **fields)


def spec(*roles: RoleSpec, **fields: Any) -> JobSpec:  # Any: a spec's fields
    """Return a job of these roles, one worker by default, all of which start together."""
    chosen = roles or (role(),)
    fields.setdefault("name", f"job-{next(_numbers)}")
    fields.setdefault("min_available", sum(one.min_available for one in chosen))
    return JobSpec(roles=chosen, **fields)


@dataclass(slots=True)
class TestNode:
    """A node and the session that the test holds as its agent."""

    __test__ = False

    id: UUID
    name: str
    session_id: str
    seq: int = 0

    def report(self, now: datetime, *observations: reports.AttemptObserved, **feeds: Any) -> int:
        """Send one frame with the next number."""
        self.seq += 1
        return reports.record(
            node_id=self.id,
            session_id=self.session_id,
            seq=self.seq,
            now=now,
            observations=observations,
            **feeds,
        )


@dataclass(slots=True)
class Site:
    """An installation with one queue, and a scheduler that the test turns by hand."""

    admin: Actor
    cluster: Cluster
    root: Queue
    queue: Queue
    epoch: int
    now: datetime = NOW
    cache: SnapshotCache = field(default_factory=SnapshotCache)
    nodes: dict[UUID, TestNode] = field(default_factory=dict)

    @property
    def scope(self) -> str:
        return scheduler_scope(self.cluster.id)

    def later(self, seconds: float) -> datetime:
        """Let time pass."""
        self.now += timedelta(seconds=seconds)
        return self.now

    def node(self, *, gpus: int = 0, cpu_milli: int = 16_000, **fields: Any) -> TestNode:
        """Join a machine and open its session."""
        number = next(_numbers)
        _, secret = nodes.join_token_create(actor=self.admin, cluster=self.cluster, now=self.now)
        node, _ = nodes.join(token=secret, name=f"node-{number}", now=self.now)
        made = [nodes.DeviceFacts(uuid=f"gpu-{number}-{i}", index=i) for i in range(gpus)]
        fields.setdefault("devices", made)
        session = nodes.open_session(
            node_id=node.id,
            facts=facts(cpu_milli=cpu_milli, **fields),
            gateway="gateway",
            now=self.now,
        )
        self.nodes[node.id] = TestNode(node.id, node.name, session.session_id)
        return self.nodes[node.id]

    def submit(self, *roles: RoleSpec, queue: Queue | None = None, **fields: Any) -> Job:
        """Submit a job as the administrator."""
        return jobs.submit_job(
            actor=self.admin, spec=spec(*roles, **fields), queue=queue or self.queue, now=self.now
        )

    def plan(self) -> Plan:
        """Plan on what the rows say now."""
        return cycle.plan(self.cache.refresh(self.cluster.id, self.now))

    def cycle(self) -> apply_plan.Applied:
        """Run one cycle."""
        plan = self.plan()
        assert self.cache.snapshot is not None
        return apply_plan.apply(
            plan,
            cluster_id=self.cluster.id,
            scope=self.scope,
            epoch=self.epoch,
            snapshot=self.cache.snapshot,
            now=self.now,
        )

    def live(self, job: Job) -> list[Attempt]:
        """Return the live attempts of a job by role and index."""
        rows = Attempt.objects.filter(job=job, finished_at__isnull=True)
        return list(rows.order_by("task__role__position", "task__index"))

    def running(self, *attempts: Attempt) -> None:
        """Let the nodes report that the attempts run."""
        for attempt in attempts:
            seen = reports.AttemptObserved(attempt.id, reports.Reported.RUNNING)
            self.nodes[attempt.node_id].report(self.now, seen)

    def exited(self, *attempts: Attempt, code: int = 0, **fields: Any) -> None:
        """Let the nodes report that the attempts ended."""
        for attempt in attempts:
            seen = reports.AttemptObserved(
                attempt.id, reports.Reported.EXITED, exit_code=code, **fields
            )
            self.nodes[attempt.node_id].report(self.now, seen)

    def started(self, *roles: RoleSpec, **fields: Any) -> Job:
        """Submit a job, place it and let all its tasks run."""
        job = self.submit(*roles, **fields)
        self.cycle()
        self.running(*self.live(job))
        return fresh(job)


def make_site() -> Site:
    """Write an installation and take the scheduler's lease."""
    make_user("operator")  # without a password: hashing one takes longer than a test
    made = bootstrap.ensure_installation(admin_username="operator", admin_password="", now=NOW)
    epoch = leases.acquire(scope=scheduler_scope(made.cluster.id), holder="test", ttl_seconds=600)
    assert epoch is not None
    return Site(load_actor(made.admin), made.cluster, made.root, made.queue, epoch)


def facts(**fields: Any) -> nodes.NodeFacts:
    """Return what a machine of 16 CPUs says of itself."""
    given: dict[str, Any] = {
        "boot_id": "boot-1",
        "agent_version": "1.0",
        "cpu_milli": 16_000,
        "memory_bytes": 64 * GIB,
        "address": "127.0.0.1",
        "runtimes": [{"name": "host", "kind": "interpreter", "version": ""}],
        **fields,
    }
    return nodes.NodeFacts(**given)


def fresh(job: Job) -> Job:
    """Return the job as it is in the database."""
    return Job.objects.select_related("queue").get(id=job.id)


def node_row(node: TestNode) -> Node:
    """Return a node as it is in the database."""
    return Node.objects.get(id=node.id)
