"""Who may follow what: topics through the scoped querysets, sockets through their sessions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from uuid import UUID
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from django.conf import settings
from django.db.models import QuerySet
from django.utils.crypto import constant_time_compare

from scheduling.models import Cluster, Job, Node, Queue
from tenants.domain import socket_tickets
from tenants.domain.access import Actor, GrantPair, Verb, load_actor, may, reads
from tenants.models import ApiToken, BrowserSession, Grant, GrantRole, OrgClosure, User
from tenants.models.scoped import Scope


@dataclass(frozen=True, slots=True)
class Reader:
    """Who reads and in which words and zone: what the rendering of a fragment may depend on."""

    actor: Actor
    language: str
    time_zone: str

    @property
    def scope_key(self) -> tuple[object, ...]:
        """What readers have in common who may see the same rows and do the same things."""
        actor = self.actor
        return (actor.grants, actor.verbs, actor.token_unit_id)

    def class_key(self, *, is_personal: bool) -> tuple[object, ...]:
        """What readers have in common for whom a fragment reads the same."""
        person = self.actor.user_id if is_personal else None
        return (*self.scope_key, self.language, self.time_zone, person)


def reader_of(user: User, language: str, token: ApiToken | None = None) -> Reader:
    """Return the reader that a user is, narrowed by a token. One query, two with a token's unit."""
    return Reader(load_actor(user, token), language, _known_zone(user.time_zone))


def _known_zone(name: str) -> str:
    """Return a zone that this machine's tables know; looking at all of them takes too long."""
    try:
        return ZoneInfo(name or "UTC").key
    except (ZoneInfoNotFoundError, ValueError):
        return settings.TIME_ZONE


def reader_again(reader: Reader) -> Reader:
    """Return a reader with the rights of now. At most three queries."""
    actor = reader.actor
    assert actor.user_id is not None  # noqa: S101 - only people and tokens have sockets
    token = ApiToken.objects.get(id=actor.token_id) if actor.token_id else None
    return replace(reader, actor=load_actor(User.objects.get(id=actor.user_id), token))


def grants_of(user_ids: Collection[UUID]) -> dict[UUID, tuple[GrantPair, ...]]:
    """Return the grants of several users in the form and order of `Actor.grants`. One query."""
    found: dict[UUID, list[GrantPair]] = {user_id: [] for user_id in user_ids}
    rows = Grant.objects.filter(user_id__in=user_ids).order_by("role", "unit_id")
    for user_id, role, unit_id in rows.values_list("user_id", "role", "unit_id"):
        found[user_id].append((GrantRole(role), unit_id))
    return {user_id: tuple(grants) for user_id, grants in found.items()}


@dataclass(frozen=True, slots=True)
class SignedIn:
    """A socket's session: its key, its user, and the hash that changes with the password.

    Of a program that came with a ticket: its token instead.
    """

    session_key: str
    user_id: UUID
    auth_hash: str
    token_id: UUID | None = None


def still_signed_in(sockets: Collection[SignedIn], now: datetime) -> set[SignedIn]:
    """Return those whose session or token lives and whose user is active, the password the same."""
    keys = {one.session_key for one in sockets}
    live = set(
        BrowserSession.objects.filter(session_key__in=keys, expire_date__gt=now).values_list(
            "session_key", flat=True
        )
    )
    users = User.objects.in_bulk({one.user_id for one in sockets})
    tokens = socket_tickets.in_force([one.token_id for one in sockets if one.token_id], now)
    return {
        one
        for one in sockets
        if (one.token_id in tokens if one.token_id else one.session_key in live)
        and (user := users.get(one.user_id)) is not None
        and user.is_active
        and (
            one.token_id is not None
            or constant_time_compare(one.auth_hash, user.get_session_auth_hash())
        )
    }


def visible_topics(actor: Actor, topics: Iterable[str]) -> set[str]:
    """Return the topics that the actor may follow. At most one query for each word of a topic."""
    ids_by_word: dict[str, list[str]] = defaultdict(list)
    for topic in topics:
        word, _, object_id = topic.partition(":")
        ids_by_word[word].append(object_id)
    visible: set[str] = set()
    for word, ids in ids_by_word.items():
        visible.update(f"{word}:{object_id}" for object_id in _visible_ids(actor, word, ids))
    return visible


def _visible_ids(actor: Actor, word: str, ids: list[str]) -> Iterable[object]:
    if word == "job":
        jobs = Job.objects.visible_to(reads(actor, Verb.JOB_READ))
        return jobs.filter(id__in=ids).values_list("id", flat=True)
    if word in {"jobs", "queue"}:
        queues = Queue.objects.visible_to(reads(actor, Verb.QUEUE_READ))
        return queues.filter(id__in=ids).values_list("id", flat=True)
    if word == "user":
        return [object_id for object_id in ids if object_id == str(actor.user_id)]
    if word == "tenant":
        return _visible_tenants(reads(actor, Verb.ORG_READ), ids)
    # Machines belong to the installation; what of them a reader sees is decided by the fragment.
    if not may(actor, Verb.NODE_READ if word == "node" else Verb.CLUSTER_READ, None):
        return ()
    rows: QuerySet[Node] | QuerySet[Cluster] = (
        Node.objects.all() if word == "node" else Cluster.objects.all()
    )
    return rows.filter(id__in=ids).values_list("id", flat=True)


def _visible_tenants(scope: Scope, ids: list[str]) -> Iterable[object]:
    links = OrgClosure.objects.filter(ancestor__in=map(UUID, ids), ancestor__parent=None)
    if not scope.sees_everything:
        links = links.filter(descendant_id__in=scope.readable_units)
    return set(links.values_list("ancestor_id", flat=True))
