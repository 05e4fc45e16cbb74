"""One cycle: from a snapshot and a configuration to a plan. `plan` is the way in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import replace

from scheduling.engine import registry
from scheduling.engine.actions.promises import stand_by_promises
from scheduling.engine.actions.settling import settle
from scheduling.engine.after import apply_plan
from scheduling.engine.config import DEFAULT_CONFIG
from scheduling.engine.garbage import without_collecting
from scheduling.engine.joined import adds_nothing, confirmed, join, started_in_vain, without_jobs
from scheduling.engine.journal import EntryKind
from scheduling.engine.plugin import Plugin
from scheduling.engine.reasons import ReasonCode
from scheduling.engine.session import Session
from scheduling.engine.shapes import Int64
from scheduling.engine.tables import Memo, ToldShares, prepare
from scheduling.engine.types import (
    Binding,
    Config,
    Eviction,
    GangPhase,
    Pipelined,
    Plan,
    PluginConfig,
    QueueShare,
    Reason,
    Reservation,
    Snapshot,
    TaskState,
)
from scheduling.engine.verify import check

__all__ = ["DEFAULT_CONFIG", "Memo", "open_session", "plan", "run_actions"]


MOST_PLANS = 16
"""Of one cycle; more than two are rare."""


def plan(snapshot: Snapshot, config: Config = DEFAULT_CONFIG, *, memo: Memo | None = None) -> Plan:
    """Decide what starts, what is evicted, what is kept free, and why the rest waits.

    A pure function: the same snapshot and configuration give the same plan, whatever the order in
    which jobs, nodes and queues are listed. `memo` saves reading what has not changed since the
    caller's last cycle; it never changes the result.

    1. Open a session: tables, queue tree, plugins. 2. Run the actions in order. 3. Settle what they
    decided between them. 4. Read the plan off the journal. 5. Plan again on the state that it
    leaves, until nothing is added: were they running already, an action might take back what
    another one has just started. Such jobs stand back, and the cycle is planned without them.
    What plans of one cycle come to together is only taken where the verifier accepts it at once.
    """
    memo = memo if memo is not None else Memo()
    with without_collecting():
        first = decided = close(run(snapshot, config, memo=memo))
        follow_up = replace(config, actions=tuple(a for a in config.actions if a.name != SHUFFLE))
        standing_back: set[str] = set()
        is_joined = False
        for _ in range(MOST_PLANS - 1):
            if not _may_leave_something(snapshot, decided):
                return decided
            more = close(run(apply_plan(snapshot, decided), follow_up, memo=memo))
            if adds_nothing(decided, more):
                settled = confirmed(decided, more)
                return first if is_joined and check(snapshot, settled, config) else settled
            in_vain = started_in_vain(decided, more) - standing_back
            if in_vain:
                standing_back |= in_vain
                decided = close(run(without_jobs(snapshot, standing_back), config, memo=memo))
                is_joined = False
            else:
                decided = join(decided, more)
                is_joined = True
    return first


def _may_leave_something(snapshot: Snapshot, decided: Plan) -> bool:
    """Return whether a plan changes anything while somebody waits for more than it promises."""
    changes = decided.binds or decided.evictions or decided.phases
    if not (changes or decided.reservations != snapshot.reservations):
        return False
    reasons = decided.job_reasons
    if any(reason.code is not ReasonCode.WAITING_FOR_ROOM for reason in reasons.values()):
        return True
    provided = Counter(b.job for b in decided.binds) + Counter(p.job for p in decided.pipelined)
    return any(
        job.key in reasons
        and provided[job.key] < sum(task.state is TaskState.PENDING for task in job.tasks)
        for job in (snapshot.jobs if reasons else ())
    )


def run(snapshot: Snapshot, config: Config, *, memo: Memo | None = None) -> Session:
    """Return a session in which all actions have run."""
    with without_collecting():
        session = open_session(snapshot, config, memo=memo)
        run_actions(session)
    return session


SHUFFLE = "shuffle"
"""The action that follows the clock and the measured load: once a cycle."""


def run_actions(session: Session, names: Collection[str] | None = None) -> None:
    """Run the configured actions in order, or some, then settle what they decided between them."""
    stand_by_promises(session)
    for action in session.config.actions:
        if names is None or action.name in names:
            registry.action(action.name)(session, action.arguments)
    settle(session)


def open_session(
    snapshot: Snapshot,
    config: Config,
    *,
    memo: Memo | None = None,
    plugins: Mapping[str, type[Plugin]] = registry.PLUGINS,
) -> Session:
    """Return a session with its plugins, nothing decided yet.

    Raises: ValueError for an action or plugin that is not known.
    """
    session = Session(snapshot, config, prepare(snapshot, memo))
    for tier in (*config.tiers, *_tier_of_walls(snapshot, config)):
        session.add_tier([(registry.plugin(p.name, plugins)(session, p), p) for p in tier])
    return session


def _tier_of_walls(snapshot: Snapshot, config: Config) -> tuple[tuple[PluginConfig, ...], ...]:
    """Return the tier that keeps walls where a configuration does not name their plugin."""
    if not any(quota.queues is not None for quota in snapshot.quotas):
        return ()
    name = "resourcequota"
    is_named = any(plugin.name == name for tier in config.tiers for plugin in tier)
    return () if is_named else ((PluginConfig(name),),)


def close(session: Session) -> Plan:
    """Read the plan off a session's journal."""
    nodes = session.tables.nodes.names
    ready = {
        job.key: session.is_job_ready(job)
        for job in {e.job.key: e.job for e in session.journal}.values()
    }
    binds: list[Binding] = []
    evictions: list[Eviction] = []
    pipelined: list[Pipelined] = []
    for entry in session.journal:
        job = entry.job
        name = nodes[entry.node] if entry.node >= 0 else ""
        if entry.kind is EntryKind.EVICT:
            evictions.append(
                Eviction(
                    task=entry.task.key,
                    job=job.key,
                    node=name,
                    action=entry.action,
                    beneficiary=entry.beneficiary,
                    reason=Reason(
                        ReasonCode.EVICTED_FOR,
                        {"job": entry.beneficiary, "is_elastic": entry.is_elastic},
                    ),
                )
            )
        elif entry.kind is EntryKind.PLACE and ready[job.key]:
            binds.append(Binding(entry.task.key, job.key, name, entry.devices, entry.cpus))
        elif job.is_pipelined():
            pipelined.append(Pipelined(entry.task.key, job.key, name))
    return Plan(
        binds=tuple(binds),
        evictions=tuple(evictions),
        pipelined=tuple(pipelined),
        reservations=_reservations(session, ready),
        phases=_phases(session),
        job_reasons=_job_reasons(session, ready),
        shares=tuple(_shares(session)),
    )


PROMISE_SECONDS = 600.0
"""How long room that is being freed for a gang is kept, if the gang does not start before."""


def _reservations(session: Session, ready: Mapping[str, bool]) -> tuple[Reservation, ...]:
    """Return what stays kept: reservations not used yet, and the room of promised gangs."""
    found = dict(session.reservations)
    nodes = session.tables.nodes.names
    promised: dict[str, dict[int, Int64]] = {}
    places: dict[str, dict[str, str]] = {}
    for entry in session.journal:
        if entry.kind is EntryKind.EVICT:
            continue
        if entry.kind is EntryKind.PLACE and ready[entry.job.key]:
            continue
        if not entry.job.is_pipelined():
            continue
        rooms = promised.setdefault(entry.job.key, {})
        vector = entry.role.shape.vector
        rooms[entry.node] = rooms.get(entry.node, 0 * vector) + vector
        places.setdefault(entry.job.key, {})[entry.task.key] = nodes[entry.node]
    earlier = {r.job: r for r in session.snapshot.reservations if r.expires_at > session.now}
    for key, rooms in promised.items():
        amounts = {
            nodes[node]: session.tables.resources.amounts(room)
            for node, room in sorted(rooms.items())
        }
        known = earlier.get(key)
        found[key] = (
            known
            if known is not None and (known.amounts_by_node, known.places) == (amounts, places[key])
            else Reservation(
                key, amounts, session.now + PROMISE_SECONDS, "evicted", places=places[key]
            )
        )
    return tuple(found[key] for key in sorted(found))


def _phases(session: Session) -> dict[str, GangPhase]:
    """Return the phases that differ from the snapshot's."""
    phases = {key: row.settled_phase for key, row in session.tables.misphased.items()}
    phases |= {
        key: phase
        for key, phase in session.phases.items()
        if session.tables.rows[key].settled_phase in (GangPhase.PENDING, GangPhase.INQUEUE)
    }
    return dict(sorted(phases.items()))


def _job_reasons(session: Session, ready: Mapping[str, bool]) -> dict[str, Reason]:
    """Return a reason for every job that still has a task pending."""
    unknown, blocked = Reason(ReasonCode.NOT_CONSIDERED), Reason(ReasonCode.NOT_RUNNABLE)
    reasons: dict[str, Reason] = dict.fromkeys(session.tables.blocked, blocked)
    for group in session.groups:
        if not group.first.pending_count:
            continue
        reason = group.reason or unknown
        if len(group.rows) == 1 and not group.position:
            reasons[group.rows[0].job.key] = reason
        else:
            reasons.update(dict.fromkeys(session.tables.keys_of(group.left()), reason))
    reasons.update(_waits(session, ready))
    return reasons


def _waits(session: Session, ready: Mapping[str, bool]) -> dict[str, Reason]:
    """Return what the jobs wait for that were promised room."""
    tasks: dict[str, int] = {}
    nodes: dict[str, set[str]] = {}
    evictions: dict[str, int] = {}
    for entry in session.journal:
        if entry.kind is EntryKind.EVICT:
            if entry.beneficiary is not None:
                evictions[entry.beneficiary] = evictions.get(entry.beneficiary, 0) + 1
        elif entry.kind is EntryKind.PROMISE or not ready[entry.job.key]:
            key = entry.job.key
            tasks[key] = tasks.get(key, 0) + 1
            nodes.setdefault(key, set()).add(session.tables.nodes.names[entry.node])
    return {
        key: Reason(
            ReasonCode.WAITING_FOR_ROOM,
            {"tasks": count, "nodes": sorted(nodes[key]), "evictions": evictions.get(key, 0)},
        )
        for key, count in tasks.items()
    }


def _shares(session: Session) -> list[QueueShare]:
    """Return every queue's shares; those of the last cycle where nothing has changed."""
    resources, known = session.tables.resources, session.tables.queue_shares
    told: ToldShares = {}
    for name, queue in session.queues.items():
        deserved, allocated, requested = queue.deserved, queue.allocated, queue.requested
        last = known.get(name)
        if last is None or last[:3] != (deserved, allocated, requested):
            share = QueueShare(
                queue=name,
                deserved=resources.limits(deserved),
                allocated=resources.amounts(allocated),
                requested=resources.amounts(requested),
            )
            last = (deserved, allocated, requested, share)
        told[name] = last
    session.tables.queue_shares = told
    return [last[3] for last in told.values()]
