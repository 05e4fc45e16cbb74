"""API tokens: made, shown once, narrowed, looked up and revoked."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Collection
from datetime import datetime, timedelta
from uuid import UUID

from django.db import models, transaction

from tenants.domain import audit, outbox
from tenants.domain.access import Actor, Verb, allowed, may, reads, refusal, require
from tenants.domain.errors import Denied, Invalid, NotFound, Problem
from tenants.domain.prepared import prepared
from tenants.domain.users import grant_units, home_unit
from tenants.models import ApiToken, OrgClosure, OrgUnit, User

MARK = "trc_"
"""What every secret begins with, so that scanners find a leaked one."""
SHOWN = 12
"""Characters of the secret that lists show: the mark and 8 of 43."""
LONGEST_LIFE = timedelta(days=366)
LONGEST_NAME = 100
MOST_TOKENS = 50
SEEN_EVERY = timedelta(minutes=1)
"""`last_used_at` is that exact, so that reading does not mean writing."""


def create_token(
    *,
    actor: Actor,
    user: User,
    name: str,
    verbs: Collection[str],
    unit: OrgUnit | None,
    expires_at: datetime,
    now: datetime,
    request_id: str = "",
) -> tuple[ApiToken, str]:
    """Make a token of a user and return it with its secret, which is shown this once.

    `verbs` (none: all) and `unit` (None: wherever the user has grants) narrow what it may do; they
    never add to what the user may do at the time of use. People make their own; who administers a
    service account makes its.

    Raises:
        Denied, NotFound: it is for somebody else, or asked for with a token.
        Invalid: the name, a verb or the expiry is unusable, or the user has too many tokens.
    """
    with transaction.atomic():
        _check_maker(actor, user)
        if unit is not None:
            require(actor, Verb.ORG_READ, unit.id, what="org unit")
        _check_fields(user, name, verbs, expires_at, now)
        secret = MARK + secrets.token_urlsafe(32)
        token = ApiToken.objects.create(
            user=user,
            name=name,
            prefix=secret[:SHOWN],
            secret_hash=_hash(secret),
            verbs=sorted(set(verbs)),
            unit=unit,
            expires_at=expires_at,
            created_at=now,
        )
        audit.record(
            actor=actor,
            action="token.create",
            subject=token,
            before=None,
            after={
                "user": user.get_username(),
                "verbs": token.verbs,
                "unit": token.unit_id,
                "expires_at": expires_at,
            },
            unit=unit or home_unit(user),
            now=now,
            request_id=request_id,
        )
    return token, secret


def _columns(model: type[models.Model], table: str) -> str:
    fields = model._meta.concrete_fields  # noqa: SLF001 -- Django's documented model API
    return ", ".join(f'{table}."{field.column}"' for field in fields)


def _names(model: type[models.Model]) -> list[str]:
    return [field.attname for field in model._meta.concrete_fields]  # noqa: SLF001 -- as above


_TOKEN_NAMES, _USER_NAMES = _names(ApiToken), _names(User)
# Every request of a program asks this: as text, so that it is not put together anew each time.
_BY_SECRET = f"""
SELECT {_columns(ApiToken, "token")}, {_columns(User, "owner")}
FROM tenants_apitoken AS token JOIN tenants_user AS owner ON owner.id = token.user_id
WHERE token.secret_hash = %s AND token.revoked_at IS NULL AND token.expires_at > %s
    AND owner.is_active
"""  # noqa: S608 -- names are the models' own


def authenticate(secret: str, now: datetime) -> tuple[User, ApiToken] | None:
    """Return who a secret stands for, None if it is unknown, expired, revoked or its user disabled.

    What it may do is then `access.load_actor(user, token)`.
    """
    if not secret.startswith(MARK):
        return None
    with prepared() as cursor:
        cursor.execute(_BY_SECRET, [_hash(secret), now])
        row = cursor.fetchone()
    if row is None:
        return None
    token = ApiToken.from_db("default", _TOKEN_NAMES, row[: len(_TOKEN_NAMES)])
    token.user = User.from_db("default", _USER_NAMES, row[len(_TOKEN_NAMES) :])
    if token.last_used_at is None or now - token.last_used_at >= SEEN_EVERY:
        ApiToken.objects.filter(id=token.id).update(last_used_at=now)
    return token.user, token


def revoke_token(
    *, actor: Actor, token_id: UUID, now: datetime, reason: str = "", request_id: str = ""
) -> ApiToken:
    """End a token at once; doing it twice is harmless.

    Raises:
        NotFound: the actor may not see the token.
        Denied: it may see it but not revoke it.
    """
    with transaction.atomic():
        token = visible_tokens(actor).select_for_update(of=("self",)).filter(id=token_id).first()
        if token is None:
            raise NotFound("token")
        units = {token.unit_id, *grant_units(token.user)}
        if not allowed(actor, Verb.TOKEN_REVOKE, units, owner_id=token.user_id):
            raise refusal(actor, Verb.TOKEN_REVOKE, token.unit_id)
        if token.revoked_at is not None:
            return token
        token.revoked_at = now
        token.save(update_fields=["revoked_at"])
        audit.record(
            actor=actor,
            action="token.revoke",
            subject=token,
            before={"revoked_at": None},
            after={"revoked_at": now},
            unit=token.unit or home_unit(token.user),
            now=now,
            reason=reason,
            request_id=request_id,
        )
        outbox.hint(f"user:{token.user_id}", "grants", now=now)
    return token


def visible_tokens(actor: Actor) -> models.QuerySet[ApiToken]:
    """Return the tokens that the actor may list: its own, and those of accounts of its units."""
    tokens = ApiToken.objects.order_by("-created_at", "id")
    scope = reads(actor, Verb.TOKEN_READ)
    if scope.sees_everything:
        return tokens
    below = OrgClosure.objects.filter(ancestor_id__in=scope.readable_units)
    units = below.values("descendant_id")
    # By subquery: a join with grants would list a token once for each grant.
    seen = models.Q(user__in=User.objects.filter(grants__unit__in=units).values("id"))
    seen |= models.Q(user__in=User.objects.filter(is_service=True, home__in=units).values("id"))
    if actor.user_id and may(actor, Verb.TOKEN_READ, None, owner_id=actor.user_id):
        seen |= models.Q(user=actor.user_id)
    return tokens.filter(seen)


def _check_maker(actor: Actor, user: User) -> None:
    if actor.token_id is not None:
        raise Denied("token_by_token", {"verb": Verb.TOKEN_CREATE.value})
    if user.id == actor.user_id:
        require(actor, Verb.TOKEN_CREATE, None, owner_id=user.id)
        return
    units = grant_units(user)
    if not (user.is_service and allowed(actor, Verb.USER_EDIT, units) == units):
        raise Denied("token_of_others", {"user": user.get_username()})


def _check_fields(
    user: User, name: str, verbs: Collection[str], expires_at: datetime, now: datetime
) -> None:
    problems = []
    if not 1 <= len(name) <= LONGEST_NAME or not name.isprintable():
        problems.append(Problem("name", "length", {"min": 1, "max": LONGEST_NAME}))
    known = {verb.value for verb in Verb}
    problems += [
        Problem("verbs", "unknown_verb", {"verb": verb}) for verb in sorted(set(verbs) - known)
    ]
    if not now < expires_at <= now + LONGEST_LIFE:
        problems.append(Problem("expires_at", "expiry", {"max_days": LONGEST_LIFE.days}))
    live = ApiToken.objects.filter(user=user, revoked_at__isnull=True, expires_at__gt=now)
    if live.count() >= MOST_TOKENS:
        problems.append(Problem("$", "too_many_tokens", {"max": MOST_TOKENS}))
    if problems:
        raise Invalid(problems)


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
