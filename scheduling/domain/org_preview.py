"""What a change of the organisation would do, shown before it is made: who sees what, what moves.

A change is rehearsed: the same domain function makes it, what came out is read, and all of it is
taken back. So a preview refuses what the change itself would refuse, in the same words.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import Any, TypeVar
from uuid import UUID

from allauth.mfa.models import Authenticator
from django.db import models, transaction
from django.db.models import QuerySet, Sum

from scheduling.domain import queue_preview, unit_queues
from scheduling.domain.deeds import Deed
from scheduling.domain.queries.queues import RUNNING, WAITING
from scheduling.domain.queue_changes import Tree, read_tree
from scheduling.models import Cluster, Job, JobCount, Queue
from scheduling.models.job import FINISHED_PHASES
from tenants.domain import access, account_links, grants, org, users
from tenants.domain.access import Actor, Verb, load_actor, reads, verbs_on
from tenants.domain.errors import NotFound
from tenants.models import (
    ApiToken,
    BrowserSession,
    Grant,
    GrantRole,
    OrgClosure,
    OrgUnit,
    User,
)

NAMED = 6
"""So many names are shown of a longer list."""
Seen = TypeVar("Seen")


class UnitChange(StrEnum):
    """What can be done to a unit."""

    RENAME = "rename"
    MOVE = "move"
    MERGE = "merge"
    ARCHIVE = "archive"
    RESTORE = "restore"


class UserChange(StrEnum):
    """What can be done to an account that deserves a look before."""

    DISABLE = "disable"
    REMOVE = "remove"
    RESET_PASSWORD = "reset_password"  # noqa: S105 - the name of a change


@dataclass(frozen=True, slots=True)
class Sight:
    """Things of one kind that become visible or invisible: how many, and the first by name."""

    what: str
    """unit, queue, job (that has not finished) or person."""
    count: int
    names: tuple[str, ...]

    @property
    def more(self) -> int:
        """How many are not named."""
        return self.count - len(self.names)


@dataclass(frozen=True, slots=True)
class GrantEffect:
    """What a grant gives, or its revocation takes."""

    user: User
    role: GrantRole
    unit: OrgUnit | None
    verbs: tuple[Verb, ...]
    """What its person may do on the unit with it, and could not without."""
    sight: tuple[Sight, ...]
    jobs_left: int = 0
    """Jobs of theirs that have not finished and that they would no longer see; they go on."""
    tokens: int = 0
    """Tokens of theirs in force, which change with their owner's rights."""
    sessions: int = 0


@dataclass(frozen=True, slots=True)
class PersonChange:
    """Somebody whose roles on the unit become others; nobody's name: not yours to see."""

    username: str
    before: tuple[str, ...]
    after: tuple[str, ...]

    @property
    def is_gain(self) -> bool:
        """Whether they see it only afterwards."""
        return not self.before

    @property
    def is_loss(self) -> bool:
        """Whether they see it no longer."""
        return not self.after


@dataclass(frozen=True, slots=True)
class QueueMove:
    """A queue that changes its place, its unit or its state; no `parent_after`: it is deleted."""

    cluster: str
    queue: str
    parent_before: str
    parent_after: str
    unit_before: str
    unit_after: str
    state_before: str
    state_after: str
    waiting: int
    running: int

    @property
    def is_deleted(self) -> bool:
        """Whether it is gone afterwards."""
        return not self.state_after


@dataclass(frozen=True, slots=True)
class ClusterEffect:
    """What the scheduler would do differently in one cluster."""

    cluster: str
    preview: queue_preview.Preview


@dataclass(frozen=True, slots=True)
class UnitEffect:
    """What a change of a unit does."""

    change: UnitChange
    unit: OrgUnit
    target: OrgUnit | None = None
    """The new parent, or the unit that takes over."""
    units: int = 1
    """How many units the change moves, the unit itself and all below it."""
    people: tuple[PersonChange, ...] = ()
    """Whose roles on what the unit has become others."""
    people_of_target: tuple[PersonChange, ...] = ()
    """Whose roles on the unit that takes over become others."""
    queues: tuple[QueueMove, ...] = ()
    clusters: tuple[ClusterEffect, ...] = ()


@dataclass(frozen=True, slots=True)
class UserEffect:
    """What an account has that a change ends or leaves alone."""

    change: UserChange
    user: User
    grants: tuple[Grant, ...] = ()
    tokens: int = 0
    sessions: int = 0
    factors: int = 0
    waiting: int = 0
    running: int = 0


@dataclass(frozen=True, slots=True)
class UnitRequest:
    """A change of a unit as somebody wants it: `name` to rename, `target_id` to move and merge."""

    change: UnitChange
    unit_id: UUID
    expected_version: int
    name: str = ""
    target_id: UUID | None = None


def apply_unit_change(deed: Deed, wanted: UnitRequest) -> OrgUnit:
    """Make the change of a unit that somebody wants.

    Raises:
        NotFound, Denied, Invalid, Conflict: as the function that makes it.
    """
    unit_id, version = wanted.unit_id, wanted.expected_version
    match wanted.change:
        case UnitChange.RENAME:
            return org.rename_unit(**_given(deed, wanted), name=wanted.name)
        case UnitChange.MOVE:
            return unit_queues.move_unit(
                deed=deed, unit_id=unit_id, expected_version=version, parent_id=_target(wanted)
            )
        case UnitChange.MERGE:
            return unit_queues.merge_unit(
                deed=deed, unit_id=unit_id, expected_version=version, into_id=_target(wanted)
            )
        case UnitChange.ARCHIVE:
            return unit_queues.archive_unit(deed=deed, unit_id=unit_id, expected_version=version)
        case UnitChange.RESTORE:
            return org.restore_unit(**_given(deed, wanted))


def _given(deed: Deed, wanted: UnitRequest) -> dict[str, Any]:
    """Return what functions of `org` want to know besides."""
    return {
        "actor": deed.actor,
        "unit_id": wanted.unit_id,
        "expected_version": wanted.expected_version,
        "now": deed.now,
        "reason": deed.reason,
        "request_id": deed.request_id,
    }


def preview_unit(*, deed: Deed, wanted: UnitRequest) -> UnitEffect:
    """Say what a change of a unit would do: people, queues, jobs and shares.

    Cost: for each cluster whose queues move, two cycles of the engine on a cold snapshot.

    Raises:
        NotFound, Denied, Invalid, Conflict: as the change itself.
    """
    access.require(deed.actor, Verb.ORG_READ, wanted.unit_id, what="org unit")
    unit = OrgUnit.objects.get(id=wanted.unit_id)
    inside = _inside(unit.id)
    target_id = wanted.target_id
    is_merge = wanted.change == UnitChange.MERGE
    before = _look(inside, unit.id, target_id)
    after = _rehearse(
        lambda: apply_unit_change(deed, wanted),
        # What is merged lies in the other unit afterwards.
        lambda: _look(inside, target_id if is_merge and target_id else unit.id, target_id),
    )
    names = _Names(deed.actor)
    moves = tuple(_queue_moves(before, after))
    moved = {(one.cluster, one.queue) for one in moves}
    return UnitEffect(
        change=wanted.change,
        unit=unit,
        target=OrgUnit.objects.filter(id=target_id).first() if target_id else None,
        units=len(inside),
        people=tuple(names.changes(before.roles, after.roles)),
        people_of_target=(
            tuple(names.changes(before.target_roles, after.target_roles)) if is_merge else ()
        ),
        queues=moves,
        clusters=tuple(
            ClusterEffect(
                cluster.name,
                queue_preview.preview_trees(
                    actor=deed.actor,
                    before=before.trees[cluster.id],
                    after=after.trees[cluster.id],
                    now=deed.now,
                ),
            )
            for cluster in before.clusters
            if any(name == cluster.name for name, _ in moved)
        ),
    )


def preview_grant(
    *, actor: Actor, user: User, role: GrantRole, unit_id: UUID | None, now: datetime
) -> GrantEffect:
    """Say what giving a role would let its person do and see.

    Raises:
        NotFound, Denied, Invalid, Conflict: as `grants.give_grant`.
    """
    _rehearse(
        lambda: grants.give_grant(actor=actor, user=user, role=role, unit_id=unit_id, now=now),
        lambda: None,
    )
    without = load_actor(user)
    having = replace(without, grants=(*without.grants, (role, unit_id)))
    return _grant_effect(user, role, unit_id, without, having)


def preview_revoke(*, actor: Actor, grant_id: UUID, now: datetime) -> GrantEffect:
    """Say what revoking a grant would take from its person.

    Raises:
        NotFound, Denied, Conflict: as `grants.revoke_grant`.
    """
    grant = grants.visible_grants(actor).select_related("user").filter(id=grant_id).first()
    if grant is None:
        raise NotFound("grant")
    user, role, unit_id = grant.user, GrantRole(grant.role), grant.unit_id
    having = load_actor(user)
    without = _rehearse(
        lambda: grants.revoke_grant(actor=actor, grant_id=grant_id, now=now),
        lambda: load_actor(user),
    )
    effect = _grant_effect(user, role, unit_id, without, having)
    lost = _gained(_live_jobs(without), _live_jobs(having)).filter(owner=user).count()
    return replace(effect, jobs_left=lost, tokens=_tokens(user, now), sessions=_sessions(user, now))


def preview_user(
    *,
    actor: Actor,
    user_id: UUID,
    change: UserChange,
    now: datetime,
    expected_version: int | None = None,
) -> UserEffect:
    """Say what an account has that a change would end, and what goes on.

    Raises:
        NotFound, Denied, Conflict: as the change itself.
    """
    user = users.visible_user(actor, user_id)
    changes: Mapping[UserChange, Callable[..., object]] = {
        UserChange.DISABLE: users.disable_user,
        UserChange.REMOVE: users.remove_user,
        UserChange.RESET_PASSWORD: account_links.reset_password,
    }
    act = changes[change]
    held = tuple(
        Grant.objects.filter(user=user).select_related("unit").order_by("created_at", "id")
    )
    factors = Authenticator.objects.filter(user=user).exclude(type="recovery_codes").count()
    effect = UserEffect(
        change=change,
        user=user,
        grants=held,
        tokens=_tokens(user, now),
        sessions=_sessions(user, now),
        factors=factors,
        waiting=Job.objects.filter(owner=user, phase__in=WAITING).count(),
        running=Job.objects.filter(owner=user, phase__in=RUNNING).count(),
    )
    _rehearse(
        lambda: act(actor=actor, user_id=user_id, expected_version=expected_version, now=now),
        lambda: None,
    )
    return effect


def _rehearse(change: Callable[[], object], look: Callable[[], Seen]) -> Seen:
    """Make a change, look at what came out, and take it all back."""
    with transaction.atomic():
        change()
        seen = look()
        transaction.set_rollback(True)
    return seen


def _target(wanted: UnitRequest) -> UUID:
    if wanted.target_id is None:
        raise NotFound("org unit")
    return wanted.target_id


def _inside(unit_id: UUID) -> list[UUID]:
    links = OrgClosure.objects.filter(ancestor=unit_id)
    return list(links.values_list("descendant_id", flat=True))


# --- units ----------------------------------------------------------------------------------------

Roles = Mapping[UUID, frozenset[str]]


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a queue is and what is in it."""

    queue: str
    cluster: str
    parent: str
    unit: str
    state: str


@dataclass(frozen=True, slots=True)
class _Picture:
    """The organisation as far as a change may concern it, at one moment."""

    roles: Roles
    target_roles: Roles
    places: Mapping[UUID, _Place]
    jobs: Mapping[UUID, tuple[int, int]]
    clusters: tuple[Cluster, ...]
    trees: Mapping[UUID, Tree] = field(default_factory=dict)


def _look(inside: Collection[UUID], measured: UUID, target_id: UUID | None) -> _Picture:
    units = {*inside, *([target_id] if target_id else [])}
    rows = Queue.objects.filter(unit__in=units).select_related("cluster", "parent", "unit")
    places = {
        queue.id: _Place(
            queue.name,
            queue.cluster.name,
            queue.parent.name if queue.parent else "",
            queue.unit.name if queue.unit else "",
            queue.state,
        )
        for queue in rows
    }
    clusters = tuple({queue.cluster_id: queue.cluster for queue in rows}.values())
    return _Picture(
        roles=_roles_on(measured),
        target_roles=_roles_on(target_id) if target_id else {},
        places=places,
        jobs=_job_counts(places),
        clusters=clusters,
        trees={cluster.id: read_tree(cluster.id) for cluster in clusters},
    )


def _roles_on(unit_id: UUID) -> Roles:
    """Return user -> roles that hold on a unit, those on the whole installation left out."""
    held: defaultdict[UUID, set[str]] = defaultdict(set)
    found = Grant.objects.filter(unit__descendant_links__descendant=unit_id)
    for user_id, role in found.values_list("user_id", "role"):
        held[user_id].add(role)
    return {user_id: frozenset(roles) for user_id, roles in held.items()}


def _job_counts(queue_ids: Iterable[UUID]) -> dict[UUID, tuple[int, int]]:
    counts: defaultdict[UUID, list[int]] = defaultdict(lambda: [0, 0])
    rows = JobCount.objects.filter(queue__in=list(queue_ids), phase__in=[*WAITING, *RUNNING])
    for queue_id, phase, jobs in rows.values_list("queue_id", "phase").annotate(n=Sum("amount")):
        counts[queue_id][0 if phase in WAITING else 1] += jobs
    return {queue_id: (waiting, running) for queue_id, (waiting, running) in counts.items()}


def _queue_moves(before: _Picture, after: _Picture) -> Iterable[QueueMove]:
    order = sorted(before.places.items(), key=lambda item: (item[1].cluster, item[1].queue))
    for queue_id, old in order:
        new = after.places.get(queue_id, _Place(old.queue, old.cluster, "", "", ""))
        if new == old:
            continue
        waiting, running = before.jobs.get(queue_id, (0, 0))
        yield QueueMove(
            cluster=old.cluster,
            queue=old.queue,
            parent_before=old.parent,
            parent_after=new.parent,
            unit_before=old.unit,
            unit_after=new.unit,
            state_before=old.state,
            state_after=new.state,
            waiting=waiting,
            running=running,
        )


class _Names:
    """The people whose names the viewer may read."""

    def __init__(self, actor: Actor) -> None:
        self.visible = users.visible_users(actor)

    def changes(self, before: Roles, after: Roles) -> list[PersonChange]:
        """Return whose roles differ, by name; those without a name last."""
        differ = [
            user_id
            for user_id in {*before, *after}
            if before.get(user_id, frozenset()) != after.get(user_id, frozenset())
        ]
        found = self.visible.filter(id__in=differ).values_list("id", "username")
        names = dict(found)
        changes = [
            PersonChange(
                names.get(user_id, ""),
                tuple(sorted(before.get(user_id, ()))),
                tuple(sorted(after.get(user_id, ()))),
            )
            for user_id in differ
        ]
        return sorted(changes, key=lambda one: (not one.username, one.username))


# --- grants and accounts --------------------------------------------------------------------------


def _grant_effect(
    user: User, role: GrantRole, unit_id: UUID | None, without: Actor, having: Actor
) -> GrantEffect:
    more = verbs_on(having, [unit_id])[unit_id] - verbs_on(without, [unit_id])[unit_id]
    if without.grants:
        more -= access.ANYWHERE  # what any other grant gives as well
    return GrantEffect(
        user=user,
        role=role,
        unit=OrgUnit.objects.filter(id=unit_id).first() if unit_id else None,
        verbs=tuple(verb for verb in Verb if verb in more),
        sight=tuple(_sight(without, having)),
    )


def _sight(without: Actor, having: Actor) -> Iterable[Sight]:
    kinds: tuple[tuple[str, Callable[[Actor], QuerySet[models.Model]], str], ...] = (
        ("unit", _units, "name"),
        ("queue", _queues, "name"),
        ("job", _live_jobs, "name"),
        ("person", users.visible_users, "username"),
    )
    for what, visible, name in kinds:
        gained = _gained(visible(without), visible(having))
        count = gained.count()
        if count:
            names = gained.order_by(name).values_list(name, flat=True)[:NAMED]
            yield Sight(what, count, tuple(names))


def _gained(
    before: QuerySet[models.Model], after: QuerySet[models.Model]
) -> QuerySet[models.Model]:
    return after.exclude(pk__in=before.values("pk"))


def _units(actor: Actor) -> QuerySet[OrgUnit]:
    scope = reads(actor, Verb.ORG_READ)
    units = OrgUnit.objects.filter(is_archived=False)
    if scope.sees_everything:
        return units
    below = OrgClosure.objects.filter(ancestor__in=scope.readable_units)
    return units.filter(id__in=below.values("descendant_id"))


def _queues(actor: Actor) -> QuerySet[Queue]:
    return Queue.objects.visible_to(reads(actor, Verb.QUEUE_READ))


def _live_jobs(actor: Actor) -> QuerySet[Job]:
    jobs = Job.objects.visible_to(reads(actor, Verb.JOB_READ))
    return jobs.exclude(phase__in=FINISHED_PHASES)


def _tokens(user: User, now: datetime) -> int:
    live = ApiToken.objects.filter(user=user, revoked_at__isnull=True, expires_at__gt=now)
    return live.count()


def _sessions(user: User, now: datetime) -> int:
    return BrowserSession.objects.filter(user=user, expire_date__gt=now).count()
