"""What nodes say happened: one frame of reports becomes rows in one transaction.

1. Lock the node's row and compare the session: reports of an older session are refused.
2. A sequence number that was committed before changes nothing; the answer is the highest one.
3. Attempts: one transition each, grouped by job. A node speaks only of its own attempts.
4. Logs, metrics and usage: inserted, what is there already is left.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from uuid import UUID

from django.db import connection, transaction

from scheduling.domain import topics
from scheduling.domain.bare_rows import attempts_with_tasks
from scheduling.domain.errors import StaleSessionError
from scheduling.domain.job_work import Exit, JobWork
from scheduling.domain.transitions import Batch
from scheduling.engine.garbage import without_collecting
from scheduling.lifecycle.states import AttemptState
from scheduling.lifecycle.values import AttemptEvent
from scheduling.models import Attempt, Device, LogChunk, MetricSample, Node, Usage
from scheduling.models.node import NodeState
from tenants.domain import notify

GPU_SUBJECT = "gpu:"
NODE_SUBJECT = "node"
WHOLE_DEVICE = 1000
"""Of its resource, in thousandths."""
BEFORE_START = (AttemptState.BOUND, AttemptState.STARTING)


class Reported(StrEnum):
    """What a node may say of an attempt."""

    STARTING = "Starting"
    RUNNING = "Running"
    STOPPING = "Stopping"
    EXITED = "Exited"


class EndReason(StrEnum):
    """Why an attempt ended, where its exit code does not say it."""

    LAUNCH_FAILED = "LaunchFailed"
    LEASE_LAPSED = "LeaseLapsed"
    AGENT_LOST = "AgentLost"
    NEVER_STARTED = "NeverStarted"
    NODE_REBOOTED = "NodeRebooted"
    NODE_SHUTDOWN = "NodeShutdown"
    """The agent was asked to end, tasks included: Ctrl-C of `make up`."""
    SHIM_LOST = "ShimLost"
    """The task's supervisor was killed; the node ended the rest."""
    RECORDS_LOST = "RecordsLost"
    """The node's records of it are damaged; its processes were ended."""
    STOPPED_BEFORE_START = "StoppedBeforeStart"
    SECRETS_LOST = "SecretsLost"
    """The agent ended before the task had its secrets, which it keeps in memory only."""
    NOT_WANTED = "NotWanted"
    """The node held it and the control plane did not know it as live."""


GONE_REASONS = frozenset(
    {
        EndReason.LEASE_LAPSED,
        EndReason.AGENT_LOST,
        EndReason.NEVER_STARTED,
        EndReason.NODE_REBOOTED,
        EndReason.NODE_SHUTDOWN,
        EndReason.SHIM_LOST,
        EndReason.RECORDS_LOST,
        EndReason.STOPPED_BEFORE_START,
        EndReason.SECRETS_LOST,
        EndReason.NOT_WANTED,
    }
)
"""Ends that are the platform's, not the task's: it is tried again."""


@dataclass(frozen=True, slots=True)
class AttemptObserved:
    """What happened to one attempt."""

    attempt: UUID
    state: Reported
    exit_code: int | None = None
    signal: int | None = None
    is_oom: bool = False
    reason: str = ""
    message: str = ""
    address: str = ""
    ports: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LogReceived:
    """Consecutive bytes of an attempt's output."""

    attempt: UUID
    stream: str
    offset: int
    data: bytes


@dataclass(frozen=True, slots=True)
class MetricReceived:
    """One line of a task's own metrics; `at` is the node's clock."""

    attempt: UUID
    line: int
    at: float
    values: dict[str, float]


@dataclass(frozen=True, slots=True)
class UsageReceived:
    """Measured use of an attempt (its id), a device (`gpu:<uuid>`) or the node (`node`)."""

    subject: str
    at: float
    cpu_milli: int | None = None
    memory_bytes: int | None = None
    gpu_percent: float | None = None
    gpu_memory_bytes: int | None = None
    temperature_celsius: float | None = None
    power_watts: float | None = None


@dataclass(frozen=True, slots=True)
class DeviceObserved:
    """The health of one device."""

    uuid: str
    is_healthy: bool
    health_reason: str = ""


@dataclass(frozen=True, slots=True)
class Frame:
    """What one session says at once."""

    node_id: UUID
    session_id: str
    seq: int
    observations: Sequence[AttemptObserved] = ()
    logs: Sequence[LogReceived] = ()
    metrics: Sequence[MetricReceived] = ()
    usage: Sequence[UsageReceived] = ()
    devices: Sequence[DeviceObserved] = ()


def record(  # noqa: PLR0913 -- the parts of a frame
    *,
    node_id: UUID,
    session_id: str,
    seq: int,
    now: datetime,
    observations: Sequence[AttemptObserved] = (),
    logs: Sequence[LogReceived] = (),
    metrics: Sequence[MetricReceived] = (),
    usage: Sequence[UsageReceived] = (),
    devices: Sequence[DeviceObserved] = (),
) -> int:
    """Write one frame of a session; return the highest sequence number that is committed.

    Raises:
        StaleSessionError: the node has opened a newer session, or none.
    """
    frame = Frame(node_id, session_id, seq, observations, logs, metrics, usage, devices)
    (committed,) = record_many(frames=[frame], now=now)
    if committed is None:
        raise StaleSessionError(node_id, session_id)
    return committed


def record_many(*, frames: Sequence[Frame], now: datetime) -> list[int | None]:
    """Write frames of different nodes in one transaction: a gang's tasks report at once.

    Returns the highest committed sequence number of each, in order; None for a frame whose session
    is not its node's current one, of which nothing is written.
    """
    with without_collecting(), transaction.atomic():
        wanted = sorted({frame.node_id for frame in frames})
        locked = Node.objects.select_for_update(no_key=True).filter(id__in=wanted).order_by("id")
        nodes = {node.id: node for node in locked}
        current = [frame for frame in frames if _is_current(frame, nodes.get(frame.node_id))]
        news = [frame for frame in current if frame.seq > nodes[frame.node_id].report_seq]
        if news:
            _write(news, nodes, now)
    results: list[int | None] = []
    for frame in frames:
        is_current = any(frame is one for one in current)
        results.append(max(frame.seq, nodes[frame.node_id].report_seq) if is_current else None)
    return results


def _is_current(frame: Frame, node: Node | None) -> bool:
    return (
        node is not None and node.session_id == frame.session_id and node.state != NodeState.REMOVED
    )


def _write(frames: Sequence[Frame], nodes: dict[UUID, Node], now: datetime) -> None:
    batch = Batch(now=now)
    _observe(batch, [(nodes[frame.node_id], frame.observations) for frame in frames])
    owned = _owned(frames)
    jobs = {attempt_id: job_id for (_, attempt_id), job_id in owned.items()}
    _keep_logs(
        batch, jobs, [o for f in frames for o in f.logs if (f.node_id, o.attempt) in owned], now
    )
    _keep_metrics(
        batch, jobs, [o for f in frames for o in f.metrics if (f.node_id, o.attempt) in owned]
    )
    _keep_usage(batch, owned, frames)
    for frame in frames:
        _keep_health(batch, nodes[frame.node_id], frame.devices)
    with connection.cursor() as cursor:
        cursor.execute(SEQ_UPDATE, [[f.node_id for f in frames], [f.seq for f in frames]])
    batch.flush()


SEQ_UPDATE = """
UPDATE scheduling_node AS node SET report_seq = said.seq
FROM unnest(%s::uuid[], %s::bigint[]) AS said(node_id, seq) WHERE node.id = said.node_id
"""


def refused(*, node_id: UUID, attempt_id: UUID, code: str, now: datetime) -> None:
    """Take note that a node will never carry out a launch: nothing of it was started."""
    _end_unlaunched(node_id, attempt_id, EndReason.NEVER_STARTED, code, now)


def not_launched(*, node_id: UUID, attempt_id: UUID, message: str, now: datetime) -> None:
    """Take note that a launch was not sent, since what the task needs cannot be had: it failed."""
    _end_unlaunched(node_id, attempt_id, EndReason.LAUNCH_FAILED, message, now)


def _end_unlaunched(
    node_id: UUID, attempt_id: UUID, reason: EndReason, message: str, now: datetime
) -> None:
    with transaction.atomic():
        node = Node.objects.select_for_update(no_key=True).get(id=node_id)
        batch = Batch(now=now)
        seen = AttemptObserved(attempt_id, Reported.EXITED, reason=reason, message=message)
        _observe(batch, [(node, [seen])])
        batch.flush()


def observe_absent(*, node: Node, attempt_ids: Sequence[UUID], now: datetime, reason: str) -> None:
    """Take note that these attempts certainly do not run on their node (any more)."""
    with transaction.atomic():
        batch = Batch(now=now)
        seen = [AttemptObserved(one, Reported.EXITED, reason=reason) for one in attempt_ids]
        _observe(batch, [(node, seen)])
        batch.flush()


# --- attempts -------------------------------------------------------------------------------------


def _observe(batch: Batch, said: Sequence[tuple[Node, Sequence[AttemptObserved]]]) -> None:
    ids = [one.attempt for _, observations in said for one in observations]
    if not ids:
        return
    own = [ids, [node.id for node, _ in said]]
    with connection.cursor() as cursor:
        cursor.execute(JOBS_OF, own)
        job_ids = [row[0] for row in cursor.fetchall()]
    # All jobs at once, in order of their ids: two batches never wait for each other in a circle.
    works = batch.lock(job_ids)
    by_job: dict[UUID, JobWork] = {work.job.id: work for work in works}
    # Read after the jobs are locked: only now do the states stand still.
    fresh = {attempt.id: attempt for attempt in attempts_with_tasks(ATTEMPTS_OF, own)}
    for node, observations in said:
        batch.actor_label = f"node {node.name}"
        for one in observations:
            attempt = fresh.get(one.attempt)
            if attempt is None or attempt.node_id != node.id or attempt.job_id not in by_job:
                continue  # a node speaks only of its own attempts
            work = by_job[attempt.job_id]
            work.take([attempt])
            _apply_observation(work, work.attempts[attempt.id], one)


JOBS_OF = """
SELECT DISTINCT job_id FROM scheduling_attempt
WHERE id = ANY(%s) AND node_id = ANY(%s) ORDER BY job_id
"""
ATTEMPTS_OF = "attempt.id = ANY(%s) AND attempt.node_id = ANY(%s)"


def _apply_observation(work: JobWork, attempt: Attempt, one: AttemptObserved) -> None:
    event = event_of(one, AttemptState(attempt.state))
    known = Exit(
        exit_code=one.exit_code,
        signal=one.signal,
        is_oom=one.is_oom,
        reason_code=one.reason,
        message=one.message,
        address=one.address,
        ports=one.ports or None,
    )
    if event is None:
        return
    work.attempt_event(attempt, event, exit_=known)


def event_of(one: AttemptObserved, state: AttemptState) -> AttemptEvent | None:
    """Return the lifecycle's event for an observation; None where it says nothing new."""
    match one.state:
        case Reported.STARTING:
            return AttemptEvent.LAUNCHED if state is AttemptState.BOUND else None
        case Reported.RUNNING:
            return AttemptEvent.STARTED if state in BEFORE_START else None
        case Reported.STOPPING:
            return None  # the stop was ours; what counts is how it ends
        case Reported.EXITED:
            return _end_event(one, state)


def _end_event(one: AttemptObserved, state: AttemptState) -> AttemptEvent:
    if one.reason in GONE_REASONS:
        return AttemptEvent.GONE
    if one.reason == EndReason.LAUNCH_FAILED and state in (*BEFORE_START, AttemptState.STOPPING):
        return AttemptEvent.LAUNCH_FAILED
    is_zero = one.exit_code == 0 and not one.signal
    return AttemptEvent.EXITED_ZERO if is_zero else AttemptEvent.EXITED_NONZERO


# --- feeds ----------------------------------------------------------------------------------------


def _owned(frames: Sequence[Frame]) -> dict[tuple[UUID, UUID], UUID]:
    """Return (node, attempt) -> job for those attempts of the feeds that are the node's own."""
    ids = {one.attempt for frame in frames for one in frame.logs}
    ids |= {one.attempt for frame in frames for one in frame.metrics}
    ids |= {
        UUID(one.subject) for frame in frames for one in frame.usage if _is_attempt(one.subject)
    }
    if not ids:
        return {}
    own = Attempt.objects.filter(id__in=ids, node__in=[frame.node_id for frame in frames])
    return {
        (node_id, attempt_id): job_id
        for node_id, attempt_id, job_id in own.values_list("node_id", "id", "job_id")
    }


def _is_attempt(subject: str) -> bool:
    return subject != NODE_SUBJECT and not subject.startswith(GPU_SUBJECT)


def _keep_logs(
    batch: Batch, owned: dict[UUID, UUID], logs: Sequence[LogReceived], now: datetime
) -> None:
    """Keep what is new: an agent that was killed sends from its last acknowledged byte on again.

    A piece that begins where a stored one does may be longer than that one by now.
    """
    ends = _log_ends({(one.attempt, one.stream) for one in logs if one.attempt in owned})
    rows = []
    for one in logs:
        end = ends.get((one.attempt, one.stream), 0)
        skip = max(0, end - one.offset)
        if one.attempt not in owned or skip >= len(one.data):
            continue
        ends[one.attempt, one.stream] = one.offset + len(one.data)
        rows.append(
            LogChunk(
                attempt_id=one.attempt,
                stream=one.stream,
                offset=one.offset + skip,
                size_bytes=len(one.data) - skip,
                data=one.data[skip:],
                at=now,
            )
        )
    LogChunk.objects.bulk_create(rows)
    _hint(batch, "log", {owned[row.attempt_id] for row in rows})


LOG_ENDS = """
SELECT wanted.attempt_id, wanted.stream, last."offset" + last.size_bytes
FROM unnest(%s::uuid[], %s::text[]) AS wanted(attempt_id, stream)
CROSS JOIN LATERAL (
    SELECT "offset", size_bytes FROM scheduling_logchunk AS chunk
    WHERE chunk.attempt_id = wanted.attempt_id AND chunk.stream = wanted.stream
    ORDER BY "offset" DESC LIMIT 1
) AS last
"""
"""One step down the index a stream, however many chunks there are."""


def _log_ends(streams: set[tuple[UUID, str]]) -> dict[tuple[UUID, str], int]:
    """Return where these streams end, as far as they are stored."""
    if not streams:
        return {}
    with connection.cursor() as cursor:
        cursor.execute(LOG_ENDS, [[one for one, _ in streams], [name for _, name in streams]])
        return {(attempt_id, stream): end for attempt_id, stream, end in cursor.fetchall()}


def _keep_metrics(batch: Batch, owned: dict[UUID, UUID], metrics: Sequence[MetricReceived]) -> None:
    rows = [
        MetricSample(
            job_id=owned[one.attempt],
            attempt_id=one.attempt,
            line=one.line,
            at=_time(one.at),
            values=one.values,
        )
        for one in metrics
        if one.attempt in owned
    ]
    MetricSample.objects.bulk_create(rows, ignore_conflicts=True)
    _hint(batch, "metrics", {row.job_id for row in rows})


def _keep_usage(
    batch: Batch, owned: dict[tuple[UUID, UUID], UUID], frames: Sequence[Frame]
) -> None:
    rows = []
    jobs: set[UUID] = set()
    for frame in frames:
        for one in frame.usage:
            attempt_id = UUID(one.subject) if _is_attempt(one.subject) else None
            if attempt_id is not None and (frame.node_id, attempt_id) not in owned:
                continue
            if attempt_id is not None:
                jobs.add(owned[frame.node_id, attempt_id])
            rows.append(_usage_row(frame.node_id, attempt_id, one))
    Usage.objects.bulk_create(rows)
    _hint(batch, "usage", jobs)
    batch.hints += [
        topics.Hint(topics.node(node_id), "usage")
        for node_id in sorted({row.node_id for row in rows})
    ]


def _usage_row(node_id: UUID, attempt_id: UUID | None, one: UsageReceived) -> Usage:
    is_device = one.subject.startswith(GPU_SUBJECT)
    return Usage(
        node_id=node_id,
        attempt_id=attempt_id,
        device_uuid=one.subject.removeprefix(GPU_SUBJECT)[:100] if is_device else "",
        at=_time(one.at),
        cpu_milli=one.cpu_milli,
        memory_bytes=one.memory_bytes,
        gpu_percent=one.gpu_percent,
        gpu_memory_bytes=one.gpu_memory_bytes,
        temperature_celsius=one.temperature_celsius,
        power_watts=one.power_watts,
    )


def _keep_health(batch: Batch, node: Node, devices: Sequence[DeviceObserved]) -> None:
    changed = 0
    for one in devices:
        rows = Device.objects.filter(node=node, uuid=one.uuid).exclude(
            is_healthy=one.is_healthy, health_reason=one.health_reason[:300]
        )
        changed += rows.update(is_healthy=one.is_healthy, health_reason=one.health_reason[:300])
    if changed:
        _count_healthy(node)
        batch.hints.append(topics.Hint(topics.node(node.id), "state"))
        batch.hints.append(topics.Hint(topics.cluster(node.cluster_id), "state"))


def _count_healthy(node: Node) -> None:
    """Let the node offer its healthy devices only; its row is locked (`record_many`).

    The write also marks the row as changed, by which the scheduler's snapshot reads devices anew.
    """
    healthy = Device.objects.filter(node=node, is_present=True, is_healthy=True)
    counted = Counter(healthy.values_list("resource", flat=True))
    all_resources = Device.objects.filter(node=node).values_list("resource", flat=True).distinct()
    node.allocatable = {
        **node.allocatable,
        **{resource: WHOLE_DEVICE * counted[resource] for resource in all_resources},
    }
    Node.objects.filter(id=node.id).update(allocatable=node.allocatable)
    notify.notify(notify.SCHEDULE, str(node.cluster_id))


def _hint(batch: Batch, kind: str, job_ids: set[UUID]) -> None:
    batch.hints += [topics.Hint(topics.job(job_id), kind) for job_id in sorted(job_ids)]


def _time(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, tz=UTC)
