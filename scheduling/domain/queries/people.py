"""The read side of accounts: the list with its filters, one person with all that they have."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from uuid import UUID

from allauth.mfa.models import Authenticator
from django.db.models import Exists, OuterRef, Q, QuerySet

from tenants.domain import grants, tokens, users
from tenants.domain.access import Actor, Verb, allowed, reads
from tenants.models import AccountLink, ApiToken, BrowserSession, Grant, OrgClosure, User

PAGE_SIZE = 50
NO_PASSWORD = "!"  # noqa: S105 - what Django's unusable passwords begin with


class Tab(StrEnum):
    """The kinds of accounts that the list tells apart."""

    PEOPLE = "people"
    INVITED = "invited"
    SERVICE = "service"
    DISABLED = "disabled"
    REMOVED = "removed"


class AccountState(StrEnum):
    """What became of an account."""

    ACTIVE = "active"
    INVITED = "invited"
    """No password yet, and never signed in."""
    DISABLED = "disabled"
    REMOVED = "removed"


@dataclass(frozen=True, slots=True)
class PeopleFilter:
    """What is looked for."""

    tab: Tab = Tab.PEOPLE
    text: str = ""
    unit_id: UUID | None = None
    """Only who has a grant on this unit or below."""


@dataclass(frozen=True, slots=True)
class PersonRow:
    """One account as the list shows it."""

    user: User
    state: AccountState
    grants: tuple[Grant, ...]
    has_factor: bool


@dataclass(frozen=True, slots=True)
class PeoplePage:
    """One page of the list; an empty cursor: there is no more."""

    rows: tuple[PersonRow, ...]
    next_cursor: str = ""


@dataclass(frozen=True, slots=True)
class Person:
    """One account with all that the actor may know of it."""

    user: User
    state: AccountState
    grants: tuple[Grant, ...]
    revocable: frozenset[UUID]
    """Grants on units whose grants the actor may edit."""
    tokens: tuple[ApiToken, ...]
    sessions: int
    factors: tuple[str, ...]
    link: AccountLink | None
    """The one-use link that is open."""
    may_edit: bool
    may_give: bool
    """Whether the actor gives roles anywhere, and the account can have one."""
    is_self: bool


def state_of(user: User) -> AccountState:
    """Return what became of an account."""
    if user.removed_at is not None:
        return AccountState.REMOVED
    if not user.is_active:
        return AccountState.DISABLED
    if not user.is_service and user.last_login is None and not user.has_usable_password():
        return AccountState.INVITED
    return AccountState.ACTIVE


def list_people(
    actor: Actor, where: PeopleFilter, *, after: str = "", limit: int = PAGE_SIZE
) -> PeoplePage:
    """Return accounts that the actor may list, by name. Four queries."""
    found = _of_tab(users.visible_users(actor), where.tab)
    if where.text:
        text = where.text
        found = found.filter(
            Q(username__icontains=text)
            | Q(email__icontains=text)
            | Q(first_name__icontains=text)
            | Q(last_name__icontains=text)
        )
    if where.unit_id is not None:
        below = OrgClosure.objects.filter(ancestor=where.unit_id).values("descendant_id")
        held = Grant.objects.filter(unit__in=below)
        found = found.filter(Q(id__in=held.values("user_id")) | Q(home__in=below))
    if after:
        found = found.filter(username__gt=after)
    factor = Authenticator.objects.filter(user=OuterRef("pk"), type__in=["totp", "webauthn"])
    rows = list(
        found.select_related("home")
        .annotate(has_factor=Exists(factor))
        .order_by("username")[: limit + 1]
    )
    shown = rows[:limit]
    held_by = _grants_of(actor, [user.id for user in shown])
    return PeoplePage(
        tuple(
            PersonRow(user, state_of(user), held_by.get(user.id, ()), user.has_factor)
            for user in shown
        ),
        shown[-1].username if len(rows) > limit else "",
    )


def person(actor: Actor, user_id: UUID, now: datetime) -> Person:
    """Return one account.

    Raises:
        NotFound: the actor may not see it.
    """
    user = users.visible_user(actor, user_id)
    held = _grants_of(actor, [user.id]).get(user.id, ())
    editable = allowed(actor, Verb.GRANT_EDIT, {grant.unit_id for grant in held})
    may_edit = users.may_edit(actor, user)
    giving = reads(actor, Verb.GRANT_EDIT)
    links = AccountLink.objects.filter(user=user, ended_at__isnull=True, expires_at__gt=now)
    sessions = BrowserSession.objects.filter(user=user, expire_date__gt=now)
    factors = Authenticator.objects.filter(user=user).order_by("type")
    return Person(
        user=user,
        state=state_of(user),
        grants=held,
        revocable=frozenset(grant.id for grant in held if grant.unit_id in editable),
        tokens=tuple(
            tokens.visible_tokens(actor).filter(user=user).select_related("unit", "user")[:100]
        ),
        sessions=sessions.count() if may_edit else 0,
        factors=tuple(factors.values_list("type", flat=True)) if may_edit else (),
        link=links.order_by("-created_at").first() if may_edit else None,
        may_edit=may_edit,
        may_give=user.is_active and (giving.sees_everything or bool(giving.readable_units)),
        is_self=user.id == actor.user_id,
    )


def _of_tab(found: QuerySet[User], tab: Tab) -> QuerySet[User]:
    if tab == Tab.REMOVED:
        return found.filter(removed_at__isnull=False)
    found = found.filter(removed_at__isnull=True)
    if tab == Tab.DISABLED:
        return found.filter(is_active=False)
    if tab == Tab.SERVICE:
        return found.filter(is_active=True, is_service=True)
    found = found.filter(is_active=True, is_service=False)
    if tab == Tab.INVITED:
        return found.filter(last_login__isnull=True, password__startswith=NO_PASSWORD)
    return found


def _grants_of(actor: Actor, user_ids: Collection[UUID]) -> Mapping[UUID, tuple[Grant, ...]]:
    held: defaultdict[UUID, list[Grant]] = defaultdict(list)
    found = grants.visible_grants(actor).filter(user__in=user_ids).select_related("unit")
    for grant in found.order_by("created_at", "id"):
        held[grant.user_id].append(grant)
    return {user_id: tuple(each) for user_id, each in held.items()}
