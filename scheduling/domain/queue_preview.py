"""What a change of queues or of the scheduler would do, before it is made: shares, reclaim, starts.

The engine plans twice on the live snapshot, with all as it is and as it would be. Nothing is
written. The viewer reads numbers of the queues it sees and names of the jobs it sees; of the rest
only how much it is.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from uuid import UUID

from scheduling.domain import cycles, quarantine, scheduler_configs
from scheduling.domain import snapshot as snapshots
from scheduling.domain.queue_changes import (
    QueueEdit,
    Tree,
    apply_in_memory,
    cluster_of,
    node,
    read_tree,
)
from scheduling.domain.snapshot_values import queue_value
from scheduling.engine import types as engine
from scheduling.models import Job, Queue
from scheduling.spec.job_spec import GPU_RESOURCE
from scheduling.spec.queue_tree import note_overcommitted
from tenants.domain import access
from tenants.domain.access import Actor, Verb
from tenants.domain.errors import Problem

HOLDING = frozenset({engine.TaskState.BOUND, engine.TaskState.RUNNING})
Amounts = Mapping[str, int]
TaskKey = tuple[str, str]
"""Key of the job, key of the task."""


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
class SumCheck:
    """What the queues below one are guaranteed together, before and after, and what bounds it."""

    queue: str
    resource: str
    before: int
    after: int
    bound: int | None
    """The queue's own min; None: it states none, which forbids nothing."""

    @property
    def is_broken(self) -> bool:
        """Whether more is promised than the queue has."""
        return self.bound is not None and self.after > self.bound


@dataclass(frozen=True, slots=True)
class Impact:
    """Sums over all jobs, whoever looks: what a policy about large changes goes by."""

    reclaimable_tasks: int = 0
    reclaimable_gpu_milli: int = 0
    """Held by tasks that would run above what their queue deserves, and did not before."""
    evicted_tasks: int = 0
    evicted_gpu_milli: int = 0
    """Held by the tasks that the next cycle would evict."""
    started_tasks: int = 0

    @property
    def gpu_milli(self) -> int:
        """What the change takes from those who run now."""
        return max(self.reclaimable_gpu_milli, self.evicted_gpu_milli)


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
    sums: tuple[SumCheck, ...] = ()
    """The guarantees below each parent of an edited queue."""
    impact: Impact = Impact()
    missed: tuple[JobEffect, ...] = ()
    """Tasks that the next cycle would place as things are, and then would not."""


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
    promised = _promised(tree)
    changed = apply_in_memory(actor=actor, edits=edits, tree=tree)
    before = snapshots.build(cluster_id, now)
    wanted = {tree[queue_id].name: queue_value(tree[queue_id]) for queue_id in changed}
    after = tuple(wanted.get(queue.name, queue) for queue in before.queues)
    preview = _compare(actor, tree, before, after)
    sums = _sums(_visible(actor, tree), tree, promised, changed)
    return replace(preview, sums=tuple(sums))


def preview_trees(*, actor: Actor, before: Tree, after: Tree, now: datetime) -> Preview:
    """Say what another tree of the same cluster would do, such as after a move of units.

    `before` is the tree in force; a queue that `after` lacks has never had a job.
    Cost: two cycles of the engine on a cold snapshot.
    """
    cluster_id = next(iter(before.values())).cluster_id
    snapshot = snapshots.build(cluster_id, now)
    wanted = tuple(queue_value(queue) for queue in sorted(after.values(), key=lambda one: one.name))
    return _compare(actor, after, snapshot, wanted)


def preview_config(*, actor: Actor, cluster_id: UUID, text: str, now: datetime) -> Preview:
    """Say what the next cycle would do differently under another scheduler configuration.

    Cost: two cycles of the engine on a cold snapshot.

    Raises:
        Denied, NotFound, Invalid: as `scheduler_configs.check`.
    """
    scheduler_configs.check(actor=actor, text=text)
    snapshot = snapshots.build(cluster_id, now)
    tree = read_tree(cluster_id)
    return _compare(actor, tree, snapshot, snapshot.queues, cycles.read_config(text).config)


def _compare(
    actor: Actor,
    tree: Tree,
    before: engine.Snapshot,
    queues: tuple[engine.Queue, ...],
    wanted_config: engine.Config | None = None,
) -> Preview:
    """Plan the snapshot as it is, and with other queues or configuration; say what differs."""
    wanted = {queue.name: queue for queue in queues}
    config = cycles.configuration_of(next(iter(tree.values())).cluster_id)
    # A job that makes planning fail is left out of both, as the scheduler leaves it out.
    now = quarantine.plan(before, config)
    then = quarantine.plan(replace(now.snapshot, queues=queues), wanted_config or config)
    before, plans = now.snapshot, (now.plan, then.plan)
    names = _Names(actor, before.jobs)
    borrowed = _newly_borrowed(before, wanted, *plans)
    starts = _placed(plans[1]) - _placed(plans[0])
    evictions = _evicted(plans[1]) - _evicted(plans[0])
    return Preview(
        shares=tuple(_shares(_visible(actor, tree), tree, before, *plans)),
        reclaimable=names.effects(_by_job(borrowed)),
        starts=names.effects(starts),
        evictions=names.effects(_by_job(_evicted(plans[1])) - _by_job(_evicted(plans[0]))),
        warnings=tuple(_warnings(tree, before)),
        impact=_impact(before, borrowed, evictions, starts),
        missed=names.effects(_placed(plans[0]) - _placed(plans[1])),
    )


def _impact(
    snapshot: engine.Snapshot,
    borrowed: Collection[TaskKey],
    evictions: Collection[TaskKey],
    starts: Counter[str],
) -> Impact:
    gpus = {
        (job.key, task.key): role.request.get(GPU_RESOURCE, 0)
        for job in snapshot.jobs
        for role in job.roles
        for task in job.tasks
        if task.role == role.name
    }
    return Impact(
        reclaimable_tasks=len(borrowed),
        reclaimable_gpu_milli=sum(gpus.get(key, 0) for key in borrowed),
        evicted_tasks=len(evictions),
        evicted_gpu_milli=sum(gpus.get(key, 0) for key in evictions),
        started_tasks=starts.total(),
    )


def _promised(tree: Tree) -> dict[UUID, Counter[str]]:
    """Sum the guarantees right below each queue."""
    sums: dict[UUID, Counter[str]] = defaultdict(Counter)
    for queue in tree.values():
        if queue.parent_id is not None:
            sums[queue.parent_id].update(queue.min)
    return sums


def _sums(
    visible: Collection[UUID],
    tree: Tree,
    before: Mapping[UUID, Counter[str]],
    changed: Iterable[UUID],
) -> Iterable[SumCheck]:
    """Compare the guarantees below each parent of a changed queue, where all of it is visible."""
    after = _promised(tree)
    parents = {queue.id: queue for one in changed if (queue := tree[one].parent) is not None}
    shown = [parent for queue_id, parent in parents.items() if queue_id in visible]
    for parent in sorted(shown, key=lambda one: one.name):
        before_here, after_here = before.get(parent.id, Counter()), after[parent.id]
        for resource in sorted({*before_here, *after_here}):
            yield SumCheck(
                parent.name,
                resource,
                before_here[resource],
                after_here[resource],
                parent.min.get(resource),
            )


def _visible(actor: Actor, tree: Tree) -> set[UUID]:
    """Return which queues of the tree the actor reads."""
    if not tree:
        return set()
    cluster_id = next(iter(tree.values())).cluster_id
    seen = Queue.objects.visible_to(access.reads(actor, Verb.QUEUE_READ))
    return set(seen.filter(cluster_id=cluster_id).values_list("id", flat=True))


def _shares(
    visible: Collection[UUID],
    tree: Tree,
    snapshot: engine.Snapshot,
    before: engine.Plan,
    after: engine.Plan,
) -> Iterable[ShareChange]:
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
) -> list[TaskKey]:
    """Name the tasks that stand above what their queue deserves only after the change.

    The latest started come first, as reclaim would take them; only what may be evicted counts.
    """
    deserved = [{share.queue: share.deserved for share in each.shares} for each in (before, after)]
    allocated = _allocated(snapshot)
    queues = {queue.name: wanted.get(queue.name, queue) for queue in snapshot.queues}
    borrowed: list[TaskKey] = []
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


def _latest(jobs: Iterable[engine.Job], amounts: dict[str, int]) -> list[TaskKey]:
    """Take tasks from the latest started on until they cover the amounts."""
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
    taken: list[TaskKey] = []
    for _, job_key, task_key, request in sorted(running, key=lambda one: one[:3], reverse=True):
        covers = [resource for resource in left if left[resource] > 0 and request.get(resource)]
        if not covers:
            continue
        taken.append((job_key, task_key))
        for resource in covers:
            left[resource] -= request[resource]
    return taken


def _placed(decided: engine.Plan) -> Counter[str]:
    placed = Counter(bind.job for bind in decided.binds)
    return placed + Counter(promise.job for promise in decided.pipelined)


def _evicted(decided: engine.Plan) -> set[TaskKey]:
    return {(eviction.job, eviction.task) for eviction in decided.evictions}


def _by_job(tasks: Iterable[TaskKey]) -> Counter[str]:
    return Counter(job for job, _task in tasks)


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
