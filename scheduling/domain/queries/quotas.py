"""The read side of quotas: what is limited, how much of it is used, and what counts a person."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from uuid import UUID

from django.db.models import Exists, OuterRef, Q, QuerySet, Value
from django.db.models.functions import Coalesce

from scheduling.domain.queries.keyset import beyond
from scheduling.domain.quota_usage import UNFINISHED, Usage, is_around, measure, units_below
from scheduling.models import Job, Queue, Quota, QuotaLimit, QuotaResource, QuotaScope
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
    quotas = Quota.objects.visible_to(reads(actor, Verb.QUOTA_READ))
    if unit_ids is not None:
        quotas = quotas.filter(unit__in=unit_ids)
    rows = QuotaLimit.objects.filter(quota__in=quotas.values("id"))
    return _with_use(rows.order_by(*ORDER), None)


PAGE_SIZE = 50
PAGE_ORDER = ("unit__name", "unit_id", "scope", "who", "id")


@dataclass(frozen=True, slots=True)
class QuotaPage:
    """One page of quotas; `next_after` is where the next begins, None where this is the last."""

    views: list[QuotaView]
    next_after: UUID | None


def page_of_quotas(
    actor: Actor, *, unit_id: UUID | None = None, after: UUID | None = None
) -> QuotaPage:
    """Return a page of what `list_quotas` does, after a quota of the page before."""
    limits = QuotaLimit.objects.filter(quota=OuterRef("pk"))
    quotas = Quota.objects.visible_to(reads(actor, Verb.QUOTA_READ)).filter(Exists(limits))
    if unit_id is not None:
        quotas = quotas.filter(unit=unit_id)
    ordered = quotas.annotate(who=Coalesce("user__username", Value(""))).order_by(*PAGE_ORDER)
    last = ordered.filter(id=after).values_list(*PAGE_ORDER).first() if after else None
    if last is not None:
        ordered = ordered.filter(beyond(PAGE_ORDER, last))
    shown = QuotaLimit.objects.filter(quota__in=ordered.values("id")[: PAGE_SIZE + 1])
    views = _with_use(shown.order_by(*ORDER), None)
    has_more = len(views) > PAGE_SIZE
    return QuotaPage(views[:PAGE_SIZE], views[PAGE_SIZE - 1].quota.id if has_more else None)


def load_quota(actor: Actor, quota_id: UUID) -> QuotaView | None:
    """Return one quota; None if there is none that the actor may read."""
    quotas = Quota.objects.visible_to(reads(actor, Verb.QUOTA_READ)).filter(id=quota_id)
    found = _with_use(QuotaLimit.objects.filter(quota__in=quotas.values("id")), None)
    return found[0] if found else None


def own_quotas(user_id: UUID, units: Q) -> list[QuotaView]:
    """Return what counts a user's jobs in some units, with the user's own use where it does.

    `units` says which, of a limit's `quota__unit__descendant_links__descendant`.
    """
    rows = QuotaLimit.objects.filter(
        units, ~Q(quota__scope=QuotaScope.USER) | Q(quota__user=user_id)
    )
    limits = list(_joined(rows.order_by(*ORDER).distinct()))
    own = {(one.quota.unit_id, user_id) for one in limits if one.quota.user_id is not None}
    return _with_use([one for one in limits if is_around(one.quota, user_id, own)], user_id)


def in_units(unit_ids: Collection[UUID]) -> Q:
    """Return what `own_quotas` takes for these units."""
    return Q(quota__unit__descendant_links__descendant__in=unit_ids)


def where_one_works(actor: Actor) -> Q:
    """Return what `own_quotas` takes for where somebody may submit or has jobs that are live."""
    live = Job.objects.filter(UNFINISHED, owner=actor.user_id).values("unit")
    return in_units(reads(actor, Verb.JOB_CREATE).readable_units) | Q(
        quota__unit__descendant_links__descendant__in=live
    )


ORDER = ("quota__unit__name", "quota__unit", "quota__scope", "quota__user__username", "quota", "id")


def _joined(rows: QuerySet[QuotaLimit]) -> QuerySet[QuotaLimit]:
    return rows.select_related("quota__unit", "quota__user")


def _with_use(
    rows: QuerySet[QuotaLimit] | Sequence[QuotaLimit], user_id: UUID | None
) -> list[QuotaView]:
    """Put use beside limits: a query for the tree, and one each for jobs, holds and files."""
    by_quota: dict[UUID, list[QuotaLimit]] = {}
    for row in _joined(rows) if isinstance(rows, QuerySet) else rows:
        by_quota.setdefault(row.quota_id, []).append(row)
    if not by_quota:
        return []
    found = [limits[0].quota for limits in by_quota.values()]
    below = units_below({quota.unit_id for quota in found})
    wanted = {QuotaResource(one.resource) for limits in by_quota.values() for one in limits}
    usage = measure({unit for group in below.values() for unit in group}, wanted)
    views = []
    for quota in found:
        amounts = {QuotaResource(one.resource): one.amount for one in by_quota[quota.id]}
        units = below[quota.unit_id]
        lines = [
            Line(resource, _used(usage, quota, units, resource, user_id), amounts[resource])
            for resource in QuotaResource
            if resource in amounts
        ]
        views.append(QuotaView(quota, tuple(lines)))
    return views


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
    return own_quotas(actor.user_id, in_units([unit_id]))
