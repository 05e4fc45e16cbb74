"""What a new installation begins with: an administrator, a tenant, a cluster and two queues."""

from dataclasses import dataclass
from datetime import datetime

from django.db import transaction

from scheduling.models import Cluster, Queue, QueueClosure
from tenants.domain import audit
from tenants.domain.access import SYSTEM
from tenants.models import Grant, GrantRole, OrgClosure, OrgUnit, OrgUnitKind, User

ROOT_QUEUE = "root"
DEFAULT = "default"
"""Name of the first tenant, cluster and queue; manifests that name no queue go to it."""


@dataclass(frozen=True, slots=True)
class Installation:
    """What was found or made; `is_new_admin`: the password that was given is in force."""

    admin: User
    tenant: OrgUnit
    cluster: Cluster
    root: Queue
    queue: Queue
    is_new_admin: bool


def ensure_installation(*, admin_username: str, admin_password: str, now: datetime) -> Installation:
    """Make what is missing of the beginning, and change nothing that is there."""
    with transaction.atomic():
        admin, is_new = _admin(admin_username, admin_password, now)
        tenant = _tenant(now)
        cluster, _ = Cluster.objects.get_or_create(name=DEFAULT, defaults={"created_at": now})
        root = _queue(cluster, None, None, ROOT_QUEUE, now)
        queue = _queue(cluster, tenant, root, DEFAULT, now)
    return Installation(admin, tenant, cluster, root, queue, is_new)


def _admin(username: str, password: str, now: datetime) -> tuple[User, bool]:
    known = User.objects.filter(username__iexact=username).first()
    admin = known or User.objects.create_user(
        username=username, password=password, must_change_password=True
    )
    _, is_granted = Grant.objects.get_or_create(
        user=admin, role=GrantRole.PLATFORM_ADMIN, unit=None, defaults={"created_at": now}
    )
    if is_granted:
        audit.record(
            actor=SYSTEM,
            action="installation.bootstrap",
            subject=admin,
            before=None,
            after={"role": GrantRole.PLATFORM_ADMIN},
            unit=None,
            now=now,
        )
    return admin, known is None


def _tenant(now: datetime) -> OrgUnit:
    known = OrgUnit.objects.filter(parent__isnull=True).order_by("created_at", "id").first()
    if known is not None:
        return known
    unit = OrgUnit(name=DEFAULT, kind=OrgUnitKind.TENANT, created_at=now)
    unit.tenant = unit
    unit.save(force_insert=True)
    OrgClosure.objects.create(ancestor=unit, descendant=unit, depth=0)
    return unit


def _queue(
    cluster: Cluster, unit: OrgUnit | None, parent: Queue | None, name: str, now: datetime
) -> Queue:
    known = Queue.objects.filter(cluster=cluster)
    found = (
        known.filter(parent__isnull=True).first()
        if parent is None
        else (known.filter(unit=unit).first() or known.filter(name=name).first())
    )
    if found is not None:
        return found
    queue = Queue.objects.create(
        cluster=cluster, unit=unit, parent=parent, name=name, created_at=now
    )
    above = QueueClosure.objects.filter(descendant=parent) if parent is not None else []
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
