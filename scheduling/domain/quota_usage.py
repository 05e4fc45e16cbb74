"""What counts against quotas: jobs, holds and files by unit and owner, a few queries each."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from uuid import UUID

from django.db.models import Count, F, Q, QuerySet, Sum

from scheduling.lifecycle.states import FINISHED_PHASES
from scheduling.models import Hold, Job, JobFile, Quota, QuotaResource, QuotaScope
from tenants.models import OrgClosure

HELD = {
    QuotaResource.CPU: "cpu_milli",
    QuotaResource.MEMORY: "memory_bytes",
    QuotaResource.GPU: "gpu_milli",
}
"""Resources that holds are summed for, and their columns."""
Place = tuple[UUID, UUID]
"""(unit, owner) of jobs or files."""
LIVE = F("tasks_starting") + F("tasks_running") + F("tasks_stopping")
UNFINISHED = ~Q(phase__in=[str(phase) for phase in FINISHED_PHASES])


@dataclass(slots=True)
class Usage:
    """Amounts by resource and place."""

    by_place: dict[Place, dict[QuotaResource, int]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(int))
    )
    _owners: dict[UUID, set[UUID]] = field(default_factory=lambda: defaultdict(set))
    """Who has something in a unit: a page of many quotas asks for few units at a time."""

    def of(
        self, units: Collection[UUID], resource: QuotaResource, owner: UUID | None = None
    ) -> int:
        """Return the sum over the units, of one owner or of all."""
        return sum(
            self.by_place[unit, who][resource]
            for unit in self._owners.keys() & units
            for who in self._owners[unit]
            if owner is None or who == owner
        )

    def add(self, place: Place, resource: QuotaResource, amount: int) -> None:
        """Add an amount."""
        self.by_place[place][resource] += amount
        self._owners[place[0]].add(place[1])


def units_below(unit_ids: Iterable[UUID]) -> dict[UUID, frozenset[UUID]]:
    """Return each unit's subtree, itself included: one query."""
    wanted = set(unit_ids)
    below: defaultdict[UUID, set[UUID]] = defaultdict(set)
    links = OrgClosure.objects.filter(ancestor__in=wanted)
    for ancestor, descendant in links.values_list("ancestor_id", "descendant_id"):
        below[ancestor].add(descendant)
    return {unit: frozenset(below[unit]) for unit in wanted}


def measure(
    units: Collection[UUID],
    resources: Collection[QuotaResource],
    *,
    owner: UUID | None = None,
    outside_cluster: UUID | None = None,
) -> Usage:
    """Sum up what the jobs and files of these units use, as far as the resources need it.

    `owner` narrows it to one; `outside_cluster` leaves the jobs of one cluster out. Three queries
    at most: jobs that have not ended, live holds, files.
    """
    usage = Usage()
    if {QuotaResource.RUNNING_JOBS, QuotaResource.QUEUED_JOBS} & set(resources):
        _count_jobs(usage, units, owner, outside_cluster)
    if HELD.keys() & set(resources):
        _sum_holds(usage, units, owner, outside_cluster)
    if QuotaResource.STORAGE in resources:
        files = JobFile.objects.filter(unit__in=units, **({"owner": owner} if owner else {}))
        for unit, who, size in files.values_list("unit_id", "owner_id").annotate(
            size=Sum("size_bytes")
        ):
            usage.add((unit, who), QuotaResource.STORAGE, size or 0)
    return usage


def queued_jobs(units: Collection[UUID], owner: UUID | None) -> QuerySet[Job]:
    """Return the jobs that have not ended and hold nothing, suspended ones included."""
    jobs = Job.objects.filter(
        UNFINISHED, unit__in=units, tasks_starting=0, tasks_running=0, tasks_stopping=0
    )
    return jobs if owner is None else jobs.filter(owner=owner)


def _count_jobs(
    usage: Usage, units: Collection[UUID], owner: UUID | None, outside: UUID | None
) -> None:
    jobs = Job.objects.filter(UNFINISHED, unit__in=units)
    if owner is not None:
        jobs = jobs.filter(owner=owner)
    if outside is not None:
        jobs = jobs.exclude(queue__cluster=outside)
    counted = jobs.annotate(live=LIVE).values_list("unit_id", "owner_id")
    rows = counted.annotate(
        running=Count("id", filter=Q(live__gt=0)), queued=Count("id", filter=Q(live=0))
    )
    for unit, who, running, queued in rows:
        usage.add((unit, who), QuotaResource.RUNNING_JOBS, running)
        usage.add((unit, who), QuotaResource.QUEUED_JOBS, queued)


def _sum_holds(
    usage: Usage, units: Collection[UUID], owner: UUID | None, outside: UUID | None
) -> None:
    holds = Hold.objects.filter(released_at__isnull=True, queue__unit__in=units)
    if owner is not None:
        holds = holds.filter(attempt__job__owner=owner)
    if outside is not None:
        holds = holds.exclude(queue__cluster=outside)
    grouped = holds.values_list("queue__unit", "attempt__job__owner").annotate(
        *(Sum(column) for column in HELD.values())
    )
    for unit, who, *sums in grouped.order_by():
        for resource, amount in zip(HELD, sums, strict=True):
            usage.add((unit, who), resource, amount or 0)


def is_around(quota: Quota, owner: UUID, exempt: Collection[tuple[UUID, UUID]]) -> bool:
    """Whether a quota counts an owner; `exempt` are the (unit, user) pairs with one of their own.

    One's own quota stands in the place of what every user of that unit has.
    """
    if quota.scope == QuotaScope.USER:
        return quota.user_id == owner
    return quota.scope == QuotaScope.UNIT or (quota.unit_id, owner) not in exempt
