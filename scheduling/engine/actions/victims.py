"""Who may lose tasks to a claim: the jobs in order of their cost, and where their tasks are."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from scheduling.engine.actions.offers import Going, Offer
from scheduling.engine.actions.serving import admitted
from scheduling.engine.groups import Group
from scheduling.engine.journal import is_live
from scheduling.engine.session import Session
from scheduling.engine.shapes import Bools, Int64
from scheduling.engine.types import Task
from scheduling.engine.views import JobView, QueueView, RoleView

Held = tuple[RoleView, Task, int]


@dataclass(frozen=True, slots=True)
class Victims:
    """The jobs that may lose tasks to a claim, cheapest first, and where their tasks are."""

    jobs: tuple[JobView, ...]
    by_node: dict[int, list[tuple[int, JobView, list[Held]]]]
    """Node -> (rank of the job, job, its tasks there, cheapest first)."""
    room: Int64
    """What all of them hold, int64[R, N]; evictions made since are not taken out."""
    ranks: dict[str, int]
    """Job -> its place among the victims' jobs."""
    nodes: Int64
    """The nodes of `by_node`, int64[M], in order."""
    kinds: Int64
    """What the victims of a node have in common with those of others, int64[M].

    Equal for two nodes whose victims are alike, rank by rank; negative where a job holds several
    tasks."""
    is_plain: Bools
    """Whether no victim of a node has annotations, by which a veto may know it, bool[M]."""
    offers: dict[tuple[int, Going], Offer] = field(default_factory=dict)
    """(Node, who goes) -> the offer, which says nothing of who has gone since."""
    left: dict[int, tuple[bool, ...]] = field(default_factory=dict)
    """What `who_is_left` said of nodes on which nothing has changed since."""
    seen: list[int] = field(default_factory=lambda: [0])
    """How far the session's log of changes has been looked through for that."""

    def who_is_left(self, session: Session, node: int) -> tuple[bool, ...]:
        """Return for each job of a node that has one task there whether it stays."""
        log = session.touched
        for changed in log[self.seen[0] :]:
            self.left.pop(changed, None)
        self.seen[0] = len(log)
        left = self.left.get(node)
        if left is None:
            gone = session.evicted
            here = self.by_node[node]
            left = self.left[node] = tuple([t[0][1].key not in gone for _, _, t in here])
        return left


def starving_groups(session: Session) -> list[Group]:
    """Return the admitted groups whose jobs lack tasks for their minimum (or want to grow)."""
    return [
        group
        for group in admitted(session)
        if (job := group.head) is not None and session.is_job_starving(job)
    ]


def victim_keys(session: Session, action: str, queue: QueueView, priority: int) -> set[str]:
    """Return the jobs that every plugin with an opinion could give up for a job of a queue.

    Jobs of the same queue for preempt, of the others for reclaim. Where no plugin votes on
    evictions, none is allowed: whoever switches the votes off does not mean everybody to go.
    """
    if not session.each(f"{action}able"):
        return set()
    found: set[str] | None = None
    for callback in session.each(f"{action}_jobs"):
        allowed = callback(queue, priority)
        if allowed is not None:
            found = set(allowed) if found is None else found & set(allowed)
            if not found:
                return found
    if found is None:
        found = {
            key
            for name, rows in session.tables.holders.items()
            if (name == queue.name) is (action == "preempt")
            for key in rows
        }
    return found


def victim_queues(session: Session, action: str, priority: int) -> set[str] | None:
    """Return the only queues that could lose anything to jobs of at most a priority.

    None where any might. It sieves: what `victim_keys` says of one job is never more.
    """
    if not session.each(f"{action}able"):
        return set()
    found: set[str] | None = None
    for callback in session.each(f"{action}_queues"):
        named = callback(priority)
        if named is not None:
            found = set(named) if found is None else found & set(named)
    return found


def gather(
    session: Session, keys: Iterable[str], *, claimant: QueueView, is_anyone: bool = False
) -> Victims:
    """Rank the victims' jobs, cheapest first, and index what they hold by node.

    Only what may be evicted, unless `is_anyone`.

    Cheapest: of the queue furthest above its share, then last in the order of jobs (lowest
    priority, newest). Of one job the tasks of the lowest priority and the highest index go first.
    """
    orders = session.each("victim_order")
    views = [view for key in keys if (view := session.view(key)) is not None]
    views = [view for view in views if is_anyone or view.job.preemptable is not False]
    views.sort(key=session.job_key, reverse=True)
    queues = {view.queue.name: view.queue for view in views}
    above = {n: [callback(q, claimant) for callback in orders] for n, q in queues.items()}
    views.sort(key=lambda view: above[view.queue.name])
    by_node: dict[int, list[tuple[int, JobView, list[Held]]]] = {}
    room = np.zeros_like(session.free)
    for rank, view in enumerate(views):
        here: dict[int, list[Held]] = {}
        for held in session.held_tasks(view):
            role, task, node = held
            if node < 0 or not is_live(task) or not (is_anyone or role.role.preemptable):
                continue
            here.setdefault(node, []).append(held)
            room[:, node] += role.shape.vector
        for node, tasks in here.items():
            if len(tasks) > 1:
                tasks.sort(key=lambda h: (h[0].role.priority, -h[1].index, h[1].key))
            by_node.setdefault(node, []).append((rank, view, tasks))
    ranks = {view.key: rank for rank, view in enumerate(views)}
    nodes = sorted(by_node)
    kinds, is_plain = _kinds([by_node[node] for node in nodes])
    return Victims(
        tuple(views), by_node, room, ranks, np.array(nodes, dtype=np.int64), kinds, is_plain
    )


def _kinds(places: Sequence[list[tuple[int, JobView, list[Held]]]]) -> tuple[Int64, Bools]:
    """Return `kinds` and `is_plain` of the victims of some nodes."""
    known: dict[tuple[int, ...], int] = {}
    of_jobs: dict[tuple[object, ...], int] = {}
    kinds: Int64 = np.full(len(places), -1, dtype=np.int64)
    is_plain: Bools = np.ones(len(places), dtype=bool)
    for i, here in enumerate(places):
        views = [view for _, view, _ in here]
        if any(view.row.held_count > 1 for view in views):
            continue
        is_plain[i] = not any(view.roles[0].role.annotations for view in views)
        kind = tuple(of_jobs.setdefault(kind_of(view), len(of_jobs)) for view in views)
        kinds[i] = known.setdefault(kind, len(known))
    return kinds, is_plain


def kind_of(view: JobView) -> tuple[object, ...]:
    """Return what a job of one task has in common with others that vetoes judge alike."""
    role = view.roles[0].role
    return (
        view.queue.name,
        view.job.owner,
        view.job.priority,
        view.min_available,
        view.roles[0].shape.index,
        role.priority,
        tuple(role.labels.items()),
        tuple(role.annotations.items()),
        view.key.rpartition("/")[0],
        bool(view.parts),
    )
