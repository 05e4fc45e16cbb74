"""One-use links: how somebody who was invited, or whose password was reset, chooses a password.

The secret is shown to who made the link, to be passed on; only its hash is kept. A newer link makes
the older ones of the account useless.
"""

from __future__ import annotations

import hashlib
import secrets
from datetime import datetime, timedelta
from uuid import UUID

from django.db import transaction

from tenants.domain import audit, outbox, users
from tenants.domain.access import Actor
from tenants.domain.errors import Conflict, Denied, NotFound
from tenants.models import AccountLink, GrantRole, LinkPurpose, User

VALID_FOR = {
    LinkPurpose.INVITE: timedelta(days=7),
    LinkPurpose.RESET: timedelta(days=1),
}


def invite_user(
    *,
    actor: Actor,
    username: str,
    email: str,
    role: GrantRole,
    unit_id: UUID | None,
    now: datetime,
    first_name: str = "",
    last_name: str = "",
    reason: str = "",
    request_id: str = "",
) -> tuple[AccountLink, str]:
    """Make an account without a password, and the link by which its person chooses one.

    Raises:
        Denied, NotFound, Invalid, Conflict: as `users.create_user`.
    """
    with transaction.atomic():
        user = users.create_user(
            actor=actor,
            username=username,
            email=email,
            first_name=first_name,
            last_name=last_name,
            role=role,
            unit_id=unit_id,
            now=now,
            reason=reason,
            request_id=request_id,
        )
        return _new_link(actor, user, LinkPurpose.INVITE, now)


def invite_again(
    *,
    actor: Actor,
    user_id: UUID,
    now: datetime,
    reason: str = "",
    request_id: str = "",
) -> tuple[AccountLink, str]:
    """Make a new link for somebody who has not chosen a password yet; the older one ends.

    Raises:
        Denied, NotFound: the actor does not administer every unit the account has a grant on.
        Conflict: the account is disabled, a service account, or has a password.
    """
    with transaction.atomic():
        user = users.locked_for_change(actor, user_id)
        _require_person(user)
        if user.has_usable_password():
            raise Conflict("already_joined", {"user": user.get_username()})
        return _recorded_link(actor, user, LinkPurpose.INVITE, now, reason, request_id)


def reset_password(
    *,
    actor: Actor,
    user_id: UUID,
    now: datetime,
    expected_version: int | None = None,
    reason: str = "",
    request_id: str = "",
) -> tuple[AccountLink, str]:
    """Make the password useless, end the sessions, and return the link for choosing a new one.

    Raises:
        Denied, NotFound: the actor does not administer every unit the account has a grant on, or
            it is its own: people change their own password on their profile.
        Conflict: the account is disabled or a service account, or somebody changed it since.
    """
    with transaction.atomic():
        user = users.locked_for_change(actor, user_id, expected_version)
        _require_person(user)
        if user.id == actor.user_id:
            raise Denied("own_password_reset", {})
        user.set_unusable_password()
        user.version += 1
        user.save(update_fields=["password", "version"])
        users.end_browser_sessions(user)
        outbox.hint(f"user:{user.id}", "grants", now=now)
        return _recorded_link(actor, user, LinkPurpose.RESET, now, reason, request_id)


def find_link(secret: str, now: datetime) -> AccountLink:
    """Return the link that a secret stands for.

    Raises:
        NotFound: it is unknown, used, replaced or expired, or its account disabled.
    """
    link = (
        AccountLink.objects.select_related("user")
        .filter(
            secret_hash=_hash(secret),
            ended_at__isnull=True,
            expires_at__gt=now,
            user__is_active=True,
        )
        .first()
    )
    if link is None:
        raise NotFound("link")
    return link


def use_link(*, secret: str, password: str, now: datetime) -> User:
    """Choose the password of the link's account; the link and all sessions end.

    Raises:
        NotFound: the link is of no use (any more).
        Invalid: the password is too weak; the link stays usable.
    """
    with transaction.atomic():
        # Locked: of two who use the link at once the second finds it used.
        found = AccountLink.objects.select_for_update().filter(secret_hash=_hash(secret)).first()
        link = find_link(secret, now) if found else None
        if link is None:
            raise NotFound("link")
        users.choose_password(user=link.user, password=password, now=now)
    return link.user


def _require_person(user: User) -> None:
    if user.is_service:
        raise Conflict("service_has_no_password", {"user": user.get_username()})
    if not user.is_active:
        raise Conflict("account_disabled", {"user": user.get_username()})


def _recorded_link(
    actor: Actor, user: User, purpose: LinkPurpose, now: datetime, reason: str, request_id: str
) -> tuple[AccountLink, str]:
    link, secret = _new_link(actor, user, purpose, now)
    audit.record(
        actor=actor,
        action="user.invite_again" if purpose == LinkPurpose.INVITE else "user.reset_password",
        subject=user,
        before=None,
        after={"link_expires_at": link.expires_at},
        unit=users.home_unit(user),
        now=now,
        reason=reason,
        request_id=request_id,
    )
    return link, secret


def _new_link(
    actor: Actor, user: User, purpose: LinkPurpose, now: datetime
) -> tuple[AccountLink, str]:
    users.end_links(user, now)
    secret = secrets.token_urlsafe(32)
    link = AccountLink.objects.create(
        user=user,
        purpose=purpose,
        secret_hash=_hash(secret),
        created_by_id=actor.user_id,
        created_at=now,
        expires_at=now + VALID_FOR[purpose],
    )
    return link, secret


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
