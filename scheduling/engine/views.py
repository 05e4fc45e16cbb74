"""What a cycle knows of queues, roles, sub-groups and jobs; the session keeps it up to date."""

from __future__ import annotations

from collections.abc import Sequence

from scheduling.engine.queue_layout import Place
from scheduling.engine.rows import JobRow, RoleRow
from scheduling.engine.tables import Tables
from scheduling.engine.types import SubGroupPolicy, Task


class QueueView:
    """A queue in this cycle; amounts are lists in the order of the resources."""

    __slots__ = (
        "allocated",
        "children",
        "deserved",
        "is_open",
        "max",
        "min",
        "name",
        "parent",
        "path",
        "queue",
        "rank",
        "releasing",
        "requested",
        "share",
    )

    def __init__(self, place: Place, parent: QueueView | None, tables: Tables) -> None:
        """Take over what the queue's own jobs hold and ask for, and hang it below its parent."""
        queue, nothing = place.queue, tables.nothing
        name = queue.name
        self.queue = queue
        self.name = name
        self.parent = parent
        self.children: list[QueueView] = []
        if parent is not None:
            parent.children.append(self)
        self.path: tuple[QueueView, ...] = (self,) if parent is None else (*parent.path, self)
        """From the top of the tree down to this queue, itself included."""
        self.min = place.min
        self.max = place.max
        self.allocated = list(tables.queue_allocated.get(name, nothing))
        self.requested = list(tables.queue_requested.get(name, nothing))
        self.releasing = list(tables.queue_releasing.get(name, nothing))
        self.deserved = nothing
        """Set by the plugin that says what queues deserve."""
        self.is_open = place.is_open
        self.rank = -queue.priority
        self.share = -1.0
        """Where a plugin keeps the queue's share; -1 once something has changed."""


class RoleView:
    """One role of a job in this cycle."""

    __slots__ = ("name", "needed", "pending", "ready", "role", "row", "shape", "waiting")

    def __init__(self, row: RoleRow, *, now: float) -> None:
        """Take over what the row says; tasks in back-off stay out."""
        self.row = row
        self.role = row.role
        self.name = row.name
        self.shape = row.shape
        self.needed = row.role.min_available
        pending = row.pending
        if row.latest_not_before > now:
            pending = [t for t in pending if t.not_before <= now]
        self.pending: list[Task] = pending[::-1]
        """Next task last, so that taking one is a pop."""
        self.ready = len(row.held) + row.done
        self.waiting = len(row.promised)


class Part:
    """The roles of a job that form one sub-group; those that no policy matches form one too."""

    __slots__ = ("policy", "position", "roles", "size", "values")

    def __init__(
        self, policy: SubGroupPolicy | None, position: int, values: tuple[str, ...]
    ) -> None:
        """Start without roles; `position` is the policy's."""
        self.policy = policy
        self.position = position
        self.values = values
        self.roles: list[RoleView] = []
        self.size = policy.size if policy is not None else 1

    @property
    def name(self) -> str:
        """Its policy and label values."""
        return "-".join([self.policy.name if self.policy is not None else "", *self.values])

    def has_size(self, *, with_waiting: bool) -> bool:
        """Return whether it is complete, promises counted or not."""
        have = sum(r.ready + (r.waiting if with_waiting else 0) for r in self.roles)
        return have >= self.size

    def task_count(self) -> int:
        """Return how many tasks it has, placed or not."""
        return sum(r.ready + r.waiting + len(r.pending) for r in self.roles)


def parts_of(policies: Sequence[SubGroupPolicy], roles: Sequence[RoleView]) -> list[Part]:
    """Split roles into sub-groups: a role belongs to the first policy all whose keys it has."""
    found: dict[tuple[int, tuple[str, ...]], Part] = {}
    for role in roles:
        labels = role.role.labels
        place: tuple[int, tuple[str, ...]] = (len(policies), ())
        for position, policy in enumerate(policies):
            values = tuple(labels.get(key, "") for key in policy.match_label_keys)
            if values and all(values):
                place = (position, values)
                break
        if place not in found:
            chosen = policies[place[0]] if place[0] < len(policies) else None
            found[place] = Part(chosen, *place)
        found[place].roles.append(role)
    return [found[place] for place in sorted(found)]


class JobView:
    """One job in this cycle."""

    __slots__ = (
        "allocated",
        "best_effort",
        "is_shaped",
        "job",
        "key",
        "min_available",
        "parts",
        "placed",
        "queue",
        "ready",
        "roles",
        "row",
        "waiting",
    )

    def __init__(self, row: JobRow, *, queue: QueueView, now: float) -> None:
        """Take over what the row says."""
        self.row = row
        self.job = row.job
        self.key = row.job.key
        self.queue = queue
        self.min_available = row.min_available
        self.roles = [RoleView(r, now=now) for r in row.roles]
        self.allocated = list(row.allocated)
        self.ready = self.waiting = self.best_effort = 0
        for role in self.roles:
            self.ready += role.ready
            self.waiting += role.waiting
            if role.shape.is_best_effort:
                self.best_effort += len(role.pending)
        self.placed = 0
        """Placements and promises made in this cycle."""
        self.parts = parts_of(row.job.sub_groups, self.roles) if row.job.sub_groups else []
        self.is_shaped = bool(self.parts) or row.job.topology is not None
        """Whether it has a topology rule or sub-groups."""

    @property
    def pending_count(self) -> int:
        """Number of tasks that could be placed now."""
        roles = self.roles
        return len(roles[0].pending) if len(roles) == 1 else sum(len(r.pending) for r in roles)

    def missing(self) -> int:
        """Return how many tasks the gang still lacks, promises counted as there."""
        return self._lacking(with_waiting=True)

    def _lacking(self, *, with_waiting: bool, with_best_effort: bool = False) -> int:
        have = self.ready + (self.waiting if with_waiting else 0)
        if with_best_effort:
            have += self.best_effort
        if len(self.roles) == 1:
            needed = self.roles[0].needed
            return max(needed, self.min_available) - have
        short = 0
        for role in self.roles:
            role_have = role.ready + (role.waiting if with_waiting else 0)
            if with_best_effort and role.shape.is_best_effort:
                role_have += len(role.pending)
            if role_have < role.needed:
                short += role.needed - role_have
        return max(short, self.min_available - have)

    def counts_on_best_effort(self) -> bool:
        """Return whether the gang has its minimum only if waiting best-effort tasks start too."""
        return bool(self.best_effort) and self._lacking(with_waiting=True) > 0

    def is_ready(self) -> bool:
        """Return whether the gang has its minimum without promises."""
        return self._lacking(with_waiting=False, with_best_effort=True) <= 0 and (
            not self.parts or self._has_parts(with_waiting=False)
        )

    def is_pipelined(self) -> bool:
        """Return whether the gang has its minimum if all promises come true."""
        return self._lacking(with_waiting=True, with_best_effort=True) <= 0 and (
            not self.parts or self._has_parts(with_waiting=True)
        )

    def _has_parts(self, *, with_waiting: bool) -> bool:
        """Return whether every policy has as many complete sub-groups as it needs."""
        return all(
            sum(p.policy is policy and p.has_size(with_waiting=with_waiting) for p in self.parts)
            >= policy.min_groups
            for policy in self.job.sub_groups
            if policy.min_groups
        )

    def is_starving(self) -> bool:
        """Return whether the gang lacks tasks, pending best-effort ones not counted."""
        return self._lacking(with_waiting=True) > 0
