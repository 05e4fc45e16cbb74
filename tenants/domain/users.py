"""People and service accounts: made with a first grant, disabled and never deleted."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from uuid import UUID

from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.core.validators import validate_email
from django.db import IntegrityError, transaction

from tenants.domain import audit, grants, outbox
from tenants.domain.access import Actor, Verb, allowed, require
from tenants.domain.errors import Conflict, Denied, Invalid, NotFound, Param, Problem
from tenants.models import Grant, GrantRole, OrgUnit, User


def create_user(
    *,
    actor: Actor,
    username: str,
    role: GrantRole,
    unit_id: UUID | None,
    now: datetime,
    email: str = "",
    first_name: str = "",
    last_name: str = "",
    password: str | None = None,
    is_service: bool = False,
    reason: str = "",
    request_id: str = "",
) -> User:
    """Make an account with its first grant, without which nobody would see it.

    Without a password the account signs in by other means (single sign-on; a service account by
    token). One given by somebody else must be changed at the first sign-in.

    Raises:
        Denied, NotFound: the actor may not make accounts there, or the role is above its own.
        Invalid: a field is unusable, the name is taken, or the password is too weak.
    """
    with transaction.atomic():
        require(actor, Verb.USER_EDIT, unit_id, what="org unit")
        user = User(
            username=username,
            email=email,
            first_name=first_name,
            last_name=last_name,
            is_service=is_service,
            must_change_password=password is not None,
            date_joined=now,
        )
        _set_password(user, password)
        _insert(user)
        audit.record(
            actor=actor,
            action="user.create",
            subject=user,
            before=None,
            after={"username": username, "email": email, "is_service": is_service},
            unit=OrgUnit.objects.get(id=unit_id) if unit_id else None,
            now=now,
            reason=reason,
            request_id=request_id,
        )
        grants.give_grant(
            actor=actor,
            user=user,
            role=role,
            unit_id=unit_id,
            now=now,
            reason=reason,
            request_id=request_id,
        )
    return user


def disable_user(
    *, actor: Actor, user_id: UUID, now: datetime, reason: str = "", request_id: str = ""
) -> User:
    """Keep an account from signing in; its sessions, tokens and sockets end within seconds.

    Raises:
        Denied, NotFound: the actor does not administer every unit the account has a grant on.
        Conflict: nobody would be left to administer the installation or a tenant.
    """
    with transaction.atomic():
        user = _to_change(actor, user_id)
        if user.id == actor.user_id:
            raise Denied("own_account", {"user": user.get_username()})
        grants.keep_an_admin(user.grants.select_related("unit").order_by("id"))
        return _set_active(actor, user, now, reason, request_id, is_active=False)


def enable_user(
    *, actor: Actor, user_id: UUID, now: datetime, reason: str = "", request_id: str = ""
) -> User:
    """Let a disabled account sign in again, with the grants that it still has.

    Raises:
        Denied, NotFound: the actor does not administer every unit the account has a grant on.
    """
    with transaction.atomic():
        user = _to_change(actor, user_id)
        return _set_active(actor, user, now, reason, request_id, is_active=True)


def set_password(
    *,
    actor: Actor,
    user_id: UUID,
    password: str,
    now: datetime,
    reason: str = "",
    request_id: str = "",
) -> User:
    """Set a password; all sessions of the account end. Whoever got one from others changes it next.

    That the person knows the old one is for the page to check.

    Raises:
        Denied, NotFound: it is neither the actor's own account nor one that it administers.
        Invalid: the password is too weak.
    """
    with transaction.atomic():
        is_own = user_id == actor.user_id and actor.token_id is None
        user = _locked(user_id) if is_own else _to_change(actor, user_id)
        _set_password(user, password)
        user.must_change_password = not is_own
        user.save(update_fields=["password", "must_change_password"])
        _record(actor, "user.set_password", user, now=now, reason=reason, request_id=request_id)
        outbox.hint(f"user:{user.id}", "grants", now=now)
    return user


def set_preferences(
    *, actor: Actor, time_zone: str, language: str, now: datetime, request_id: str = ""
) -> User:
    """Set how pages show times and words to the person who asks.

    Raises:
        NotFound: the actor is no person.
        Invalid: a value is too long.
    """
    with transaction.atomic():
        user = _locked(actor.user_id)
        before = {"time_zone": user.time_zone, "language": user.language}
        user.time_zone, user.language = time_zone, language
        _clean(user)
        user.save(update_fields=["time_zone", "language"])
        _record(
            actor,
            "user.set_preferences",
            user,
            now=now,
            before=before,
            after={"time_zone": time_zone, "language": language},
            request_id=request_id,
        )
    return user


def grant_units(user: User) -> set[UUID | None]:
    """Return where a user has grants; somebody without any belongs to the installation."""
    units: set[UUID | None] = set(user.grants.values_list("unit_id", flat=True))
    return units or {None}


def home_unit(user: User) -> OrgUnit | None:
    """Return the topmost unit of a user's grants, None where they span tenants or have no unit."""
    held = Grant.objects.filter(user=user, unit__isnull=False).select_related("unit")
    units = [grant.unit for grant in held if grant.unit]
    if len({unit.tenant_id for unit in units}) != 1:
        return None
    return min(units, key=lambda unit: (unit.ancestor_links.count(), str(unit.id)))


def _to_change(actor: Actor, user_id: UUID) -> User:
    """Lock an account and check that all of its grants lie below those of the actor."""
    user = _locked(user_id)
    units = grant_units(user)
    mine = allowed(actor, Verb.USER_EDIT, units)
    if mine == units:
        return user
    if mine or allowed(actor, Verb.GRANT_READ, units):
        raise Denied("account_of_others_too", {"user": user.get_username()})
    raise NotFound("user")


def _locked(user_id: UUID | None) -> User:
    users = User.objects.select_for_update(no_key=True)
    user = users.filter(id=user_id).first() if user_id else None
    if user is None:
        raise NotFound("user")
    return user


def _set_active(
    actor: Actor, user: User, now: datetime, reason: str, request_id: str, *, is_active: bool
) -> User:
    before, user.is_active = user.is_active, is_active
    user.save(update_fields=["is_active"])
    _record(
        actor,
        "user.enable" if is_active else "user.disable",
        user,
        now=now,
        before={"is_active": before},
        after={"is_active": is_active},
        reason=reason,
        request_id=request_id,
    )
    outbox.hint(f"user:{user.id}", "grants", now=now)
    return user


def _record(
    actor: Actor,
    action: str,
    user: User,
    *,
    now: datetime,
    before: Mapping[str, object] | None = None,
    after: Mapping[str, object] | None = None,
    reason: str = "",
    request_id: str = "",
) -> None:
    audit.record(
        actor=actor,
        action=action,
        subject=user,
        before=before,
        after=after,
        unit=home_unit(user),
        now=now,
        reason=reason,
        request_id=request_id,
    )


def _set_password(user: User, password: str | None) -> None:
    if password is None:
        user.set_unusable_password()
        return
    try:
        validate_password(password, user)
    except ValidationError as error:
        raise Invalid(_problems("password", error)) from error
    user.set_password(password)


def _insert(user: User) -> None:
    _clean(user)
    try:
        with transaction.atomic():
            user.save(force_insert=True)
    except IntegrityError as error:
        raise Conflict("username_taken", {"username": user.username}) from error


def _clean(user: User) -> None:
    """Apply the limits that the columns state; uniqueness is for the database to say."""
    try:
        user.clean_fields(exclude=["password"])
        if user.email:
            validate_email(user.email)
    except ValidationError as error:
        by_field = error.message_dict if hasattr(error, "error_dict") else {}
        raise Invalid(
            [
                problem
                for name in by_field
                for problem in _problems(name, ValidationError(error.error_dict[name]))
            ]
            or _problems("email", error)
        ) from error


def _problems(path: str, error: ValidationError) -> list[Problem]:
    """Turn Django's errors into ours: same code, the parameters that can be shown."""
    return [
        Problem(path, one.code or "invalid", _shown(one.params or {})) for one in error.error_list
    ]


def _shown(params: Mapping[str, object]) -> dict[str, Param]:
    return {name: value for name, value in params.items() if isinstance(value, str | int | float)}
