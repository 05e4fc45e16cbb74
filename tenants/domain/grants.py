"""Giving and taking roles: nobody above their own, outside their subtree, or under their feet."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime
from uuid import UUID

from django.db import IntegrityError, models, transaction

from tenants.domain import audit, outbox
from tenants.domain.access import MAY_GIVE, Actor, Verb, may, reads, require, roles_on
from tenants.domain.errors import Conflict, Denied, Invalid, NotFound, Problem
from tenants.models import Grant, GrantRole, OrgClosure, OrgUnit, User

WITHOUT_UNIT = frozenset({GrantRole.PLATFORM_ADMIN, GrantRole.AUDITOR})


def give_grant(
    *,
    actor: Actor,
    user: User,
    role: GrantRole,
    unit_id: UUID | None,
    now: datetime,
    reason: str = "",
    request_id: str = "",
) -> Grant:
    """Give a user a role on a unit and all below it; without a unit, on the installation.

    Raises:
        Denied, NotFound: the actor may not edit grants there, or the role is above its own.
        Invalid: the role does not fit: a platform admin has no unit, only an auditor may have none;
            or the unit lies outside the one that owns a service account.
        Conflict: the user has that grant already or was removed, or the unit is archived.
    """
    with transaction.atomic():
        require(actor, Verb.GRANT_EDIT, unit_id, seen_at=unit_id, what="org unit")
        _check_place(role, unit_id)
        _check_rank(actor, role, unit_id)
        _check_account(user, unit_id)
        unit = OrgUnit.objects.get(id=unit_id) if unit_id else None
        if unit and unit.is_archived:
            raise Conflict("unit_archived", {"unit": unit.name})
        grant = _insert(
            Grant(user=user, role=role, unit=unit, created_by_id=actor.user_id, created_at=now)
        )
        audit.record(
            actor=actor,
            action="grant.give",
            subject=_subject(grant),
            before=None,
            after=described(grant),
            unit=unit,
            now=now,
            reason=reason,
            request_id=request_id,
        )
        outbox.hint(f"user:{user.id}", "grants", now=now)
    return grant


def revoke_grant(
    *, actor: Actor, grant_id: UUID, now: datetime, reason: str = "", request_id: str = ""
) -> None:
    """Take a grant back; sessions and sockets of the user follow within seconds.

    Raises:
        Denied, NotFound: the actor may not edit this grant, its role is above the actor's own, or
            it is what lets the actor edit it.
        Conflict: nobody would be left to administer the installation or the tenant.
    """
    with transaction.atomic():
        grant = _visible(actor, grant_id)
        require(actor, Verb.GRANT_EDIT, grant.unit_id, owner_id=grant.user_id, what="grant")
        role = GrantRole(grant.role)
        _check_rank(actor, role, grant.unit_id)
        _check_not_own_ground(actor, grant)
        keep_an_admin([grant])
        audit.record(
            actor=actor,
            action="grant.revoke",
            subject=_subject(grant),
            before=described(grant),
            after=None,
            unit=grant.unit,
            now=now,
            reason=reason,
            request_id=request_id,
        )
        grant.delete()
        _keep_in_sight(grant)
        outbox.hint(f"user:{grant.user_id}", "grants", now=now)


def keep_an_admin(leaving: Iterable[Grant]) -> None:
    """Refuse to take the last grant that administers the installation or a tenant.

    The grants that count are locked, in order, so that two admins cannot remove each other at once.

    Raises:
        Conflict: it would be the last.
    """
    leaving = list(leaving)
    going = {grant.id for grant in leaving}
    for grant in leaving:
        is_top = grant.unit is not None and grant.unit_id == grant.unit.tenant_id
        if not (
            grant.role == GrantRole.PLATFORM_ADMIN or (grant.role == GrantRole.ORG_ADMIN and is_top)
        ):
            continue
        alike = Grant.objects.filter(role=grant.role, unit=grant.unit_id)
        list(alike.select_for_update(of=("self",)).order_by("id"))
        # Asked after the wait: a statement that waited would still see who was active before it.
        if not alike.filter(user__is_active=True).exclude(id__in=going).exists():
            raise Conflict("last_admin", {"role": grant.role, "unit": str(grant.unit or "")})


def visible_grants(actor: Actor) -> models.QuerySet[Grant]:
    """Return the grants that the actor may read: its own, and those of its units."""
    scope = reads(actor, Verb.GRANT_READ)
    if scope.sees_everything:
        return Grant.objects.all()
    below = OrgClosure.objects.filter(ancestor_id__in=scope.readable_units)
    seen = models.Q(unit__in=below.values("descendant_id"))
    if actor.user_id and may(actor, Verb.GRANT_READ, None, owner_id=actor.user_id):
        seen |= models.Q(user=actor.user_id)
    return Grant.objects.filter(seen)


def repeat_grants(
    *,
    actor: Actor,
    from_unit: OrgUnit,
    to_unit: OrgUnit,
    now: datetime,
    reason: str = "",
    request_id: str = "",
) -> list[Grant]:
    """Give on one unit what is granted on another, as far as it is not there; return the new ones.

    Raises:
        Denied, NotFound: the actor may not edit grants there, or a role is above its own.
    """
    with transaction.atomic():
        require(actor, Verb.GRANT_EDIT, to_unit.id, seen_at=to_unit.id, what="org unit")
        held = Grant.objects.filter(unit=from_unit).select_related("user").order_by("id")
        there = set(Grant.objects.filter(unit=to_unit).values_list("user_id", "role"))
        return [
            give_grant(
                actor=actor,
                user=grant.user,
                role=GrantRole(grant.role),
                unit_id=to_unit.id,
                now=now,
                reason=reason,
                request_id=request_id,
            )
            for grant in held
            if (grant.user_id, grant.role) not in there
        ]


def _check_account(user: User, unit_id: UUID | None) -> None:
    """Keep a service account inside the unit that owns it, and a removed one out."""
    if user.removed_at is not None:
        raise Conflict("account_removed", {"user": user.get_username()})
    if not user.is_service or user.home is None:
        return
    inside = OrgClosure.objects.filter(ancestor=user.home_id, descendant=unit_id)
    if unit_id is None or not inside.exists():
        params = {"user": user.get_username(), "unit": user.home.name}
        raise Invalid([Problem("unit", "service_outside_home", params)])


def _keep_in_sight(grant: Grant) -> None:
    """Leave somebody without grants to the unit of the last one, so that they can be found."""
    user = grant.user
    if not user.is_service and not user.grants.exists():
        user.home = grant.unit
        user.save(update_fields=["home"])


def _check_place(role: GrantRole, unit_id: UUID | None) -> None:
    if unit_id is None and role not in WITHOUT_UNIT:
        raise Invalid([Problem("unit", "role_needs_unit", {"role": role})])
    if unit_id is not None and role == GrantRole.PLATFORM_ADMIN:
        raise Invalid([Problem("unit", "role_has_no_unit", {"role": role})])


def _check_rank(actor: Actor, role: GrantRole, unit_id: UUID | None) -> None:
    mine = roles_on(actor, unit_id)
    if not any(role in MAY_GIVE.get(own, frozenset()) for own in mine):
        raise Denied("role_above_own", {"role": role})


def _check_not_own_ground(actor: Actor, grant: Grant) -> None:
    """Refuse where the grant is what gives the actor the right to take it."""
    if grant.user_id != actor.user_id:
        return
    others = tuple(pair for pair in actor.grants if pair != (grant.role, grant.unit_id))
    if not may(replace(actor, grants=others), Verb.GRANT_EDIT, grant.unit_id):
        raise Denied("grant_under_own_feet", {"role": grant.role})


def _insert(grant: Grant) -> Grant:
    try:
        with transaction.atomic():
            grant.save(force_insert=True)
    except IntegrityError as error:
        raise Conflict(
            "grant_exists", {"user": grant.user.get_username(), "role": grant.role}
        ) from error
    return grant


def _visible(actor: Actor, grant_id: UUID) -> Grant:
    grant = visible_grants(actor).select_related("unit", "user").filter(id=grant_id).first()
    if grant is None:
        raise NotFound("grant")
    return grant


def _subject(grant: Grant) -> audit.Subject:
    where = grant.unit.name if grant.unit else "installation"
    return audit.Subject(
        "grant", str(grant.id), f"{grant.user.get_username()} {grant.role} {where}"
    )


def described(grant: Grant) -> dict[str, str | None]:
    """Return what the record keeps of a grant."""
    return {
        "user": str(grant.user_id),
        "role": grant.role,
        "unit": str(grant.unit_id) if grant.unit_id else None,
    }
