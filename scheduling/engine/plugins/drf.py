"""The drf plugin: dominant resource fairness among the jobs of a queue, or over a tree."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from scheduling.engine.fairness.hierarchy import ShareTree
from scheduling.engine.journal import Claim, Unit
from scheduling.engine.plugin import Plugin
from scheduling.engine.session import Session
from scheduling.engine.types import PluginConfig
from scheduling.engine.views import JobView, QueueView

TOLERANCE = 1e-6


HIERARCHY = "volcano.sh/hierarchy"
HIERARCHY_WEIGHTS = "volcano.sh/hierarchy-weights"


def _paths_of(queues: Iterable[QueueView]) -> dict[str, tuple[str, str]]:
    """Return queue -> its path and weights, below one top, as annotations write them."""
    return {
        queue.name: (
            "/".join(("", *(level.name for level in queue.path))),
            "/".join(("", *(str(level.queue.weight) for level in queue.path))),
        )
        for queue in queues
    }


class Drf(Plugin):
    """Order jobs by their dominant share; evict only from jobs that hold the larger one.

    Flag `hierarchy`: queues are ordered by their shares in the tree that their annotations
    `volcano.sh/hierarchy` (`root/a/b`) and `-weights` (`1/2/3`) describe; where no queue has any,
    in the tree of the queues themselves, by their weights.
    Source: Volcano pkg/scheduler/plugins/drf, docs/design/hdrf.
    """

    name = "drf"

    def __init__(self, session: Session, config: PluginConfig) -> None:
        """Take the queues' places in the tree over."""
        super().__init__(session, config)
        self._tree: ShareTree | None = None
        self._tree_at = -1
        self._paths: dict[str, tuple[str, str]] = {}
        self.queue_order: Callable[[QueueView], object] | None = None
        self.reclaimable: Callable[[Claim, Unit], bool] | None = None
        paths = {
            name: (text, queue.queue.annotations.get(HIERARCHY_WEIGHTS, ""))
            for name, queue in session.queues.items()
            if (text := queue.queue.annotations.get(HIERARCHY))
        }
        if self.has_flag("hierarchy"):
            self._paths = paths or _paths_of(session.queues.values())
            self.queue_order = self._place_in_tree
            self.reclaimable = self._is_above_claimant

    def _share_tree(self, *, without: Sequence[Unit] = (), claim: Claim | None = None) -> ShareTree:
        """Build the tree as it stands, or as it would with a claim's task and without some."""
        session = self.session
        tree = ShareTree(session.total, self._paths)
        extra: dict[str, list[int]] = {}
        for unit in without:
            change = extra.setdefault(unit.job.key, [0] * session.width)
            for d, amount in enumerate(unit.amounts(session.width)):
                change[d] -= amount
        if claim is not None:
            change = extra.setdefault(claim.job.key, [0] * session.width)
            for d, amount in claim.role.shape.items:
                change[d] += amount
        for key, row in session.tables.rows.items():
            job = session.jobs.get(key)
            allocated = job.allocated if job is not None else row.allocated
            if key in extra:
                allocated = [a + x for a, x in zip(allocated, extra[key], strict=True)]
            tree.add(row.job.queue, allocated=allocated, requested=row.requested)
        tree.settle()
        return tree

    def _place_in_tree(self, queue: QueueView) -> tuple[tuple[bool, float], ...]:
        now = len(self.session.touched)
        if self._tree is None or self._tree_at != now:
            self._tree, self._tree_at = self._share_tree(), now
        return self._tree.key(queue.name)

    def _is_above_claimant(self, claim: Claim, unit: Unit) -> bool:
        """Allow a task if its queue comes after the claimant's even when both have moved."""
        tree = self._share_tree(without=(*claim.removed.units, unit), claim=claim)
        return tree.key(claim.job.queue.name) < tree.key(unit.job.queue.name)

    def _share(self, amounts: Sequence[int]) -> float:
        total = self.session.total
        shares = [a / total[d] if total[d] else 1.0 for d, a in enumerate(amounts) if a]
        return max(shares) if shares else 0.0

    def job_order(self, job: JobView) -> float:
        """Put the smaller share first."""
        return self._share(job.allocated)

    def preemptable(self, claim: Claim, unit: Unit) -> bool:
        """Allow a task if its job stays at or above the share that the preemptor gets."""
        own = [a + r for a, r in zip(claim.job.allocated, claim.role.shape.request, strict=True)]
        left = list(unit.job.allocated)
        for gone in (unit, *(u for u in claim.removed.units if u.job is unit.job)):
            for d, amount in enumerate(gone.amounts(self.session.width)):
                left[d] -= amount
        mine, theirs = self._share(own), self._share(left)
        return mine < theirs or abs(mine - theirs) <= TOLERANCE
