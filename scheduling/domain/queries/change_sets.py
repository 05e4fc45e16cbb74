"""The read side of change sets: those whose queues the reader sees, all of them.

A change set tells numbers of each of its queues, so one that touches a queue that the reader may
not see does not exist for them. Authors find their own empty drafts.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.db.models import Count, Exists, OuterRef, Prefetch, Q, QuerySet

from scheduling.models import ChangeItem, ChangeSet, Queue
from scheduling.models.change_set import ChangeSetState as State
from tenants.domain import access
from tenants.domain.access import Actor, Verb
from tenants.domain.errors import NotFound
from tenants.models import OrgClosure

OPEN = (State.DRAFT, State.VALIDATED, State.IN_REVIEW, State.APPROVED)
TABS: dict[str, tuple[State, ...]] = {
    "open": OPEN,
    "review": (State.IN_REVIEW,),
    "scheduled": (State.SCHEDULED,),
    "failed": (State.FAILED, State.REJECTED),
    "applied": (State.APPLIED, State.REVERTED),
}
PAGE_SIZE = 50


@dataclass(frozen=True, slots=True)
class ChangeSetPage:
    """One page of the list, the newest first; an empty cursor: there is no more."""

    rows: tuple[ChangeSet, ...]
    next_cursor: str = ""


def visible(actor: Actor) -> QuerySet[ChangeSet]:
    """Return the change sets that the actor may read."""
    scope = access.reads(actor, Verb.QUEUE_READ)
    rows = ChangeSet.objects.select_related("author", "reviewer", "reverts", "cluster")
    if scope.sees_everything:
        return rows
    seen = Queue.objects.visible_to(scope)
    items = ChangeItem.objects.filter(change_set=OuterRef("pk"))
    hidden = items.exclude(queue__in=seen.values("id")) | items.filter(queue__isnull=True)
    mine = Q(author_id=actor.user_id) if actor.user_id else Q(pk__in=[])
    gone_only = items.filter(queue__isnull=False).exclude(queue__in=seen.values("id"))
    return rows.filter(
        (Exists(items) & ~Exists(hidden)) | (mine & ~Exists(gone_only)),
    )


def load(actor: Actor, change_set_id: UUID) -> ChangeSet:
    """Return a change set with its items by name of their queue: two queries.

    Raises:
        NotFound: there is none, or none that the actor may see.
    """
    items = ChangeItem.objects.select_related("queue").order_by("queue_name", "id")
    row = visible(actor).filter(id=change_set_id).prefetch_related(Prefetch("items", items)).first()
    if row is None:
        raise NotFound("change set")
    return row


def list_change_sets(
    actor: Actor, *, states: Collection[str] = (), before: datetime | None = None
) -> ChangeSetPage:
    """Return one page, the newest first; each row knows its number of queues as `queues`."""
    rows = visible(actor).annotate(queues=Count("items"))
    if states:
        rows = rows.filter(state__in=states)
    if before is not None:
        rows = rows.filter(created_at__lt=before)
    found = list(rows.order_by("-created_at", "-id")[: PAGE_SIZE + 1])
    shown = tuple(found[:PAGE_SIZE])
    more = shown[-1].created_at.isoformat() if len(found) > PAGE_SIZE else ""
    return ChangeSetPage(shown, more)


def counts(actor: Actor) -> dict[str, int]:
    """Count the visible change sets by tab: one query."""
    rows = visible(actor).order_by().values_list("state").annotate(n=Count("id"))
    by_state = dict(rows.values_list("state", "n"))
    return {tab: sum(by_state.get(one, 0) for one in states) for tab, states in TABS.items()}


def manages_any(actor: Actor) -> bool:
    """Tell whether the actor manages the queues of some unit."""
    scope = access.reads(actor, Verb.QUEUE_EDIT)
    return scope.sees_everything or bool(scope.readable_units)


def may_edit(actor: Actor, row: ChangeSet) -> bool:
    """Tell whether the actor manages the parents of all its queues; empty, it is its author's."""
    queue_ids = [item.queue_id for item in row.items.all() if item.queue_id is not None]
    if not queue_ids:
        return row.author_id == actor.user_id
    units = set(
        Queue.objects.filter(id__in=queue_ids, parent__isnull=False).values_list(
            "parent__unit_id", flat=True
        )
    )
    return access.allowed(actor, Verb.QUEUE_EDIT, units) == units


def editable(actor: Actor, cluster_id: UUID) -> QuerySet[Queue]:
    """Return the queues whose numbers the actor may plan for, by name."""
    scope = access.reads(actor, Verb.QUEUE_EDIT)
    rows = Queue.objects.filter(cluster_id=cluster_id, parent__isnull=False).order_by("name")
    if scope.sees_everything:
        return rows
    below = OrgClosure.objects.filter(ancestor_id__in=scope.readable_units)
    return rows.filter(parent__unit_id__in=below.values("descendant_id"))


def refused(actor: Actor, cluster_id: UUID, *, limit: int = 3) -> list[ChangeSet]:
    """Return the newest change sets that could not be applied when their time came."""
    rows = visible(actor).filter(cluster_id=cluster_id, state=State.FAILED)
    return list(rows.order_by("-created_at")[:limit])
