"""Why a job waits, what would start it, and whether one would fit.

`told` repeats what the last cycle said, at no cost; the others are the engine's own answers on the
rows as they are now. A snapshot is read for each question; a warm cache by cluster keeps what has
not changed, so that the next question reads only news, and answers are given again for a while.
A job that makes planning fail is left out, as the scheduler's loop leaves it out.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TypeVar
from uuid import UUID, uuid4

from scheduling.domain import placement_rules, quarantine
from scheduling.domain.cycles import configuration_of
from scheduling.domain.image_rules import Rule, rules_of, runtime_wanted
from scheduling.domain.jobs import priority_of, request_of
from scheduling.domain.queries.idle_room import with_idle_room
from scheduling.domain.queries.redaction import redact_fit, redact_ladder
from scheduling.domain.snapshot import SnapshotCache
from scheduling.engine import changes
from scheduling.engine import explain as engine_explain
from scheduling.engine import types as engine
from scheduling.engine.changes import Change
from scheduling.engine.explain import Fit, Ladder
from scheduling.engine.reasons import ReasonCode
from scheduling.engine.tables import Memo
from scheduling.engine.types import Config
from scheduling.lifecycle.states import SCHEDULABLE_PHASES
from scheduling.models import Job, Queue
from scheduling.spec.job_spec import JobSpec, RoleSpec
from tenants.domain import access
from tenants.domain.access import Actor, Verb

MOST_CHANGES = 3
"""Changes that are shown, one of a kind."""

KEPT_SECONDS = 10.0
"""An answer is given again for so long, if nothing but the clock has changed."""

CODES = frozenset(str(code) for code in ReasonCode)
"""What a cycle says of a job that waits; other codes in its row are not a cycle's."""

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


@dataclass(slots=True)
class Warm:
    """What this process keeps of a cluster; used by one thread at a time, under `lock`."""

    cache: SnapshotCache = field(default_factory=SnapshotCache)
    memo: Memo = field(default_factory=Memo)
    lock: threading.Lock = field(default_factory=threading.Lock)
    poison: engine.Job | None = None
    """The job that made planning fail lately; left out as long as its rows have not changed."""
    answers: dict[Asked, Found] = field(default_factory=dict)
    """What was found in `answered`, as far as it was asked."""
    answered: tuple[engine.Snapshot, Config] | None = None

    def read(self, cluster_id: UUID, now: datetime) -> engine.Snapshot:
        """Return the snapshot of now without the job that is known to make planning fail."""
        snapshot = self.cache.refresh(cluster_id, now)
        if self.poison is None:
            return snapshot
        rest = tuple(job for job in snapshot.jobs if job is not self.poison)
        if len(rest) == len(snapshot.jobs):
            self.poison = None  # changed, or gone
        return replace(snapshot, jobs=rest)

    def ask(
        self, snapshot: engine.Snapshot, config: Config, question: Callable[[engine.Snapshot], T]
    ) -> T:
        """Ask something of a snapshot; where a job makes planning fail, of the rest without it.

        Raises:
            Exception: what planning raises where no single job is to blame.
        """
        try:
            return question(snapshot)
        except Exception:  # noqa: BLE001 -- whatever a job makes planning raise; else raised again
            self.memo = Memo()
            sound = quarantine.plan(snapshot, config)
            self.poison = sound.poison
            return question(sound.snapshot)

    def why(self, snapshot: engine.Snapshot, config: Config, asked: Asked) -> Found | None:
        """Return why a job waits and what would start it, kept until something changes.

        None if the snapshot has no such job.
        """
        key, queues = asked
        if all(job.key != key for job in snapshot.jobs):
            return None
        last = self.answered
        if last is None or not _is_same(last, (snapshot, config)):
            self.answered, self.answers = (snapshot, config), {}
        if asked not in self.answers:
            self.answers[asked] = changes.why(
                snapshot, config, key, memo=self.memo, queues=queues, most=MOST_CHANGES
            )
        return self.answers[asked]


T = TypeVar("T")
Asked = tuple[str, frozenset[str] | None]
"""A job and the queues that may be proposed; None: all."""
Found = tuple[Ladder, tuple[Change, ...]]


def _is_same(one: tuple[engine.Snapshot, Config], other: tuple[engine.Snapshot, Config]) -> bool:
    """Whether two snapshots differ by a few seconds only."""
    (before, old), (after, new) = one, other
    is_recent = 0 <= after.now - before.now < KEPT_SECONDS
    return (
        is_recent
        and old == new
        and before == replace(after, now=before.now, version=before.version)
    )


class _Warmed:
    """What this process keeps, by cluster."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: dict[UUID, Warm] = {}

    def of(self, cluster_id: UUID) -> Warm:
        """Return what is kept of a cluster."""
        with self._lock:
            return self._kept.setdefault(cluster_id, Warm())

    def forget(self) -> None:
        """Forget everything: another database, as in tests."""
        with self._lock:
            self._kept.clear()


WARM = _Warmed()


@dataclass(frozen=True, slots=True)
class Why:
    """Why a job waits, and changes each of which alone would start it, the smallest first."""

    ladder: Ladder | None = None
    """None if the job does not wait."""
    changes: tuple[Change, ...] = ()


def told(job: Job) -> Why:
    """Return what is in the row of a job at hand, whose reason the reader may see: no question.

    Which rung fails, without facts; no rungs where it is no cycle's reason, or there is none yet.
    """
    if not _waits(job):
        return Why()
    reason = engine.Reason(job.reason_code, job.reason_params) if job.reason_code else None
    if job.reason_code in CODES:
        return Why(engine_explain.told(str(job.id), reason))
    return Why(Ladder(str(job.id), (), reason))


def explain_job(actor: Actor, job: Job, *, now: datetime) -> Why:
    """Answer by the cycle that would run now, as far as the reader may know of it.

    Only queues are proposed to which the actor may submit; jobs to wait for are named to those
    who see them, the others only counted.

    Raises:
        NotFound: the actor does not see the job.
    """
    access.require(actor, Verb.JOB_READ, job.unit_id, owner_id=job.owner_id, what="job")
    if not _waits(job):
        return Why()
    cluster_id = job.queue.cluster_id
    own = access.reads(actor, Verb.JOB_CREATE)
    queues: frozenset[str] | None = None  # all of them
    if not own.sees_everything:
        seen = Queue.objects.visible_to(own).filter(cluster_id=cluster_id)
        queues = frozenset(seen.values_list("name", flat=True))
    warm = WARM.of(cluster_id)
    asked = (str(job.id), queues)
    with warm.lock:
        snapshot, config = warm.read(cluster_id, now), configuration_of(cluster_id)
        answer = warm.ask(snapshot, config, lambda sound: warm.why(sound, config, asked))
    if answer is None:
        return told(job)  # set aside, or gone meanwhile
    ladder, found = answer
    asked_job = next(one for one in snapshot.jobs if one.key == asked[0])
    ladder = with_idle_room(ladder, snapshot, asked_job)
    scope = access.reads(actor, Verb.JOB_READ)
    ladder, shown = redact_ladder(
        scope,
        ladder,
        own_queues={job.queue.name, *(queues or ())},
        beside=[one.params for one in found],
    )
    return Why(
        ladder,
        tuple(replace(one, params=params) for one, params in zip(found, shown, strict=True)),
    )


def _waits(job: Job) -> bool:
    return job.phase in SCHEDULABLE_PHASES and bool(job.tasks_pending)


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
    warm = WARM.of(queue.cluster_id)
    job = _asked(spec, queue, actor.user_id, now)
    with warm.lock:
        snapshot = warm.read(queue.cluster_id, now)
        config = configuration_of(queue.cluster_id)
        found = warm.ask(
            snapshot,
            config,
            lambda sound: engine_explain.fits(sound, config, job, memo=warm.memo),
        )
    found = replace(found, ladder=with_idle_room(found.ladder, snapshot, job))
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
