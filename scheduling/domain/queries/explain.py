"""Why a job waits, what would start it, and whether one would fit.

The engine's own answers on the rows as they are now. A snapshot is read for each question; a small
warm cache by cluster keeps what has not changed, so that the next question reads only news.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from datetime import datetime
from uuid import UUID, uuid4

from scheduling.domain import placement_rules
from scheduling.domain.cycles import configuration_of
from scheduling.domain.image_rules import Rule, rules_of, runtime_wanted
from scheduling.domain.jobs import priority_of, request_of
from scheduling.domain.queries.redaction import redact_fit, redact_ladder, redacted
from scheduling.domain.snapshot import SnapshotCache
from scheduling.engine import explain as engine_explain
from scheduling.engine import types as engine
from scheduling.engine.changes import Change, smallest_changes
from scheduling.engine.explain import Fit, Ladder
from scheduling.engine.tables import Memo
from scheduling.lifecycle.states import SCHEDULABLE_PHASES
from scheduling.models import Job, Queue
from scheduling.spec.job_spec import JobSpec, RoleSpec
from tenants.domain import access
from tenants.domain.access import Actor, Verb

MOST = 3
"""Changes that are shown, one of a kind."""

PLACED_BY = {
    "name",
    "labels",
    "affinity",
    "template",
    "annotations",
    "partition_policy",
    "cpu_limit_milli",
    "memory_limit_bytes",
}
"""What `placement_rules` reads of a role."""


class _Warm:
    """The snapshots of this process, each used by one thread at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._caches: dict[UUID, tuple[SnapshotCache, Memo, threading.Lock]] = {}

    def of(self, cluster_id: UUID) -> tuple[SnapshotCache, Memo, threading.Lock]:
        """Return the cache of a cluster and the lock under which it is used."""
        with self._lock:
            if cluster_id not in self._caches:
                self._caches[cluster_id] = (SnapshotCache(), Memo(), threading.Lock())
            return self._caches[cluster_id]

    def forget(self) -> None:
        """Forget everything: another database, as in tests."""
        with self._lock:
            self._caches.clear()


WARM = _Warm()


@dataclass(frozen=True, slots=True)
class Why:
    """Why a job waits, and changes each of which alone would start it, the smallest first."""

    ladder: Ladder | None = None
    """None if the job does not wait."""
    changes: tuple[Change, ...] = ()


def explain_job(actor: Actor, job: Job, *, now: datetime) -> Why:
    """Answer by the cycle that would run now, as far as the reader may know of it.

    Only queues are proposed to which the actor may submit; jobs to wait for are named to those
    who see them, the others only counted.

    Raises:
        NotFound: the actor does not see the job.
    """
    access.require(actor, Verb.JOB_READ, job.unit_id, owner_id=job.owner_id, what="job")
    if job.phase not in SCHEDULABLE_PHASES or not job.tasks_pending:
        return Why()
    cluster_id = job.queue.cluster_id
    own = access.reads(actor, Verb.JOB_CREATE)
    queues: set[str] | None = None  # all of them
    if not own.sees_everything:
        seen = Queue.objects.visible_to(own).filter(cluster_id=cluster_id)
        queues = set(seen.values_list("name", flat=True))
    cache, memo, lock = WARM.of(cluster_id)
    with lock:
        snapshot = cache.refresh(cluster_id, now)
        config, key = configuration_of(cluster_id), str(job.id)
        try:
            ladder = engine_explain.explain(snapshot, config, key, memo=memo)
            found = smallest_changes(snapshot, config, key, memo=memo, queues=queues, most=MOST)
        except KeyError:
            return Why()
    scope = access.reads(actor, Verb.JOB_READ)
    shown = redacted(scope, [one.params for one in found], own_queues=queues or ())
    return Why(
        redact_ladder(scope, ladder, own_queue=job.queue.name),
        tuple(replace(one, params=params) for one, params in zip(found, shown, strict=True)),
    )


def code_of(change: Change) -> str:
    """Return the code under which `wording` has the sentence of a change."""
    constraint = change.params.get("constraint")
    return f"change_{change.kind}_{constraint}" if constraint else f"change_{change.kind}"


def fit(actor: Actor, spec: JobSpec, *, now: datetime) -> Fit | None:
    """Return whether a job would start if it were submitted now; None without such a queue."""
    visible = Queue.objects.visible_to(access.reads(actor, Verb.QUEUE_READ))
    queue = visible.filter(name=spec.queue).select_related("unit").order_by("created_at").first()
    if queue is None:
        return None
    cache, memo, lock = WARM.of(queue.cluster_id)
    job = _asked(spec, queue, actor.user_id, now)
    with lock:
        snapshot = cache.refresh(queue.cluster_id, now)
        found = engine_explain.fits(snapshot, configuration_of(queue.cluster_id), job, memo=memo)
    return redact_fit(access.reads(actor, Verb.JOB_READ), found, own_queue=queue.name)


def _asked_role(
    role: RoleSpec,
    spec: JobSpec,
    queue: Queue,
    units: tuple[UUID, UUID],
    rules: tuple[Rule, ...],
) -> engine.Role:
    """Return a role as the snapshot would show it; `units`: the queue's unit and tenant."""
    unit_id, tenant_id = units
    part = role.model_dump(include=PLACED_BY)
    return engine.Role(
        name=role.name,
        request=request_of(role),
        replicas=role.replicas,
        min_available=role.min_available,
        node_selector=role.node_selector,
        node_affinity=tuple(
            tuple(engine.Requirement(*one) for one in term) for term in role.required_node_terms
        ),
        tolerations=tuple(
            engine.Toleration(one.key, one.operator, one.value, one.effect)
            for one in role.tolerations
        ),
        image=runtime_wanted({"image": role.image, "runtime": role.runtime}, unit_id, rules),
        topology_policy=role.topology_policy,
        labels=placement_rules.labels_of(
            part, job_name=spec.name, queue=queue.name, tenant_id=tenant_id
        ),
        preferred_affinity=placement_rules.node_wishes(part),
        pod_terms=placement_rules.neighbour_terms(part, tenant_id),
        spread=placement_rules.spread_rules(part, tenant_id),
        annotations=role.annotations,
        limits=placement_rules.limits_of(part),
        may_evict=placement_rules.may_evict(part),
        ports=placement_rules.host_ports(part),
        data_sets=placement_rules.data_sets_of(part, spec.annotations),
    )


def _asked(spec: JobSpec, queue: Queue, owner_id: UUID | None, now: datetime) -> engine.Job:
    """Return a job as the snapshot would show it a moment after its submission."""
    rules = rules_of(queue.cluster_id)
    unit_id = queue.unit_id or uuid4()
    tenant_id = queue.unit.tenant_id if queue.unit is not None else unit_id
    roles = tuple(
        _asked_role(role, spec, queue, (unit_id, tenant_id), rules) for role in spec.roles
    )
    parts = [role.model_dump(include=PLACED_BY) for role in spec.roles]
    partitions = placement_rules.split_partitions(roles, parts)
    tasks = tuple(
        engine.Task(
            key=f"asked-{role.name}-{index}",
            role=partitions.role_of(role.name, index),
            index=index,
        )
        for role in spec.roles
        for index in range(role.replicas)
    )
    return engine.Job(
        key="asked",
        name=spec.name,
        queue=queue.name,
        roles=partitions.roles,
        tasks=tasks,
        min_available=spec.min_available,
        priority=priority_of(spec),
        owner=str(owner_id or ""),
        created_at=now.timestamp(),
        sla_waiting_seconds=spec.sla_waiting_seconds,
        time_limit_seconds=spec.time_limit_seconds,
        preemptable=spec.preemptable,
        min_resources=placement_rules.gang_amounts(roles, spec.min_available),
        annotations=spec.annotations,
        topology=placement_rules.topology_rule(
            spec.network_topology.model_dump() if spec.network_topology else None
        ),
        sub_groups=partitions.sub_groups,
    )
