"""The audit trail: rows written with what they record, sealed into a chain of hashes per tenant.

The row is written in the transaction of the change. Sealing follows within seconds and in order,
since one chain written by all transactions would make them wait for one another. The order of a
chain is the order in which rows were first seen committed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from django.core.serializers.json import DjangoJSONEncoder
from django.db import connection, models, transaction

from tenants.domain.access import Actor, Verb, may, reads
from tenants.domain.errors import Invalid, Problem
from tenants.models import AuditRow, AuditSeal, OrgClosure, OrgUnit

INSTALLATION = "installation"
"""The chain of what belongs to no tenant: settings, nodes, platform admins."""
LONGEST_REASON = 500
SEAL_BATCH = 5000
REQUEST_ID: ContextVar[str] = ContextVar("request_id", default="")
"""The request that is being answered; what it changes is recorded with it."""
_SEAL_LOCK = 0x7E44ACE5EA1

Snapshot = Mapping[str, Any]  # the fields of the subject that changed, as JSON


@dataclass(frozen=True, slots=True)
class Subject:
    """What was changed, where no row stands for it (any more)."""

    type: str
    id: str
    label: str


@dataclass(frozen=True, slots=True)
class Act:
    """One thing that was done: `<object>.<verb>`, to what, and its changed fields."""

    action: str
    subject: models.Model | Subject
    before: Snapshot | None
    after: Snapshot | None


def record(
    *,
    actor: Actor,
    action: str,
    subject: models.Model | Subject,
    before: Snapshot | None,
    after: Snapshot | None,
    unit: OrgUnit | None,
    now: datetime,
    reason: str = "",
    request_id: str = "",
) -> AuditRow:
    """Write who did what to what, and why, in the transaction of the change.

    `action` is `<object>.<verb>`; `before` and `after` hold the changed fields; `unit` is the org
    unit that the subject belongs to, None where it belongs to the installation.

    Raises:
        Invalid: the reason is too long.
        TransactionManagementError: outside a transaction the change could stand without its record.
    """
    (row,) = rows_of(
        actor=actor,
        acts=[Act(action, subject, before, after)],
        unit=unit,
        now=now,
        reason=reason,
        request_id=request_id,
    )
    row.save(force_insert=True)
    return row


def rows_of(
    *,
    actor: Actor,
    acts: Sequence[Act],
    unit: OrgUnit | None,
    now: datetime,
    reason: str = "",
    request_id: str = "",
) -> list[AuditRow]:
    """Return the rows of `record` for who writes many, or together with what they record."""
    if not connection.in_atomic_block:
        raise transaction.TransactionManagementError(
            "audit.record must be called in the transaction of what it records"
        )
    check_reason(reason)
    return [
        _row(act, actor=actor, unit=unit, now=now, reason=reason, request_id=request_id)
        for act in acts
    ]


def _row(
    act: Act,
    *,
    actor: Actor,
    unit: OrgUnit | None,
    now: datetime,
    reason: str,
    request_id: str,
) -> AuditRow:
    named = act.subject if isinstance(act.subject, Subject) else _subject(act.subject)
    return AuditRow(
        tenant_id=unit.tenant_id if unit else None,
        unit=unit,
        at=now,
        actor_id=actor.user_id,
        actor_label=actor.label[:200],
        action=act.action,
        subject_type=named.type,
        subject_id=named.id,
        subject_label=named.label[:200],
        before=_as_json(act.before),
        after=_as_json(act.after),
        reason=reason,
        request_id=request_id or REQUEST_ID.get(),
    )


def visible_to(actor: Actor) -> models.QuerySet[AuditRow]:
    """Return the rows that the actor may read: those of its units, and its own acts."""
    scope = reads(actor, Verb.AUDIT_READ)
    if scope.sees_everything:
        return AuditRow.objects.all()
    below = OrgClosure.objects.filter(ancestor_id__in=scope.readable_units)
    seen = models.Q(unit__in=below.values("descendant_id"))
    if actor.user_id and may(actor, Verb.AUDIT_READ, None, owner_id=actor.user_id):
        seen |= models.Q(actor=actor.user_id)
    return AuditRow.objects.filter(seen)


def check_reason(reason: str) -> None:
    """Refuse a reason that the row has no room for.

    Raises:
        Invalid: it is too long.
    """
    if len(reason) > LONGEST_REASON:
        raise Invalid(
            [Problem("reason", "too_long", {"length": len(reason), "max": LONGEST_REASON})]
        )


def _subject(row: models.Model) -> Subject:
    return Subject(row._meta.model_name or "", str(row.pk), str(row))  # noqa: SLF001 - Django's public name


def _as_json(value: Snapshot | None) -> Any:  # a JSON value has no better type
    """Write the value as it will be read back, so that the hash of both is the same."""
    return None if value is None else json.loads(json.dumps(value, cls=DjangoJSONEncoder))


def seal(now: datetime, limit: int = SEAL_BATCH) -> int:
    """Seal up to `limit` rows that have no seal yet; return how many it sealed.

    Safe to run by two processes at once: the second waits for the first. Called by the relay.
    """
    with transaction.atomic():
        _lock_chains()
        rows = list(AuditRow.objects.filter(seal__isnull=True).order_by("id")[:limit])
        ends = _heads({_chain(row) for row in rows})
        seals = []
        for row in rows:
            chain = _chain(row)
            position, previous = ends.get(chain, (0, ""))
            digest = _digest(previous, chain, position + 1, row)
            ends[chain] = (position + 1, digest)
            seals.append(
                AuditSeal(row=row, chain=chain, position=position + 1, hash=digest, sealed_at=now)
            )
        AuditSeal.objects.bulk_create(seals)
    return len(seals)


def heads() -> dict[str, tuple[int, str]]:
    """Return the end of each chain: (position, hash). Kept elsewhere, it proves a cut tail."""
    return _heads(None)


def _lock_chains() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", [_SEAL_LOCK])


def _heads(chains: set[str] | None) -> dict[str, tuple[int, str]]:
    seals = AuditSeal.objects.order_by("chain", "-position").distinct("chain")
    if chains is not None:
        seals = seals.filter(chain__in=chains)
    return {seal.chain: (seal.position, seal.hash) for seal in seals}


def _chain(row: AuditRow) -> str:
    return str(row.tenant_id or INSTALLATION)


def _digest(
    previous: str, chain: str, position: int, row: AuditRow, tenant: str | None = None
) -> str:
    """Hash a row at a place of a chain; `tenant` stands in for the row's own in `verify`."""
    content = {
        "chain": chain,
        "position": position,
        "id": row.id,
        "tenant": tenant or _chain(row),
        "unit": row.unit_id,
        "at": row.at.astimezone(UTC).isoformat(timespec="microseconds"),
        "actor": row.actor_id,
        "actor_label": row.actor_label,
        "action": row.action,
        "subject": [row.subject_type, row.subject_id, row.subject_label],
        "before": row.before,
        "after": row.after,
        "reason": row.reason,
        "request_id": row.request_id,
    }
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(f"{previous}\n{text}".encode()).hexdigest()


class Tamper(StrEnum):
    """What happened to a sealed row behind Terrace's back."""

    ALTERED = "altered"
    REMOVED = "removed"
    MOVED = "moved"


@dataclass(frozen=True, slots=True)
class Finding:
    """One place of a chain that does not hold; `row_id` is None where the row is gone."""

    kind: Tamper
    chain: str
    position: int
    row_id: int | None
    subject: str = ""


@dataclass(frozen=True, slots=True)
class Verification:
    """What a walk over all chains found."""

    findings: tuple[Finding, ...]
    rows: int
    unsealed: int


def verify(expected: Mapping[str, tuple[int, str]] | None = None) -> Verification:
    """Walk every chain and name each row that was altered, removed or moved since it was sealed.

    `expected` are heads kept elsewhere (`heads`); without them a removed end cannot be told from a
    chain that never was longer. Reads each row once.
    """
    findings: list[Finding] = []
    rows = 0
    known = dict(expected or {})
    chains = sorted({*AuditSeal.objects.values_list("chain", flat=True).distinct(), *known})
    for chain in chains:
        seals = AuditSeal.objects.filter(chain=chain).select_related("row").order_by("position")
        walk = _Walk(chain, known.get(chain))
        for link in seals.iterator(chunk_size=2000):
            walk.step(link)
        rows += walk.rows
        findings += walk.findings()
    unsealed = AuditRow.objects.filter(seal__isnull=True).count()
    return Verification(tuple(findings), rows, unsealed)


class _Walk:
    """One pass along a chain; broken links are kept and explained at its end.

    After a broken link the walk goes on from the *stored* hash, so that one change is one finding.
    """

    def __init__(self, chain: str, expected: tuple[int, str] | None) -> None:
        self.chain = chain
        self.expected = expected
        self.rows = 0
        self.position = 0
        self.hash = ""
        self.is_rewritten = False
        self.removed: list[int] = []
        self.broken: list[tuple[AuditSeal, str]] = []

    def step(self, link: AuditSeal) -> None:
        self.rows += 1
        self.removed += range(self.position + 1, link.position)
        if not self._holds(link):
            self.broken.append((link, self.hash))
        self.position, self.hash = link.position, link.hash
        if self.expected and link.position == self.expected[0]:
            self.is_rewritten = link.hash != self.expected[1]

    def _holds(self, link: AuditSeal) -> bool:
        if link.position != self.position + 1:
            # Behind a gap the previous hash is gone with its row: the gap itself is the finding.
            return _chain(link.row) == self.chain
        return _digest(self.hash, self.chain, link.position, link.row) == link.hash

    def findings(self) -> Iterator[Finding]:
        for position in self.removed:
            yield Finding(Tamper.REMOVED, self.chain, position, None)
        for link, previous in self.broken:
            kind = Tamper.MOVED if self._is_moved(link, previous) else Tamper.ALTERED
            yield Finding(kind, self.chain, link.position, link.row_id, str(link.row))
        yield from self._against_expected()

    def _is_moved(self, link: AuditSeal, previous: str) -> bool:
        """Tell whether the row's content is sealed, only at another place or for another tenant."""
        if (
            _chain(link.row) != self.chain
            and _digest(previous, self.chain, link.position, link.row, self.chain) == link.hash
        ):
            return True
        return any(
            _digest(before, self.chain, other.position, link.row) == other.hash
            for other, before in self.broken
            if other.position != link.position
        )

    def _against_expected(self) -> Iterator[Finding]:
        """Find what only a head kept elsewhere can show: a cut end, a chain sealed anew."""
        if self.expected is None:
            return
        if self.is_rewritten:
            yield Finding(Tamper.ALTERED, self.chain, self.expected[0], None, "sealed anew")
        for position in range(self.position + 1, self.expected[0] + 1):
            yield Finding(Tamper.REMOVED, self.chain, position, None)
