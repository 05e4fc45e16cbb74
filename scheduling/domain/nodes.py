"""Nodes: how a machine joins, opens its session, is heard of, is emptied, and is given up.

A node is Ready while its agent is heard of. Once it was silent for longer than the lease of its
tasks can last (`LEASE_MARGIN`: clocks may run at different rates, plus one look of the loop), its
attempts have certainly ended, wherever the machine is: only then are they Lost and tried again.
"""

from __future__ import annotations

import hashlib
import secrets
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

from django.conf import settings
from django.db import IntegrityError, connection, transaction
from django.db.models import F

from scheduling.domain import reports, topics
from scheduling.domain.deeds import Deed
from scheduling.domain.job_work import Exit
from scheduling.domain.transitions import LAUNCH_TOPIC, STOP_TOPIC, Batch
from scheduling.lifecycle.states import AttemptState, StopReason
from scheduling.lifecycle.values import AttemptEvent
from scheduling.models import Attempt, Cluster, Device, JoinToken, Node
from scheduling.models.attempt import LIVE_STATES
from scheduling.models.node import NodeKind, NodeState
from tenants.domain import access, audit, notify, outbox
from tenants.domain.access import SYSTEM, Actor, Verb
from tenants.domain.errors import Conflict, Denied, NotFound
from tenants.models import OutboxRow

TOKEN_PREFIX = "trj_"  # noqa: S105 -- what a join token begins with, no secret
CREDENTIAL_PREFIX = "trn_"
PODS = 110_000
"""How many tasks a node takes at once, in thousandths: what a kubelet takes."""
LEASE_MARGIN = 1.1
LOOK_SECONDS = 1.0
GPU = "nvidia.com/gpu"


@dataclass(frozen=True, slots=True)
class DeviceFacts:
    """One accelerator as a node reports it."""

    uuid: str
    index: int
    model: str = ""
    memory_bytes: int = 0
    is_healthy: bool = True
    health_reason: str = ""
    numa_node: int = -1
    links: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """What a node says of itself when it opens a session."""

    boot_id: str
    agent_version: str
    cpu_milli: int
    memory_bytes: int
    sockets: int = 1
    numa_nodes: list[dict[str, Any]] = field(default_factory=list)
    devices: Sequence[DeviceFacts] = ()
    runtimes: Sequence[dict[str, Any]] = ()
    attempts: dict[UUID, str] = field(default_factory=dict)
    """Attempt -> Starting, Running, Stopping or Exited."""
    address: str = ""
    is_simulated: bool = False
    warnings: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Session:
    """An open session; `stop` are attempts that the node holds and should not."""

    session_id: str
    epoch: int
    lease_seconds: float
    heartbeat_seconds: float
    stop: tuple[UUID, ...]


# --- joining --------------------------------------------------------------------------------------


def join_token_create(
    *,
    actor: Actor,
    cluster: Cluster,
    now: datetime,
    valid_for: timedelta = timedelta(hours=1),
    uses: int = 1,
    labels: dict[str, str] | None = None,
) -> tuple[JoinToken, str]:
    """Make a token with which a machine becomes a node; return it and its secret, shown once."""
    access.require(actor, Verb.NODE_JOIN, None, what="cluster")
    secret = TOKEN_PREFIX + secrets.token_urlsafe(32)
    with transaction.atomic():
        token = JoinToken.objects.create(
            cluster=cluster,
            secret_hash=_hash(secret),
            labels=labels or {},
            uses_left=uses,
            expires_at=now + valid_for,
            created_at=now,
        )
        audit.record(
            actor=actor,
            action="node.join_token",
            subject=token,
            before=None,
            after={"cluster": cluster.name, "uses": uses, "expires_at": token.expires_at},
            unit=None,
            now=now,
        )
    return token, secret


def join(*, token: str, name: str, now: datetime) -> tuple[Node, str]:
    """Use a join token: make the node and its credential, shown once.

    A node that was removed may come back under its name, with a new credential.

    Raises:
        Denied: the token is unknown, used up or expired.
        Conflict: another node of the cluster has the name.
    """
    (joined,) = join_many(token=token, names=[name], now=now)
    return joined


def join_many(*, token: str, names: Sequence[str], now: datetime) -> list[tuple[Node, str]]:
    """Use a join token for several nodes at once: all of them or none, in the order of `names`.

    One process may stand for hundreds of simulated nodes; joined one by one, each would wait for
    the commit of the one before, since all of them use up the same token.

    Raises:
        Denied: the token is unknown, expired, or not good for so many nodes.
        Conflict: a name occurs twice, or another node of the cluster has it.
    """
    with transaction.atomic():
        row = (
            JoinToken.objects.select_for_update(of=("self",))
            .select_related("cluster")
            .filter(secret_hash=_hash(token))
            .first()
        )
        if row is None or row.uses_left == 0 or row.expires_at <= now:
            raise Denied("join_token_unknown")
        if row.uses_left < len(names):
            raise Denied("join_token_too_few", {"left": row.uses_left, "nodes": len(names)})
        JoinToken.objects.filter(id=row.id).update(uses_left=F("uses_left") - len(names))
        joined = _insert_nodes(row, names, now)
        for node, _ in joined:
            audit.record(
                actor=SYSTEM,
                action="node.join",
                subject=node,
                before=None,
                after={"cluster": row.cluster.name, "token": str(row.id)},
                unit=None,
                now=now,
            )
        _announce([node for node, _ in joined], now)
    return joined


def _insert_nodes(token: JoinToken, names: Sequence[str], now: datetime) -> list[tuple[Node, str]]:
    for name, times in Counter(names).items():
        if times > 1:
            raise Conflict("node_name_taken", {"name": name})
    same_names = Node.objects.filter(cluster=token.cluster, name__in=names).order_by("id")
    known = {node.name: node for node in same_names.select_for_update()}
    joined = []
    for name in names:
        credential = CREDENTIAL_PREFIX + secrets.token_urlsafe(32)
        node = known.get(name) or Node(cluster=token.cluster, name=name, created_at=now)
        if name in known and node.state != NodeState.REMOVED:
            raise Conflict("node_name_taken", {"name": name})
        node.labels = {"kubernetes.io/hostname": name, **token.labels}
        node.credential_hash = _hash(credential)
        joined.append((node, credential))
    for node in known.values():
        node.state = NodeState.JOINING
        node.version += 1
        node.save(update_fields=["state", "credential_hash", "labels", "version"])
    try:
        with transaction.atomic():
            Node.objects.bulk_create(node for node, _ in joined if node.name not in known)
    except IntegrityError as error:
        taken = same_names.exclude(id__in=[node.id for node in known.values()])
        name = taken.values_list("name", flat=True).first() or names[0]
        raise Conflict("node_name_taken", {"name": name}) from error
    return joined


def authenticate(credential: str) -> Node | None:
    """Return the node that a credential belongs to, None for an unknown or removed one."""
    found = Node.objects.filter(credential_hash=_hash(credential)).exclude(state=NodeState.REMOVED)
    return found.select_related("cluster").first() if credential else None


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


# --- sessions -------------------------------------------------------------------------------------


def open_session(*, node_id: UUID, facts: NodeFacts, gateway: str, now: datetime) -> Session:
    """Begin a session: the node is Ready, an older session of it is over.

    1. Count the session's epoch up: the newer session wins. 2. Take over what the node says of
    itself. 3. Compare its attempts with ours: what it does not know and should is gone (another
    boot: everything); what it holds and should not is to be stopped. 4. Commands that were sent
    and not confirmed are due again.
    """
    with transaction.atomic():
        node = Node.objects.select_for_update(no_key=True).filter(id=node_id).first()
        if node is None or node.state == NodeState.REMOVED:
            raise NotFound("node")
        is_rebooted = bool(node.boot_id) and node.boot_id != facts.boot_id
        _apply_facts(node, facts)
        node.state = NodeState.READY
        node.session_id, node.session_epoch = str(uuid4()), node.session_epoch + 1
        node.gateway, node.report_seq, node.last_seen_at = gateway[:100], 0, now
        node.version += 1
        node.save()
        stop = _compare_attempts(node, facts, now, is_rebooted=is_rebooted)
        outbox.release_node_commands(node.id, now)
        _announce([node], now)
    return Session(
        session_id=node.session_id,
        epoch=node.session_epoch,
        lease_seconds=float(settings.TERRACE_NODE_LEASE_SECONDS),
        heartbeat_seconds=settings.TERRACE_NODE_LEASE_SECONDS / 4,
        stop=stop,
    )


def _apply_facts(node: Node, facts: NodeFacts) -> None:
    node.boot_id, node.agent_version = facts.boot_id[:64], facts.agent_version[:40]
    node.address = facts.address[:253] or node.address
    node.is_simulated = facts.is_simulated
    node.runtimes, node.warnings = list(facts.runtimes), list(facts.warnings)
    node.topology = {"sockets": facts.sockets, "numa_nodes": facts.numa_nodes}
    capacity = {"cpu": facts.cpu_milli, "memory": facts.memory_bytes, "pods": PODS}
    if facts.devices:
        capacity[GPU] = 1000 * len(facts.devices)
    node.capacity = capacity
    reserved_cpu = min(int(settings.TERRACE_NODE_RESERVED_CPU_MILLI), facts.cpu_milli // 10)
    healthy = sum(1000 for device in facts.devices if device.is_healthy)
    node.allocatable = {
        **capacity,
        "cpu": facts.cpu_milli - reserved_cpu,
        "memory": facts.memory_bytes - facts.memory_bytes // 20,
        **({GPU: healthy} if facts.devices else {}),
    }
    _apply_devices(node, facts.devices)


def _apply_devices(node: Node, devices: Sequence[DeviceFacts]) -> None:
    seen = [device.uuid for device in devices]
    Device.objects.filter(node=node).exclude(uuid__in=seen).update(is_present=False)
    Device.objects.bulk_create(
        (
            Device(
                node=node,
                uuid=device.uuid,
                index=device.index,
                model=device.model[:100],
                memory_bytes=device.memory_bytes,
                is_healthy=device.is_healthy,
                health_reason=device.health_reason[:300],
                numa_node=device.numa_node,
                links=device.links,
            )
            for device in devices
        ),
        update_conflicts=True,
        unique_fields=["node", "uuid"],
        update_fields=[
            "index",
            "model",
            "memory_bytes",
            "is_healthy",
            "health_reason",
            "numa_node",
            "links",
            "is_present",
        ],
    )


def _compare_attempts(
    node: Node, facts: NodeFacts, now: datetime, *, is_rebooted: bool
) -> tuple[UUID, ...]:
    live = Attempt.objects.filter(node=node, state__in=LIVE_STATES)
    ours = dict(live.values_list("id", "state"))
    held = {} if is_rebooted else facts.attempts
    # A bound attempt that the node does not know may simply not have been launched yet.
    pending = set(
        OutboxRow.objects.filter(topic=LAUNCH_TOPIC, node=node.id).values_list("key", flat=True)
    )
    absent = [one for one in ours if one not in held and str(one) not in pending]
    if absent:
        reason = reports.EndReason.NODE_REBOOTED if is_rebooted else reports.EndReason.AGENT_LOST
        reports.observe_absent(node=node, attempt_ids=absent, now=now, reason=reason)
    return tuple(
        one for one, state in facts.attempts.items() if one not in ours and state != "Exited"
    )


HEARTBEATS = """
UPDATE scheduling_node AS node SET last_seen_at = %s
FROM unnest(%s::uuid[], %s::text[]) AS heard(node_id, session_id)
WHERE node.id = heard.node_id AND node.session_id = heard.session_id AND node.state = %s
    AND node.id IN (
        SELECT id FROM scheduling_node WHERE id = ANY(%s) ORDER BY id FOR NO KEY UPDATE
    )
RETURNING node.id, node.session_id
"""
"""One statement however many nodes are heard of; rows are locked in one order by all gateways."""


def heartbeats(*, sessions: Collection[tuple[UUID, str]], now: datetime) -> set[tuple[UUID, str]]:
    """Take note that these agents live; return the sessions that are their node's current one.

    The others are over: their agents must open new ones.
    """
    ids = [node_id for node_id, _ in sessions]
    names = [session_id for _, session_id in sessions]
    with connection.cursor() as cursor:
        cursor.execute(HEARTBEATS, [now, ids, names, NodeState.READY, ids])
        return set(cursor.fetchall())


# --- silence --------------------------------------------------------------------------------------


def silence_limit() -> timedelta:
    """Return after which silence the tasks of a node have certainly ended."""
    return longest_silence(settings.TERRACE_NODE_LEASE_SECONDS)


def longest_silence(lease_seconds: float) -> timedelta:
    """Return after which silence tasks under such a lease have certainly ended."""
    return timedelta(seconds=lease_seconds * LEASE_MARGIN + LOOK_SECONDS)


def lapsed(now: datetime) -> list[UUID]:
    """Return the nodes that were silent for too long."""
    silent = Node.objects.filter(state=NodeState.READY, last_seen_at__lt=now - silence_limit())
    return list(silent.order_by("id").values_list("id", flat=True))


def give_up(*, node_id: UUID, now: datetime) -> int:
    """Declare a silent node NotReady and its attempts Lost; return how many. Ends its session."""
    node = Node.objects.select_for_update(no_key=True).get(id=node_id)
    if node.state != NodeState.READY or node.last_seen_at is None:
        return 0
    silent_for = now - node.last_seen_at
    if silent_for < silence_limit():
        return 0
    node.state, node.session_id = NodeState.NOT_READY, ""
    node.version += 1
    node.save(update_fields=["state", "session_id", "version"])
    seconds = int(silent_for.total_seconds())
    lost = _lose_attempts(node, now, why=f"node {node.name} silent for {seconds} s")
    _announce([node], now)
    return lost


def give_up_all(*, now: datetime, why: str) -> int:
    """Declare every agent's node NotReady and its attempts Lost; return how many attempts.

    For an installation that knows itself out of date, as one restored from a backup: the caller
    has waited until no task can run any more.
    """
    lost = 0
    known = Node.objects.select_for_update(no_key=True).exclude(state=NodeState.REMOVED)
    for node in known.filter(kind=NodeKind.AGENT).order_by("id"):
        lost += _lose_attempts(node, now, why=why)
        if node.state == NodeState.READY:
            node.state = NodeState.NOT_READY
        node.session_id = ""
        node.version += 1
        node.save(update_fields=["state", "session_id", "version"])
    return lost


def _lose_attempts(node: Node, now: datetime, *, why: str) -> int:
    batch = Batch(now=now, actor_label="reconcile")
    live = Attempt.objects.filter(node=node, state__in=LIVE_STATES)
    works = batch.lock(sorted(set(live.values_list("job_id", flat=True))))
    by_job = {work.job.id: work for work in works}
    lost = list(live.select_related("task"))
    known = Exit(reason_code="NodeLost", message=why)
    for attempt in lost:
        work = by_job[attempt.job_id]
        work.take([attempt])
        work.attempt_event(work.attempts[attempt.id], AttemptEvent.LOST, exit_=known)
    drop_commands([attempt.id for attempt in lost], node.id)
    batch.flush()
    return len(lost)


def drop_commands(attempt_ids: Collection[UUID], node_id: UUID) -> int:
    """Delete commands for attempts that are over."""
    keys = [str(one) for one in attempt_ids]
    rows = OutboxRow.objects.filter(
        node=node_id, topic__in=(LAUNCH_TOPIC, STOP_TOPIC), key__in=keys
    )
    return rows.delete()[0]


# --- what administrators do -----------------------------------------------------------------------


def cordon(*, actor: Actor, node_id: UUID, now: datetime, reason: str = "") -> Node:
    """Let nothing new start on the node; what runs goes on."""
    return edit(Deed(actor, now, reason), "node.cordon", node_id, is_cordoned=True)


def uncordon(*, actor: Actor, node_id: UUID, now: datetime, reason: str = "") -> Node:
    """Let tasks start on the node again."""
    deed = Deed(actor, now, reason)
    return edit(deed, "node.uncordon", node_id, is_cordoned=False, is_draining=False)


def drain(*, actor: Actor, node_id: UUID, now: datetime, reason: str = "") -> Node:
    """Empty the node: nothing new starts, what runs is evicted with grace."""
    deed = Deed(actor, now, reason)
    with transaction.atomic():
        node = edit(deed, "node.drain", node_id, is_cordoned=True, is_draining=True)
        batch = Batch(now=now, actor_label=actor.label)
        live = Attempt.objects.filter(node=node, state__in=LIVE_STATES)
        works = batch.lock(sorted(set(live.values_list("job_id", flat=True))))
        by_job = {work.job.id: work for work in works}
        for attempt in live.exclude(state=AttemptState.STOPPING).select_related("task"):
            work = by_job[attempt.job_id]
            work.take([attempt])
            work.attempt_event(
                work.attempts[attempt.id], AttemptEvent.STOP, stop_reason=StopReason.DRAINED
            )
        batch.flush()
    return node


def remove(*, actor: Actor, node_id: UUID, now: datetime, reason: str = "") -> Node:
    """Take an empty node out of the cluster; its credential is worth nothing any more.

    Raises:
        Conflict: tasks still run on it.
    """
    access.require(actor, Verb.NODE_ADMIN, None, what="node")  # before it is told what runs there
    with transaction.atomic():
        busy = Attempt.objects.filter(node_id=node_id, state__in=LIVE_STATES).count()
        if busy:
            name = Node.objects.values_list("name", flat=True).get(id=node_id)
            raise Conflict("node_busy", {"node": name, "attempts": busy})
        return edit(
            Deed(actor, now, reason),
            "node.remove",
            node_id,
            state=NodeState.REMOVED,
            credential_hash="",
            session_id="",
        )


def require_admin(actor: Actor) -> None:
    """Refuse who does not administer nodes.

    Raises:
        Denied, NotFound: they do not.
    """
    access.require(actor, Verb.NODE_ADMIN, None, what="node")


def edit(
    deed: Deed,
    action: str,
    node_id: UUID,
    *,
    expected_version: int | None = None,
    **fields: Any,
) -> Node:
    """Change fields of a node, with a record, and wake who looks at it.

    Raises:
        Denied, NotFound: the actor does not administer nodes, or there is none.
        Conflict: somebody changed it since `expected_version` was read.
    """
    require_admin(deed.actor)
    with transaction.atomic():
        node = Node.objects.select_for_update(no_key=True).filter(id=node_id).first()
        if node is None or node.state == NodeState.REMOVED:
            raise NotFound("node")
        if expected_version is not None and node.version != expected_version:
            params = {"expected": expected_version, "version": node.version}
            raise Conflict("version", params, current=node)
        before = {name: getattr(node, name) for name in fields if name != "credential_hash"}
        for name, value in fields.items():
            setattr(node, name, value)
        node.version += 1
        node.save(update_fields=[*fields, "version"])
        deed.record(action, node, before, {name: fields[name] for name in before})
        _announce([node], deed.now)
    return node


def _announce(nodes: Sequence[Node], now: datetime) -> None:
    clusters = sorted({node.cluster_id for node in nodes})
    hints = [topics.Hint(topics.node(node.id), "state") for node in nodes]
    hints += [topics.Hint(topics.cluster(one), "state") for one in clusters]
    message = topics.message(hints)
    if message is not None:
        outbox.publish_many([message], now=now)
    for one in clusters:
        notify.notify(notify.SCHEDULE, str(one))
