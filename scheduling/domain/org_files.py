"""Brings an organisation into the state that a file describes: units, queues, people, grants."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime
from uuid import UUID

from django.db import transaction

from scheduling.domain import queues
from scheduling.domain.queue_changes import QueueEdit
from scheduling.models import Cluster, Queue
from scheduling.spec.org_file import PersonEntry, QueueEntry, UnitEntry
from tenants.domain import grants, org, users
from tenants.domain.access import Actor
from tenants.domain.errors import Invalid, Problem
from tenants.models import Grant, GrantRole, OrgUnit, OrgUnitKind, User

REASON = "organisation file"


@dataclass(slots=True)
class Applied:
    """What was missing and is there now; passwords are known here only."""

    units: list[str] = field(default_factory=list)
    queues: list[str] = field(default_factory=list)
    changed_queues: list[str] = field(default_factory=list)
    grants: list[str] = field(default_factory=list)
    passwords: dict[str, str] = field(default_factory=dict)
    """Name of a new person -> the password to give them; it must be changed at once."""


def apply_org_file(
    *, actor: Actor, tenants: Sequence[UnitEntry], cluster: Cluster, now: datetime
) -> Applied:
    """Make what is missing and set the numbers that the file states, all of it or nothing.

    What the file does not name stays as it is; nothing is ever taken away.

    Raises:
        Denied, NotFound, Invalid, Conflict: as the functions that make units, queues, accounts and
            grants.
    """
    root = Queue.objects.get(cluster=cluster, parent__isnull=True)
    work = _Work(actor, cluster, now)
    with transaction.atomic():
        for tenant in tenants:
            work.unit(tenant, None, root)
        work.set_numbers()
    return work.applied


class _Work:
    """One walk over a file, from the top down."""

    def __init__(self, actor: Actor, cluster: Cluster, now: datetime) -> None:
        self.actor = actor
        self.cluster = cluster
        self.now = now
        self.applied = Applied()
        self.edits: list[QueueEdit] = []

    def unit(self, entry: UnitEntry, parent: OrgUnit | None, above: Queue) -> None:
        unit = OrgUnit.objects.filter(parent=parent, name=org.clean_name(entry.name)).first()
        if unit is None:
            unit = org.create_unit(
                actor=self.actor,
                parent_id=parent.id if parent else None,
                name=entry.name,
                kind=OrgUnitKind(entry.kind),
                now=self.now,
                reason=REASON,
            )
            self.applied.units.append(unit.name)
        queue = self.queue(entry.queue, unit, above)
        for person in entry.people:
            self.person(person, unit)
        for child in entry.units:
            self.unit(child, unit, queue)

    def queue(self, entry: QueueEntry | None, unit: OrgUnit, above: Queue) -> Queue:
        """Return the unit's queue, made without numbers; those are set together at the end."""
        queue = Queue.objects.filter(cluster=self.cluster, unit=unit).first()
        if entry is None:
            return queue or above
        if queue is None:
            queue = queues.create_queue(
                actor=self.actor,
                parent_id=above.id,
                unit_id=unit.id,
                name=entry.name,
                now=self.now,
                reason=REASON,
            )
            self.applied.queues.append(queue.name)
        stated = {
            one.name: getattr(entry, one.name) for one in fields(QueueEntry) if one.name != "name"
        }
        self.edits.append(QueueEdit(queue_id=queue.id, expected_version=queue.version, **stated))
        return queue

    def set_numbers(self) -> None:
        before = {edit.queue_id: edit.expected_version for edit in self.edits}
        changed = queues.edit_queues(
            actor=self.actor, edits=self.edits, now=self.now, reason=REASON
        )
        self.applied.changed_queues += [
            queue.name for queue in changed if queue.version != before[queue.id]
        ]

    def person(self, entry: PersonEntry, unit: OrgUnit) -> None:
        if entry.role not in GrantRole.values:
            params = {"value": entry.role, "allowed": ", ".join(GrantRole.values)}
            raise Invalid([Problem(f"people[{entry.username}].role", "invalid_choice", params)])
        role = GrantRole(entry.role)
        user = User.objects.filter(username__iexact=entry.username).first()
        if user is None:
            self._create(entry, role, unit.id)
        elif not Grant.objects.filter(user=user, role=role, unit=unit).exists():
            grants.give_grant(
                actor=self.actor,
                user=user,
                role=role,
                unit_id=unit.id,
                now=self.now,
                reason=REASON,
            )
            self.applied.grants.append(f"{user.username} {role} {unit.name}")

    def _create(self, entry: PersonEntry, role: GrantRole, unit_id: UUID) -> None:
        password = None if entry.is_service else secrets.token_urlsafe(12)
        users.create_user(
            actor=self.actor,
            username=entry.username,
            role=role,
            unit_id=unit_id,
            now=self.now,
            email=entry.email,
            password=password,
            is_service=entry.is_service,
            reason=REASON,
        )
        if password is not None:
            self.applied.passwords[entry.username] = password
