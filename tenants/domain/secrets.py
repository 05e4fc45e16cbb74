"""Secrets of org units: who makes, replaces, revokes and uses them; nobody reads one.

A secret of a unit is there for the jobs of the unit and of all below it: a shared one for whoever
submits jobs there, one that is not for its owner alone. Jobs name secrets; of two with one name the
nearest counts, and in one unit one's own. The values are opened in one place only, `values_for`,
when the gateway puts a launch together.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from uuid import UUID, uuid4

from django.conf import settings
from django.db import IntegrityError, transaction
from django.db.models import Q, QuerySet

from tenants.domain import audit
from tenants.domain.access import Actor, Verb, may, reads, refusal, require
from tenants.domain.errors import Conflict, Invalid, NotFound, Problem
from tenants.domain.sealing import CannotOpenError, Keyring, Sealed
from tenants.models import OrgClosure, OrgUnit, Secret, SecretKind, User

LARGEST = 128 * 1024
"""Bytes of all values of a secret."""
MOST_KEYS = 64
LONGEST_KEY = 253
NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?")
KEY = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
REGISTRY_KEYS = ("registry", "username", "password")
USE_NOTED_EVERY = timedelta(minutes=1)

Values = Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class NewSecret:
    """What somebody writes; it shows no value where it is printed."""

    name: str
    kind: SecretKind
    values: Values = field(repr=False)
    is_shared: bool = True


# --- writing --------------------------------------------------------------------------------------


def create_secret(
    *,
    actor: Actor,
    unit_id: UUID,
    new: NewSecret,
    now: datetime,
    reason: str = "",
    request_id: str = "",
) -> Secret:
    """Make a secret of a unit.

    Who submits jobs there makes own ones and shares them; only an administrator puts a shared one
    before another that jobs of the unit get from above.

    Raises:
        Denied, NotFound: the actor may not make secrets there.
        Invalid: the name or a value cannot be one, or the name is taken.
        Conflict: the unit is archived, or the installation has no key.
    """
    _require_edit(actor, unit_id, actor.user_id)
    if new.is_shared and not may(actor, Verb.SECRET_EDIT, unit_id) and _is_given(unit_id, new.name):
        raise refusal(actor, Verb.SECRET_EDIT, unit_id)
    _check_name(new.name)
    values = check_values(new.kind, new.values)
    keyring = _keyring()
    with transaction.atomic():
        unit = OrgUnit.objects.get(id=unit_id)
        if unit.is_archived:
            raise Conflict("unit_archived", {"unit": unit.name})
        secret = Secret(
            id=uuid4(),
            unit=unit,
            name=new.name,
            kind=new.kind,
            is_shared=new.is_shared,
            owner_id=actor.user_id,
            created_at=now,
        )
        _put(secret, values, keyring, now)
        try:
            with transaction.atomic():
                secret.save(force_insert=True)
        except IntegrityError as error:
            raise Invalid([Problem("name", "taken", {"name": new.name})]) from error
        _record(actor, "secret.create", secret, now, None, reason=reason, request_id=request_id)
    return secret


def replace_values(
    *,
    actor: Actor,
    secret_id: UUID,
    values: Values,
    expected_version: int,
    now: datetime,
    reason: str = "",
    request_id: str = "",
) -> Secret:
    """Put new values in the place of all old ones; tasks that start from now on get them.

    Raises:
        Denied, NotFound: it is not the actor's to change.
        Invalid: a value cannot be one.
        Conflict: somebody changed it since, or the installation has no key.
    """
    with transaction.atomic():
        secret = _to_change(actor, secret_id, expected_version)
        checked = check_values(SecretKind(secret.kind), values)
        before = _shown(secret)
        _put(secret, checked, _keyring(), now)
        secret.version += 1
        secret.save()
        _record(actor, "secret.replace", secret, now, before, reason=reason, request_id=request_id)
    return secret


def revoke_secret(
    *,
    actor: Actor,
    secret_id: UUID,
    expected_version: int,
    now: datetime,
    reason: str = "",
    request_id: str = "",
) -> Secret:
    """Destroy the values: no task gets them any more. Those that run keep what they were given.

    Raises:
        Denied, NotFound: it is not the actor's to change.
        Conflict: somebody changed it since.
    """
    with transaction.atomic():
        secret = _to_change(actor, secret_id, expected_version)
        before = _shown(secret)
        secret.wrapped_key, secret.ciphertext, secret.key_id = b"", b"", ""
        secret.revoked_at = now
        secret.version += 1
        secret.save()
        _record(actor, "secret.revoke", secret, now, before, reason=reason, request_id=request_id)
    return secret


def rotate(now: datetime) -> tuple[int, list[Secret]]:
    """Wrap all data keys by the installation's first key; return how many, and what did not open.

    Safe to run again at any time: what is under the first key already is left alone.
    """
    del now  # the values stay as they were, and so does `changed_at`
    keyring = _keyring()
    rotated, lost = 0, []
    waiting = Secret.objects.filter(revoked_at__isnull=True).exclude(key_id=keyring.current)
    for secret_id in list(waiting.values_list("id", flat=True)):
        with transaction.atomic():
            secret = Secret.objects.select_for_update(no_key=True).get(id=secret_id)
            if secret.revoked_at is not None:
                continue
            try:
                sealed = keyring.rewrap(_sealed(secret), str(secret.id))
            except CannotOpenError:
                lost.append(secret)
                continue
            secret.key_id, secret.wrapped_key = sealed.key_id, sealed.wrapped_key
            secret.save(update_fields=["key_id", "wrapped_key"])
            rotated += 1
    return rotated, lost


# --- checking -------------------------------------------------------------------------------------


def _check_name(name: str) -> None:
    if not NAME.fullmatch(name):
        raise Invalid([Problem("name", "secret_name", {"name": name[:80]})])


def check_values(kind: SecretKind, values: Values) -> dict[str, bytes]:
    """Return values that can be given to a task.

    Raises:
        Invalid: none, too many or too large ones, or a name that cannot be one; no value is told.
    """
    problems = []
    if not values:
        problems.append(Problem("values", "secret_empty"))
    if len(values) > MOST_KEYS:
        problems.append(Problem("values", "too_many", {"count": len(values), "limit": MOST_KEYS}))
    size = sum(len(value) for value in values.values())
    if size > LARGEST:
        problems.append(Problem("values", "file_too_big", {"size": size, "max": LARGEST}))
    problems += [
        problem
        for key, value in values.items()
        if (problem := _entry_problem(kind, key, value)) is not None
    ]
    if kind == SecretKind.REGISTRY and set(values) != set(REGISTRY_KEYS):
        names = ", ".join(REGISTRY_KEYS)
        problems.append(Problem("values", "secret_registry", {"keys": names}))
    if problems:
        raise Invalid(problems)
    return dict(values)


def _entry_problem(kind: SecretKind, key: str, value: bytes) -> Problem | None:
    rule = VARIABLE if kind == SecretKind.VARIABLES else KEY
    if not rule.fullmatch(key) or len(key) > LONGEST_KEY:
        return Problem(f"values.{key[:80]}", "secret_key", {"key": key[:80]})
    if kind == SecretKind.VARIABLES and not _is_text(value):
        return Problem(f"values.{key}", "secret_not_text", {"key": key})
    return None


def _is_text(value: bytes) -> bool:
    """Whether an environment could carry it."""
    try:
        return "\0" not in value.decode()
    except UnicodeDecodeError:
        return False


def _keyring() -> Keyring:
    keyring: Keyring = settings.TERRACE_SECRETS_KEYRING
    if not keyring:
        raise Conflict("secrets_key_missing")
    return keyring


def _require_edit(actor: Actor, unit_id: UUID, owner_id: UUID | None) -> None:
    """Ask for the right to edit; who may use secrets there learns that it is denied."""
    if may(actor, Verb.SECRET_EDIT, unit_id, owner_id=owner_id):
        return
    if may(actor, Verb.SECRET_USE, unit_id):
        raise refusal(actor, Verb.SECRET_EDIT, unit_id)
    require(actor, Verb.SECRET_EDIT, unit_id, what="secret")


def _is_given(unit_id: UUID, name: str) -> bool:
    """Tell whether a shared secret of this name comes to the unit's jobs from above."""
    shared = Secret.objects.filter(name=name, is_shared=True, revoked_at__isnull=True)
    return shared.filter(unit__in=_above([unit_id])).exclude(unit=unit_id).exists()


def _to_change(actor: Actor, secret_id: UUID, expected_version: int) -> Secret:
    rows = Secret.objects.select_for_update(no_key=True, of=("self",)).select_related("unit")
    secret = visible_to(actor, rows).filter(id=secret_id).first()
    if secret is None:
        raise NotFound("secret")
    if not may(actor, Verb.SECRET_EDIT, secret.unit_id, owner_id=secret.owner_id):
        raise refusal(actor, Verb.SECRET_EDIT, secret.unit_id)
    if secret.revoked_at is not None:
        raise Conflict("secret_is_revoked", {"secret": secret.name})
    if secret.version != expected_version:
        params = {"expected": expected_version, "version": secret.version}
        raise Conflict("version", params, current=secret)
    return secret


def _put(secret: Secret, values: Values, keyring: Keyring, now: datetime) -> None:
    plain = {key: base64.b64encode(value).decode() for key, value in values.items()}
    sealed = keyring.seal(json.dumps(plain).encode(), str(secret.id))
    secret.keys = sorted(values)
    secret.key_id = sealed.key_id
    secret.wrapped_key, secret.ciphertext = sealed.wrapped_key, sealed.ciphertext
    secret.changed_at = now


def _shown(secret: Secret) -> dict[str, object]:
    """Return what the record may hold of a secret: names, and never a value."""
    return {
        "kind": secret.kind,
        "is_shared": secret.is_shared,
        "keys": list(secret.keys),
        "revoked": secret.revoked_at is not None,
    }


def _record(
    actor: Actor,
    action: str,
    secret: Secret,
    now: datetime,
    before: dict[str, object] | None,
    **why: str,
) -> None:
    audit.record(
        actor=actor,
        action=action,
        subject=secret,
        before=before,
        after=_shown(secret),
        unit=secret.unit,
        now=now,
        **why,
    )


# --- seeing ---------------------------------------------------------------------------------------


def visible_to(actor: Actor, rows: QuerySet[Secret] | None = None) -> QuerySet[Secret]:
    """Return the secrets whose names the actor may see.

    Everything where it may read names; its own; and the shared ones that it may name in jobs, of
    its units, those below and those above.
    """
    found = Secret.objects.all() if rows is None else rows
    names, uses = reads(actor, Verb.SECRET_READ), reads(actor, Verb.SECRET_USE)
    if names.sees_everything:
        return found
    seen = Q(unit__in=_below(names.readable_units))
    usable = Q(unit__in=_below(uses.readable_units)) | Q(unit__in=_above(uses.readable_units))
    seen |= Q(is_shared=True) & usable
    if actor.user_id is not None:
        seen |= Q(owner=actor.user_id) & usable
    return found.filter(seen)


def _below(units: Collection[UUID]) -> QuerySet[OrgClosure, UUID]:
    return OrgClosure.objects.filter(ancestor__in=units).values_list("descendant", flat=True)


def _above(units: Collection[UUID]) -> QuerySet[OrgClosure, UUID]:
    return OrgClosure.objects.filter(descendant__in=units).values_list("ancestor", flat=True)


# --- using ----------------------------------------------------------------------------------------


def usable(*, unit_id: UUID, owner_id: UUID, names: Collection[str]) -> dict[str, Secret]:
    """Return the secrets that these names mean for a job of a unit and its owner: one query.

    The nearest unit first; in one unit the owner's own before the shared one.
    """
    found: dict[str, Secret] = {}
    rows = Secret.objects.filter(
        Q(is_shared=True) | Q(owner=owner_id),
        unit__descendant_links__descendant=unit_id,
        name__in=names,
        revoked_at__isnull=True,
    ).order_by("unit__descendant_links__depth", "is_shared")
    for secret in rows:
        found.setdefault(secret.name, secret)
    return found


def may_use(owner: User, actor: Actor, unit_id: UUID) -> bool:
    """Whether a job's owner may still name secrets there; asked anew at each launch."""
    return owner.is_active and may(actor, Verb.SECRET_USE, unit_id)


def values_for(secrets: Iterable[Secret], now: datetime) -> dict[UUID, dict[str, bytes]]:
    """Open secrets for a launch, and note that they were used.

    Raises:
        CannotOpenError: one does not open; the text names it and no value.
    """
    keyring: Keyring = settings.TERRACE_SECRETS_KEYRING
    opened = {}
    stale = []
    for secret in secrets:
        try:
            plain = keyring.open(_sealed(secret), str(secret.id))
        except CannotOpenError as error:
            raise CannotOpenError(f"secret {secret.name}: {error}") from error
        opened[secret.id] = {
            key: base64.b64decode(value) for key, value in json.loads(plain).items()
        }
        if secret.last_used_at is None or secret.last_used_at < now - USE_NOTED_EVERY:
            stale.append(secret.id)
    if stale:
        Secret.objects.filter(id__in=stale).update(last_used_at=now)
    return opened


def _sealed(secret: Secret) -> Sealed:
    return Sealed(secret.key_id, bytes(secret.wrapped_key), bytes(secret.ciphertext))


def decode_value(text: str) -> bytes | None:
    """Read a value that came as base64; None if it is none."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None
