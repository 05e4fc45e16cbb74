"""The people whom the tests know: Alice, Bob, Charlie and Root, in two tenants."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime

from scheduling.models import Cluster, Queue, QueueClosure
from tenants.domain.access import Actor, load_actor
from tenants.models import Grant, GrantRole, OrgClosure, OrgUnit, OrgUnitKind, User

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
PASSWORD = "correct horse battery staple"


@dataclass(slots=True)
class People:
    """Two tenants that know nothing of each other, and who works there.

    `lab` (tenant) > `vision` (department) > `robots` (team). Alice administers all of `lab` and
    may submit in it; Bob is a researcher in `vision`. `mill` is another tenant, Charlie's.
    Root administers the installation.
    """

    lab: OrgUnit
    vision: OrgUnit
    robots: OrgUnit
    speech: OrgUnit
    mill: OrgUnit
    alice: User
    bob: User
    charlie: User
    root: User
    everyone: tuple[User, ...] = field(init=False)

    def __post_init__(self) -> None:
        """List them, in the order of rights."""
        self.everyone = (self.root, self.alice, self.bob, self.charlie)

    def actor(self, user: User) -> Actor:
        """Load a user's rights as they are now."""
        return load_actor(user)


def make_people() -> People:
    """Write the two tenants, their people and grants."""
    lab = make_unit("lab")
    vision = make_unit("vision", lab)
    robots = make_unit("robots", vision)
    speech = make_unit("speech", lab)
    mill = make_unit("mill")
    alice, bob, charlie, root = (make_user(name) for name in ("alice", "bob", "charlie", "root"))
    for user, role, unit in (
        (alice, GrantRole.ORG_ADMIN, lab),
        (alice, GrantRole.RESEARCHER, lab),
        (bob, GrantRole.RESEARCHER, vision),
        (charlie, GrantRole.ORG_ADMIN, mill),
        (charlie, GrantRole.RESEARCHER, mill),
        (root, GrantRole.PLATFORM_ADMIN, None),
    ):
        make_grant(user, role, unit)
    return People(lab, vision, robots, speech, mill, alice, bob, charlie, root)


def make_unit(name: str, parent: OrgUnit | None = None, kind: str = "") -> OrgUnit:
    """Write a unit and its closure without asking for rights."""
    unit = OrgUnit(name=name, parent=parent, created_at=NOW)
    unit.tenant_id = parent.tenant_id if parent else unit.id
    unit.kind = kind or (OrgUnitKind.TEAM if parent else OrgUnitKind.TENANT)
    unit.save()
    above = OrgClosure.objects.filter(descendant=parent) if parent else []
    OrgClosure.objects.bulk_create(
        [
            OrgClosure(ancestor=unit, descendant=unit, depth=0),
            *(
                OrgClosure(ancestor_id=link.ancestor_id, descendant=unit, depth=link.depth + 1)
                for link in above
            ),
        ]
    )
    return unit


def make_user(name: str, password: str | None = None) -> User:
    """Write a user; without a password, one who cannot sign in by it (hashing takes its time)."""
    user = User(username=name, email=f"{name}@terrace.test")
    if password is None:
        user.set_unusable_password()
    else:
        user.set_password(password)
    user.save()
    return user


def make_grant(user: User, role: GrantRole, unit: OrgUnit | None) -> Grant:
    """Write a grant without asking for rights."""
    return Grant.objects.create(user=user, role=role, unit=unit, created_at=NOW)


@dataclass(slots=True)
class Queues:
    """One cluster's queues, the picture of the two tenants: robots and speech are leaves of lab."""

    cluster: Cluster
    root: Queue
    lab: Queue
    vision: Queue
    robots: Queue
    speech: Queue
    mill: Queue


def make_queues(people: People) -> Queues:
    """Write a cluster and a queue for each unit of the two tenants, without asking for rights."""
    cluster = Cluster.objects.create(name="main", created_at=NOW)
    root = make_queue(cluster, "root")
    lab = make_queue(cluster, "lab", root, people.lab)
    vision = make_queue(cluster, "vision", lab, people.vision)
    robots = make_queue(cluster, "robots", vision, people.robots)
    speech = make_queue(cluster, "speech", lab, people.speech)
    mill = make_queue(cluster, "mill", root, people.mill)
    return Queues(cluster, root, lab, vision, robots, speech, mill)


def make_queue(
    cluster: Cluster,
    name: str,
    parent: Queue | None = None,
    unit: OrgUnit | None = None,
    **fields: object,
) -> Queue:
    """Write a queue and its closure."""
    queue = Queue.objects.create(
        cluster=cluster, name=name, parent=parent, unit=unit, created_at=NOW, **fields
    )
    above = QueueClosure.objects.filter(descendant=parent) if parent else []
    QueueClosure.objects.bulk_create(
        [
            QueueClosure(ancestor=queue, descendant=queue, depth=0),
            *(
                QueueClosure(ancestor_id=link.ancestor_id, descendant=queue, depth=link.depth + 1)
                for link in above
            ),
        ]
    )
    return queue
