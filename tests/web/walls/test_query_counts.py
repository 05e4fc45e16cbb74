"""Whatever is read, the database is asked at most fifteen times, in an organisation of some size.

Pages, lists, exports and live parts are walked, so that a new one is counted without being listed.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from uuid import UUID

import pytest
from django.db import connection
from django.http import StreamingHttpResponse
from django.test.utils import CaptureQueriesContext

from scheduling.models import Job, Queue
from tenants.domain.access import load_actor
from tests.factories.organisation import Size, make_organisation
from tests.web.walls.reads import Things, addresses, draw, parts
from tests.web.walls.routes import Route
from tests.web.walls.scene import Scene, make_scene

MOST = 15
NO_QUESTION = ("SAVEPOINT", "RELEASE", "BEGIN", "COMMIT", "ROLLBACK", "SET ")
SIZE = Size(departments=2, teams=3, people=12, nodes=4, running=20, waiting=12)
REHEARSAL = "rehearses the change, which costs what it costs, and takes it back"
ONE_OFF = "says what would follow, kind by kind, to one person before one deed"
WHOLE_CLUSTER = (
    "plans the cluster as it is now; inside the transaction of a test all of its rows are news, so"
    " that what a web process keeps is read anew"
)
DEARER = {
    "admin/grants/<uuid:grant_id>/revoke/": (40, REHEARSAL),
    "api/v1/grants/<uuid:grant_id>": (40, REHEARSAL),
    "changes/<uuid:change_set_id>/effect/": (40, REHEARSAL),
    "queues/<path:name>/retire/": (18, ONE_OFF),
    "queues/<path:name>/sharing/": (17, ONE_OFF),
    "jobs/<uuid:job_id>/why/now/": (30, WHOLE_CLUSTER),
    "api/v1/jobs/<uuid:job_id>/explain": (30, WHOLE_CLUSTER),
}
"""Address -> how often it may ask, and why more often than others."""
NOT_A_PAGE = frozenset({302, 404, 405})
"""Nothing to see for an administrator: another method, or what leads elsewhere."""


@pytest.fixture
def scene(db: None) -> Scene:
    return make_scene()


@pytest.fixture
def running(scene: Scene) -> Things:
    """What is asked for: a job that runs, and an organisation below its queue."""
    queue = Queue.objects.get(id=UUID(scene.values["queue_id"]))
    made = make_organisation(queue.cluster, queue, SIZE, datetime.now(UTC))
    return Things(
        {**scene.values, "job_id": str(made.running[0].id), "user_id": str(scene.root.id)},
        queue.name,
        made.nodes[0].name,
    )


@pytest.fixture
def waiting(running: Things) -> Things:
    """The same, but a job that waits."""
    return running.other(job_id=str(Job.objects.get(name="queued-0").id))


def count(ask: Callable[[], object]) -> int:
    """Return how many questions were asked; what begins and ends a transaction is none."""
    with CaptureQueriesContext(connection) as seen:
        ask()
        # A request that follows begins a new count.
        return len([one for one in seen if not one["sql"].lstrip().startswith(NO_QUESTION)])


def test_every_address_asks_the_database_at_most_fifteen_times(
    scene: Scene, running: Things, waiting: Things
) -> None:
    """An administrator reads every address of the URL configuration."""
    client = scene.client(scene.root)
    client.raise_request_exception = True
    dear: dict[str, int] = {}
    failed: dict[str, int] = {}

    def ask(address: str) -> None:
        reply = client.get(address)
        if isinstance(reply, StreamingHttpResponse):
            next(iter(reply), b"")
        if reply.status_code not in {200, *NOT_A_PAGE}:
            failed[address] = reply.status_code

    most = {
        Route(path, "get").address(one.value): limit
        for path, (limit, _why) in DEARER.items()
        for one in (running, waiting)
    }
    for address in addresses(running, waiting):
        asked = count(partial(ask, address))
        if asked > most.get(address, MOST):
            dear[address] = asked

    assert failed == {}
    assert dear == {}


def test_every_live_part_asks_the_database_at_most_fifteen_times(
    scene: Scene, running: Things, waiting: Things
) -> None:
    """Each part is drawn as the hub draws it, once for many watchers."""
    actor = load_actor(scene.root)

    dear = {
        name: asked
        for name, object_id in (*parts(running), *parts(waiting))
        if (asked := count(partial(draw, name, object_id, actor))) > MOST
    }

    assert dear == {}
