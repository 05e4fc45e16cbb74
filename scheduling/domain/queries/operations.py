"""What an operator looks at first: what needs attention, then allocation, waits and evictions.

All of it is cut to what the reader may see: jobs and queues of the reader's units; nodes and loops
are everybody's, letters that could not be delivered those of who reads the installation's settings.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any
from uuid import UUID

from django.db import connection
from django.db.models import (
    BigIntegerField,
    Exists,
    F,
    FloatField,
    Min,
    OuterRef,
    Q,
    Subquery,
    Sum,
    Value,
)
from django.db.models.fields.json import KeyTextTransform
from django.db.models.functions import Cast, Coalesce

from scheduling.domain.queries import change_sets as change_reading
from scheduling.models import (
    Attempt,
    Cluster,
    Device,
    History,
    Job,
    JobCount,
    Node,
    Queue,
    QueueClosure,
    QueueShare,
)
from scheduling.models.attempt import LIVE_STATES, AttemptState
from scheduling.models.change_set import ChangeSetState
from scheduling.models.job import JobPhase
from scheduling.models.node import NodeState
from scheduling.models.queue import QueueState
from tenants.domain import access
from tenants.domain.access import Actor, Verb

GPU = "nvidia.com/gpu"
SHOWN = 20
"""So many of each kind are named; of the rest there is the number."""
STARTS_WITHIN = timedelta(minutes=10)
STOPS_WITHIN = timedelta(minutes=10)
SETTLES_WITHIN = timedelta(minutes=5)
LOOKED_AT_WITHIN = timedelta(minutes=5)
STARVES_AFTER = timedelta(minutes=10)
IDLE_AFTER = timedelta(minutes=15)
IDLE_BELOW_PERCENT = 5.0
AT_RISK_PART = 0.2
"""A job is at risk when less than this part of its waiting time is left."""
OLDEST = 5000
"""So many of the oldest waiting jobs are searched for deadlines."""
LATELY = timedelta(hours=1)
TRANSIENT = (
    JobPhase.ABORTING,
    JobPhase.TERMINATING,
    JobPhase.COMPLETING,
    JobPhase.RESTARTING,
)


class Kind(StrEnum):
    """What can want attention, the worst first."""

    LOOP_ABSENT = "loop_absent"
    LETTERS_DEAD = "letters_dead"
    NODE_SILENT = "node_silent"
    DEVICE_SICK = "device_sick"
    JOB_STUCK = "job_stuck"
    JOB_NOT_STARTING = "job_not_starting"
    JOB_NOT_STOPPING = "job_not_stopping"
    JOB_SET_ASIDE = "job_set_aside"
    JOB_UNSEEN = "job_unseen"
    DEADLINE = "deadline"
    QUEUE_STARVED = "queue_starved"
    GPU_IDLE = "gpu_idle"
    CHANGE_REFUSED = "change_refused"
    CHANGE_TO_REVIEW = "change_to_review"


@dataclass(frozen=True, slots=True)
class Attention:
    """One thing that wants somebody: what it is called, its id for a link, since when."""

    kind: Kind
    name: str
    id: str = ""
    since: datetime | None = None
    amount: int = 0
    """GPUs in thousandths, tasks, or letters, as the kind has it."""
    unit_id: UUID | None = None
    """Whose it is; None: the installation's."""
    owner_id: UUID | None = None
    """Whose job it is, where it is one."""


@dataclass(frozen=True, slots=True)
class Figures:
    """The numbers below the list; None: nothing was measured, never zero."""

    waiting: int
    running: int
    wait_p50_seconds: float | None
    wait_p95_seconds: float | None
    starts: int
    evictions: int
    held_gpu_milli: int | None
    capacity_gpu_milli: int | None
    sampled_at: datetime | None
    allocated: Mapping[str, int]
    capacity: Mapping[str, int]
    """All resources; empty before the first sample."""


# --- what wants attention -------------------------------------------------------------------------


def attention(actor: Actor, *, now: datetime) -> list[Attention]:
    """Return what wants somebody, the worst kind first, in each the longest waiting first.

    Ten queries at most, each bounded; at most `SHOWN` of a kind.
    """
    found: list[Attention] = []
    found += _loops_and_letters(actor, now)
    found += _nodes(actor)
    found += _slow_attempts(actor, now)
    found += _stuck_jobs(actor, now)
    found += deadlines(actor, now)
    found += _starved(actor, now)
    found += _idle(actor, now)
    found += _changes(actor)
    order = {kind: place for place, kind in enumerate(Kind)}
    latest = datetime.max.replace(tzinfo=now.tzinfo)
    return sorted(found, key=lambda one: (order[one.kind], one.since or latest, one.name))


_LOOPS_AND_LETTERS = """
    SELECT 'cluster', id::text, name, NULL::timestamptz, 0 FROM scheduling_cluster
    UNION ALL SELECT 'lease', scope, '', expires_at, 0 FROM scheduling_lease
    UNION ALL SELECT 'dead', '', '', min(created_at), count(*) FROM tenants_outboxrow WHERE is_dead
"""


def _loops_and_letters(actor: Actor, now: datetime) -> Iterable[Attention]:
    """Name the loops that nobody runs, a scheduler by its cluster, and letters given up: one query.

    Letters are told to those who read the installation's settings; a token may lack the verb of
    clusters.
    """
    if not actor.has_verb(Verb.CLUSTER_READ):
        return
    wanted = {"relay": "relay", "reconcile": "reconcile"}
    ends: dict[str, datetime] = {}
    with connection.cursor() as cursor:
        cursor.execute(_LOOPS_AND_LETTERS)
        for what, key, name, at, amount in cursor.fetchall():
            if what == "cluster":
                wanted[f"scheduler:{key}"] = f"scheduler {name}"
            elif what == "lease":
                ends[key] = at
            elif amount and access.may(actor, Verb.SETTINGS_READ, None):
                yield Attention(Kind.LETTERS_DEAD, "outbox", "", at, amount)
    for scope, name in wanted.items():
        if scope not in ends or ends[scope] < now:
            yield Attention(Kind.LOOP_ABSENT, name, scope, ends.get(scope))


def _nodes(actor: Actor) -> Iterable[Attention]:
    """Name silent nodes and those with sick GPUs: one query; a token may lack the verb."""
    if not actor.has_verb(Verb.NODE_READ):
        return
    sick = Device.objects.filter(node=OuterRef("pk")).filter(
        Q(is_healthy=False) | Q(is_present=False)
    )
    rows = (
        Node.objects.exclude(state=NodeState.REMOVED)
        .annotate(is_sick=Exists(sick))
        .filter(Q(state=NodeState.NOT_READY) | Q(is_sick=True))
        .order_by("last_seen_at")
    )
    for node in rows[: 2 * SHOWN]:
        if node.state == NodeState.NOT_READY:
            yield Attention(Kind.NODE_SILENT, node.name, node.name, node.last_seen_at)
        else:
            yield Attention(Kind.DEVICE_SICK, node.name, node.name)


def _slow_attempts(actor: Actor, now: datetime) -> Iterable[Attention]:
    """Name jobs with attempts that stay too long in a state that passes."""
    starting = Q(
        state__in=[AttemptState.BOUND, AttemptState.STARTING], bound_at__lt=now - STARTS_WITHIN
    )
    stopping = Q(state=AttemptState.STOPPING, stopping_at__lt=now - STOPS_WITHIN)
    rows = (
        Attempt.objects.filter(starting | stopping, job__in=_jobs(actor).values("id"))
        .values("job_id", "job__name", "job__unit_id", "job__owner_id", "state")
        .annotate(since=Min(Coalesce("stopping_at", "bound_at")))
        .order_by("since")[: 2 * SHOWN]
    )
    for row in rows:
        is_stopping = row["state"] == AttemptState.STOPPING
        kind = Kind.JOB_NOT_STOPPING if is_stopping else Kind.JOB_NOT_STARTING
        yield Attention(
            kind,
            row["job__name"],
            str(row["job_id"]),
            row["since"],
            unit_id=row["job__unit_id"],
            owner_id=row["job__owner_id"],
        )


def _stuck_jobs(actor: Actor, now: datetime) -> Iterable[Attention]:
    """Name jobs whose phase should have passed, that are set aside, or that no cycle looked at."""
    live = Attempt.objects.filter(job=OuterRef("pk"), state__in=LIVE_STATES)
    last = History.objects.filter(job=OuterRef("pk")).order_by("-seq").values("at")[:1]
    passing = Q(phase__in=TRANSIENT)
    aside = Q(phase=JobPhase.PENDING, reason_code="quarantined")
    unseen = Q(
        phase=JobPhase.PENDING,
        reason_code="",
        desired_state="run",
        tasks_starting=0,
        created_at__lt=now - LOOKED_AT_WITHIN,
    )
    rows = (
        _jobs(actor)
        .filter(passing | aside | unseen)
        .annotate(last_at=Subquery(last), is_live=Exists(live))
        .filter(aside | unseen | (passing & Q(is_live=False, last_at__lt=now - SETTLES_WITHIN)))
        .order_by("created_at")
        .values(*_JOB, "phase", "reason_code", "created_at", "last_at")[: 2 * SHOWN]
    )
    for row in rows:
        kind = Kind.JOB_UNSEEN
        if row["phase"] != JobPhase.PENDING:
            kind = Kind.JOB_STUCK
        elif row["reason_code"]:
            kind = Kind.JOB_SET_ASIDE
        yield _of_job(kind, row, row["last_at"] or row["created_at"])


def deadlines(actor: Actor, now: datetime) -> list[Attention]:
    """Name waiting jobs whose promised waiting time is over or nearly so; `since` is the time."""
    oldest = _jobs(actor).filter(phase=JobPhase.PENDING).order_by("created_at")[:OLDEST]
    rows = (
        Job.objects.filter(id__in=oldest.values("id"))
        .annotate(sla=Cast(KeyTextTransform("sla_waiting_seconds", "spec"), FloatField()))
        .filter(sla__isnull=False)
        .values(*_JOB, "created_at", "sla")
    )
    found = []
    for row in rows:
        due = row["created_at"] + timedelta(seconds=row["sla"])
        if due - now < timedelta(seconds=row["sla"] * AT_RISK_PART):
            found.append(_of_job(Kind.DEADLINE, row, due))
    found.sort(key=lambda one: one.since or now)
    return found[:SHOWN]


def _starved(actor: Actor, now: datetime) -> Iterable[Attention]:
    """Name leaves that hold less than they deserve while a job of theirs waits for long."""
    oldest = (
        Job.objects.filter(queue=OuterRef("queue"), phase=JobPhase.PENDING)
        .order_by("created_at")
        .values("created_at")[:1]
    )
    seen = Queue.objects.visible_to(access.reads(actor, Verb.QUEUE_READ))
    rows = (
        QueueShare.objects.filter(
            queue__in=seen.filter(state=QueueState.OPEN, children__isnull=True).values("id")
        )
        .annotate(
            held=_amount("allocated"), deserves=_amount("deserved"), wants=_amount("requested")
        )
        .filter(held__lt=F("deserves"), wants__gt=F("held"))
        .annotate(oldest=Subquery(oldest), missing=F("deserves") - F("held"))
        .filter(oldest__lt=now - STARVES_AFTER)
        .order_by("-missing")
        .values("queue__name", "queue__unit_id", "oldest", "missing")[:SHOWN]
    )
    for row in rows:
        name = row["queue__name"]
        yield Attention(
            Kind.QUEUE_STARVED,
            name,
            name,
            row["oldest"],
            row["missing"],
            unit_id=row["queue__unit_id"],
        )


def _amount(field: str) -> Any:
    text = KeyTextTransform(GPU, field)
    return Coalesce(Cast(text, BigIntegerField()), Value(0, output_field=BigIntegerField()))


_IDLE = """
    SELECT j.id, j.name, j.unit_id, j.owner_id, min(a.started_at), sum(h.gpu_milli)
    FROM scheduling_attempt a
    JOIN scheduling_hold h ON h.attempt_id = a.id AND h.gpu_milli > 0 AND h.released_at IS NULL
    JOIN scheduling_job j ON j.id = a.job_id
    CROSS JOIN LATERAL (
        SELECT u.gpu_percent FROM scheduling_usage u
        WHERE u.attempt_id = a.id AND u.at > %(since)s AND u.gpu_percent IS NOT NULL
        ORDER BY u.at DESC LIMIT 1
    ) newest
    WHERE a.state = 'Running' AND a.started_at < %(since)s AND newest.gpu_percent < %(below)s
      AND (%(all)s OR j.unit_id IN (
          SELECT descendant_id FROM tenants_orgclosure WHERE ancestor_id = ANY(%(units)s)))
      AND NOT EXISTS (
          SELECT 1 FROM scheduling_usage u
          WHERE u.attempt_id = a.id AND u.at > %(since)s AND u.gpu_percent >= %(below)s)
    GROUP BY j.id, j.name, j.unit_id, j.owner_id ORDER BY sum(h.gpu_milli) DESC LIMIT %(limit)s
"""


def _idle(actor: Actor, now: datetime) -> Iterable[Attention]:
    """Name jobs that hold GPUs and did not use them for a while; what was not measured is not idle.

    The newest sample is looked at first, so that the window is read for candidates only.
    """
    scope = access.reads(actor, Verb.JOB_READ)
    values: dict[str, Any] = {
        "since": now - IDLE_AFTER,
        "below": IDLE_BELOW_PERCENT,
        "all": scope.sees_everything,
        "units": list(scope.readable_units),
        "limit": SHOWN,
    }
    with connection.cursor() as cursor:
        cursor.execute(_IDLE, values)
        rows = cursor.fetchall()
    for job_id, name, unit_id, owner_id, started_at, gpus in rows:
        yield Attention(Kind.GPU_IDLE, name, str(job_id), started_at, int(gpus), unit_id, owner_id)


def _changes(actor: Actor) -> Iterable[Attention]:
    """Name change sets that were refused, and those of others that wait for a review."""
    wanted = (ChangeSetState.FAILED, ChangeSetState.IN_REVIEW)
    rows = change_reading.visible(actor).filter(state__in=wanted).order_by("created_at")
    for row in rows[:SHOWN]:
        if row.state == ChangeSetState.FAILED:
            yield Attention(Kind.CHANGE_REFUSED, row.title, str(row.id), row.apply_at)
        elif row.author_id != actor.user_id:
            yield Attention(Kind.CHANGE_TO_REVIEW, row.title, str(row.id), row.created_at)


def _of_job(kind: Kind, row: Mapping[str, Any], since: datetime) -> Attention:
    return Attention(
        kind,
        row["name"],
        str(row["id"]),
        since,
        unit_id=row["unit_id"],
        owner_id=row["owner_id"],
    )


def _jobs(actor: Actor) -> Any:
    return Job.objects.visible_to(access.reads(actor, Verb.JOB_READ))


# --- figures --------------------------------------------------------------------------------------

_WAITS = """
    SELECT count(*), percentile_cont(0.5) WITHIN GROUP (ORDER BY waited),
           percentile_cont(0.95) WITHIN GROUP (ORDER BY waited)
    FROM (
        SELECT extract(epoch FROM started_at - created_at) AS waited FROM scheduling_job
        WHERE started_at > %(since)s AND (%(all)s OR unit_id IN (
            SELECT descendant_id FROM tenants_orgclosure WHERE ancestor_id = ANY(%(units)s)))
    ) AS lately
"""


def figures(actor: Actor, cluster: Cluster, *, now: datetime) -> Figures:
    """Return the tiles' numbers: five queries."""
    scope = access.reads(actor, Verb.JOB_READ)
    with connection.cursor() as cursor:
        cursor.execute(
            _WAITS,
            {
                "since": now - LATELY,
                "all": scope.sees_everything,
                "units": list(scope.readable_units),
            },
        )
        starts, p50, p95 = cursor.fetchone()
    phases = _phases(actor)
    sample = cluster.samples.order_by("-at").first()
    root = QueueShare.objects.filter(queue__cluster=cluster, queue__parent=None).first()
    newest = root or sample
    return Figures(
        waiting=phases.get(JobPhase.PENDING, 0),
        running=phases.get(JobPhase.RUNNING, 0),
        wait_p50_seconds=None if p50 is None else float(p50),
        wait_p95_seconds=None if p95 is None else float(p95),
        starts=int(starts),
        evictions=evicted(actor, now=now).count(),
        held_gpu_milli=newest.allocated.get(GPU, 0) if newest else None,
        capacity_gpu_milli=sample.capacity.get(GPU, 0) if sample else None,
        sampled_at=sample.at if sample else None,
        allocated=newest.allocated if newest else {},
        capacity=sample.capacity if sample else {},
    )


def _phases(actor: Actor) -> dict[str, int]:
    scope = access.reads(actor, Verb.JOB_READ)
    rows = JobCount.objects.visible_to(scope).values_list("phase").annotate(n=Sum("amount"))
    return dict(rows.order_by("phase"))


def evicted(actor: Actor, *, now: datetime) -> Any:
    """Return the attempts that lost their place in the last hour, the newest first."""
    rows = Attempt.objects.filter(state=AttemptState.EVICTED, finished_at__gt=now - LATELY)
    if not access.reads(actor, Verb.JOB_READ).sees_everything:
        rows = rows.filter(job__in=_jobs(actor).values("id"))
    return rows.select_related("job", "job__queue", "node", "task__role").order_by("-finished_at")


def started(actor: Actor, *, now: datetime, limit: int = 200) -> list[Job]:
    """Return the jobs that started in the last hour, those that waited longest first."""
    rows = _jobs(actor).filter(started_at__gt=now - LATELY).select_related("queue", "owner")
    waited = F("started_at") - F("created_at")
    return list(rows.annotate(waited=waited).order_by("-waited", "id")[:limit])


# --- allocation over time -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Line:
    """Amounts of a queue or cluster at the grid's times; None where nothing was sampled."""

    name: str
    values: tuple[int | None, ...]
    deserved: tuple[int | None, ...] = ()


@dataclass(frozen=True, slots=True)
class Allocation:
    """What queues held over time, and what the cluster could give."""

    times: tuple[datetime, ...]
    queues: tuple[Line, ...]
    capacity: Line
    resource: str


_JOB = ("id", "name", "unit_id", "owner_id")
GRID = 120
_EPOCH = datetime.fromtimestamp(0, UTC)
GAP = timedelta(minutes=3)
"""Longer without a sample of the cluster, and the line has a gap."""
DEEPEST_LOOK = 500
_LINES = """
    SELECT DISTINCT ON (queue_id, slot) queue_id, slot, allocated, deserved FROM (
        SELECT s.queue_id, s.at,
               greatest(ceil(extract(epoch FROM s.at - %(start)s) / %(step)s), 0) AS slot,
               (s.allocated ->> %(resource)s)::bigint AS allocated,
               (s.deserved ->> %(resource)s)::bigint AS deserved
        FROM unnest(%(ids)s::uuid[]) AS wanted (id)
        CROSS JOIN LATERAL (
            SELECT max(at) AS at FROM scheduling_queuesample
            WHERE queue_id = wanted.id AND at <= %(start)s
        ) AS before
        JOIN scheduling_queuesample s ON s.queue_id = wanted.id
            AND s.at >= coalesce(before.at, %(start)s) AND s.at <= %(now)s
        UNION ALL SELECT queue_id, %(now)s, %(last)s,
               (allocated ->> %(resource)s)::bigint, (deserved ->> %(resource)s)::bigint
        FROM scheduling_queueshare WHERE queue_id = ANY(%(ids)s::uuid[])
    ) AS placed ORDER BY queue_id, slot, at DESC
"""
_CAPACITY = """
    SELECT DISTINCT ON (slot) slot, amount FROM (
        SELECT at, greatest(ceil(extract(epoch FROM at - %(start)s) / %(step)s), 0) AS slot,
               (capacity ->> %(resource)s)::bigint AS amount
        FROM scheduling_clustersample
        WHERE cluster_id = %(cluster)s AND at <= %(now)s AND at > %(start)s - interval '2 minutes'
    ) AS placed ORDER BY slot, at DESC
"""


def allocation(
    cluster: Cluster,
    queues: Sequence[tuple[UUID, str]],
    *,
    now: datetime,
    span: timedelta,
    resource: str = GPU,
) -> Allocation:
    """Return what some queues held, on a grid of `GRID` steps that ends now: two queries.

    The steps stand at fixed times and only the last is now, so that a picture drawn again later
    shows the same past; it is what the last cycle left, since a sample may be half a minute old.
    A queue's value holds until its next sample; the cluster's are sampled
    all the time, so that a gap there is a gap.
    """
    step = span / GRID
    end = _EPOCH + step * math.ceil((now - _EPOCH) / step)
    start = end - span
    values: dict[str, Any] = {
        "start": start,
        "step": step.total_seconds(),
        "now": now,
        "last": GRID,
        "resource": resource,
        "cluster": cluster.id,
        "ids": [queue_id for queue_id, _name in queues],
    }
    held: dict[UUID, dict[int, tuple[int | None, int | None]]] = {}
    with connection.cursor() as cursor:
        cursor.execute(_LINES, values)
        for queue_id, slot, allocated, deserved in cursor.fetchall():
            held.setdefault(queue_id, {})[int(slot)] = (allocated or 0, deserved)
        cursor.execute(_CAPACITY, values)
        capacity = {int(slot): amount for slot, amount in cursor.fetchall()}
    times = (*(start + step * place for place in range(GRID)), now)
    return Allocation(
        times,
        tuple(Line(name, *_carried(held.get(queue_id, {}))) for queue_id, name in queues),
        Line(cluster.name, _held_for(capacity, math.ceil(GAP / step))),
        resource,
    )


def _held_for(known: dict[int, int | None], most: int) -> tuple[int | None, ...]:
    """Let a value hold for a few steps, as long as the next sample may take to come."""
    values: list[int | None] = []
    age = most
    for place in range(GRID + 1):
        age = 0 if place in known else age + 1
        values.append(known[place - age] if age < most and place - age in known else None)
    return tuple(values)


def _carried(
    known: dict[int, tuple[int | None, int | None]],
) -> tuple[tuple[int | None, ...], tuple[int | None, ...]]:
    """Let each value hold until the next."""
    current: tuple[int | None, int | None] = (None, None)
    held, deserved = [], []
    for place in range(GRID + 1):
        current = known.get(place, current)
        held.append(current[0])
        deserved.append(current[1])
    return tuple(held), tuple(deserved)


def stacked_queues(actor: Actor, cluster: Cluster, *, most: int = 12) -> list[tuple[UUID, str]]:
    """Return the queues that one picture shows: the topmost visible, or those below a single one.

    One query; by name.
    """
    rows = Queue.objects.visible_to(access.reads(actor, Verb.QUEUE_READ)).filter(cluster=cluster)
    # From the top down: a tree of ten thousand queues is not read for a dozen of them.
    depth = QueueClosure.objects.filter(descendant=OuterRef("pk")).order_by("-depth")
    found = list(
        rows.annotate(level=Subquery(depth.values("depth")[:1]))
        .order_by("level", "name")
        .values_list("id", "name", "parent_id")[:DEEPEST_LOOK]
    )
    return _level(found, most)


def shares_now(
    queues: Sequence[tuple[UUID, str]],
) -> list[tuple[str, Mapping[str, int], Mapping[str, int]]]:
    """Return what queues hold and deserve since the last cycle, in their order: one query."""
    ids = [queue_id for queue_id, _name in queues]
    rows = QueueShare.objects.filter(queue__in=ids)
    shares = {
        queue_id: (allocated, deserved)
        for queue_id, allocated, deserved in rows.values_list("queue_id", "allocated", "deserved")
    }
    return [(name, *shares.get(queue_id, ({}, {}))) for queue_id, name in queues]


def _level(found: Collection[tuple[UUID, str, UUID | None]], most: int) -> list[tuple[UUID, str]]:
    ids = {queue_id for queue_id, _name, _parent in found}
    level = [one for one in found if one[2] not in ids]
    while len(level) == 1:
        below = [one for one in found if one[2] == level[0][0]]
        if not below:
            break
        level = below
    return [(queue_id, name) for queue_id, name, _parent in level[:most]]
