"""One-use tickets: a program with an API token opens a live socket without showing the token."""

from __future__ import annotations

import hashlib
import secrets
from datetime import datetime, timedelta
from uuid import UUID

from django.db import transaction

from tenants.domain.access import Actor
from tenants.domain.errors import Invalid, Problem
from tenants.models import ApiToken, SocketTicket, User

MARK = "trw_"
VALID = timedelta(seconds=30)


def make(*, actor: Actor, now: datetime) -> tuple[str, datetime]:
    """Return a ticket of the token that asks, good for one socket, and until when.

    Raises:
        Invalid: a browser's session asks, which opens sockets by itself.
    """
    if actor.token_id is None:
        raise Invalid([Problem("$", "ticket_without_token", {})])
    secret, until = MARK + secrets.token_urlsafe(32), now + VALID
    with transaction.atomic():
        SocketTicket.objects.filter(expires_at__lte=now).delete()
        SocketTicket.objects.create(
            token_id=actor.token_id, secret_hash=_hash(secret), expires_at=until
        )
    return secret, until


def redeem(secret: str, now: datetime) -> tuple[User, ApiToken] | None:
    """Use a ticket up; return who it stands for, None if it is not in force (any more)."""
    if not secret.startswith(MARK):
        return None
    with transaction.atomic():
        # Of two that come with the same ticket one waits here, and then finds nothing.
        locked = SocketTicket.objects.select_for_update()
        ticket = locked.filter(secret_hash=_hash(secret)).first()
        if ticket is None:
            return None
        ticket.delete()
    if ticket.expires_at <= now:
        return None
    token = in_force([ticket.token_id], now).get(ticket.token_id)
    return (token.user, token) if token is not None else None


def in_force(token_ids: list[UUID], now: datetime) -> dict[UUID, ApiToken]:
    """Return those of the tokens, with their users, that are good now."""
    found = ApiToken.objects.select_related("user").filter(
        id__in=token_ids, revoked_at__isnull=True, expires_at__gt=now, user__is_active=True
    )
    return {token.id: token for token in found}


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
