"""Who looks after what: a line of the Operations list is taken, given to somebody, given back.

A mark says so to everybody who sees the line, for a day: what still wants somebody then wants
somebody again. It changes nothing of the thing itself.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from django.db import transaction

from scheduling.domain.queries.operations import Attention, Kind, attention
from scheduling.models import AttentionMark
from tenants.domain import access, audit
from tenants.domain.access import Actor, Verb, load_actor
from tenants.domain.audit import Subject
from tenants.domain.errors import Invalid, NotFound, Problem
from tenants.models import OrgUnit, User

HOLDS = timedelta(days=1)
HAVE_SOMEBODY = frozenset({Kind.CHANGE_REFUSED, Kind.CHANGE_TO_REVIEW})
"""Change sets have an author and reviewers of their own."""
Key = tuple[str, str]
"""A line's kind and subject."""


def key_of(line: Attention) -> Key:
    """Return what a line is known by."""
    return str(line.kind), line.id


@dataclass(frozen=True, slots=True)
class Line:
    """A line of the list as one reader sees it."""

    line: Attention
    mark: AttentionMark | None
    """Who looks after it."""
    may_mark: bool
    """Whether the reader may take it, give it away or give it back."""


def listed(actor: Actor, *, now: datetime) -> list[Line]:
    """Return what wants somebody with who looks after it; what nobody looks after first."""
    found = attention(actor, now=now)
    if not found:
        return []
    known, allowed = marks(found, now=now), markable(actor, found)
    lines = [Line(one, known.get(key_of(one)), key_of(one) in allowed) for one in found]
    return sorted(lines, key=lambda one: one.mark is not None)


def marks(lines: Sequence[Attention], *, now: datetime) -> dict[Key, AttentionMark]:
    """Return who looks after which of the lines: one query."""
    rows = AttentionMark.objects.filter(
        subject__in={line.id for line in lines}, at__gt=now - HOLDS
    ).select_related("assignee")
    return {(row.kind, row.subject): row for row in rows}


def markable(actor: Actor, lines: Sequence[Attention]) -> set[Key]:
    """Return which of the lines that the actor sees it may take, give away or give back.

    Two queries at most.
    """
    open_lines = [line for line in lines if line.kind not in HAVE_SOMEBODY]
    units = {line.unit_id for line in open_lines if line.unit_id is not None}
    all_jobs = _controlled(actor, units)
    own_units = {line.unit_id for line in open_lines if line.owner_id == actor.user_id}
    own_jobs = access.allowed(actor, Verb.JOB_CONTROL, own_units - {None}, owner_id=actor.user_id)
    is_operator = access.may(actor, Verb.NODE_ADMIN, None)
    found = set()
    for line in open_lines:
        is_own = line.owner_id is not None and line.owner_id == actor.user_id
        allowed = own_jobs if is_own else all_jobs
        if is_operator if line.unit_id is None else line.unit_id in allowed:
            found.add(key_of(line))
    return found


def _controlled(actor: Actor, units: set[UUID]) -> Collection[UUID | None]:
    """Return the units of lines that are shown in which the actor controls everybody's jobs."""
    scope = access.reads(actor, Verb.JOB_CONTROL)
    if all(access.reads(actor, verb) == scope for verb in (Verb.JOB_READ, Verb.QUEUE_READ)):
        return units  # what is shown is what may be acted on: nothing to ask
    return access.allowed(actor, Verb.JOB_CONTROL, units)


def assign(
    *,
    actor: Actor,
    key: Key,
    username: str,
    now: datetime,
    request_id: str = "",
) -> AttentionMark:
    """Say who looks after a line: the actor or, by user name, somebody else who may.

    Raises:
        NotFound: the actor sees no such line.
        Denied: it sees the line and may not take it.
        Invalid: nobody of that name may.
    """
    line = _line(actor, key, now)
    assignee = _assignee(line, username)
    with transaction.atomic():
        AttentionMark.objects.filter(at__lte=now - HOLDS).delete()
        before = AttentionMark.objects.filter(kind=key[0], subject=key[1]).first()
        mark, _is_new = AttentionMark.objects.update_or_create(
            kind=key[0], subject=key[1], defaults={"assignee": assignee, "at": now}
        )
        _record(
            actor,
            "attention.assign",
            line,
            before=before,
            after=mark,
            now=now,
            request_id=request_id,
        )
    return mark


def give_back(*, actor: Actor, key: Key, now: datetime, request_id: str = "") -> None:
    """Say that nobody looks after a line any more.

    Raises:
        NotFound: the actor sees no such line.
        Denied: it sees the line and may not take it.
    """
    line = _line(actor, key, now)
    with transaction.atomic():
        before = AttentionMark.objects.filter(kind=key[0], subject=key[1]).first()
        if before is None:
            return
        AttentionMark.objects.filter(id=before.id).delete()
        _record(
            actor,
            "attention.give_back",
            line,
            before=before,
            after=None,
            now=now,
            request_id=request_id,
        )


def _line(actor: Actor, key: Key, now: datetime) -> Attention:
    line = next((one for one in attention(actor, now=now) if key_of(one) == key), None)
    if line is None or line.kind in HAVE_SOMEBODY:
        raise NotFound("line")
    if not _may_take(actor, line):
        raise access.refusal(actor, _verb(line), line.unit_id)
    return line


def _verb(line: Attention) -> Verb:
    return Verb.NODE_ADMIN if line.unit_id is None else Verb.JOB_CONTROL


def _may_take(actor: Actor, line: Attention) -> bool:
    """Tell whether somebody may take a line, whether or not it is among those that they see."""
    return access.may(actor, _verb(line), line.unit_id, owner_id=line.owner_id)


def _assignee(line: Attention, username: str) -> User:
    """Return who is meant; the same refusal whether there is nobody or they may not."""
    user = User.objects.filter(username=username, is_active=True, is_service=False).first()
    if user is None or not _may_take(load_actor(user), line):
        raise Invalid([Problem("assignee", "attention_assignee", {"user": username[:150]})])
    return user


def _record(  # noqa: PLR0913 -- what a row of the record has
    actor: Actor,
    action: str,
    line: Attention,
    *,
    before: AttentionMark | None,
    after: AttentionMark | None,
    now: datetime,
    request_id: str,
) -> None:
    def who(mark: AttentionMark | None) -> dict[str, str] | None:
        return None if mark is None else {"assignee": mark.assignee.get_username()}

    audit.record(
        actor=actor,
        action=action,
        subject=Subject("attention", f"{line.kind}:{line.id}"[:64], line.name),
        before=who(before),
        after=who(after),
        unit=None if line.unit_id is None else OrgUnit.objects.get(id=line.unit_id),
        now=now,
        request_id=request_id,
    )
