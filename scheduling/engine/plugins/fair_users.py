"""The fair_users plugin: the users of one queue take turns."""

from __future__ import annotations

from scheduling.engine.journal import Entry, EntryKind
from scheduling.engine.plugin import Plugin
from scheduling.engine.session import Session
from scheduling.engine.types import PluginConfig
from scheduling.engine.views import JobView


class FairUsers(Plugin):
    """Order the jobs of a queue by what their owners hold there, as a share of the cluster.

    Only queues where jobs of more than one owner are present pay for it.
    """

    name = "fair_users"
    order_moves = True

    def __init__(self, session: Session, config: PluginConfig) -> None:
        """Find the queues with several owners."""
        super().__init__(session, config)
        owners = session.tables.owners_by_queue
        self._held: dict[str, dict[str, list[int]]] = {
            queue: {} for queue, counts in owners.items() if len(counts) > 1
        }
        self.order_moves = bool(self._held)
        for queue, by_owner in self._held.items():
            for owner, held in session.tables.owner_allocated.get(queue, {}).items():
                by_owner[owner] = list(held)

    def job_order(self, job: JobView) -> float:
        """Put the owner with the smaller share first."""
        by_owner = self._held.get(job.queue.name)
        if by_owner is None:
            return 0.0
        held = by_owner.get(job.job.owner)
        if held is None:
            return 0.0
        total = self.session.total
        return max(amount / total[d] if total[d] else 0.0 for d, amount in enumerate(held))

    def _move(self, entry: Entry, sign: int) -> None:
        by_owner = self._held.get(entry.job.queue.name)
        if by_owner is None:
            return
        held = by_owner.setdefault(entry.job.job.owner, [0] * self.session.width)
        if entry.kind is EntryKind.EVICT:
            sign = -sign
        for d, amount in entry.role.shape.items:
            held[d] += sign * amount

    def on_placed(self, entry: Entry) -> None:
        """Book a step."""
        self._move(entry, 1)

    def on_undone(self, entry: Entry) -> None:
        """Reverse a step."""
        self._move(entry, -1)
