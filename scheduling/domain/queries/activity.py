"""The read side of the record: who changed what, newest first, by keyset."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.db.models import Q, QuerySet

from tenants.domain import audit
from tenants.domain.access import Actor
from tenants.models import AuditRow, OrgClosure

PAGE_SIZE = 50


@dataclass(frozen=True, slots=True)
class AuditFilter:
    """What is looked for; what is empty leaves nothing out."""

    action: str = ""
    """How it begins: `queue.` or `job.cancel`."""
    person: str = ""
    """A user name, whatever its case; `system` for loops and policies."""
    subject: str = ""
    """A part of the name of what was changed, or its id."""
    unit_id: UUID | None = None
    """The unit and all below it."""
    since: datetime | None = None
    until: datetime | None = None
    request_id: str = ""


@dataclass(frozen=True, slots=True)
class ActivityPage:
    """One page of the record; an empty cursor: there is no more."""

    rows: tuple[AuditRow, ...]
    next_cursor: str = ""


def list_activity(
    actor: Actor,
    where: AuditFilter,
    *,
    before: int | None = None,
    limit: int = PAGE_SIZE,
) -> ActivityPage:
    """Return what the actor may read of the record: their units' rows, and what they did."""
    found = _filtered(audit.visible_to(actor), where)
    if before is not None:
        found = found.filter(id__lt=before)
    rows = list(found.select_related("actor", "unit").order_by("-id")[: limit + 1])
    shown = tuple(rows[:limit])
    return ActivityPage(shown, str(shown[-1].id) if len(rows) > limit else "")


def _filtered(rows: QuerySet[AuditRow], where: AuditFilter) -> QuerySet[AuditRow]:
    conditions = Q()
    if where.action:
        conditions &= Q(action__startswith=where.action)
    if where.person:
        is_nobody = Q(actor__isnull=True, actor_label__iexact=where.person)
        conditions &= Q(actor__username__iexact=where.person) | is_nobody
    if where.subject:
        conditions &= Q(subject_label__icontains=where.subject) | Q(subject_id=where.subject)
    if where.unit_id is not None:
        below = OrgClosure.objects.filter(ancestor=where.unit_id)
        conditions &= Q(unit_id__in=below.values("descendant_id"))
    if where.since is not None:
        conditions &= Q(at__gte=where.since)
    if where.until is not None:
        conditions &= Q(at__lt=where.until)
    if where.request_id:
        conditions &= Q(request_id=where.request_id)
    return rows.filter(conditions)


def subject_activity(
    actor: Actor, subject_type: str, subject_id: str, *, limit: int = 50
) -> list[AuditRow]:
    """Return the record of one thing, the newest first."""
    rows = audit.visible_to(actor).filter(subject_type=subject_type, subject_id=subject_id)
    return list(rows.select_related("actor").order_by("-id")[:limit])
