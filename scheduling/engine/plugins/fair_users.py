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
        self._shared = frozenset(queue for queue, counts in owners.items() if len(counts) > 1)
        self._held: dict[str, dict[str, list[int]]] = {}
        """Shared queue that was asked for -> owner -> what the owner holds there."""
        self.order_moves = bool(self._shared)

    def _held_in(self, queue: str) -> dict[str, list[int]] | None:
        """Return what each owner holds in a queue, None where there is but one."""
        if queue not in self._shared:
            return None
        held = self._held.get(queue)
        if held is None:
            by_owner = self.session.tables.owner_allocated.get(queue, {})
            held = self._held[queue] = {owner: list(row) for owner, row in by_owner.items()}
        return held

    def job_order(self, job: JobView) -> float:
        """Put the owner with the smaller share first."""
        by_owner = self._held_in(job.queue.name)
        if by_owner is None:
            return 0.0
        held = by_owner.get(job.job.owner)
        if held is None:
            return 0.0
        total = self.session.total
        return max(amount / total[d] if total[d] else 0.0 for d, amount in enumerate(held))

    def _move(self, entry: Entry, sign: int) -> None:
        by_owner = self._held_in(entry.job.queue.name)
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
