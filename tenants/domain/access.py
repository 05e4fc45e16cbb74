"""Who may do what: the one place of policy, used by pages, API, live updates, search and exports.

`ROLES` says what each role lets one do, as the table in docs/permissions.md shows it. A grant
holds for its unit and all below it; grants only add. A token narrows its owner's grants to some
verbs and a subtree, computed anew at each use.

A row of a tenant is read through `Model.objects.visible_to(reads(actor, verb))`; a change begins
with `require(actor, verb, unit_id)`. What one may not see does not exist (`NotFound`); what one
sees but may not do is `Denied`, with whom to ask.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from uuid import UUID

from django.db.models import Q

from tenants.domain.errors import Denied, NotFound
from tenants.domain.prepared import prepared
from tenants.models import ApiToken, Grant, GrantRole, OrgClosure, OrgUnit, User


class Verb(StrEnum):
    """What can be done, as `<object>.<what>`; tokens are narrowed by these names."""

    ORG_READ = "org.read"
    ORG_ADMIN = "org.admin"
    """Create, rename, move, archive units: asked of the *parent* unit."""
    GRANT_READ = "grant.read"
    GRANT_EDIT = "grant.edit"
    USER_EDIT = "user.edit"
    """Create people and service accounts, disable them, reset their passwords."""

    QUEUE_READ = "queue.read"
    QUEUE_CREATE = "queue.create"
    """This, edit, state and delete are asked of the unit of the *parent* queue."""
    QUEUE_EDIT = "queue.edit"
    QUEUE_STATE = "queue.state"
    """Open and close."""
    QUEUE_DELETE = "queue.delete"

    QUOTA_READ = "quota.read"
    QUOTA_EDIT = "quota.edit"
    """Of a unit's own quota it is asked of the *parent* unit, of its users' ones of the unit."""

    SECRET_READ = "secret.read"  # noqa: S105 - the name of a verb
    """See the names of all secrets, those that people keep for themselves too; nobody reads one."""
    SECRET_USE = "secret.use"  # noqa: S105 - the name of a verb
    """Name shared secrets in jobs."""
    SECRET_EDIT = "secret.edit"  # noqa: S105 - the name of a verb
    """Make, replace, revoke."""

    JOB_READ = "job.read"
    JOB_READ_ENV = "job.read_env"
    """See the values of environment variables, which may be secrets."""
    JOB_CREATE = "job.create"
    JOB_EDIT = "job.edit"
    """Change a job's own settings, such as the replicas of an elastic role."""
    JOB_CONTROL = "job.control"
    """Cancel, suspend, resume, retry; kill a task."""
    JOB_PRIORITY = "job.priority"
    JOB_EVENTS = "job.events"
    JOB_METRICS = "job.metrics"
    JOB_LOGS = "job.logs"
    """Logs and output files of a job whose queue does not share logs; see `logs_verb`."""
    JOB_SHARED_LOGS = "job.shared_logs"

    CLUSTER_READ = "cluster.read"
    CLUSTER_ADMIN = "cluster.admin"
    NODE_READ = "node.read"
    NODE_LABELS = "node.labels"
    """See labels, taints and pools."""
    NODE_ADMIN = "node.admin"
    """Cordon, drain, remove, label."""
    NODE_JOIN = "node.join"
    """Make and revoke join tokens."""
    RUNTIME_READ = "runtime.read"
    RUNTIME_ADMIN = "runtime.admin"
    """Edit the table of images and runtimes."""

    TOKEN_READ = "token.read"  # noqa: S105 - the name of a verb
    TOKEN_CREATE = "token.create"  # noqa: S105 - the name of a verb
    TOKEN_REVOKE = "token.revoke"  # noqa: S105 - the name of a verb

    WEBHOOK_READ = "webhook.read"
    """See where events are sent to, and what did not arrive."""
    WEBHOOK_EDIT = "webhook.edit"
    """Make, switch and remove them."""

    AUDIT_READ = "audit.read"
    USAGE_READ = "usage.read"
    SETTINGS_READ = "settings.read"
    SETTINGS_EDIT = "settings.edit"


@dataclass(frozen=True, slots=True)
class Rights:
    """What a role gives: `always` on all below its grant, `own` on what the actor made there."""

    always: frozenset[Verb] = frozenset()
    own: frozenset[Verb] = frozenset()

    def plus(self, always: Iterable[Verb] = (), own: Iterable[Verb] = ()) -> Rights:
        """Return these rights and more."""
        return Rights(self.always | frozenset(always), self.own | frozenset(own))


V = Verb

_VIEWER = Rights(
    always=frozenset(
        {
            V.ORG_READ,
            V.QUEUE_READ,
            V.QUOTA_READ,
            V.JOB_READ,
            V.JOB_EVENTS,
            V.JOB_METRICS,
            V.JOB_SHARED_LOGS,
            V.CLUSTER_READ,
            V.NODE_READ,
            V.RUNTIME_READ,
            V.USAGE_READ,
        }
    ),
    own=frozenset({V.GRANT_READ, V.TOKEN_READ, V.TOKEN_CREATE, V.TOKEN_REVOKE}),
)
_RESEARCHER = _VIEWER.plus(
    always={V.JOB_CREATE, V.JOB_READ_ENV, V.SECRET_USE},
    own={V.JOB_EDIT, V.JOB_CONTROL, V.JOB_LOGS, V.SECRET_EDIT, V.AUDIT_READ},
)
_QUEUE_MANAGER = _VIEWER.plus(
    always={
        V.GRANT_READ,
        V.QUEUE_CREATE,
        V.QUEUE_EDIT,
        V.QUEUE_STATE,
        V.QUEUE_DELETE,
        V.SECRET_USE,
        V.JOB_READ_ENV,
        V.JOB_CONTROL,
        V.JOB_PRIORITY,
        V.NODE_LABELS,
        V.AUDIT_READ,
    }
)
_ORG_ADMIN = _QUEUE_MANAGER.plus(
    always={
        V.ORG_ADMIN,
        V.GRANT_EDIT,
        V.USER_EDIT,
        V.QUOTA_EDIT,
        V.SECRET_READ,
        V.SECRET_EDIT,
        V.WEBHOOK_READ,
        V.WEBHOOK_EDIT,
        V.JOB_EDIT,
        V.JOB_LOGS,
        V.TOKEN_READ,
        V.TOKEN_REVOKE,
    }
)
_AUDITOR = Rights(
    always=frozenset(
        {
            V.ORG_READ,
            V.GRANT_READ,
            V.QUEUE_READ,
            V.QUOTA_READ,
            V.SECRET_READ,
            V.JOB_READ,
            V.JOB_EVENTS,
            V.CLUSTER_READ,
            V.NODE_READ,
            V.NODE_LABELS,
            V.RUNTIME_READ,
            V.TOKEN_READ,
            V.WEBHOOK_READ,
            V.AUDIT_READ,
            V.USAGE_READ,
            V.SETTINGS_READ,
        }
    ),
    own=_VIEWER.own,
)

ROLES: Mapping[GrantRole, Rights] = {
    GrantRole.VIEWER: _VIEWER,
    GrantRole.RESEARCHER: _RESEARCHER,
    GrantRole.QUEUE_MANAGER: _QUEUE_MANAGER,
    GrantRole.ORG_ADMIN: _ORG_ADMIN,
    GrantRole.AUDITOR: _AUDITOR,
    GrantRole.PLATFORM_ADMIN: Rights(always=frozenset(Verb) - {V.TOKEN_CREATE}, own=_VIEWER.own),
}
"""The permission matrix: role -> what it lets one do."""

ANYWHERE = frozenset({V.CLUSTER_READ, V.NODE_READ, V.NODE_LABELS, V.RUNTIME_READ})
"""Verbs on things of the installation that a grant on any unit gives."""

OWN_ANYWHERE = frozenset({V.GRANT_READ, V.TOKEN_READ, V.TOKEN_CREATE, V.TOKEN_REVOKE, V.AUDIT_READ})
"""Verbs whose `own` right follows the person, whatever unit the thing belongs to."""

MAY_GIVE: Mapping[GrantRole, frozenset[GrantRole]] = {
    GrantRole.ORG_ADMIN: frozenset(GrantRole) - {GrantRole.PLATFORM_ADMIN},
    GrantRole.PLATFORM_ADMIN: frozenset(GrantRole),
}
"""Nobody gives a role above their own: role of the giver -> roles that it may give and take."""

ASK_AT_MOST = 3

GrantPair = tuple[GrantRole, UUID | None]


@dataclass(frozen=True, slots=True)
class Actor:
    """Who acts, with the rights in force now: the owner's grants, narrowed by the token if any.

    An actor is also a `Scope` for `visible_to`, where it is the whole person that looks. A token
    that lacks a reading verb sees nothing that way: `reads(actor, verb)` asks for one verb.
    """

    user_id: UUID | None
    label: str
    token_id: UUID | None = None
    grants: tuple[GrantPair, ...] = ()
    """(role, unit); without a unit, the whole installation."""
    verbs: frozenset[str] | None = None
    """What a token is narrowed to; None: everything that the grants give."""
    token_unit_id: UUID | None = None

    @property
    def sees_everything(self) -> bool:
        """Whether a grant on the whole installation lets the actor read."""
        return self._reads_all_kinds and any(unit is None for _, unit in self.grants)

    @property
    def readable_units(self) -> Collection[UUID]:
        """The units of the grants; what lies below is included by closure."""
        if not self._reads_all_kinds:
            return frozenset()
        return frozenset(unit for _, unit in self.grants if unit is not None)

    @property
    def _reads_all_kinds(self) -> bool:
        """Whether no reading verb of what every role reads is taken away by a token."""
        return self.verbs is None or self.verbs >= {V.ORG_READ, V.QUEUE_READ, V.JOB_READ}

    @property
    def is_platform_admin(self) -> bool:
        """Whether the actor administers the installation."""
        return (GrantRole.PLATFORM_ADMIN, None) in self.grants

    def has_verb(self, verb: Verb) -> bool:
        """Tell whether the token, if any, leaves the verb; grants are another question."""
        return self.verbs is None or verb in self.verbs


@dataclass(frozen=True, slots=True)
class VerbScope:
    """Where an actor has one verb, for `visible_to`."""

    sees_everything: bool
    readable_units: frozenset[UUID] = field(default_factory=frozenset)


SYSTEM = Actor(None, "system", grants=((GrantRole.PLATFORM_ADMIN, None),))
"""Loops, bootstrap and policies."""


# Every request asks this: as text, so that it is not put together anew each time.
_GRANTS = "SELECT role, unit_id FROM tenants_grant WHERE user_id = %s ORDER BY role, unit_id"


def load_actor(user: User, token: ApiToken | None = None) -> Actor:
    """Read the rights of a user now, narrowed by a token: one query, two with a token's unit."""
    if not user.is_active:
        return Actor(user.id, user.get_username(), token.id if token else None)
    with prepared() as cursor:
        cursor.execute(_GRANTS, [user.id])
        grants: tuple[GrantPair, ...] = tuple(
            (GrantRole(role), unit) for role, unit in cursor.fetchall()
        )
    if token is None:
        return Actor(user.id, user.get_username(), grants=grants)
    if token.unit_id is not None:
        grants = _narrowed(grants, token.unit_id)
    return Actor(
        user_id=user.id,
        label=f"{user.get_username()} ({token.name})",
        token_id=token.id,
        grants=grants,
        verbs=frozenset(token.verbs) if token.verbs else None,
        token_unit_id=token.unit_id,
    )


def _narrowed(grants: Iterable[GrantPair], unit_id: UUID) -> tuple[GrantPair, ...]:
    """Cut grants down to a subtree: those above it hold at its top, those beside it nowhere."""
    links = OrgClosure.objects.filter(Q(ancestor=unit_id) | Q(descendant=unit_id)).values_list(
        "ancestor_id", "descendant_id"
    )
    above = {ancestor for ancestor, descendant in links if descendant == unit_id}
    below = {descendant for ancestor, descendant in links if ancestor == unit_id}
    kept: dict[GrantPair, None] = {}
    for role, unit in grants:
        if unit is None or unit in above:
            kept[role, unit_id] = None
        elif unit in below:
            kept[role, unit] = None
    return tuple(kept)


def may(actor: Actor, verb: Verb, unit_id: UUID | None, *, owner_id: UUID | None = None) -> bool:
    """Tell whether the actor may do `verb` to something of this unit, made by `owner_id`.

    `unit_id` None: something of the installation itself. One query at most.
    """
    return unit_id in allowed(actor, verb, [unit_id], owner_id=owner_id)


def allowed(
    actor: Actor,
    verb: Verb,
    unit_ids: Iterable[UUID | None],
    *,
    owner_id: UUID | None = None,
) -> set[UUID | None]:
    """Return those of the units in which the actor may do `verb`: one query however many.

    `unit_ids` may hold None for the installation. Unknown units are not allowed to anyone, as
    nothing can be said about them.
    """
    wanted = set(unit_ids)
    if not actor.has_verb(verb) or not wanted:
        return set()
    if _follows_owner(actor, verb, owner_id):
        return wanted
    units = _giving_units(actor, verb, owner_id)
    found: set[UUID | None] = set()
    if None in units or (units and verb in ANYWHERE):
        found.add(None)
    return wanted & (found | _covered(units, wanted - {None}))


def may_below(
    actor: Actor, verb: Verb, above: Collection[UUID], *, owner_id: UUID | None = None
) -> bool:
    """Tell what `may` tells of a unit whose ancestors, itself included, were read; no query."""
    if not actor.has_verb(verb):
        return False
    if _follows_owner(actor, verb, owner_id):
        return True
    units = _giving_units(actor, verb, owner_id)
    return None in units or not units.isdisjoint(above)


def _follows_owner(actor: Actor, verb: Verb, owner_id: UUID | None) -> bool:
    is_own = owner_id is not None and owner_id == actor.user_id
    return is_own and verb in OWN_ANYWHERE and _gives_anywhere(actor, verb)


def _giving_units(actor: Actor, verb: Verb, owner_id: UUID | None) -> set[UUID | None]:
    """Return the units whose grants give the verb; None stands for the installation."""
    is_own = owner_id is not None and owner_id == actor.user_id
    return {unit for role, unit in actor.grants if _gives(role, verb, is_own=is_own)}


def verbs_on(actor: Actor, unit_ids: Iterable[UUID | None]) -> dict[UUID | None, frozenset[Verb]]:
    """Return what the actor may always do in each unit, for the flags of a list: one query.

    None stands for the installation, without the verbs that a grant anywhere gives.
    """
    wanted = set(unit_ids)
    above: dict[UUID | None, set[UUID | None]] = {unit: {None} for unit in wanted}
    own = {unit for _, unit in actor.grants}
    links = OrgClosure.objects.filter(descendant__in=wanted - {None}, ancestor__in=own - {None})
    for ancestor, descendant in links.values_list("ancestor_id", "descendant_id"):
        above[descendant].add(ancestor)
    by_roles: dict[frozenset[GrantRole], frozenset[Verb]] = {}  # few, however many units
    verbs: dict[UUID | None, frozenset[Verb]] = {}
    for unit, places in above.items():
        roles = frozenset(role for role, place in actor.grants if place in places)
        if roles not in by_roles:
            given = frozenset[Verb]().union(*(ROLES[role].always for role in roles))
            by_roles[roles] = frozenset(verb for verb in given if actor.has_verb(verb))
        verbs[unit] = by_roles[roles]
    return verbs


def rights_on(actor: Actor, unit_id: UUID, *, owner_id: UUID | None = None) -> frozenset[Verb]:
    """Return all that the actor may do to one thing of a unit, made by `owner_id`: one query.

    What a page asks several times of the same thing; `may` asks for one verb.
    """
    is_own = owner_id is not None and owner_id == actor.user_id
    links = OrgClosure.objects.filter(descendant=unit_id)
    above = {None, *links.values_list("ancestor_id", flat=True)}
    if above == {None}:
        return frozenset()  # of an unknown unit nothing can be said
    roles = {role for role, place in actor.grants if place in above}
    return frozenset(
        verb
        for role in roles
        for verb in ROLES[role].always | (ROLES[role].own if is_own else frozenset())
        if actor.has_verb(verb)
    )


def _gives(role: GrantRole, verb: Verb, *, is_own: bool) -> bool:
    rights = ROLES[role]
    return verb in rights.always or (is_own and verb in rights.own)


def _gives_anywhere(actor: Actor, verb: Verb) -> bool:
    return any(_gives(role, verb, is_own=True) for role, _ in actor.grants)


def _covered(
    grant_units: Collection[UUID | None], wanted: Collection[UUID | None]
) -> set[UUID | None]:
    """Return the wanted units at or below one of the grants' units."""
    if not grant_units or not wanted:
        return set()
    links = OrgClosure.objects.filter(descendant__in=wanted)
    if None not in grant_units:
        links = links.filter(ancestor__in=grant_units)
    return set(links.values_list("descendant_id", flat=True))


def require(
    actor: Actor,
    verb: Verb,
    unit_id: UUID | None,
    *,
    owner_id: UUID | None = None,
    seen_at: UUID | None = None,
    above: Collection[UUID] | None = None,
    what: str = "",
) -> None:
    """Return if the actor may do `verb` there.

    `seen_at` is the unit of the thing itself where the right is asked of another one, its parent's;
    `above` are the unit's ancestors, itself included, where they were read already; `what` names
    the thing in `NotFound`, by default the object of the verb.

    Raises:
        NotFound: the actor may not even read the thing.
        Denied: it may, but not do this.
    """
    if above is not None and may_below(actor, verb, above, owner_id=owner_id):
        return
    if above is None and may(actor, verb, unit_id, owner_id=owner_id):
        return
    if not may(actor, _read_of(verb), seen_at or unit_id, owner_id=owner_id):
        raise NotFound(what or _object_of(verb))
    raise refusal(actor, verb, unit_id)


def refusal(actor: Actor, verb: Verb, unit_id: UUID | None) -> Denied:
    """Return the refusal for somebody who sees a thing of this unit and may not do `verb` to it."""
    if not actor.has_verb(verb):
        return Denied("token_lacks_verb", {"verb": verb.value})
    return Denied(
        "role_lacks_verb",
        {"verb": verb.value, "roles": ", ".join(_roles_with(verb))},
        ask=_whom_to_ask(verb, unit_id),
    )


def _object_of(verb: Verb) -> str:
    return verb.value.partition(".")[0]


def _read_of(verb: Verb) -> Verb:
    """Return the verb that makes the thing visible; a user is seen by their grants."""
    name = _object_of(verb)
    return Verb.GRANT_READ if name == "user" else Verb(f"{name}.read")


def _roles_with(verb: Verb) -> list[str]:
    return [role.value for role, rights in ROLES.items() if verb in rights.always]


def _whom_to_ask(verb: Verb, unit_id: UUID | None) -> list[str]:
    """Name a few people who may do `verb` there, the nearest first."""
    holders = Grant.objects.filter(
        role__in=_roles_with(verb), user__is_active=True, user__is_service=False
    )
    near = (
        holders.filter(unit__descendant_links__descendant=unit_id)
        .order_by("unit__descendant_links__depth", "user__username")
        .values_list("user__username", flat=True)
    )
    names = list(near[:ASK_AT_MOST]) if unit_id else []
    if not names:
        everywhere = holders.filter(unit__isnull=True).order_by("user__username")
        names = list(everywhere.values_list("user__username", flat=True)[:ASK_AT_MOST])
    return list(dict.fromkeys(names))


def roles_on(actor: Actor, unit_id: UUID | None) -> frozenset[GrantRole]:
    """Return the roles that the actor's grants give on a unit: one query at most."""
    if unit_id is None:
        return frozenset(role for role, unit in actor.grants if unit is None)
    above = {
        *OrgClosure.objects.filter(descendant=unit_id).values_list("ancestor_id", flat=True),
        None,
    }
    return frozenset(role for role, unit in actor.grants if unit in above)


def reads(actor: Actor, verb: Verb) -> VerbScope:
    """Return where the actor has `verb` always, for `visible_to`; without a query."""
    if not actor.has_verb(verb):
        return VerbScope(sees_everything=False)
    units = {unit for role, unit in actor.grants if verb in ROLES[role].always}
    return VerbScope(None in units, frozenset(unit for unit in units if unit is not None))


def logs_verb(*, are_logs_shared: bool) -> Verb:
    """Return the verb that reading a job's logs needs, by the setting of its queue."""
    return Verb.JOB_SHARED_LOGS if are_logs_shared else Verb.JOB_LOGS


def visible_path(actor: Actor, unit_id: UUID) -> list[OrgUnit]:
    """Return the names from the tenant down to a unit that the actor sees; ancestors by name only.

    Raises:
        NotFound: the actor does not see the unit.
    """
    require(actor, Verb.ORG_READ, unit_id, what="org unit")
    return list(
        OrgUnit.objects.filter(descendant_links__descendant=unit_id)
        .order_by("-descendant_links__depth")
        .only("id", "name", "parent", "tenant", "kind")
    )
