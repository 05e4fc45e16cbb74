"""Whoever reads whatever address: no byte of what belongs to others.

Beside the scene stand two rivals, one in a sibling unit, one in another tenant, with something of
each kind whose name is a made-up word. All addresses that can be read are read by people who may
read none of it, with searches for it, with its ids, and where the answer tells of the reader's own
things that wait for the rivals'. Root reads the same, which shows that there was something to hide.

Each run reads every address as one of the readers by turns; TERRACE_WHOLE_MATRIX=1 as all.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

import pytest
from django.db import connection, transaction
from django.test import Client

from controlplane.pages.fragments import FRAGMENTS
from scheduling.domain import events
from scheduling.domain.queries import explain
from scheduling.models import Attempt, History, Job, Node, PastReason, Queue, Task
from tenants.models import OrgUnit, OutboxRow, User
from tests.factories.demo import make_job
from tests.web.walls.rival import Rival, make_rival
from tests.web.walls.routes import Route, routes
from tests.web.walls.scene import OWN_VALUES, Scene, chosen, is_whole, make_scene

NEAR, FAR = "zqbeside", "zqafar"
"""The words of who sits in the next team, and of who is in another tenant."""
READERS = ("org_admin", "queue_manager", "researcher", "viewer", "auditor")
ASKED = {
    "jobs/": ("q=zq", "q=zqafa", "group=queue", "group=user", "q=z%25", "q=z_"),
    "jobs/export.csv": ("q=zq", "q=zqafa"),
    "jobs/newer/": ("than=0.0", "q=zq"),
    "palette/": ("q=zq", "q=zqafa", "q=-queue", "q=%25", "q=_"),
    "queues/": ("edit=1",),
    "activity/": ("subject=zq", "person=zq", "action=queue."),
    "admin/people/": ("name=zq", "tab=service", "tab=invited", "tab=disabled"),
    "admin/tokens/": ("person=zq",),
    "changes/": ("state=all", "state=closed"),
    "jobs/new/": ("as=yaml", "queue=zq", "clone=1"),
    "ops/": ("span=86400",),
    "api/v1/jobs": ("text=zq", "text=zqafa", "limit=200", "tab=waiting", "tab=running"),
    "api/v1/audit": ("subject=zq", "action=queue."),
    "api/v1/audit:export": ("form=csv", "form=jsonl"),
    "api/v1/events": ("after=0.0", "after=0.0&subject=attempt"),
    "api/v1/change-sets": ("limit=100", "state=draft"),
}
"""What is asked of an address besides its bare self; no value holds a whole word of a rival."""
SHOWN_TO_ROOT = {
    "jobs/",
    "jobs/export.csv",
    "palette/",
    "queues/",
    "activity/",
    "activity/export/<str:form>/",
    "admin/org/",
    "admin/people/",
    "admin/tokens/",
    "admin/secrets/",
    "admin/webhooks/",
    "admin/quotas/",
    "admin/images/",
    "changes/",
    "cluster/",
    "cluster/nodes/<str:name>/",
    "jobs/<uuid:job_id>/",
    "jobs/<uuid:job_id>/why/",
    "jobs/<uuid:job_id>/why/now/",
    "jobs/<uuid:job_id>/events/",
    "jobs/<uuid:job_id>/tasks/",
    "ops/",
    "ops/evictions/",
    "ops/starts/",
    "live/poll",
    "api/v1/jobs",
    "api/v1/queues",
    "api/v1/units",
    "api/v1/users",
    "api/v1/grants",
    "api/v1/tokens",
    "api/v1/quotas",
    "api/v1/secrets",
    "api/v1/webhooks",
    "api/v1/audit",
    "api/v1/audit:export",
    "api/v1/events",
    "api/v1/change-sets",
    "api/v1/clusters/<uuid:cluster_id>/image-rules",
    "api/v1/jobs/<uuid:job_id>/explain",
    "api/v1/jobs/<uuid:job_id>/history",
    "api/v1/jobs/<uuid:job_id>/tasks",
    "api/v1/jobs/<uuid:job_id>/waits",
}
"""Where Root must find a rival's name: otherwise this test would look where there is nothing."""
NOTHING = "00000000-0000-4000-8000-000000000000"
"""The id of nothing at all."""
SHARE = 4
TOPIC_OF = {"job": "job_id", "my": "user_id", "queue": "queue_id", "node": "node_id"}
CLUSTERS = {"queue_rows", "queue_chart", "cluster_map"}


@dataclass(frozen=True, slots=True)
class World:
    """The scene and its rivals, and a job of the scene that waits for theirs."""

    scene: Scene
    waiting: Job
    near: Rival
    far: Rival


@pytest.fixture
def world(db: None) -> World:
    """Build both rivals, and let the scene's own job wait for theirs."""
    del db
    explain.WARM.forget()
    scene = make_scene()
    now = datetime.now(UTC)
    node = Node.objects.get(id=scene.values["node_id"])
    lab = Queue.objects.get(name="lab")
    assert lab.parent is not None
    near = make_rival(NEAR, OrgUnit.objects.get(name="lab"), lab, node, 6, now)
    far = make_rival(FAR, None, lab.parent, node, 7, now)
    waiting = make_job(Queue.objects.get(name="vision"), scene.owner, "waits", now)
    for rival in (near, far):
        for job in (Job.objects.get(id=scene.values["job_id"]), waiting):
            _wait_for(rival, job, now)
    with connection.cursor() as cursor:  # as if written by transactions that have ended
        cursor.execute("UPDATE scheduling_history SET written_xid = 1")
    return World(scene, waiting, near, far)


def _wait_for(rival: Rival, job: Job, now: datetime) -> None:
    """Write that a job, its tasks and its attempts stand behind a rival's."""
    params = {
        "queue": rival.queue.name,
        "job": str(rival.job.id),
        "jobs": [str(rival.job.id)],
        "victims": [str(rival.job.id)],
        "error": f"KeyError: {rival.word}",
    }
    reason = {"reason_code": "behind_head", "reason_params": params}
    Job.objects.filter(id=job.id).update(**reason)
    Task.objects.filter(job=job).update(**reason)
    Attempt.objects.filter(job=job).update(evicted_for=rival.job)
    PastReason.objects.update_or_create(
        job=job, minute=now, defaults={"at": now, "code": "behind_head", "params": params}
    )
    seq = (History.objects.filter(job=job).count() + 1) * 10
    History.objects.create(
        job=job, seq=seq, subject="job", event="Waits", to_state="Pending", at=now,
        reason_code="evicted_for", params=params,
    )  # fmt: skip


def read(user: User, path: str, world: World) -> str:
    """Return everything that an address answers: body and headers."""
    client = world.scene.client(user)  # signed in before what the request writes is taken back
    with transaction.atomic():
        reply = client.get(path)
        body = reply.getvalue()
        transaction.set_rollback(True)
    assert reply.status_code < 500, path
    return body.decode(errors="replace") + str(dict(reply.headers))


def paths(route: Route, world: World) -> Iterator[str]:
    """Yield an address with the scene's own things, and with what is asked of it."""
    path = route.address(world.scene.value)
    if route.path == "live/poll":
        yield from (f"{path}?region={region}&has=" for region in regions(world.scene.values))
        return
    yield path
    if "job_id" in route.parameters:
        yield path.replace(world.scene.values["job_id"], str(world.waiting.id))
    yield from (f"{path}?{query}" for query in ASKED.get(route.path, ()))


def regions(values: dict[str, str]) -> list[str]:
    """Return a region for every fragment and feed, of the things of these ids."""
    found = []
    for name in FRAGMENTS:
        word = "cluster" if name in CLUSTERS else name.partition("_")[0]
        object_id = values["cluster_id"] if word == "cluster" else values[TOPIC_OF[word]]
        found.append(f"{'user' if word == 'my' else word}:{object_id}/fragment/{name}/")
    found += [f"job:{values['job_id']}/feed/{name}/" for name in ("metrics", "usage")]
    return found


def readers(world: World, route: Route) -> list[tuple[User, list[Rival]]]:
    """Return who reads an address and whose names they must not find; one of them by turns."""
    people = world.scene.people
    everybody = [(people[role, "s"], [world.near, world.far]) for role in READERS]
    everybody += [(people[role, "p"], [world.far]) for role in READERS]
    if is_whole():
        return everybody
    turn = zlib.crc32(route.path.encode())
    return [everybody[turn % len(everybody)]]


def readable() -> list[Route]:
    return [route for route in chosen(routes()) if route.method == "get"]


def test_no_address_tells_of_others(world: World) -> None:
    """Lists, details, counts, search, exports, reasons, live regions: nothing of the rivals."""
    leaks: list[str] = []

    for route in readable():
        for reader, rivals in readers(world, route):
            for path in paths(route, world):
                text = read(reader, path, world)
                leaks += [
                    f"{reader.username} {path}: {trace}"
                    for rival in rivals
                    for trace in rival.traces(text)
                ]

    assert leaks == []


def test_root_finds_at_the_same_addresses_what_others_must_not(world: World) -> None:
    """Where something is to be hidden there is something: Root is told the rivals' names."""
    wanted = {route for route in readable() if route.path in SHOWN_TO_ROOT}

    silent = {
        route.path
        for route in wanted
        if not any(
            world.far.traces(read(world.scene.root, path, world)) for path in paths(route, world)
        )
    }

    assert silent == set()


def test_an_address_of_others_reads_as_one_of_nothing(world: World) -> None:
    """With a rival's id every address answers as with the id of nothing at all."""
    theirs = {**world.scene.values, **foreign_values(world)}
    none = {name: NOTHING if one in theirs.values() else one for name, one in theirs.items()}
    told: list[str] = []

    for route in readable():
        if not set(route.parameters) & foreign_values(world).keys():
            continue
        for reader, _rivals in readers(world, route)[:1]:
            path, empty = _with(route, theirs), _with(route, none)
            if path == empty:
                continue
            pair = [_bare(reader, one, world) for one in (path, empty)]
            if pair[0] != pair[1]:
                told.append(f"{reader.username} {path}: {pair}")

    assert told == []


def test_other_methods_tell_no_more_than_reading(world: World) -> None:
    """HEAD and OPTIONS of a rival's thing answer as of nothing, and of nobody as reading does."""
    theirs = {**world.scene.values, **foreign_values(world)}
    none = {name: NOTHING if one in theirs.values() else one for name, one in theirs.items()}
    reader, nobody = world.scene.client(world.scene.people["org_admin", "p"]), Client()
    today = datetime.now(UTC).toordinal()
    told: list[str] = []

    for route in readable():
        if not set(route.parameters) & foreign_values(world).keys():
            continue
        if not is_whole() and (zlib.crc32(route.path.encode()) + today) % SHARE:
            continue
        path, empty = _with(route, theirs), _with(route, none)
        read_ = nobody.get(path).status_code
        for method in ("head", "options"):
            answers = [getattr(reader, method)(one) for one in (path, empty)]
            codes = [one.status_code for one in answers]
            asked = getattr(nobody, method)(path).status_code
            if len(set(codes)) > 1 or world.far.traces(answers[0].text) or asked != read_:
                told.append(f"{method} {path}: {codes}, of nobody {asked}, who reads {read_}")

    assert told == []


def _with(route: Route, values: dict[str, str]) -> str:
    return route.address(lambda path, name: OWN_VALUES.get((path, name)) or values[name])


def foreign_values(world: World) -> dict[str, str]:
    """Return the far rival's ids by the parameters of addresses."""
    ids = world.far.ids
    return {
        "job_id": ids["running job"],
        "queue_id": ids["queue"],
        "unit_id": ids["unit"],
        "user_id": ids["owner"],
        "file_id": ids["file"],
        "secret_id": ids["secret"],
        "webhook_id": ids["webhook"],
        "token_id": ids["token"],
        "quota_id": ids["quota"],
        "template_id": ids["template"],
        "change_set_id": ids["plan"],
    }


def _bare(user: User, path: str, world: World) -> tuple[int, str]:
    """Return an answer without what differs from one request to the next, and from id to id."""
    reply = world.scene.client(user).get(path)
    if reply.headers.get("Content-Type") == "application/problem+json":
        document = {**reply.json(), "request_id": "", "instance": ""}
        return reply.status_code, json.dumps(document, sort_keys=True)
    return reply.status_code, str(reply.headers.get("Content-Type"))


def test_regions_of_others_are_gone(world: World) -> None:
    """A socket that asks for a rival's things is told that there is nothing."""
    values = {**world.scene.values, **foreign_values(world)}
    reader = world.scene.people["org_admin", "p"]
    open_to_all = {"cluster", "node"}

    wrong = [
        region
        for region in regions(values)
        if region.partition(":")[0] not in open_to_all
        and '"gone":true' not in read(reader, f"/live/poll?region={region}&has=", world)
    ]

    assert wrong == []


def test_webhooks_are_sent_nothing_of_others(world: World) -> None:
    """What the relay would post for the scene's webhook holds no name of a rival."""
    events.queue_deliveries(datetime.now(UTC))
    mine = str(world.scene.values["webhook_id"])

    told = {
        webhook: json.dumps(OutboxRow.objects.get(key=webhook).payload)
        for webhook in (mine, world.near.ids["webhook"], world.far.ids["webhook"])
    }
    found = [world.near.traces(text) + world.far.traces(text) for text in told.values()]

    assert [bool(traces) for traces in found] == [False, True, True]
