"""What is sent to the addresses that change something: whole, so that only rights are in the way.

A role that may not has to be refused although the request is right; a role that may gets through,
or is told that the thing's state does not allow it. `{queue_id}` and the like stand for the ids of
the scene's things.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from django.core.files.uploadedfile import SimpleUploadedFile

from tests.people import PASSWORD

Json = dict[str, Any]  # Any: what JSON holds


@dataclass(frozen=True, slots=True)
class Body:
    """What is sent to one address: the document or form, and what goes with it."""

    document: Json = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    upload: str = ""
    """The field of a form that a file is sent in; without one a document is sent."""

    def filled(self, values: Mapping[str, str]) -> Json:
        """Return the document with the things' ids in their places."""
        document = _filled(self.document, values)
        assert isinstance(document, dict)
        return document | ({self.upload: SimpleUploadedFile("a", b"x")} if self.upload else {})


def _filled(part: object, values: Mapping[str, str]) -> object:
    match part:
        case str():
            return values[part[1:-1]] if part.startswith("{") else part
        case dict():
            return {name: _filled(one, values) for name, one in part.items()}
        case list():
            return [_filled(one, values) for one in part]
        case _:
            return part


def seen(**document: Any) -> Body:
    """Send a document with the version that everything of the scene has."""
    return Body(document, {"If-Match": '"v1"'})


def plain(**document: Any) -> Body:
    """Send a document, or the form of a page."""
    return Body(document)


ROLE = {"name": "worker", "replicas": 1, "command": ["true"], "cpu": "1", "memory": "1Gi"}
JOB = plain(name="another", queue="{queue_name}", roles=[ROLE])
EDITS = [{"id": "{queue_id}", "version": 1, "weight": 7}]
GRANT = plain(user_id="{user_id}", role="viewer", unit_id="{unit_id}")
NO_RELAY = plain(kind="loop_absent", subject="relay")
"""The line of a loop that nobody runs, which the scene has none of."""
LIMITS = {"running_jobs": 3}

BODIES: Mapping[tuple[str, str], Body] = {
    ("post", "api/v1/attention/assign"): NO_RELAY,
    ("post", "api/v1/attention/give-back"): NO_RELAY,
    ("post", "api/v1/change-sets"): plain(title="less", edits=EDITS),
    ("patch", "api/v1/change-sets/<uuid:change_set_id>"): seen(title="other"),
    ("delete", "api/v1/change-sets/<uuid:change_set_id>"): seen(),
    ("post", "api/v1/change-sets/<uuid:change_set_id>/rebase"): seen(),
    ("post", "api/v1/change-sets/<uuid:change_set_id>/schedule"): plain(apply_at="{tomorrow}"),
    ("put", "api/v1/clusters/<uuid:cluster_id>/image-rules"): seen(
        rules=[{"pattern": "a/*", "runtime": "python"}]
    ),
    ("put", "api/v1/clusters/<uuid:cluster_id>/network-tiers"): seen(tiers=[]),
    ("put", "api/v1/clusters/<uuid:cluster_id>/scheduler-config"): seen(text=""),
    ("post", "api/v1/files"): Body({"queue": "{queue_name}", "path": "a.zip"}, upload="file"),
    ("post", "api/v1/grants"): GRANT,
    ("post", "api/v1/grants:preview"): GRANT,
    ("post", "api/v1/jobs"): JOB,
    ("patch", "api/v1/jobs/<uuid:job_id>"): plain(priority=-1),
    ("post", "api/v1/jobs:batch"): plain(action="cancel", ids=["{job_id}"], whole=True),
    ("patch", "api/v1/me"): plain(time_zone="Europe/Zurich"),
    ("patch", "api/v1/me/notifications/choice"): plain(wants_ended=False),
    ("post", "api/v1/me/views"): plain(name="mine too", filters={"tab": "all"}),
    ("post", "api/v1/me/password"): plain(old_password="", new_password=PASSWORD),
    ("post", "api/v1/queues"): plain(
        name="more", parent_id="{parent_queue_id}", unit_id="{beside_id}"
    ),
    ("patch", "api/v1/queues/<uuid:queue_id>"): seen(weight=7),
    ("delete", "api/v1/queues/<uuid:queue_id>"): seen(),
    ("post", "api/v1/queues:preview"): plain(edits=EDITS),
    ("patch", "api/v1/nodes/<uuid:node_id>"): seen(labels={}),
    ("put", "api/v1/queues/<uuid:queue_id>/placement"): seen(),
    ("patch", "api/v1/queues:tree"): plain(edits=EDITS),
    ("post", "api/v1/quotas"): plain(unit_id="{unit_id}", scope="each_user", limits=LIMITS),
    ("put", "api/v1/quotas/<uuid:quota_id>"): seen(limits=LIMITS),
    ("delete", "api/v1/quotas/<uuid:quota_id>"): seen(),
    ("post", "api/v1/secrets"): plain(
        unit_id="{unit_id}", name="more", kind="variables", is_shared=True, values={"KEY": "x"}
    ),
    ("put", "api/v1/secrets/<uuid:secret_id>"): seen(values={"TOKEN": "x"}),
    ("delete", "api/v1/secrets/<uuid:secret_id>"): seen(),
    ("post", "api/v1/templates"): JOB,
    ("post", "api/v1/tokens"): plain(name="more", user_id="{user_id}"),
    ("post", "api/v1/units"): plain(name="more", kind="team", parent_id="{unit_id}"),
    ("patch", "api/v1/units/<uuid:unit_id>"): seen(name="other"),
    ("post", "api/v1/units/<uuid:unit_id>/merge"): seen(into_id="{beside_id}"),
    ("post", "api/v1/units/<uuid:unit_id>/preview"): plain(change="move", target_id="{beside_id}"),
    ("post", "api/v1/users"): plain(username="more", role="viewer", unit_id="{unit_id}"),
    ("patch", "api/v1/users/<uuid:user_id>"): seen(first_name="Other"),
    ("delete", "api/v1/users/<uuid:user_id>"): seen(),
    ("post", "api/v1/users/<uuid:user_id>/preview"): plain(change="disable"),
    ("post", "api/v1/webhooks"): plain(
        unit_id="{unit_id}", name="more", url="https://example.org/more"
    ),
    ("patch", "api/v1/webhooks/<uuid:webhook_id>"): seen(is_active=False),
    ("delete", "api/v1/webhooks/<uuid:webhook_id>"): seen(),
    ("post", "api/v1/webhooks/<uuid:webhook_id>/secret"): seen(),
    ("post", "ops/look-after/"): NO_RELAY,
    ("post", "admin/webhooks/<uuid:webhook_id>/act/"): plain(action="off", version="1"),
    ("post", "changes/<uuid:change_set_id>/act/"): plain(action="validate"),
    ("post", "cluster/nodes/<str:name>/act/"): plain(action="cordon"),
    ("post", "cluster/nodes/<str:name>/marks/"): plain(labels="rack=r1", version="1"),
    ("post", "jobs/<uuid:job_id>/act/"): plain(action="cancel"),
    ("post", "queues/<path:name>/act/"): plain(action="close", version="1"),
    ("post", "queues/<path:name>/placement/"): plain(preferred="fast", version="1"),
}
"""Method and address -> what is sent; nothing to all others."""
FAULTED = {
    "api/v1/live/tickets": "is for programs with a token only",
    "api/v1/me/password": "asks for the old password, and nobody of the scene has one",
}
"""Address -> why it finds fault with whatever is sent, whoever sends it."""
