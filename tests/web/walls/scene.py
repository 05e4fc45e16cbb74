"""A place with one thing of each kind, and people who stand in every relation to it.

The things belong to `vision`. A role is given on `vision` itself (self), on `lab` above it
(parent), on `robots` below it (child), on `speech` beside it (sibling) or in another tenant.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from django.core.files.base import ContentFile
from django.core.files.storage import default_storage
from django.test import Client

from scheduling.domain import change_sets
from scheduling.domain.queue_changes import QueueEdit
from scheduling.models import JobFile, JobTemplate, Quota, QuotaLimit, Task
from tenants.domain import tokens
from tenants.domain.access import load_actor
from tenants.models import GrantRole, SavedView, Secret, User, Webhook
from tests.factories.demo import make_cluster, make_job, make_node, make_queue, run_task
from tests.people import make_grant, make_unit, make_user
from tests.web.walls.routes import Route

RELATIONS = {"s": "vision", "p": "lab", "c": "robots", "b": "speech", "o": "mill"}
ROLES = (
    GrantRole.VIEWER,
    GrantRole.RESEARCHER,
    GrantRole.QUEUE_MANAGER,
    GrantRole.ORG_ADMIN,
    GrantRole.AUDITOR,
)


OWN_VALUES = {
    ("admin/org/<uuid:unit_id>/<str:what>/", "what"): "rename",
    ("admin/people/<uuid:user_id>/<str:what>/", "what"): "disable",
    ("activity/export/<str:form>/", "form"): "csv",
    ("cluster/nodes/<str:name>/", "name"): "gpu-01",
    ("cluster/nodes/<str:name>/act/", "name"): "gpu-01",
    ("cluster/nodes/<str:name>/marks/", "name"): "gpu-01",
    ("queues/<path:name>/", "name"): "vision",
    ("queues/<path:name>/act/", "name"): "vision",
    ("queues/<path:name>/placement/", "name"): "vision",
    ("queues/<path:name>/retire/", "name"): "vision",
    ("queues/<path:name>/sharing/", "name"): "vision",
    ("cluster/nodes/<str:name>/retire/", "name"): "gpu-01",
}


@dataclass(frozen=True, slots=True)
class Scene:
    """What stands for each parameter of an address, and the people by (role, relation)."""

    values: dict[str, str]
    people: dict[tuple[str, str], User]
    owner: User
    root: User

    clients: dict[str, Client] = field(default_factory=dict)

    def client(self, user: User | None) -> Client:
        """Return a browser in which the user is signed in, the same one each time."""
        name = user.username if user is not None else ""
        if name not in self.clients:
            self.clients[name] = Client(raise_request_exception=False)
            if user is not None:
                self.clients[name].force_login(user)
        return self.clients[name]

    def value(self, path: str, name: str) -> str:
        """Return what stands for a parameter; an address of its own kind may have its own."""
        return OWN_VALUES.get((path, name)) or self.values[name]


def is_whole() -> bool:
    """Tell whether everything is asked for, and not a share of it by turns."""
    return os.environ.get("TERRACE_WHOLE_MATRIX") == "1"


def chosen(routes: Sequence[Route]) -> list[Route]:
    """Return the routes below TERRACE_WALLS_ROUTES, words that begin addresses; all without it."""
    below = tuple(os.environ.get("TERRACE_WALLS_ROUTES", "").split())
    return [one for one in routes if not below or one.path.startswith(below)]


def make_scene() -> Scene:
    """Write everything."""
    now = datetime.now(UTC)
    lab = make_unit("lab")
    units = {
        "lab": lab,
        "vision": (vision := make_unit("vision", lab)),
        "robots": make_unit("robots", vision),
        "speech": make_unit("speech", lab),
        "mill": make_unit("mill"),
    }
    owner, root = make_user("owner"), make_user("root")
    grant = make_grant(owner, GrantRole.RESEARCHER, vision)
    make_grant(root, GrantRole.PLATFORM_ADMIN, None)
    people: dict[tuple[str, str], User] = {}
    for role in ROLES:
        for relation, name in RELATIONS.items():
            user = make_user(f"{role.value}-{relation}")
            make_grant(user, role, units[name])
            people[role.value, relation] = user
    cluster, top = make_cluster("main", now)
    lab_queue = make_queue(cluster, lab, top, "lab", now)
    queue = make_queue(cluster, vision, lab_queue, "vision", now)
    job = make_job(queue, owner, "theirs", now, phase="Running", replicas=1)
    node = make_node(cluster, "gpu-01", now)
    attempt = run_task(Task.objects.filter(job=job)[0], node, queue, [], now)
    file = JobFile.objects.create(
        unit=vision,
        owner=owner,
        job=job,
        attempt=attempt,
        purpose="output",
        path="model.npz",
        size_bytes=1,
        sha256="0" * 64,
        storage_name=default_storage.save("walls/model.npz", ContentFile(b"x")),
        created_at=now,
    )
    token, _secret = tokens.create_token(
        actor=load_actor(owner),
        user=owner,
        name="ci",
        verbs=(),
        unit=None,
        expires_at=now + timedelta(days=1),
        now=now,
    )
    quota = Quota.objects.create(unit=vision, scope="unit", created_at=now)
    QuotaLimit.objects.create(quota=quota, resource="running_jobs", amount=5)
    webhook = Webhook.objects.create(
        unit=vision,
        name="theirs",
        url="https://example.org/hook",
        subjects=["job"],
        cursor="0.0",
        created_at=now,
    )
    view = SavedView.objects.create(
        user=owner, page="jobs", name="mine", query="state=running", created_at=now
    )
    template = JobTemplate.objects.create(owner=owner, name="mine", text="x: 1", created_at=now)
    secret = Secret.objects.create(
        unit=vision,
        name="theirs",
        kind="variables",
        owner=owner,
        keys=["TOKEN"],
        key_id="none",
        wrapped_key=b"",
        ciphertext=b"",
        created_at=now,
        changed_at=now,
    )
    change_set = change_sets.create(
        actor=load_actor(people["org_admin", "p"]),
        cluster_id=cluster.id,
        title="more for vision",
        now=now,
        edits=[QueueEdit(queue_id=queue.id, expected_version=queue.version, weight=3)],
    )
    values = {
        "quota_id": str(quota.id),
        "webhook_id": str(webhook.id),
        "template_id": str(template.id),
        "view_id": str(view.id),
        "secret_id": str(secret.id),
        "change_set_id": str(change_set.id),
        "unit_id": str(vision.id),
        "beside_id": str(units["speech"].id),
        "queue_name": queue.name,
        "parent_queue_id": str(lab_queue.id),
        "tomorrow": (now + timedelta(days=1)).isoformat(),
        "queue_id": str(queue.id),
        "cluster_id": str(cluster.id),
        "node_id": str(node.id),
        "job_id": str(job.id),
        "file_id": str(file.id),
        "user_id": str(owner.id),
        "grant_id": str(grant.id),
        "token_id": str(token.id),
        "role": "worker",
        "index": "0",
        "secret": "no-such-secret",
        "session_id": "no-such-session",
    }
    return Scene(values, people, owner, root)
