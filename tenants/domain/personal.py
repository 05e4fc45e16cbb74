"""What people arrange for themselves: saved views, and of which events they are told.

Nothing here concerns anybody else, so no grant is needed and no audit row is written.
"""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from django.db import transaction

from tenants.domain.access import Actor
from tenants.domain.errors import Invalid, NotFound, Problem
from tenants.models import NotificationChoice, SavedView, User

MOST_VIEWS = 20
LONGEST_NAME = 40
LONGEST_QUERY = 500


def _owner_id(actor: Actor) -> UUID:
    """Return whose things these are; the system has none of its own."""
    if actor.user_id is None:
        raise NotFound("user")
    return actor.user_id


def saved_views(actor: Actor, page: str) -> list[SavedView]:
    """Return the actor's own views of a list, by name."""
    return list(SavedView.objects.filter(user_id=_owner_id(actor), page=page).order_by("name"))


@transaction.atomic
def save_view(*, actor: Actor, page: str, name: str, query: str, now: datetime) -> SavedView:
    """Keep a list's filters under a name; one of the same name is replaced.

    Raises:
        Invalid: the name is empty or too long, the filters are, or there are too many views.
    """
    name = " ".join(name.split())
    if not name:
        raise Invalid([Problem("name", "view_name_missing")])
    if len(name) > LONGEST_NAME:
        raise Invalid([Problem("name", "view_name_too_long", {"limit": LONGEST_NAME})])
    if len(query) > LONGEST_QUERY:
        raise Invalid([Problem("query", "view_filters_too_long", {"limit": LONGEST_QUERY})])
    owner = User.objects.select_for_update().get(id=_owner_id(actor))
    others = owner.saved_views.filter(page=page).exclude(name=name)
    if others.count() >= MOST_VIEWS:
        raise Invalid([Problem("name", "too_many_views", {"limit": MOST_VIEWS})])
    view, _is_new = SavedView.objects.update_or_create(
        user=owner, page=page, name=name, defaults={"query": query, "created_at": now}
    )
    return view


def delete_view(*, actor: Actor, view_id: UUID) -> None:
    """Forget one of the actor's own views.

    Raises:
        NotFound: it has no such view.
    """
    deleted, _by_model = SavedView.objects.filter(id=view_id, user_id=_owner_id(actor)).delete()
    if not deleted:
        raise NotFound("view")


def notification_choice(actor: Actor) -> NotificationChoice:
    """Return what the actor wants to be told; all of it, as long as nothing was chosen."""
    found = NotificationChoice.objects.filter(user_id=_owner_id(actor)).first()
    return found or NotificationChoice(user_id=_owner_id(actor))


def choose_notifications(
    *, actor: Actor, wants_ended: bool, wants_failed: bool, wants_preempted: bool
) -> NotificationChoice:
    """Set of which events of its own jobs the actor is told."""
    choice, _is_new = NotificationChoice.objects.update_or_create(
        user_id=_owner_id(actor),
        defaults={
            "wants_ended": wants_ended,
            "wants_failed": wants_failed,
            "wants_preempted": wants_preempted,
        },
    )
    return choice


def mark_read(*, actor: Actor, until: datetime) -> None:
    """Note up to when the actor has read; never back in time."""
    choice, _is_new = NotificationChoice.objects.get_or_create(user_id=_owner_id(actor))
    unread = NotificationChoice.objects.filter(user_id=_owner_id(actor)).exclude(read_at__gte=until)
    if choice.read_at is None or choice.read_at < until:
        unread.update(read_at=until)
