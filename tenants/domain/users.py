"""People and service accounts: made with a first grant, disabled or removed, never deleted.

What somebody did stays in the record under their name, so a row is never deleted. An account that
was removed has no grant, token, session or password any more; who looked after it may take it back.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from uuid import UUID
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from allauth.mfa.models import Authenticator
from django.conf import settings
from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.core.validators import validate_email
from django.db import IntegrityError, models, transaction

from tenants.domain import audit, grants, outbox
from tenants.domain.access import Actor, Verb, allowed, load_actor, reads, require
from tenants.domain.errors import Conflict, Denied, Invalid, NotFound, Param, Problem
from tenants.models import (
    AccountLink,
    ApiToken,
    BrowserSession,
    Grant,
    GrantRole,
    OrgClosure,
    OrgUnit,
    User,
)


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

    Without a password the account signs in by other means (an invitation, single sign-on; a
    service account by token). One given by somebody else must be changed at the first sign-in.
    A service account belongs to its unit: whoever administers that looks after it.

    Raises:
        Denied, NotFound: the actor may not make accounts there, or the role is above its own.
        Invalid: a field is unusable, the password is too weak, or a service account has a password
            or no unit.
        Conflict: the name is taken.
    """
    with transaction.atomic():
        require(actor, Verb.USER_EDIT, unit_id, what="org unit")
        if is_service:
            _check_service(unit_id, password)
        user = User(
            home_id=unit_id if is_service else None,
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


def edit_user(
    *,
    actor: Actor,
    user_id: UUID,
    email: str,
    first_name: str,
    last_name: str,
    now: datetime,
    expected_version: int | None = None,
    reason: str = "",
    request_id: str = "",
) -> User:
    """Change the address and the names of an account.

    Raises:
        Denied, NotFound: the actor does not administer every unit the account has a grant on.
        Invalid: a field is unusable.
        Conflict: somebody changed the account since `expected_version`.
    """
    with transaction.atomic():
        user = _to_change(actor, user_id, expected_version)
        after = {"email": email, "first_name": first_name, "last_name": last_name}
        before = {name: getattr(user, name) for name in after}
        for name, value in after.items():
            setattr(user, name, value)
        _clean(user)
        _save(user, *after)
        _record(
            actor,
            "user.edit",
            user,
            now=now,
            before=before,
            after=after,
            reason=reason,
            request_id=request_id,
        )
    return user


def disable_user(
    *,
    actor: Actor,
    user_id: UUID,
    now: datetime,
    expected_version: int | None = None,
    reason: str = "",
    request_id: str = "",
) -> User:
    """Keep an account from signing in; its sessions, tokens and sockets end within seconds.

    Raises:
        Denied, NotFound: the actor does not administer every unit the account has a grant on.
        Conflict: nobody would be left to administer the installation or a tenant, or somebody
            changed the account since `expected_version`.
    """
    with transaction.atomic():
        user = _to_change(actor, user_id, expected_version)
        _check_not_own(actor, user)
        grants.keep_an_admin(user.grants.select_related("unit").order_by("id"))
        end_browser_sessions(user)
        return _set_active(actor, user, now, reason, request_id, is_active=False)


def enable_user(
    *,
    actor: Actor,
    user_id: UUID,
    now: datetime,
    expected_version: int | None = None,
    reason: str = "",
    request_id: str = "",
) -> User:
    """Let a disabled account sign in again, with the grants that it still has.

    One that was removed comes back without grants, tokens and password.

    Raises:
        Denied, NotFound: the actor does not administer every unit the account has a grant on.
        Conflict: somebody changed the account since `expected_version`.
    """
    with transaction.atomic():
        user = _to_change(actor, user_id, expected_version)
        return _set_active(actor, user, now, reason, request_id, is_active=True)


def remove_user(
    *,
    actor: Actor,
    user_id: UUID,
    now: datetime,
    expected_version: int | None = None,
    reason: str = "",
    request_id: str = "",
) -> User:
    """Take everything from an account that it can act with: grants, tokens, sessions, password.

    Its jobs go on and its name stays in the record. The topmost unit that it had a grant on looks
    after it from now on, and may take it back.

    Raises:
        Denied, NotFound: the actor does not administer every unit the account has a grant on, or
            it is its own.
        Conflict: nobody would be left to administer the installation or a tenant, or somebody
            changed the account since `expected_version`.
    """
    with transaction.atomic():
        user = _to_change(actor, user_id, expected_version)
        _check_not_own(actor, user)
        held = list(user.grants.select_related("unit").order_by("created_at", "id"))
        grants.keep_an_admin(held)
        user.home = home_unit(user) or user.home
        user.is_active, user.removed_at = False, now
        user.set_unusable_password()
        _save(user, "home", "is_active", "removed_at", "password")
        before = {
            "is_active": True,
            "grants": [grants.described(grant) for grant in held],
            "tokens": ApiToken.objects.filter(user=user, revoked_at__isnull=True).update(
                revoked_at=now
            ),
        }
        user.grants.all().delete()
        Authenticator.objects.filter(user=user).delete()
        end_links(user, now)
        end_browser_sessions(user)
        _record(
            actor,
            "user.remove",
            user,
            now=now,
            before=before,
            after={"is_active": False, "grants": [], "tokens": 0},
            reason=reason,
            request_id=request_id,
        )
        outbox.hint(f"user:{user.id}", "grants", now=now)
    return user


def end_sessions(
    *, actor: Actor, user_id: UUID, now: datetime, reason: str = "", request_id: str = ""
) -> int:
    """Sign an account out everywhere; return how many sessions that were. Tokens stay.

    Raises:
        Denied, NotFound: the actor does not administer every unit the account has a grant on.
    """
    with transaction.atomic():
        user = _to_change(actor, user_id)
        ended = end_browser_sessions(user)
        _record(
            actor,
            "user.end_sessions",
            user,
            now=now,
            before={"sessions": ended},
            after={"sessions": 0},
            reason=reason,
            request_id=request_id,
        )
        outbox.hint(f"user:{user.id}", "grants", now=now)
    return ended


def remove_second_factor(
    *, actor: Actor, user_id: UUID, now: datetime, reason: str = "", request_id: str = ""
) -> User:
    """Let somebody who lost their second factor sign in without it, to set up another.

    Raises:
        Denied, NotFound: the actor does not administer every unit the account has a grant on, or
            it is its own: people remove their own on their profile.
    """
    with transaction.atomic():
        user = _to_change(actor, user_id)
        _check_not_own(actor, user)
        kinds = sorted(Authenticator.objects.filter(user=user).values_list("type", flat=True))
        Authenticator.objects.filter(user=user).delete()
        _record(
            actor,
            "user.remove_second_factor",
            user,
            now=now,
            before={"factors": kinds},
            after={"factors": []},
            reason=reason,
            request_id=request_id,
        )
    return user


def record_own_factor(user: User, *, now: datetime, added: str = "", removed: str = "") -> None:
    """Record that somebody set up or gave up a second factor of their own."""
    with transaction.atomic():
        _record(
            load_actor(user),
            "user.add_second_factor" if added else "user.remove_second_factor",
            user,
            now=now,
            before={"factors": [removed] if removed else []},
            after={"factors": [added] if added else []},
        )


def record_own_password(user: User, *, now: datetime) -> None:
    """Record that somebody chose a password of their own, on the pages of sign-in."""
    with transaction.atomic():
        _record(load_actor(user), "user.set_password", user, now=now)


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
        if user.is_service:
            raise Conflict("service_has_no_password", {"user": user.get_username()})
        _set_password(user, password)
        user.must_change_password = not is_own
        _save(user, "password", "must_change_password")
        end_links(user, now)
        _record(actor, "user.set_password", user, now=now, reason=reason, request_id=request_id)
        outbox.hint(f"user:{user.id}", "grants", now=now)
    return user


def set_preferences(
    *, actor: Actor, time_zone: str, language: str, now: datetime, request_id: str = ""
) -> User:
    """Set how pages show times and words to the person who asks.

    Raises:
        NotFound: the actor is no person.
        Invalid: the zone or the language is not known.
    """
    _check_preferences(time_zone, language)
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
    """Return the units that look after a user: where it has grants, and the home of a service.

    Somebody without any belongs to the unit that was left with them, or to the installation.
    """
    units: set[UUID | None] = set(user.grants.values_list("unit_id", flat=True))
    if user.home_id and (user.is_service or not units):
        units.add(user.home_id)
    return units or {None}


def home_unit(user: User) -> OrgUnit | None:
    """Return the topmost unit of a user's grants, None where they span tenants or have no unit."""
    if user.is_service:
        return user.home
    held = Grant.objects.filter(user=user).select_related("unit")
    units = [grant.unit for grant in held if grant.unit]
    if not held:
        return user.home
    if len({unit.tenant_id for unit in units}) != 1:
        return None
    return min(units, key=lambda unit: (unit.ancestor_links.count(), str(unit.id)))


def visible_users(actor: Actor) -> models.QuerySet[User]:
    """Return the accounts that the actor may list: itself, and those of its units.

    Of a unit are those with a grant there; its service accounts; and who has no grant any more and
    had the last one there.
    """
    scope = reads(actor, Verb.GRANT_READ)
    users = User.objects.all()
    if scope.sees_everything:
        return users
    below = OrgClosure.objects.filter(ancestor_id__in=scope.readable_units)
    units = below.values("descendant_id")
    # By subquery: a join with grants would list somebody once for each grant.
    seen = models.Q(id__in=Grant.objects.filter(unit__in=units).values("user_id"))
    has_grants = models.Exists(Grant.objects.filter(user=models.OuterRef("pk")))
    left = models.Q(is_service=True) | models.Q(~has_grants)
    return users.filter(seen | models.Q(left, home__in=units) | models.Q(id=actor.user_id))


def visible_user(actor: Actor, user_id: UUID) -> User:
    """Return one account that the actor may see.

    Raises:
        NotFound: there is none.
    """
    user = visible_users(actor).filter(id=user_id).first()
    if user is None:
        raise NotFound("user")
    return user


def may_edit(actor: Actor, user: User) -> bool:
    """Tell whether the actor administers every unit that looks after the account."""
    units = grant_units(user)
    return allowed(actor, Verb.USER_EDIT, units) == units


def end_browser_sessions(user: User, except_key: str | None = None) -> int:
    """Delete the sessions of a user, in the transaction of what ends them; return how many."""
    sessions = BrowserSession.objects.filter(user=user)
    if except_key:
        sessions = sessions.exclude(session_key=except_key)
    return sessions.delete()[0]


def end_links(user: User, now: datetime) -> None:
    """Make the one-use links of a user useless."""
    AccountLink.objects.filter(user=user, ended_at__isnull=True).update(ended_at=now)


def locked_for_change(actor: Actor, user_id: UUID, expected_version: int | None = None) -> User:
    """Lock an account that the actor administers.

    Raises:
        Denied, NotFound: it does not administer every unit the account has a grant on.
        Conflict: somebody changed the account since `expected_version`.
    """
    return _to_change(actor, user_id, expected_version)


def choose_password(*, user: User, password: str, now: datetime) -> None:
    """Set the password that somebody chose by a link; all sessions and links of theirs end.

    Raises:
        Invalid: it is too weak.
    """
    _set_password(user, password)
    user.must_change_password = False
    _save(user, "password", "must_change_password")
    end_links(user, now)
    end_browser_sessions(user)
    actor = Actor(user.id, user.get_username())
    _record(actor, "user.choose_password", user, now=now)


def _check_service(unit_id: UUID | None, password: str | None) -> None:
    problems = []
    if unit_id is None:
        problems.append(Problem("unit", "service_needs_unit", {}))
    if password is not None:
        problems.append(Problem("password", "service_signs_in_by_token", {}))
    if problems:
        raise Invalid(problems)


def _check_preferences(time_zone: str, language: str) -> None:
    problems = []
    try:
        ZoneInfo(time_zone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        problems.append(Problem("time_zone", "unknown_zone", {"zone": time_zone[:64]}))
    if language and language not in dict(settings.LANGUAGES):
        names = ", ".join(dict(settings.LANGUAGES))
        params = {"language": language[:16], "languages": names}
        problems.append(Problem("language", "unknown_language", params))
    if problems:
        raise Invalid(problems)


def _check_not_own(actor: Actor, user: User) -> None:
    if user.id == actor.user_id:
        raise Denied("own_account", {"user": user.get_username()})


def _to_change(actor: Actor, user_id: UUID, expected_version: int | None = None) -> User:
    """Lock an account; check that its grants lie below those of the actor, and the version."""
    user = _locked(user_id)
    units = grant_units(user)
    mine = allowed(actor, Verb.USER_EDIT, units)
    if mine != units:
        if mine or allowed(actor, Verb.GRANT_READ, units):
            raise Denied("account_of_others_too", {"user": user.get_username()})
        raise NotFound("user")
    if expected_version is not None and user.version != expected_version:
        raise Conflict(
            "version", {"expected": expected_version, "version": user.version}, current=user
        )
    return user


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
    if is_active:
        user.removed_at = None
    _save(user, "is_active", "removed_at")
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


def _save(user: User, *fields: str) -> None:
    user.version += 1
    user.save(update_fields=[*fields, "version"])


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
