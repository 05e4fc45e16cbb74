"""The gangpreempt and gangreclaim actions: room for a whole gang in one domain, by bundles."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from scheduling.engine.actions.failures import missing_request
from scheduling.engine.actions.lines import Lines
from scheduling.engine.actions.serving import place_job
from scheduling.engine.actions.topology import candidate_domains
from scheduling.engine.actions.victims import starving_groups
from scheduling.engine.domains import Domain
from scheduling.engine.journal import Claim, Entry, Removed, Statement, Unit, is_live
from scheduling.engine.session import Session
from scheduling.engine.types import Task, TaskState
from scheduling.engine.views import JobView, RoleView

PREEMPT, RECLAIM = "gangpreempt", "gangreclaim"

Held = tuple[RoleView, Task, int]


@dataclass(frozen=True, slots=True)
class Bundle:
    """Tasks of one job that go together: those it can spare one by one, or all that it holds."""

    units: tuple[Unit, ...]
    is_safe: bool

    @property
    def job(self) -> JobView:
        """The job whose tasks they are."""
        return self.units[0].job


def run_preempt(session: Session, arguments: Mapping[str, str]) -> None:
    """Make room in the gang's own queue, from jobs of lower priority."""
    _run(session, arguments, PREEMPT)


def run_reclaim(session: Session, arguments: Mapping[str, str]) -> None:
    """Take room back from other queues that are reclaimable."""
    _run(session, arguments, RECLAIM)


def _run(session: Session, arguments: Mapping[str, str], action: str) -> None:
    """Serve starving jobs queue by queue; evict only if the whole gang then fits.

    Arguments: `maxDomains` (8) and `allowWholeBundle` (true): whether gangs may be broken, which
    then go wholly. Source: Volcano pkg/scheduler/actions/gangpreempt, gangreclaim; there only the
    part of a broken gang goes that lies in the domain.
    """
    most = int(arguments.get("maxDomains", "8"))
    allow_whole = arguments.get("allowWholeBundle", "true").strip().lower() == "true"
    if action == RECLAIM and not session.each("preemptive"):
        allow_whole = False  # nobody says what a queue deserves: two jobs would take turns
    lines = Lines(session, starving_groups(session))
    while (queue := lines.next_queue()) is not None:
        if action == RECLAIM and session.is_overused(queue):
            lines.rest(queue)
            continue
        found = lines.next_job(queue)
        if found is None:
            continue
        job, group = found
        stands = _serve(session, action, job, most=most, allow_whole=allow_whole)
        if stands and group.take(job) is not group:
            lines.push(group)


def _serve(session: Session, action: str, job: JobView, *, most: int, allow_whole: bool) -> bool:
    """Make room for one job in the widest domain where that is possible; else undo everything."""
    roles = [role for role in job.roles if role.pending]
    gates = session.each("preemptive") if action == RECLAIM else []
    if not roles or not all(gate(job, role) for gate in gates for role in roles):
        return False
    own = session.give_up(job.key)
    outer = session.focus
    domains = sorted(candidate_domains(session, job), key=lambda d: -d.tier)[:most]
    stands = False
    for domain in domains:
        session.focus = domain.within(outer)
        with session.without_lack(own):
            stands = _clear(session, action, job, domain, allow_whole=allow_whole)
        session.focus = outer
        if stands:
            break
    if not stands and own is not None:
        session.keep(own)
    return stands


def _clear(
    session: Session, action: str, job: JobView, domain: Domain, *, allow_whole: bool
) -> bool:
    """Evict bundle after bundle until the gang has its minimum in the domain.

    Then every bundle that turns out not to be needed is spared, the first ones first.
    """
    statement = Statement(session)
    need = missing_request(session, job)
    chosen = bundles(session, action, job, domain, allow_whole=allow_whole)
    evicted: list[tuple[Bundle, Sequence[Entry]]] = []
    for bundle in chosen:
        start = statement.checkpoint()
        for unit in bundle.units:
            left = tuple(held for held in unit.tasks if held[1].key not in session.evicted)
            if left:  # what the job could spare has gone before the whole of it
                rest = Unit(unit.job, left, is_whole=unit.is_whole)
                session.evict(rest, action=action, beneficiary=job.key)
        evicted.append((bundle, session.journal[start:]))
        room = session.free + session.releasing - session.promised
        sums = np.maximum(room[:, domain.mask], 0).sum(axis=1)
        if any(amount > sums[d] for d, amount in enumerate(need)):
            continue
        if place_job(session, job) is None and session.is_job_pipelined(job):
            _spare(session, evicted)
            return True
    statement.rollback()
    return False


def _spare(session: Session, evicted: Sequence[tuple[Bundle, Sequence[Entry]]]) -> None:
    """Take back the bundles without which every promise still holds; the last one was needed.

    Broken gangs first. What a broken gang could have spared stays out with the rest of it.
    """
    kept_out: set[int] = set()
    broken = {bundle.job.key for bundle, _ in evicted if not bundle.is_safe}
    for bundle, entries in sorted(evicted[:-1], key=lambda one: one[0].is_safe):
        if bundle.is_safe and bundle.job.key in broken:
            continue
        for entry in entries:
            session.undo(entry)
        nodes = {entry.node for entry in entries if entry.node >= 0}
        if any(amount < 0 for node in nodes for amount in session.future_free(node)) or any(
            held > most
            for entry in entries
            for level in entry.job.queue.path
            for held, most in zip(level.allocated, level.max, strict=True)
        ):
            for entry in entries:
                session.apply(entry)
        else:
            kept_out.update(id(entry) for entry in entries)
            broken.discard(bundle.job.key)
    session.journal[:] = [e for e in session.journal if id(e) not in kept_out]


def bundles(
    session: Session, action: str, claimant: JobView, domain: Domain, *, allow_whole: bool
) -> list[Bundle]:
    """Return what may be evicted in a domain, cheapest first.

    1. Split what each victim's job holds there into tasks that it can spare and the rest. 2. Ask
    the plugins: a spare part keeps what they allow, the rest goes wholly or not at all. 3. Spare
    parts first; then last in the order of jobs (or of the queues to take from); then what gives
    most of what is needed for the least.
    """
    need = missing_request(session, claimant)
    if not claimant.roles or not session.each("gang_evictable"):
        return []
    role = next((r for r in claimant.roles if r.pending), claimant.roles[0])
    removed = Removed(session.width)
    claim = Claim(action, claimant, role, removed)
    found: list[tuple[bool, JobView, Bundle, float]] = []
    for job in _victims(session, action, claimant):
        held = [h for h in session.held_tasks(job) if _may_go(action, h)]
        here = [h for h in held if domain.mask[h[2]]]
        safe, rest = split(job, here)
        units = [Unit(job, (h,)) for h in safe]
        allowed = _allowed(session, claim, units)
        if allowed:
            found.append((False, job, Bundle(tuple(allowed), is_safe=True), -np.inf))
        if rest and allow_whole and len(held) == len(session.held_tasks(job)):
            whole = Unit(job, tuple(held), is_whole=True)
            if all(callback(claim, whole) for callback in session.each("gang_evictable")):
                gain = -_return_on(need, here, whole.amounts(session.width))
                found.append((True, job, Bundle((whole,), is_safe=False), gain))
    found.sort(key=lambda x: x[1].key)
    found.sort(key=lambda x: x[3])
    found.sort(key=lambda x: session.job_key(x[1]), reverse=True)
    if action == RECLAIM:
        orders = session.each("victim_order")
        found.sort(key=lambda x: [c(x[1].queue, claimant.queue) for c in orders])
    found.sort(key=lambda x: x[0])
    return [bundle for _, _, bundle, _ in found]


def _victims(session: Session, action: str, claimant: JobView) -> list[JobView]:
    """Return the jobs that could lose tasks to a claimant."""
    found = []
    for name, rows in sorted(session.tables.holders.items()):
        queue = session.queues.get(name)
        if queue is None or (name == claimant.queue.name) is not (action == PREEMPT):
            continue
        if action == RECLAIM and not queue.queue.reclaimable:
            continue
        for key in rows:
            job = session.view(key)
            if job is None or job is claimant or job.placed or job.job.preemptable is False:
                continue
            if action == RECLAIM or job.job.priority < claimant.job.priority:
                found.append(job)
    return found


def _may_go(action: str, held: Held) -> bool:
    role, task, node = held
    is_running = task.state is TaskState.RUNNING if action == RECLAIM else is_live(task)
    return node >= 0 and role.role.preemptable and is_running


def _allowed(session: Session, claim: Claim, units: Sequence[Unit]) -> list[Unit]:
    allowed = []
    for unit in units:
        if all(callback(claim, unit) for callback in session.each("gang_evictable")):
            claim.removed.add(unit)
            allowed.append(unit)
    return allowed


def split(job: JobView, held: Sequence[Held]) -> tuple[list[Held], list[Held]]:
    """Part a job's tasks into those that it can spare and those without which it is broken.

    Lowest priority first. Of a gang that is broken already all can go. A task can be spared while
    the gang, its role and its sub-group (or the number of sub-groups) stay above their minimums.
    """
    ordered = sorted(held, key=lambda h: (h[0].role.priority, h[1].key))
    surplus = job.ready - job.min_available
    if surplus < 0:
        return ordered, []
    ready = Counter({id(role): role.ready for role in job.roles})
    extra = {id(p): sum(r.ready for r in p.roles) - p.size for p in job.parts}
    spare = Counter(
        {
            id(policy): sum(p.policy is policy and extra[id(p)] >= 0 for p in job.parts)
            - policy.min_groups
            for policy in job.job.sub_groups
        }
    )
    safe: list[Held] = []
    rest: list[Held] = []
    for element in ordered:
        role = element[0]
        part = next((p for p in job.parts if role in p.roles), None)
        breaks = part is not None and part.policy is not None and extra[id(part)] == 0
        policy = id(part.policy) if part is not None else 0
        if surplus <= 0 or ready[id(role)] <= role.needed or (breaks and spare[policy] <= 0):
            rest.append(element)
            continue
        surplus -= 1
        ready[id(role)] -= 1
        spare[policy] -= breaks
        if part is not None:
            extra[id(part)] -= 1
        safe.append(element)
    return safe, rest


def _return_on(need: Sequence[int], here: Sequence[Held], whole: Sequence[int]) -> float:
    """Return how much of the need a whole job gives in the domain, by what it loses in all."""
    local = [0] * len(need)
    for role, _, _ in here:
        for d, amount in role.shape.items:
            local[d] += amount
    gain = sum(min(a, n) / n for a, n in zip(local, need, strict=True) if n)
    cost = sum(a / n for a, n in zip(whole, need, strict=True) if n)
    return gain / cost if cost else float("inf")
