"""Quotas: who sets them, and what they refuse when something is submitted or stored.

A quota is a wall beside the queues: it never gives anything, it only stops. Jobs that wait and
bytes that are stored are checked here, in the transaction that adds them; what runs is kept within
its walls by the plan of each cycle and, when that is applied, by `quota_walls`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.db import connection, transaction
from django.db.models import Q, QuerySet

from scheduling.domain.quota_usage import HELD, is_around, measure, queued_jobs, units_below
from scheduling.models import Queue, Quota, QuotaLimit, QuotaResource, QuotaScope
from scheduling.spec.job_spec import JobSpec
from tenants.domain import audit, grants, notify
from tenants.domain.access import Actor, Verb, require
from tenants.domain.errors import Conflict, Invalid, Param, Problem
from tenants.models import OrgUnit, User

LARGEST = 2**53
JOB_UNITS = 1000
"""Jobs are written in thousandths where they stand beside resources."""

Limits = Mapping[QuotaResource, int]


@dataclass(frozen=True, slots=True)
class Subject:
    """Whom a quota is around: a unit as a whole, each of its users, or one of them."""

    unit_id: UUID
    scope: QuotaScope = QuotaScope.UNIT
    user_id: UUID | None = None


# --- setting --------------------------------------------------------------------------------------


def set_quota(  # noqa: PLR0913 -- what every change of settings has
    *,
    actor: Actor,
    subject: Subject,
    limits: Limits,
    expected_version: int,
    now: datetime,
    reason: str = "",
    request_id: str = "",
) -> Quota | None:
    """Put limits in the place of those that were seen at a version; 0: there was no quota yet.

    Without limits the quota is taken away. What is above a new limit stays; nothing is added to it.

    Raises:
        Denied, NotFound: of a unit as a whole the actor does not administer the parent, of its
            users the unit.
        Invalid: a limit is no amount, or there is no such user in reach.
        Conflict: somebody changed it since.
    """
    with transaction.atomic():
        unit = _unit_to_change(actor, subject)
        _check_limits(limits)
        quota = _locked(subject)
        version = quota.version if quota else 0
        if version != expected_version:
            params = {"expected": expected_version, "version": version}
            raise Conflict("version", params, current=quota)
        user = _user(actor, subject)
        before = limits_of(quota) if quota else {}
        if before == dict(limits):
            return quota
        if quota is None:
            quota = Quota.objects.create(
                unit=unit, scope=subject.scope, user=user, created_at=now, version=0
            )
        _write(quota, before, limits)
        who = user.get_username() if user else str(QuotaScope(subject.scope).value)
        audit.record(
            actor=actor,
            action="quota.set" if limits else "quota.remove",
            subject=audit.Subject("quota", str(quota.id), f"{unit.name}: {who}"),
            before=_plain(before) if before else None,
            after=_plain(limits) if limits else None,
            unit=unit,
            now=now,
            reason=reason,
            request_id=request_id,
        )
        _wake(unit.id)
        if not limits:
            quota.delete()
            return None
    return quota


def limits_of(quota: Quota) -> dict[QuotaResource, int]:
    """Return the limits of a quota in the order of the resources."""
    found = {QuotaResource(one.resource): one.amount for one in quota.limits.all()}
    return {resource: found[resource] for resource in QuotaResource if resource in found}


def _unit_to_change(actor: Actor, subject: Subject) -> OrgUnit:
    """Check the right; of a unit as a whole it is its parent's, as with a queue's numbers."""
    unit = OrgUnit.objects.filter(id=subject.unit_id).first()
    is_whole = subject.scope == QuotaScope.UNIT
    asked = unit.parent_id if unit is not None and is_whole else subject.unit_id
    require(actor, Verb.QUOTA_EDIT, asked, seen_at=subject.unit_id, what="org unit")
    assert unit is not None  # noqa: S101 -- an unknown unit was not found
    return unit


def _check_limits(limits: Limits) -> None:
    problems = [
        Problem(str(resource), "out_of_range", {"value": amount, "min": 0, "max": LARGEST})
        for resource, amount in limits.items()
        if not 0 <= amount <= LARGEST
    ]
    if problems:
        raise Invalid(problems)


def _user(actor: Actor, subject: Subject) -> User | None:
    """Return the user of a personal quota: somebody whose grants the actor may see."""
    if subject.scope != QuotaScope.USER:
        if subject.user_id is not None:
            raise Invalid([Problem("user", "quota_without_user")])
        return None
    user_id = subject.user_id
    if user_id is None or not (
        user_id == actor.user_id or grants.visible_grants(actor).filter(user_id=user_id).exists()
    ):
        raise Invalid([Problem("user", "user_missing")])
    return User.objects.get(id=user_id)


def _locked(subject: Subject) -> Quota | None:
    """Lock the quota; the unit first, so that two do not make it at once."""
    OrgUnit.objects.select_for_update(no_key=True).get(id=subject.unit_id)
    rows = Quota.objects.select_for_update(no_key=True, of=("self",)).prefetch_related("limits")
    same = Q(user_id=subject.user_id) if subject.user_id else Q(user__isnull=True)
    return rows.filter(same, unit_id=subject.unit_id, scope=subject.scope).first()


def _write(quota: Quota, before: Limits, limits: Limits) -> None:
    """Change only what differs, in the order of the resources, as every writer does."""
    for resource in QuotaResource:
        if resource not in limits:
            if resource in before:
                QuotaLimit.objects.filter(quota=quota, resource=resource).delete()
        elif resource not in before:
            QuotaLimit.objects.create(quota=quota, resource=resource, amount=limits[resource])
        elif before[resource] != limits[resource]:
            rows = QuotaLimit.objects.filter(quota=quota, resource=resource)
            rows.update(amount=limits[resource])
    quota.version += 1
    quota.save(update_fields=["version"])


def _plain(limits: Limits) -> dict[str, int]:
    return {str(resource): amount for resource, amount in limits.items()}


def _wake(unit_id: UUID) -> None:
    """Let the schedulers of the unit's clusters look again."""
    queues = Queue.objects.filter(unit__ancestor_links__ancestor=unit_id)
    for cluster_id in queues.values_list("cluster_id", flat=True).distinct():
        notify.notify(notify.SCHEDULE, str(cluster_id))


# --- refusing -------------------------------------------------------------------------------------


ANY_AROUND = """EXISTS (
    SELECT FROM scheduling_quotalimit AS limited
    JOIN scheduling_quota AS quota ON quota.id = limited.quota_id
    JOIN tenants_orgclosure AS link ON link.ancestor_id = quota.unit_id
    WHERE link.descendant_id = %s
)"""
"""Whether there is any quota at or above a unit, as a part of another question."""


def require_room_to_submit(
    *, unit_id: UUID, owner_id: UUID, spec: JobSpec, moved_job: UUID | None = None
) -> None:
    """Refuse a job where too many wait, or that could never start; in the submitting transaction.

    A job that is moved there does not stand in its own way where it is counted already. One query
    where no quota counts the owner's jobs there.

    Raises:
        Invalid: the quota with its unit, limit, use and who can raise it.
    """
    limits = _limits_around(unit_id, owner_id)
    problems = [problem for limit in limits if (problem := _never_fits(limit, spec)) is not None]
    if problems:
        raise Invalid(problems)
    for limit in limits:
        if limit.resource == QuotaResource.QUEUED_JOBS:
            _require_place_in_line(limit, owner_id, moved_job)


def has_any(*, unit_id: UUID, owner_id: UUID) -> bool:
    """Whether a quota counts the owner's jobs in the unit; one query."""
    return bool(_limits_around(unit_id, owner_id))


def require_storage(*, unit_id: UUID, owner_id: UUID, size: int) -> None:
    """Refuse bytes beyond a quota of storage; in the transaction that adds their row.

    Raises:
        Invalid: the quota with its unit, limit, use and who can raise it.
    """
    for limit in _limits_around(unit_id, owner_id):
        if limit.resource != QuotaResource.STORAGE or not _lock(limit):
            continue
        quota = limit.quota
        owner = None if quota.scope == QuotaScope.UNIT else owner_id
        units = units_below([quota.unit_id])[quota.unit_id]
        used = measure(units, [QuotaResource.STORAGE], owner=owner)
        total = used.of(units, QuotaResource.STORAGE, owner)
        if total + size > limit.amount:
            params: dict[str, Param] = {
                "unit": quota.unit.name,
                "resource": "storage",
                "requested": size,
                "used": total,
                "hard": limit.amount,
            }
            raise Invalid([Problem("content", _code("quota_storage", quota), params)])


def _limits_around(unit_id: UUID, owner_id: UUID) -> list[QuotaLimit]:
    """Return the limits that count an owner's jobs in a unit, from the tenant down: one query."""
    return _effective(
        QuotaLimit.objects.filter(quota__unit__descendant_links__descendant=unit_id)
        .filter(~Q(quota__scope=QuotaScope.USER) | Q(quota__user=owner_id))
        .order_by("-quota__unit__descendant_links__depth", "quota_id", "id"),
        owner_id,
    )


def _effective(rows: QuerySet[QuotaLimit], owner_id: UUID) -> list[QuotaLimit]:
    limits = list(rows.select_related("quota__unit"))
    own = {(one.quota.unit_id, owner_id) for one in limits if one.quota.scope == QuotaScope.USER}
    return [one for one in limits if is_around(one.quota, owner_id, own)]


def _lock(limit: QuotaLimit) -> bool:
    """Make others who add to the same wall wait; False if the limit is gone by now."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT amount FROM scheduling_quotalimit WHERE id = %s FOR NO KEY UPDATE", [limit.id]
        )
        row = cursor.fetchone()
    if row is not None:
        limit.amount = row[0]
    return row is not None


def _require_place_in_line(limit: QuotaLimit, owner_id: UUID, moved_job: UUID | None) -> None:
    if not _lock(limit):
        return
    quota = limit.quota
    owner = None if quota.scope == QuotaScope.UNIT else owner_id
    units = units_below([quota.unit_id])[quota.unit_id]
    waiting = queued_jobs(units, owner)
    if moved_job is not None:
        waiting = waiting.exclude(id=moved_job)
    if waiting[: limit.amount].count() >= limit.amount:
        params: dict[str, Param] = {
            "unit": quota.unit.name,
            "jobs": waiting.count(),
            "most": limit.amount,
        }
        raise Invalid([Problem("queue", _code("quota_queued", quota), params)])


def _never_fits(limit: QuotaLimit, spec: JobSpec) -> Problem | None:
    """Say that the job's least is more than a quota will ever let through."""
    resource = QuotaResource(limit.resource)
    if resource == QuotaResource.RUNNING_JOBS:
        least, hard, name = JOB_UNITS, limit.amount * JOB_UNITS, "jobs"
    elif resource in HELD:
        least = sum(role.request.get(resource, 0) * role.min_available for role in spec.roles)
        hard, name = limit.amount, str(resource)
    else:
        return None
    if least <= hard:
        return None
    params: dict[str, Param] = {
        "unit": limit.quota.unit.name,
        "resource": name,
        "requested": least,
        "hard": hard,
    }
    return Problem("roles", _code("quota_too_small", limit.quota), params)


def _code(name: str, quota: Quota) -> str:
    return f"{name}_of_unit" if quota.scope == QuotaScope.UNIT else f"{name}_of_user"
