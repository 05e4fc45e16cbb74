"""What a change of queues would do, shown before it is made: shares, reclaim, starts.

The engine plans twice on the live snapshot, with the tree as it is and as it would be. Nothing is
written. The viewer reads numbers of the queues it sees and names of the jobs it sees; of the rest
only how much it is.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from uuid import UUID

from scheduling.domain import snapshot as snapshots
from scheduling.domain.queue_changes import (
    QueueEdit,
    Tree,
    apply_in_memory,
    cluster_of,
    node,
    read_tree,
)
from scheduling.engine import types as engine
from scheduling.engine.config import DEFAULT_CONFIG, parse_config
from scheduling.engine.cycle import plan
from scheduling.models import Cluster, Job, Queue
from scheduling.spec.queue_tree import note_overcommitted
from tenants.domain import access
from tenants.domain.access import Actor, Verb
from tenants.domain.errors import Problem

HOLDING = frozenset({engine.TaskState.BOUND, engine.TaskState.RUNNING})
Amounts = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class ShareChange:
    """What a queue deserves before and after; a resource missing in `deserved_*` has no bound."""

    queue_id: UUID
    queue: str
    deserved_before: Amounts
    deserved_after: Amounts
    allocated: Amounts
    requested: Amounts

    @property
    def is_changed(self) -> bool:
        """Whether the change touches this queue at all."""
        return self.deserved_before != self.deserved_after


@dataclass(frozen=True, slots=True)
class JobEffect:
    """Tasks of one job that an effect concerns; `job_id` None: of all that are not to be seen."""

    job_id: UUID | None
    job: str
    queue: str
    tasks: int


@dataclass(frozen=True, slots=True)
class Preview:
    """The effect of a change set; an effect that the present tree has too is not listed."""

    shares: tuple[ShareChange, ...]
    reclaimable: tuple[JobEffect, ...]
    """Tasks that would run above what their queue deserves: others may take their place."""
    starts: tuple[JobEffect, ...]
    """Tasks that the next cycle would place."""
    evictions: tuple[JobEffect, ...]
    """Tasks that the next cycle would evict for them."""
    warnings: tuple[Problem, ...] = ()
    """What is allowed and worth knowing, such as more min than the cluster has."""


def preview_edits(*, actor: Actor, edits: Sequence[QueueEdit], now: datetime) -> Preview:
    """Say what `edit_queues` would do with these edits; it refuses what that would refuse.

    Cost: two cycles of the engine on a cold snapshot.

    Raises:
        NotFound, Denied, Invalid, Conflict: as `edit_queues`.
    """
    if not edits:
        return Preview((), (), (), ())
    cluster_id = cluster_of(edits[0].queue_id)
    tree = read_tree(cluster_id)
    changed = apply_in_memory(actor=actor, edits=edits, tree=tree)
    before = snapshots.build(cluster_id, now)
    wanted = {tree[queue_id].name: snapshots.queue_value(tree[queue_id]) for queue_id in changed}
    after = replace(before, queues=tuple(wanted.get(queue.name, queue) for queue in before.queues))
    config = _config(cluster_id)
    plans = (plan(before, config), plan(after, config))
    names = _Names(actor, before.jobs)
    return Preview(
        shares=tuple(_shares(actor, tree, before, *plans)),
        reclaimable=names.effects(_newly_borrowed(before, wanted, *plans)),
        starts=names.effects(_placed(plans[1]) - _placed(plans[0])),
        evictions=names.effects(_evicted(plans[1]) - _evicted(plans[0])),
        warnings=tuple(_warnings(tree, before)),
    )


def _config(cluster_id: UUID) -> engine.Config:
    """Return the configuration in force; a wrong text never is."""
    text = Cluster.objects.values_list("scheduler_config", flat=True).get(id=cluster_id)
    parsed = parse_config(text) if text.strip() else None
    if parsed is None or parsed.config is None or parsed.problems:
        return DEFAULT_CONFIG
    return parsed.config


def _shares(
    actor: Actor,
    tree: Tree,
    snapshot: engine.Snapshot,
    before: engine.Plan,
    after: engine.Plan,
) -> Iterable[ShareChange]:
    visible = set(
        Queue.objects.visible_to(access.reads(actor, Verb.QUEUE_READ))
        .filter(id__in=tree)
        .values_list("id", flat=True)
    )
    old = {share.queue: share for share in before.shares}
    new = {share.queue: share for share in after.shares}
    allocated = _allocated(snapshot)
    for queue in tree.values():
        if queue.id in visible and queue.name in old:
            yield ShareChange(
                queue_id=queue.id,
                queue=queue.name,
                deserved_before=old[queue.name].deserved,
                deserved_after=new[queue.name].deserved,
                allocated=allocated[queue.name],
                requested=old[queue.name].requested,
            )


def _allocated(snapshot: engine.Snapshot) -> dict[str, Amounts]:
    """Sum what runs now over each subtree; a plan's own sums already count what it places."""
    parents = {queue.name: queue.parent for queue in snapshot.queues}
    sums: dict[str, Counter[str]] = {name: Counter() for name in parents}
    for job in snapshot.jobs:
        requests = {role.name: role.request for role in job.roles}
        held: Counter[str] = Counter()
        for task in job.tasks:
            if task.state in HOLDING:
                held.update(requests[task.role])
        above: str | None = job.queue
        while above is not None and held:
            sums[above].update(held)
            above = parents[above]
    return {name: dict(amounts) for name, amounts in sums.items()}


def _newly_borrowed(
    snapshot: engine.Snapshot,
    wanted: Mapping[str, engine.Queue],
    before: engine.Plan,
    after: engine.Plan,
) -> Counter[str]:
    """Count, by job, the tasks that stand above what their queue deserves only after the change.

    The latest started come first, as reclaim would take them; only what may be evicted counts.
    """
    deserved = [{share.queue: share.deserved for share in each.shares} for each in (before, after)]
    allocated = _allocated(snapshot)
    queues = {queue.name: wanted.get(queue.name, queue) for queue in snapshot.queues}
    borrowed: Counter[str] = Counter()
    by_queue: defaultdict[str, list[engine.Job]] = defaultdict(list)
    for job in snapshot.jobs:
        by_queue[job.queue].append(job)
    for name, jobs in by_queue.items():
        if not queues[name].reclaimable:
            continue
        over = [_above(allocated[name], bound.get(name, {})) for bound in deserved]
        more = {r: a - over[0].get(r, 0) for r, a in over[1].items() if a > over[0].get(r, 0)}
        borrowed += _latest(jobs, more)
    return borrowed


def _above(allocated: Amounts, deserved: Amounts) -> dict[str, int]:
    return {
        resource: amount - deserved[resource]
        for resource, amount in allocated.items()
        if resource in deserved and amount > deserved[resource] and resource != engine.PODS
    }


def _latest(jobs: Iterable[engine.Job], amounts: dict[str, int]) -> Counter[str]:
    """Count tasks from the latest started on until they cover the amounts."""
    running = [
        (task.started_at or 0.0, job.key, task.key, role.request)
        for job in jobs
        for role in job.roles
        for task in job.tasks
        if task.role == role.name
        and task.state in HOLDING
        and role.preemptable
        and job.preemptable is not False
    ]
    left = dict(amounts)
    counted: Counter[str] = Counter()
    for _, job_key, _, request in sorted(running, key=lambda one: one[:3], reverse=True):
        covers = [resource for resource in left if left[resource] > 0 and request.get(resource)]
        if not covers:
            continue
        counted[job_key] += 1
        for resource in covers:
            left[resource] -= request[resource]
    return counted


def _placed(decided: engine.Plan) -> Counter[str]:
    placed = Counter(bind.job for bind in decided.binds)
    return placed + Counter(promise.job for promise in decided.pipelined)


def _evicted(decided: engine.Plan) -> Counter[str]:
    return Counter(eviction.job for eviction in decided.evictions)


class _Names:
    """Jobs by key, as far as the viewer may read them."""

    def __init__(self, actor: Actor, jobs: Iterable[engine.Job]) -> None:
        self.jobs = {job.key: job for job in jobs}
        scope = access.reads(actor, Verb.JOB_READ)
        self.readable = {
            str(key)
            for key in Job.objects.visible_to(scope)
            .filter(id__in=list(self.jobs))
            .values_list("id", flat=True)
        }

    def effects(self, tasks: Counter[str]) -> tuple[JobEffect, ...]:
        """Return the jobs by queue and name; those that cannot be read are summed at the end."""
        named = [
            JobEffect(UUID(key), self.jobs[key].name, self.jobs[key].queue, count)
            for key, count in tasks.items()
            if key in self.readable
        ]
        named.sort(key=lambda effect: (effect.queue, effect.job, str(effect.job_id)))
        hidden = sum(count for key, count in tasks.items() if key not in self.readable)
        return (*named, JobEffect(None, "", "", hidden)) if hidden else tuple(named)


def _warnings(tree: Tree, snapshot: engine.Snapshot) -> Iterable[Problem]:
    total: Counter[str] = Counter()
    for machine in snapshot.nodes:
        if machine.is_schedulable:
            total.update(machine.allocatable)
    for note in note_overcommitted([node(queue) for queue in tree.values()], total):
        yield Problem(note.path, note.code, note.params)
    open_leaves = {queue.id for queue in tree.values() if queue.state == "Open"}
    open_leaves -= {queue.parent_id for queue in tree.values() if queue.parent_id is not None}
    if not open_leaves:
        yield Problem("queues", "queue_no_open_leaf", {})
