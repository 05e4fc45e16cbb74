"""The organisation tree: units, their names and places, and the closure table that follows them.

A unit belongs to its parent: making, renaming, moving and archiving it needs `org.admin` on the
parent, and a tenant's needs it on the installation. All writes of one tenant's tree wait for one
another on the row of the tenant, so that the closure never mixes two moves.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from datetime import datetime
from uuid import UUID, uuid4

from django.db import IntegrityError, connection, models, transaction

from tenants.domain import audit, outbox
from tenants.domain.access import Actor, Verb, require
from tenants.domain.errors import Conflict, Invalid, NotFound, Problem
from tenants.models import ApiToken, OrgClosure, OrgUnit, OrgUnitKind, User

LONGEST_NAME = 100
DEEPEST = 20
"""Levels of the tree, the tenant's included."""


def create_unit(
    *,
    actor: Actor,
    parent_id: UUID | None,
    name: str,
    kind: OrgUnitKind,
    now: datetime,
    reason: str = "",
    request_id: str = "",
) -> OrgUnit:
    """Make a unit under a parent; without one, a tenant.

    Raises:
        Denied, NotFound: the actor does not administer the parent.
        Invalid: the name is empty, too long, not printable or taken by a sibling; the kind does not
            fit the place; the tree would be too deep.
        Conflict: the parent is archived.
    """
    with transaction.atomic():
        require(actor, Verb.ORG_ADMIN, parent_id, what="org unit")
        parent = _locked_with_tree(parent_id) if parent_id else None
        if parent and parent.is_archived:
            raise Conflict("unit_archived", {"unit": parent.name})
        name = clean_name(name)
        _check_kind(kind, parent)
        _check_free(name, parent_id)
        _check_depth(_depth(parent_id) + 1, name)
        unit = OrgUnit(id=uuid4(), parent=parent, name=name, kind=kind, created_at=now)
        unit.tenant_id = parent.tenant_id if parent else unit.id
        _insert(unit)
        OrgClosure.objects.create(ancestor=unit, descendant=unit, depth=0)
        if parent:
            _link(unit.id, parent.id)
        audit.record(
            actor=actor,
            action="org_unit.create",
            subject=unit,
            before=None,
            after={"name": name, "kind": kind, "parent": parent_id},
            unit=unit,
            now=now,
            reason=reason,
            request_id=request_id,
        )
        _announce(unit, now)
    return unit


def rename_unit(
    *,
    actor: Actor,
    unit_id: UUID,
    name: str,
    expected_version: int,
    now: datetime,
    reason: str = "",
    request_id: str = "",
) -> OrgUnit:
    """Give a unit another name.

    Raises:
        Denied, NotFound: the actor does not administer the parent.
        Invalid: the name is not usable or taken by a sibling.
        Conflict: somebody changed the unit since `expected_version`.
    """
    with transaction.atomic():
        unit = _to_change(actor, unit_id, expected_version)
        name = clean_name(name)
        if name != unit.name:
            _check_free(name, unit.parent_id)
        before, unit.name = unit.name, name
        _save(unit, "name")
        audit.record(
            actor=actor,
            action="org_unit.rename",
            subject=unit,
            before={"name": before},
            after={"name": name},
            unit=unit,
            now=now,
            reason=reason,
            request_id=request_id,
        )
        _announce(unit, now)
    return unit


def move_unit(
    *,
    actor: Actor,
    unit_id: UUID,
    parent_id: UUID,
    expected_version: int,
    now: datetime,
    reason: str = "",
    request_id: str = "",
) -> OrgUnit:
    """Put a unit and all below it under another parent of the same tenant.

    Callers outside tenants use `scheduling.domain.unit_queues.move_unit`: it moves the queues too.

    Raises:
        Denied, NotFound: the actor does not administer both parents.
        Invalid: the new parent lies inside the unit or in another tenant, has a child of that name,
            or the tree would be too deep.
        Conflict: somebody changed the unit since, or the new parent is archived.
    """
    with transaction.atomic():
        unit = _to_change(actor, unit_id, expected_version)
        require(actor, Verb.ORG_ADMIN, parent_id, what="org unit")
        parent = OrgUnit.objects.get(id=parent_id)
        _check_target(unit, parent)
        before = unit.parent_id
        unit.parent = parent
        _save(unit, "parent")
        _unlink(unit.id)
        _link(unit.id, parent.id)
        audit.record(
            actor=actor,
            action="org_unit.move",
            subject=unit,
            before={"parent": before},
            after={"parent": parent_id},
            unit=unit,
            now=now,
            reason=reason,
            request_id=request_id,
        )
        _announce(unit, now)
    return unit


def units_to_merge(
    *, actor: Actor, unit_id: UUID, into_id: UUID, expected_version: int
) -> tuple[OrgUnit, OrgUnit]:
    """Lock the tree and return a unit with the one that takes over all it has.

    Callers outside tenants use `scheduling.domain.unit_queues.merge_unit`.

    Raises:
        Denied, NotFound: the actor does not administer both units and their parents.
        Invalid: they are one, are in two tenants, or one lies inside the other.
        Conflict: somebody changed the unit since, or the other is archived.
    """
    unit = _to_change(actor, unit_id, expected_version)
    into = OrgUnit.objects.filter(id=into_id).first()
    if into is None:
        raise NotFound("org unit")
    require(actor, Verb.ORG_ADMIN, into.parent_id or into.id, seen_at=into.id, what="org unit")
    if unit.parent_id is None or into.tenant_id != unit.tenant_id:
        raise Invalid([Problem("into", "unit_stays_in_tenant", {"unit": unit.name})])
    if OrgClosure.objects.filter(ancestor=unit, descendant=into).exists():
        raise Invalid(
            [Problem("into", "merge_into_itself", {"unit": unit.name, "into": into.name})]
        )
    if into.is_archived:
        raise Conflict("unit_archived", {"unit": into.name})
    return unit, into


def record_merge(
    *,
    actor: Actor,
    unit: OrgUnit,
    into: OrgUnit,
    now: datetime,
    parts: Mapping[str, list[str]],
    reason: str = "",
    request_id: str = "",
) -> None:
    """Let accounts and tokens of a merged unit follow it, and write the record of the merge."""
    User.objects.filter(home=unit).update(home=into)
    ApiToken.objects.filter(unit=unit).update(unit=into)
    audit.record(
        actor=actor,
        action="org_unit.merge",
        subject=unit,
        before={"into": None},
        after={"into": into.id, **parts},
        unit=unit,
        now=now,
        reason=reason,
        request_id=request_id,
    )
    _announce(into, now)


def archive_unit(
    *,
    actor: Actor,
    unit_id: UUID,
    expected_version: int,
    now: datetime,
    reason: str = "",
    request_id: str = "",
) -> OrgUnit:
    """Retire a unit: it stays readable with all its history, and takes nothing new.

    Callers outside tenants use `scheduling.domain.unit_queues.archive_unit`: it asks its queues.

    Raises:
        Denied, NotFound: the actor does not administer the parent.
        Conflict: somebody changed the unit since, or a unit below is still in use.
    """
    with transaction.atomic():
        unit = _to_change(actor, unit_id, expected_version)
        in_use = unit.children.filter(is_archived=False).count()
        if in_use:
            raise Conflict("unit_has_children", {"unit": unit.name, "children": in_use})
        return _set_archived(
            actor, unit, is_archived=True, now=now, reason=reason, request_id=request_id
        )


def restore_unit(
    *,
    actor: Actor,
    unit_id: UUID,
    expected_version: int,
    now: datetime,
    reason: str = "",
    request_id: str = "",
) -> OrgUnit:
    """Take a retired unit back into use.

    Raises:
        Denied, NotFound: the actor does not administer the parent.
        Conflict: somebody changed the unit since, or its parent is archived.
    """
    with transaction.atomic():
        unit = _to_change(actor, unit_id, expected_version)
        if unit.parent and unit.parent.is_archived:
            raise Conflict("unit_archived", {"unit": unit.parent.name})
        return _set_archived(
            actor, unit, is_archived=False, now=now, reason=reason, request_id=request_id
        )


def clean_name(name: str) -> str:
    """Return the name in Unicode's composed form, so that twins are one name.

    Raises:
        Invalid: it is empty, too long, begins or ends with a space, or is not printable.
    """
    name = unicodedata.normalize("NFC", name)
    if not 1 <= len(name) <= LONGEST_NAME:
        raise Invalid([Problem("name", "length", {"min": 1, "max": LONGEST_NAME})])
    if not name.isprintable() or name != name.strip():
        raise Invalid([Problem("name", "not_printable", {})])
    return name


def _set_archived(
    actor: Actor, unit: OrgUnit, *, is_archived: bool, now: datetime, reason: str, request_id: str
) -> OrgUnit:
    before, unit.is_archived = unit.is_archived, is_archived
    _save(unit, "is_archived")
    audit.record(
        actor=actor,
        action="org_unit.archive" if is_archived else "org_unit.restore",
        subject=unit,
        before={"is_archived": before},
        after={"is_archived": is_archived},
        unit=unit,
        now=now,
        reason=reason,
        request_id=request_id,
    )
    _announce(unit, now)
    return unit


def _announce(unit: OrgUnit, now: datetime) -> None:
    outbox.hint(f"tenant:{unit.tenant_id}", "state", now=now)


def _to_change(actor: Actor, unit_id: UUID, expected_version: int) -> OrgUnit:
    """Lock the tree, check right and version."""
    unit = _locked_with_tree(unit_id)
    require(actor, Verb.ORG_ADMIN, unit.parent_id, seen_at=unit.id, what="org unit")
    if unit.version != expected_version:
        raise Conflict(
            "version", {"expected": expected_version, "version": unit.version}, current=unit
        )
    return unit


def _locked_with_tree(unit_id: UUID) -> OrgUnit:
    """Make other writers of the tenant's tree wait; rows that only refer to it are not held up."""
    tenant_id = OrgUnit.objects.filter(id=unit_id).values_list("tenant_id", flat=True).first()
    if tenant_id is None:
        raise NotFound("org unit")
    OrgUnit.objects.select_for_update(no_key=True).get(id=tenant_id)
    return OrgUnit.objects.select_related("parent").get(id=unit_id)


def _insert(unit: OrgUnit) -> None:
    try:
        with transaction.atomic():
            unit.save(force_insert=True)
    except IntegrityError as error:  # two tenants of one name at once: no tree to lock yet
        raise Invalid([Problem("name", "taken", {"name": unit.name})]) from error


def _save(unit: OrgUnit, field: str) -> None:
    unit.version += 1
    unit.save(update_fields=[field, "version"])


def _check_kind(kind: OrgUnitKind, parent: OrgUnit | None) -> None:
    if (kind == OrgUnitKind.TENANT) != (parent is None):
        raise Invalid([Problem("kind", "tenant_is_top_level", {"kind": kind})])


def _check_free(name: str, parent_id: UUID | None) -> None:
    if OrgUnit.objects.filter(parent_id=parent_id, name=name).exists():
        raise Invalid([Problem("name", "taken", {"name": name})])


def _check_target(unit: OrgUnit, parent: OrgUnit) -> None:
    if parent.tenant_id != unit.tenant_id or unit.parent_id is None:
        raise Invalid([Problem("parent", "unit_stays_in_tenant", {"unit": unit.name})])
    if parent.is_archived:
        raise Conflict("unit_archived", {"unit": parent.name})
    if OrgClosure.objects.filter(ancestor=unit, descendant=parent).exists():
        raise Invalid(
            [Problem("parent", "inside_itself", {"unit": unit.name, "parent": parent.name})]
        )
    if OrgUnit.objects.filter(parent=parent, name=unit.name).exclude(id=unit.id).exists():
        raise Invalid([Problem("parent", "name_taken_there", {"name": unit.name})])
    height = OrgClosure.objects.filter(ancestor=unit).aggregate(height=models.Max("depth"))
    _check_depth(_depth(parent.id) + 1 + height["height"], unit.name)


def _depth(unit_id: UUID | None) -> int:
    """Count the levels from the tenant down to the unit, both included."""
    return OrgClosure.objects.filter(descendant=unit_id).count() if unit_id else 0


def _check_depth(depth: int, name: str) -> None:
    if depth > DEEPEST:
        raise Invalid([Problem("parent", "unit_too_deep", {"unit": name, "max": DEEPEST})])


def _unlink(unit_id: UUID) -> None:
    """Take a subtree out of the tree: forget who is above it, keep what is inside it."""
    inside = OrgClosure.objects.filter(ancestor=unit_id).values_list("descendant_id", flat=True)
    ids = list(inside)
    OrgClosure.objects.filter(descendant__in=ids).exclude(ancestor__in=ids).delete()


def _link(unit_id: UUID, parent_id: UUID) -> None:
    """Put a subtree under a parent: each of its units below each unit at or above the parent."""
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO tenants_orgclosure (ancestor_id, descendant_id, depth)"
            " SELECT up.ancestor_id, down.descendant_id, up.depth + down.depth + 1"
            " FROM tenants_orgclosure up CROSS JOIN tenants_orgclosure down"
            " WHERE up.descendant_id = %s AND down.ancestor_id = %s",
            [parent_id, unit_id],
        )
