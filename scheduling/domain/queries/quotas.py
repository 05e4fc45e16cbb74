"""The read side of quotas: what is limited, how much of it is used, and what counts a person."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from uuid import UUID

from scheduling.domain import quotas
from scheduling.domain.quota_usage import UNFINISHED, Usage, measure, units_below
from scheduling.domain.quotas import limits_of
from scheduling.models import Job, Queue, Quota, QuotaResource, QuotaScope
from tenants.domain.access import Actor, Verb, reads


@dataclass(frozen=True, slots=True)
class Line:
    """One limit with its use: of everybody it counts, or of the one user who is asked about."""

    resource: QuotaResource
    used: int
    limit: int

    @property
    def is_used_up(self) -> bool:
        """Whether nothing more is let through."""
        return self.used >= self.limit


@dataclass(frozen=True, slots=True)
class QuotaView:
    """A quota with its lines."""

    quota: Quota
    lines: tuple[Line, ...]

    @property
    def is_used_up(self) -> bool:
        """Whether any of its limits is reached."""
        return any(line.is_used_up for line in self.lines)


def list_quotas(actor: Actor, *, unit_ids: Collection[UUID] | None = None) -> list[QuotaView]:
    """Return the quotas that the actor may read, of these units or of all, by unit and subject.

    What every user has is shown with the use of the one who uses most.
    """
    rows = Quota.objects.visible_to(reads(actor, Verb.QUOTA_READ))
    if unit_ids is not None:
        rows = rows.filter(unit__in=unit_ids)
    found = rows.select_related("unit", "user").prefetch_related("limits")
    return _with_use(found.order_by("unit__name", "unit", "scope", "user__username"), None)


def load_quota(actor: Actor, quota_id: UUID) -> QuotaView | None:
    """Return one quota; None if there is none that the actor may read."""
    rows = Quota.objects.visible_to(reads(actor, Verb.QUOTA_READ)).filter(id=quota_id)
    found = _with_use(rows.select_related("unit", "user").prefetch_related("limits"), None)
    return found[0] if found else None


def own_quotas(user_id: UUID, unit_ids: Collection[UUID]) -> list[QuotaView]:
    """Return what counts a user's jobs in these units, with the user's own use where it does."""
    return _with_use(quotas.around(unit_ids, user_id), user_id)


def units_of_work(actor: Actor) -> set[UUID]:
    """Return the units where somebody may submit, and those where jobs of theirs are live."""
    if actor.user_id is None:
        return set()
    live = Job.objects.filter(UNFINISHED, owner=actor.user_id).values_list("unit", flat=True)
    return {*reads(actor, Verb.JOB_CREATE).readable_units, *live.distinct()}


def _with_use(rows: Iterable[Quota], user_id: UUID | None) -> list[QuotaView]:
    found = list(rows)
    if not found:
        return []
    below = units_below({quota.unit_id for quota in found})
    limits = {quota.id: limits_of(quota) for quota in found}
    wanted = {resource for one in limits.values() for resource in one}
    usage = measure({unit for group in below.values() for unit in group}, wanted)
    return [
        QuotaView(
            quota,
            tuple(
                Line(resource, _used(usage, quota, below[quota.unit_id], resource, user_id), limit)
                for resource, limit in limits[quota.id].items()
            ),
        )
        for quota in found
    ]


def _used(
    usage: Usage,
    quota: Quota,
    units: Collection[UUID],
    resource: QuotaResource,
    user_id: UUID | None,
) -> int:
    if quota.scope == QuotaScope.UNIT:
        return usage.of(units, resource)
    if quota.user_id is not None or user_id is not None:
        return usage.of(units, resource, quota.user_id or user_id)
    owners = {owner for unit, owner in usage.by_place if unit in units}
    return max((usage.of(units, resource, owner) for owner in owners), default=0)


def quotas_of_queue(actor: Actor, name: str) -> list[QuotaView]:
    """Return what counts the actor's jobs in a queue that it may read, with its own use."""
    visible = Queue.objects.visible_to(reads(actor, Verb.QUEUE_READ)).filter(name=name)
    unit_id = visible.order_by("created_at").values_list("unit_id", flat=True).first()
    if unit_id is None or actor.user_id is None:
        return []
    return own_quotas(actor.user_id, [unit_id])
