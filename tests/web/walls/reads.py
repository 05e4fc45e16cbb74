"""What can be read: every address that answers to GET, and every live part of a page.

Both come from the project itself, so that a new page or part is asked for without being listed
here. The test of queries and the benchmark of pages walk them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from django.template.loader import render_to_string

from controlplane.pages.fragments import FRAGMENTS
from tenants.domain.access import Actor
from tests.web.walls.routes import routes

NOT_READ: Mapping[str, str] = {
    "live/poll": "asks for parts, which are walked on their own",
    "join/<str:secret>/": "leads on only with a secret that is known once",
    "jobs/<uuid:job_id>/files/<uuid:file_id>/": "sends a file, whatever its size",
    "api/v1/jobs/<uuid:job_id>/files/<uuid:file_id>": "sends a file, whatever its size",
}
"""Address -> why it is not asked for."""

QUERIES: Mapping[str, tuple[str, ...]] = {
    "jobs/": (
        "state=all&q=small-77",
        "state=all&q=in-no-name",
        "state=failed&user=person-0007",
        "state=waiting&group=user",
        "state=all&queue={queue}",
        "state=running&queue={queue}",
    ),
    "jobs/newer/": ("queue={queue}",),
    "palette/": ("q=small-77",),
    "queues/": ("focus={queue}",),
    "jobs/<uuid:job_id>/logs/": ("attempt=all", "find=step"),
    "cluster/": ("colour=owner",),
    "activity/": ("action=queue.", "subject=small-77"),
    "api/v1/jobs": ("limit=500", "phase=Running", "queue={queue}"),
    "api/v1/jobs/<uuid:job_id>/tasks": ("limit=500",),
    "api/v1/audit": ("limit=500",),
}
"""Address -> what is asked for beside the plain page: filters and sizes that cost more."""

TOPICS: Mapping[str, str] = {
    "job_": "job_id",
    "my_": "user_id",
    "queue_rows": "cluster_id",
    "queue_chart": "cluster_id",
    "cluster_": "cluster_id",
    "queue_": "queue_id",
    "node_": "node_id",
}
"""Beginning of a live part's name -> what its topic is the id of; the first that fits counts."""


@dataclass(frozen=True, slots=True)
class Things:
    """What stands for each parameter of an address."""

    values: Mapping[str, str]
    queue: str
    node: str

    def value(self, path: str, name: str) -> str:
        """Return what stands for a parameter; nodes and queues are both called `name`."""
        if name == "name":
            return self.node if path.startswith("cluster/nodes/") else self.queue
        return {"form": "csv", "what": "rename", **self.values}[name]

    def other(self, **values: str) -> Things:
        """Return the same with something else in some places."""
        return replace(self, values={**self.values, **values})


def addresses(*things: Things) -> list[str]:
    """Return every address that answers to GET, for each of the things, once each."""
    found: dict[str, None] = {}
    for route in routes():
        if route.method != "get" or route.path in NOT_READ:
            continue
        for one in things:
            plain = route.address(one.value)
            found[plain] = None
            for query in QUERIES.get(route.path, ()):
                found[f"{plain}?{query.format(queue=one.queue)}"] = None
    return list(found)


def parts(things: Things) -> Iterator[tuple[str, str]]:
    """Yield each live part of a page with the id of what it is about."""
    for name in FRAGMENTS:
        parameter = next(value for begin, value in TOPICS.items() if name.startswith(begin))
        yield name, things.values[parameter]


def draw(name: str, object_id: str, actor: Actor) -> str:
    """Render a live part as the hub does for one reader."""
    fragment = FRAGMENTS[name]
    return render_to_string(
        fragment.template, {"actor": actor, **fragment.load(actor, object_id, "")}
    )
