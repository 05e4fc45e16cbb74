"""Where somebody is signed in, and how they end a session they do not know."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from django.db import transaction

from tenants.domain import audit, outbox, users
from tenants.domain.access import Actor
from tenants.domain.errors import NotFound
from tenants.models import BrowserSession, User


@dataclass(frozen=True, slots=True)
class SignedInBrowser:
    """One session, without its key: whoever has that is signed in."""

    id: str
    created_at: datetime | None
    expires_at: datetime
    ip: str
    user_agent: str
    is_current: bool


def list_sessions(user: User, now: datetime, current_key: str | None) -> Sequence[SignedInBrowser]:
    """Return the sessions of a user that are in force, the newest first."""
    rows = BrowserSession.objects.filter(user=user, expire_date__gt=now)
    return [
        SignedInBrowser(
            id=_id(row.session_key),
            created_at=row.created_at,
            expires_at=row.expire_date,
            ip=row.ip,
            user_agent=row.user_agent,
            is_current=row.session_key == current_key,
        )
        for row in rows.order_by("-created_at", "session_key")
    ]


def end_own_sessions(
    *,
    actor: Actor,
    session_id: str | None,
    current_key: str | None,
    now: datetime,
    request_id: str = "",
) -> int:
    """End one session of the actor by its id, or all but the current one; return how many.

    Raises:
        NotFound: the actor is no person, or has no such session.
    """
    with transaction.atomic():
        user = User.objects.filter(id=actor.user_id).first() if actor.user_id else None
        if user is None:
            raise NotFound("user")
        if session_id is None:
            ended = users.end_browser_sessions(user, except_key=current_key)
        else:
            keys = BrowserSession.objects.filter(user=user).values_list("session_key", flat=True)
            wanted = [key for key in keys if _id(key) == session_id]
            ended = BrowserSession.objects.filter(session_key__in=wanted).delete()[0]
            if not ended:
                raise NotFound("session")
        audit.record(
            actor=actor,
            action="user.end_sessions",
            subject=user,
            before={"sessions": ended},
            after={"sessions": 0},
            unit=users.home_unit(user),
            now=now,
            request_id=request_id,
        )
        outbox.hint(f"user:{user.id}", "grants", now=now)
    return ended


def _id(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()[:16]
