"""The read side of the record: who changed what, newest first, by keyset."""

from __future__ import annotations

from dataclasses import dataclass

from django.db.models import Q

from tenants.domain.access import Actor, Verb, reads
from tenants.models import AuditRow, OrgClosure

PAGE_SIZE = 50


@dataclass(frozen=True, slots=True)
class ActivityPage:
    """One page of the record; an empty cursor: there is no more."""

    rows: tuple[AuditRow, ...]
    next_cursor: str = ""


def list_activity(
    actor: Actor,
    *,
    action: str = "",
    person: str = "",
    before: int | None = None,
    limit: int = PAGE_SIZE,
) -> ActivityPage:
    """Return what the actor may read of the record: their units' rows, and what they did."""
    found = AuditRow.objects.filter(_readable(actor))
    if action:
        found = found.filter(action__startswith=action)
    if person:
        found = found.filter(actor__username__iexact=person)
    if before is not None:
        found = found.filter(id__lt=before)
    rows = list(found.select_related("actor", "unit").order_by("-id")[: limit + 1])
    shown = tuple(rows[:limit])
    return ActivityPage(shown, str(shown[-1].id) if len(rows) > limit else "")


def subject_activity(
    actor: Actor, subject_type: str, subject_id: str, *, limit: int = 50
) -> list[AuditRow]:
    """Return the record of one thing, the newest first."""
    rows = AuditRow.objects.filter(
        _readable(actor), subject_type=subject_type, subject_id=subject_id
    )
    return list(rows.select_related("actor").order_by("-id")[:limit])


def _readable(actor: Actor) -> Q:
    scope = reads(actor, Verb.AUDIT_READ)
    if scope.sees_everything:
        return Q()
    below = OrgClosure.objects.filter(ancestor_id__in=scope.readable_units)
    return Q(unit_id__in=below.values("descendant_id")) | Q(actor_id=actor.user_id)
