"""The resourcequota plugin: what a namespace may ask for, and the walls around units and users."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from scheduling.engine.callbacks import Vote
from scheduling.engine.journal import Entry, EntryKind
from scheduling.engine.plugin import Plugin
from scheduling.engine.reasons import ReasonCode
from scheduling.engine.rows import JobRow
from scheduling.engine.session import Session
from scheduling.engine.types import JOBS, Amounts, PluginConfig, Quota, Reason
from scheduling.engine.views import JobView, RoleView

ONE_JOB = 1000


class ResourceQuotas(Plugin):
    """Let in no more of a namespace than its quotas allow, and place nothing beyond a wall.

    Of a namespace: reject a job whose minimum, with what is used and let in, exceeds a quota; only
    resources that the quota names count. Source: Volcano pkg/scheduler/plugins/resourcequota.
    A wall counts what is held, what is being released included: no eviction makes room under it.
    The callbacks of walls are there only in a cycle that has any.
    """

    name = "resourcequota"

    allocatable: Callable[[JobView, RoleView], Reason | None]
    gang_allocatable: Callable[[JobView, Sequence[int]], Reason | None]
    on_placed: Callable[[Entry], None]
    on_undone: Callable[[Entry], None]

    def __init__(self, session: Session, config: PluginConfig) -> None:
        """Start with nothing let in; count what the jobs behind walls hold."""
        super().__init__(session, config)
        self.let_in: dict[str, dict[str, int]] = {}
        walls = [quota for quota in session.snapshot.quotas if quota.queues is not None]
        if walls:
            self.walls = _Walls(session, walls)
            self.allocatable = self.walls.task_refusal
            self.gang_allocatable = self.walls.gang_refusal
            self.on_placed = self.walls.book
            self.on_undone = self.walls.take_back

    def job_enqueueable(self, job: JobView) -> Vote:
        """Vote by the quotas."""
        return Vote.PERMIT if self.admission_reason(job) is None else Vote.REJECT

    def admission_reason(self, job: JobView) -> Reason | None:
        """Return the quota that a job would exceed."""
        need = job.job.min_resources or {}
        space = namespace(job)
        expected = self.let_in.get(space, {})
        for quota in self.session.snapshot.quotas:
            if quota.queues is not None or quota.namespace != space:
                continue
            for resource, hard in sorted(quota.hard.items()):
                used = quota.used.get(resource, 0) + expected.get(resource, 0)
                asked = need.get(resource, 0)
                if asked and used + asked > hard:
                    return Reason(
                        ReasonCode.QUOTA_EXCEEDED,
                        {
                            "quota": quota.name,
                            "resource": resource,
                            "requested": asked,
                            "used": used,
                            "hard": hard,
                        },
                    )
        return None

    def job_enqueued(self, job: JobView) -> None:
        """Book a job that was let in."""
        booked = self.let_in.setdefault(namespace(job), {})
        for resource, amount in (job.job.min_resources or {}).items():
            booked[resource] = booked.get(resource, 0) + amount


def namespace(job: JobView) -> str:
    """Return the part of a job's key before its first slash."""
    return job.key.partition("/")[0]


class _Wall:
    """One wall and what is held behind it; amounts in the order of the resources."""

    __slots__ = ("hard", "held", "jobs", "most_jobs", "quota")

    def __init__(self, quota: Quota, used: Amounts, session: Session) -> None:
        """Start with what is held outside the snapshot."""
        resources = session.tables.resources
        self.quota = quota
        self.held = resources.row(used)
        self.hard = {
            resources.index[name]: most
            for name, most in quota.hard.items()
            if name in resources.index
        }
        self.jobs = used.get(JOBS, 0)
        self.most_jobs = quota.hard.get(JOBS)

    def refusal(
        self, job: JobView, items: Iterable[tuple[int, int]], names: Sequence[str]
    ) -> Reason | None:
        """Return why the job may not take so much more."""
        if (
            self.most_jobs is not None
            and not _is_live(job)
            and self.jobs + ONE_JOB > self.most_jobs
        ):
            return self._reason(JOBS, ONE_JOB, self.jobs, self.most_jobs)
        for d, amount in items:
            most = self.hard.get(d)
            if most is not None and self.held[d] + amount > most:
                return self._reason(names[d], amount, self.held[d], most)
        return None

    def _reason(self, resource: str, amount: int, held: int, most: int) -> Reason:
        is_personal = self.quota.is_each or bool(self.quota.owner)
        return Reason(
            ReasonCode.QUOTA_OF_USER if is_personal else ReasonCode.QUOTA_OF_UNIT,
            {
                "unit": self.quota.name,
                "resource": resource,
                "requested": amount,
                "used": held,
                "hard": most,
            },
        )


class _Walls:
    """All walls of a cycle, those that everybody has made for each owner when first asked for."""

    def __init__(self, session: Session, quotas: Sequence[Quota]) -> None:
        """Count what is held, jobs that end included until they have ended."""
        self.session = session
        self.names = session.tables.resources.names
        self._by_queue: dict[str, list[Quota]] = {}
        for quota in quotas:
            for queue in quota.queues or ():
                self._by_queue.setdefault(queue, []).append(quota)
        self._walls: dict[tuple[int, str], _Wall] = {}
        self._around: dict[tuple[str, str], tuple[_Wall, ...]] = {}
        for row in session.tables.rows.values():
            if _was_live(row):
                self._count(row)

    def _count(self, row: JobRow) -> None:
        for wall in self.around(row.job.queue, row.job.owner):
            wall.jobs += ONE_JOB
            for d, amount in enumerate(row.allocated):
                wall.held[d] += amount + row.releasing[d]

    def around(self, queue: str, owner: str) -> tuple[_Wall, ...]:
        """Return the walls around the jobs of an owner in a queue, in the order given."""
        known = self._around.get((queue, owner))
        if known is None:
            known = tuple(
                self._wall(quota, owner)
                for quota in self._by_queue.get(queue, ())
                if (not quota.owner or quota.owner == owner) and owner not in quota.exempt
            )
            self._around[queue, owner] = known
        return known

    def _wall(self, quota: Quota, owner: str) -> _Wall:
        key = (id(quota), owner if quota.is_each else "")
        wall = self._walls.get(key)
        if wall is None:
            used = quota.used_by_owner.get(owner, {}) if quota.is_each else quota.used
            wall = self._walls[key] = _Wall(quota, used, self.session)
        return wall

    def task_refusal(self, job: JobView, role: RoleView) -> Reason | None:
        """Refuse a task beyond a wall."""
        return self._refusal(job, role.shape.items)

    def gang_refusal(self, job: JobView, need: Sequence[int]) -> Reason | None:
        """Refuse a gang that would pass a wall as a whole."""
        return self._refusal(job, [(d, amount) for d, amount in enumerate(need) if amount])

    def _refusal(self, job: JobView, items: Sequence[tuple[int, int]]) -> Reason | None:
        for wall in self.around(job.queue.name, job.job.owner):
            reason = wall.refusal(job, items, self.names)
            if reason is not None:
                return reason
        return None

    def book(self, entry: Entry) -> None:
        """Add what was placed or promised; an eviction gives nothing back before its task ends."""
        if entry.kind is not EntryKind.EVICT:
            self._move(entry, 1, is_first=entry.job.placed == 1)

    def take_back(self, entry: Entry) -> None:
        """Reverse that."""
        if entry.kind is not EntryKind.EVICT:
            self._move(entry, -1, is_first=entry.job.placed == 0)

    def _move(self, entry: Entry, sign: int, *, is_first: bool) -> None:
        job = entry.job
        change = sign * ONE_JOB if is_first and not _was_live(job.row) else 0
        for wall in self.around(job.queue.name, job.job.owner):
            wall.jobs += change
            for d, amount in entry.role.shape.items:
                wall.held[d] += sign * amount


def _was_live(row: JobRow) -> bool:
    return bool(row.held_count or any(row.allocated) or any(row.releasing))


def _is_live(job: JobView) -> bool:
    """Whether a job holds something already, by the snapshot or by this cycle."""
    return job.placed > 0 or _was_live(job.row)
