"""Quotas of what runs: as walls for the planner, and checked again when a plan becomes true."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from uuid import UUID

from django.db import connection
from django.db.models import Prefetch

from scheduling.domain.quota_usage import HELD, Place, Usage, is_around, measure, units_below
from scheduling.domain.quotas import JOB_UNITS
from scheduling.engine import types as engine
from scheduling.models import Cluster, Job, Queue, Quota, QuotaLimit, QuotaResource, QuotaScope

OF_WHAT_RUNS = frozenset({QuotaResource.RUNNING_JOBS, *HELD})
Amounts = Mapping[str, int]


def walls_of(cluster_id: UUID) -> tuple[engine.Quota, ...]:
    """Return the walls of a cluster as the engine knows them; one query where there are none."""
    quotas = _quotas()
    if not quotas:
        return ()
    below = units_below({quota.unit_id for quota in quotas})
    queues = Queue.objects.filter(cluster_id=cluster_id, unit__isnull=False)
    names: defaultdict[UUID, set[str]] = defaultdict(set)
    for name, unit in queues.values_list("name", "unit_id"):
        assert unit is not None  # noqa: S101 -- filtered by it
        names[unit].add(name)
    elsewhere = _used_elsewhere(cluster_id, below)
    own = _own_quotas(quotas)
    return tuple(
        engine.Quota(
            name=quota.unit.name,
            namespace="",
            hard=_engine_amounts({one.resource: one.amount for one in quota.limits.all()}),
            used=_used(elsewhere, below[quota.unit_id], quota.user_id),
            queues=frozenset(name for unit in below[quota.unit_id] for name in names[unit]),
            owner=str(quota.user_id or ""),
            is_each=quota.scope == QuotaScope.EACH_USER,
            exempt=frozenset(
                str(user)
                for unit, user in own
                if quota.scope == QuotaScope.EACH_USER and unit == quota.unit_id
            ),
            used_by_owner=_used_by_owner(elsewhere, below[quota.unit_id])
            if quota.scope == QuotaScope.EACH_USER
            else {},
        )
        for quota in quotas
    )


_WHAT_WALLS_GO_BY = """
    SELECT (SELECT count(*) FROM scheduling_cluster),
           (SELECT md5(string_agg(id::text || ':' || version, ',' ORDER BY id))
            FROM scheduling_quota),
           (SELECT ARRAY[count(*), sum(version)] FROM tenants_orgunit),
           (SELECT ARRAY[count(*), max(id)] FROM tenants_orgclosure),
           (SELECT ARRAY[count(*), sum(changed_xid)] FROM scheduling_queue WHERE cluster_id = %s)
"""


@dataclass(slots=True)
class KeptWalls:
    """The walls of one cluster, read again only when a quota, a unit or a queue has changed.

    What is used in other clusters changes all the time: where there are any, they are read anew.
    """

    known: object = None
    walls: tuple[engine.Quota, ...] = ()

    def current(self, cluster_id: UUID) -> tuple[engine.Quota, ...]:
        """Return the walls as they are now: one query where nothing has changed."""
        with connection.cursor() as cursor:
            cursor.execute(_WHAT_WALLS_GO_BY, [cluster_id])
            found = cursor.fetchone()
        if found[0] != 1 or found != self.known:
            self.walls = walls_of(cluster_id)
            self.known = found
        return self.walls


def _quotas() -> list[Quota]:
    """Return the quotas with a limit of what runs, with those limits, from the top down."""
    limits = QuotaLimit.objects.filter(resource__in=OF_WHAT_RUNS)
    quotas = Quota.objects.filter(id__in=limits.values("quota_id")).select_related("unit")
    wanted = Prefetch("limits", limits)
    return list(quotas.prefetch_related(wanted).order_by("created_at", "id"))


def _own_quotas(quotas: Collection[Quota]) -> set[tuple[UUID, UUID]]:
    """Return the (unit, user) pairs that have a quota of their own, whatever it limits."""
    units = {quota.unit_id for quota in quotas if quota.scope == QuotaScope.EACH_USER}
    if not units:
        return set()
    rows = Quota.objects.filter(unit__in=units, scope=QuotaScope.USER)
    return set(rows.values_list("unit_id", "user_id"))


def _used_elsewhere(cluster_id: UUID, below: Mapping[UUID, Collection[UUID]]) -> Usage:
    """Sum up what runs in other clusters, if there are any."""
    if not Cluster.objects.exclude(id=cluster_id).exists():
        return Usage()
    units = {unit for group in below.values() for unit in group}
    return measure(units, OF_WHAT_RUNS, outside_cluster=cluster_id)


def _used(usage: Usage, units: Collection[UUID], owner: UUID | None) -> dict[str, int]:
    return _engine_amounts(
        {
            resource: amount
            for resource in OF_WHAT_RUNS
            if (amount := usage.of(units, resource, owner))
        }
    )


def _used_by_owner(usage: Usage, units: Collection[UUID]) -> dict[str, dict[str, int]]:
    owners = {owner for unit, owner in usage.by_place if unit in units}
    return {str(owner): _used(usage, units, owner) for owner in owners}


def _engine_amounts(amounts: Mapping[str, int]) -> dict[str, int]:
    return {
        engine.JOBS if name == QuotaResource.RUNNING_JOBS else str(name): (
            amount * JOB_UNITS if name == QuotaResource.RUNNING_JOBS else amount
        )
        for name, amount in amounts.items()
    }


class Walls:
    """The walls around the jobs of a batch of binds, locked, with what is used behind them.

    Schedulers of several clusters may fill the same wall at once, so the limits are locked from
    the top of the organisation down, and the use is summed up after that.
    """

    def __init__(self, job_ids: Collection[UUID]) -> None:
        """Lock what concerns these jobs: one query where there are no quotas."""
        self.around: dict[Place, list[tuple[QuotaLimit, UUID | None]]] = {}
        self.amounts: dict[int, int] = {}
        self.used: dict[tuple[int, UUID | None], int] = {}
        quotas = _quotas()
        if quotas:
            self._lock(quotas, job_ids)

    def _lock(self, quotas: Collection[Quota], job_ids: Collection[UUID]) -> None:
        below = units_below({quota.unit_id for quota in quotas})
        own = _own_quotas(quotas)
        jobs = Job.objects.filter(id__in=job_ids).values_list("unit_id", "owner_id")
        for unit, owner in set(jobs):
            self.around[unit, owner] = [
                (limit, None if quota.scope == QuotaScope.UNIT else owner)
                for quota in quotas
                if unit in below[quota.unit_id] and is_around(quota, owner, own)
                for limit in quota.limits.all()
            ]
        limits = {limit.id: limit for group in self.around.values() for limit, _ in group}
        if not limits:
            return
        self.amounts = _lock_limits(limits)
        unit_of = {quota.id: below[quota.unit_id] for quota in quotas}
        units = {unit for limit in limits.values() for unit in unit_of[limit.quota_id]}
        usage = measure(units, OF_WHAT_RUNS)
        for group in self.around.values():
            for limit, who in group:
                resource = QuotaResource(limit.resource)
                self.used[limit.id, who] = usage.of(unit_of[limit.quota_id], resource, who)

    def has_room(self, job: Job, total: Amounts) -> bool:
        """Whether all walls let so much more of the job through."""
        return all(
            self.used[limit.id, owner] + asked <= self.amounts[limit.id]
            for limit, owner in self.around.get((job.unit_id, job.owner_id), ())
            if limit.id in self.amounts and (asked := _asked(limit, job, total))
        )

    def take(self, job: Job, total: Amounts) -> None:
        """Count it as used."""
        for limit, owner in self.around.get((job.unit_id, job.owner_id), ()):
            self.used[limit.id, owner] += _asked(limit, job, total)


def _asked(limit: QuotaLimit, job: Job, total: Amounts) -> int:
    if limit.resource != QuotaResource.RUNNING_JOBS:
        return total.get(limit.resource, 0)
    is_live = job.tasks_starting or job.tasks_running or job.tasks_stopping
    return 0 if is_live else 1


def _lock_limits(limits: Collection[int]) -> dict[int, int]:
    """Lock limits, those of the units at the top first, and return their amounts as they are."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT l.id, l.amount FROM scheduling_quotalimit l"
            " JOIN scheduling_quota q ON q.id = l.quota_id WHERE l.id = ANY(%s) ORDER BY"
            " (SELECT count(*) FROM tenants_orgclosure c WHERE c.descendant_id = q.unit_id),"
            " q.id, l.id FOR NO KEY UPDATE OF l",
            [list(limits)],
        )
        return dict(cursor.fetchall())
