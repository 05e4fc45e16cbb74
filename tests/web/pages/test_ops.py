"""Operations: what needs somebody, cut to what each may see; every number leads to its rows."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from scheduling.domain import attention_marks, samples
from scheduling.domain.queries import operations
from scheduling.models import (
    Attempt,
    AttentionMark,
    Cluster,
    Device,
    History,
    Job,
    Lease,
    Node,
    Queue,
    QueueSample,
    QueueShare,
    Usage,
)
from scheduling.models.attempt import AttemptState
from tenants.models import AuditRow, OutboxRow, User
from tests.factories.demo import make_job, make_node, make_queue, run_task
from tests.people import make_unit
from tests.web.pages.conftest import Site

Browse = Callable[[User], Client]
GPU = "nvidia.com/gpu"


@pytest.fixture(autouse=True)
def _loops(request: pytest.FixtureRequest) -> None:
    """All loops are there, so that only what a test plants wants attention."""
    site: Site = request.getfixturevalue("site")
    for scope in ("relay", "reconcile"):
        Lease.objects.create(
            scope=scope,
            epoch=1,
            acquired_at=site.now,
            expires_at=site.now + timedelta(days=1),
        )
    # The two jobs of the site wait with a reason: a cycle has looked at them.
    Job.objects.update(reason_code="nodes_unfit")


def named(client: Client) -> list[tuple[str, str]]:
    """Return the names of the list and where they lead."""
    page = client.get("/ops/")
    assert page.status_code == 200
    return [(line["name"], line["url"]) for line in page.context["lines"]]


def running(site: Site, job: Job) -> Attempt:
    task = job.tasks.get(index=0)
    device = site.node.devices.get(index=0)
    attempt = run_task(task, site.node, job.queue, [device], site.now)
    Job.objects.filter(id=job.id).update(phase="Running")
    return attempt


def test_nothing_to_do_says_so(site: Site, browse: Browse) -> None:
    """With all well the page says that nothing needs the reader."""
    page = browse(site.people.root).get("/ops/")

    assert "Nothing needs you" in page.content.decode()


def _silent(site: Site) -> None:
    Node.objects.filter(id=site.node.id).update(state="NotReady")


def _sick(site: Site) -> None:
    Device.objects.filter(node=site.node, index=1).update(is_healthy=False)


def _no_relay(site: Site) -> None:
    Lease.objects.filter(scope="relay").update(expires_at=site.now - timedelta(minutes=1))


@pytest.mark.parametrize(
    ("plant", "name", "root_goes_to", "bob_goes_to"),
    [
        (_silent, "gpu-01", "/cluster/nodes/gpu-01/", "/cluster/nodes/gpu-01/"),
        (_sick, "gpu-01", "/cluster/nodes/gpu-01/", "/cluster/nodes/gpu-01/"),
        (_no_relay, "relay", "/admin/health/", ""),
    ],
)
def test_machines_and_loops_are_everybodys(
    site: Site,
    browse: Browse,
    plant: Callable[[Site], None],
    name: str,
    root_goes_to: str,
    bob_goes_to: str,
) -> None:
    """A silent node, a sick GPU, an absent loop are told to all, linked where they may look."""
    plant(site)

    told = [named(browse(user)) for user in (site.people.root, site.people.bob)]

    assert told == [[(name, root_goes_to)], [(name, bob_goes_to)]]


def test_dead_letters_are_the_operators(site: Site, browse: Browse) -> None:
    """Messages that were given up are told to who reads the installation's settings."""
    OutboxRow.objects.create(
        topic="x", key="1", payload={}, created_at=site.now, not_before=site.now, is_dead=True
    )

    told = {user.username: len(named(browse(user))) for user in site.people.everyone}

    assert told == {"root": 1, "alice": 0, "bob": 0, "charlie": 0}


def _unseen(site: Site, job: Job) -> None:
    Job.objects.filter(id=job.id).update(
        reason_code="", tasks_starting=0, created_at=site.now - timedelta(minutes=6)
    )


def _aside(site: Site, job: Job) -> None:
    Job.objects.filter(id=job.id).update(reason_code="quarantined")


def _terminating(site: Site, job: Job) -> None:
    Job.objects.filter(id=job.id).update(phase="Terminating")
    History.objects.create(
        job=job, seq=99, subject="job", event="x", to_state="Terminating",
        at=site.now - timedelta(minutes=6),
    )  # fmt: skip


def _not_starting(site: Site, job: Job) -> None:
    attempt = running(site, job)
    Attempt.objects.filter(id=attempt.id).update(
        state=AttemptState.STARTING, bound_at=site.now - timedelta(minutes=11)
    )


def _not_stopping(site: Site, job: Job) -> None:
    attempt = running(site, job)
    Attempt.objects.filter(id=attempt.id).update(
        state=AttemptState.STOPPING, stopping_at=site.now - timedelta(minutes=11)
    )


def _late(site: Site, job: Job) -> None:
    spec = {**job.spec, "sla_waiting_seconds": 600.0}
    Job.objects.filter(id=job.id).update(spec=spec, created_at=site.now - timedelta(minutes=9))


def _idle(site: Site, job: Job) -> None:
    attempt = running(site, job)
    Attempt.objects.filter(id=attempt.id).update(started_at=site.now - timedelta(hours=1))
    for minutes in (1, 5, 14):
        Usage.objects.create(
            node=site.node,
            attempt=attempt,
            at=site.now - timedelta(minutes=minutes),
            gpu_percent=1.0,
        )


PLANTED = [_unseen, _aside, _terminating, _not_starting, _not_stopping, _late, _idle]


@pytest.mark.parametrize("plant", PLANTED)
def test_stuck_jobs_are_told_to_those_who_see_them(
    site: Site, browse: Browse, plant: Callable[[Site, Job], None]
) -> None:
    """A job of Bob's that is stuck is told to Bob, Alice and Root, and not to Charlie."""
    plant(site, site.bobs)

    told = {
        user.username: [name for name, _url in named(browse(user))] for user in site.people.everyone
    }

    mine = ["bobs-training"]
    assert told == {"root": mine, "alice": mine, "bob": mine, "charlie": []}


@pytest.mark.parametrize("plant", [one for one in PLANTED if one is not _aside])
def test_what_is_merely_young_is_not_told(
    site: Site, browse: Browse, plant: Callable[[Site, Job], None]
) -> None:
    """The same states an hour earlier by the clock want nobody's attention."""
    plant(site, site.bobs)
    hour = timedelta(hours=1)
    Job.objects.update(created_at=site.now + hour)
    History.objects.update(at=site.now)
    Attempt.objects.update(bound_at=site.now, started_at=site.now)
    Attempt.objects.filter(stopping_at__isnull=False).update(stopping_at=site.now)

    assert named(browse(site.people.root)) == []


def test_busy_or_unmeasured_gpus_are_not_idle(site: Site, browse: Browse) -> None:
    """One busy sample in the window, or none at all, and the GPU is not called idle."""
    _idle(site, site.bobs)
    usage = Usage.objects.order_by("at").first()
    assert usage is not None
    client = browse(site.people.root)

    Usage.objects.filter(id=usage.id).update(gpu_percent=80.0)
    busy_once = named(client)
    Usage.objects.all().delete()
    unmeasured = named(client)

    assert (busy_once, unmeasured) == ([], [])


def test_starved_queue_is_told_with_what_it_misses(site: Site, browse: Browse) -> None:
    """A leaf below its share with jobs that wait is told; one that wants nothing more is not."""
    Job.objects.filter(id=site.bobs.id).update(created_at=site.now - timedelta(minutes=11))
    share = QueueShare.objects.create(
        queue=site.robots,
        deserved={GPU: 4000},
        allocated={GPU: 1000},
        requested={GPU: 5000},
        updated_at=site.now,
    )
    client = browse(site.people.bob)

    starved = named(client)
    text = client.get("/ops/").context["lines"][0]["text"]
    QueueShare.objects.filter(queue=share.queue).update(requested={GPU: 1000})
    content = named(client)

    assert starved == [("robots", "/queues/robots/")]
    assert "3 GPUs" in text
    assert content == []
    assert named(browse(site.people.charlie)) == []


def test_figures_count_what_is_seen(site: Site, browse: Browse) -> None:
    """Jobs, waits, starts and evictions are the reader's; the rows behind them are the same."""
    Job.objects.filter(id=site.bobs.id).update(
        phase="Running",
        created_at=site.now - timedelta(minutes=30),
        started_at=site.now - timedelta(minutes=10),
    )
    attempt = running(site, site.bobs)
    Attempt.objects.filter(id=attempt.id).update(
        state=AttemptState.EVICTED, finished_at=site.now, stop_reason="reclaimed"
    )
    samples.take(now=site.now)
    told: dict[str, Any] = {}
    for user in site.people.everyone:
        client = browse(user)
        figures = client.get("/ops/figures/").context["figures"]
        told[user.username] = (
            figures.waiting,
            figures.running,
            figures.wait_p50_seconds,
            figures.starts,
            figures.evictions,
            len(client.get("/ops/starts/").context["rows"]),
            len(client.get("/ops/evictions/").context["rows"]),
        )

    mine = (1200.0, 1, 1, 1, 1)
    assert told == {
        "root": (1, 1, *mine),
        "alice": (0, 1, *mine),
        "bob": (0, 1, *mine),
        "charlie": (1, 0, None, 0, 0, 0, 0),
    }


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"stop_reason": "stop_reclaimed"}, "taken back by a queue that deserves it"),
        ({"reason_code": "LeaseLapsed"}, "The node lost contact for too long and ended it."),
    ],
)
def test_eviction_says_why(site: Site, browse: Browse, fields: dict[str, str], words: str) -> None:
    """Also one that nobody asked for: a node that lost contact."""
    attempt = running(site, site.bobs)
    rows = Attempt.objects.filter(id=attempt.id)
    rows.update(state=AttemptState.EVICTED, finished_at=site.now, **fields)

    assert words in browse(site.people.root).get("/ops/evictions/").content.decode()


def test_a_young_cluster_shows_its_hour(site: Site, browse: Browse) -> None:
    """Six hours of which five were before its time would be a flat line; what is asked for goes."""
    reader = browse(site.people.root)
    spans = []
    for age in (timedelta(minutes=20), timedelta(hours=7)):
        Cluster.objects.update(created_at=timezone.now() - age)
        spans.append([reader.get(f"/ops/{part}").context["span"] for part in ("", "figures/")])

    assert spans == [["1h", "1h"], ["6h", "6h"]]
    assert reader.get("/ops/?span=7d").context["span"] == "7d"


def test_chart_stacks_the_readers_queues(site: Site, browse: Browse) -> None:
    """The areas are the topmost queues that the reader sees, below the line of the capacity."""
    for queue, milli in ((site.vision, 3000), (site.robots, 3000), (site.mill, 2000)):
        QueueShare.objects.create(
            queue=queue,
            deserved={GPU: milli},
            allocated={GPU: milli},
            requested={GPU: milli},
            updated_at=site.now,
        )
    samples.take(now=timezone.now() - timedelta(minutes=5))

    names = {}
    for user in site.people.everyone:
        chart = browse(user).get("/ops/figures/?span=1h").context["chart"]
        names[user.username] = [trace["name"] for trace in chart.data]
        last = {trace["name"]: trace["y"][-1] for trace in chart.data}

    assert names == {
        "root": ["mill", "vision", "capacity"],
        "alice": ["robots", "capacity"],
        "bob": ["robots", "capacity"],
        "charlie": ["mill", "capacity"],
    }
    assert last["mill"] == 2.0


def test_pages_cost_few_queries_however_much_is_wrong(site: Site, browse: Browse) -> None:
    """The list makes at most fifteen queries, with one stuck job and with three."""
    client = browse(site.people.alice)
    for number in range(3):
        job = make_job(site.robots, site.people.bob, f"late-{number}", site.now)
        _unseen(site, job)
        make_node(site.cluster, f"more-{number}", site.now, state="NotReady")
        unit = make_unit(f"more-{number}", site.people.vision)
        make_queue(site.cluster, unit, site.vision, f"more-{number}", site.now)
    client.get("/ops/")

    with CaptureQueriesContext(connection) as asked:
        page = client.get("/ops/")

    assert len(page.context["lines"]) == 6
    assert len(asked) <= 15


def test_part_is_a_page_without_scripts(site: Site, browse: Browse) -> None:
    """Figures and map are pages of their own for who has no scripts, and parts for htmx."""
    client = browse(site.people.bob)

    for path in ("/ops/figures/", "/ops/map/"):
        whole = client.get(path).content.decode()
        part = client.get(path, headers={"hx-request": "true"}).content.decode()
        assert ("<html" in whole, "<html" in part) == (True, False)
    assert Queue.objects.count() == 4


def test_capacity_line_has_gaps_only_where_nothing_was_sampled(site: Site, browse: Browse) -> None:
    """Samples every half minute make a line; minutes without any are a gap, not zero."""
    share = {"deserved": {GPU: 1000}, "allocated": {GPU: 1000}, "requested": {}}
    QueueShare.objects.create(queue=site.mill, updated_at=site.now, **share)
    now = timezone.now()
    for seconds in (*range(3540, 1800, -30), *range(600, 0, -30)):
        samples.take(now=now - timedelta(seconds=seconds))

    chart = browse(site.people.root).get("/ops/figures/?span=1h").context["chart"]

    line = next(trace["y"] for trace in chart.data if trace["name"] == "capacity")
    seen = [value is not None for value in line]
    assert seen[0], "the chart begins where something was sampled"
    known = [False] * (121 - len(seen)) + seen
    assert {value for value in line if value is not None} == {8.0}
    assert known[5:55] == [True] * 50
    assert known[70:95] == [False] * 25
    assert known[105:] == [True] * 16


def test_picture_drawn_later_shows_the_same_past(site: Site) -> None:
    """Steps stand at fixed times: what was drawn stays as it was while time goes on."""
    now = site.now.replace(minute=30, second=0, microsecond=0)
    QueueSample.objects.bulk_create(
        QueueSample(
            queue=site.vision,
            at=now - timedelta(seconds=30 * number),
            allocated={GPU: number},
            deserved={},
            requested={},
        )
        for number in range(60)
    )
    ids = [(site.vision.id, "vision")]
    hour = timedelta(hours=1)

    found = operations.allocation(site.cluster, ids, now=now, span=hour)
    later = operations.allocation(site.cluster, ids, now=now + timedelta(seconds=47), span=hour)

    seen = dict(zip(found.times[:-1], found.queues[0].values, strict=False))
    again = dict(zip(later.times[:-1], later.queues[0].values, strict=False))
    assert len(seen.keys() & again.keys()) >= operations.GRID - 3
    assert all(seen[at] == again[at] for at in seen.keys() & again.keys() if at >= now - hour / 2)
    assert (found.times[-1], found.queues[0].values[-1]) == (now, 0)


# --- who looks after what -------------------------------------------------------------------------


def starve(site: Site) -> None:
    """Let Bob's queue hold less than it deserves while a job of it waits for long."""
    Job.objects.filter(id=site.bobs.id).update(created_at=site.now - timedelta(days=1))
    QueueShare.objects.create(
        queue=site.robots,
        deserved={GPU: 2000},
        allocated={GPU: 0},
        requested={GPU: 4000},
        updated_at=site.now,
    )


def look_after(client: Client, action: str = "take", **more: str) -> int:
    """Press a button of the line, and return the status of the answer."""
    line = {"kind": "queue_starved", "subject": "robots", "action": action, **more}
    return client.post("/ops/look-after/", line).status_code


def who(client: Client) -> str:
    """Return whom the list names for the line."""
    (line,) = client.get("/ops/").context["lines"]
    return str(line["mark"].assignee) if line["mark"] else ""


def test_line_is_taken_seen_by_others_and_given_back(site: Site, browse: Browse) -> None:
    """Everybody who sees the line sees who looks after it; each step has an audit row."""
    starve(site)
    alice, root = browse(site.people.alice), browse(site.people.root)

    look_after(alice)
    seen = (who(alice), who(root))
    look_after(root, "give_back")

    assert seen == ("alice", "alice")
    assert who(alice) == ""
    rows = AuditRow.objects.filter(action__startswith="attention.").order_by("id")
    assert [(row.action, row.actor_label, row.after) for row in rows] == [
        ("attention.assign", "alice", {"assignee": "alice"}),
        ("attention.give_back", "root", None),
    ]


def test_line_is_given_to_somebody_who_may(site: Site, browse: Browse) -> None:
    """A stranger and an unknown name are refused alike, and nothing changes."""
    starve(site)
    root = browse(site.people.root)

    for name in ("charlie", "nobody"):
        look_after(root, "assign", assignee=name)
        page = root.get("/ops/")
        assert f"Nobody called “{name}” may look after this" in page.content.decode()
        assert page.context["lines"][0]["mark"] is None
    look_after(root, "assign", assignee="alice")

    assert who(root) == "alice"


def test_small_map_is_as_high_as_its_place(site: Site, browse: Browse) -> None:
    """Fifty nodes do not run out of the card that has room for a few."""
    for number in range(50):
        make_node(site.cluster, f"more-{number}", site.now)

    figure = browse(site.people.root).get("/ops/map/").context["chart"].figure

    assert "height" not in figure["layout"]


def test_tile_shows_what_the_last_cycle_left(site: Site, browse: Browse) -> None:
    """A sample of half a minute ago does not stand in for now, nor beside it."""
    root = Queue.objects.get(cluster=site.cluster, parent=None)
    for queue in (root, site.vision, site.mill):
        amounts = {GPU: 5000 if queue == root else 2000}
        QueueShare.objects.create(
            queue=queue, deserved={}, allocated=amounts, requested={}, updated_at=site.now
        )
    samples.take(now=site.now - timedelta(seconds=29))
    QueueShare.objects.filter(queue=root).update(allocated={GPU: 3000})
    QueueShare.objects.filter(queue=site.mill).update(allocated={GPU: 1000})

    context = browse(site.people.root).get("/ops/figures/").context

    assert context["figures"].held_gpu_milli == 3000
    assert "3 of" in context["chart"].summary


def test_line_is_hidden_from_strangers_and_closed_to_those_who_may_not(
    site: Site, browse: Browse
) -> None:
    """Another tenant's line is not there; who only reads it gets no button and a refusal."""
    starve(site)
    bob = browse(site.people.bob)

    assert look_after(browse(site.people.charlie)) == 404
    assert look_after(bob) == 403
    assert 'value="take"' not in bob.get("/ops/").content.decode()
    assert 'value="take"' in browse(site.people.alice).get("/ops/").content.decode()


def test_line_wants_somebody_again_after_a_day(site: Site, browse: Browse) -> None:
    """Nobody's silence hides for long what is still wrong."""
    starve(site)
    alice = browse(site.people.alice)
    look_after(alice)

    AttentionMark.objects.update(at=site.now - attention_marks.HOLDS)

    assert who(alice) == ""


def test_lines_that_nobody_looks_after_come_first(site: Site, browse: Browse) -> None:
    """A line that was taken moves below those that still want somebody."""
    starve(site)
    make_node(site.cluster, "gpu-02", site.now, state="NotReady")
    root = browse(site.people.root)
    before = [line["kind"] for line in root.get("/ops/").context["lines"]]

    root.post("/ops/look-after/", {"kind": "node_silent", "subject": "gpu-02"})

    after = [line["kind"] for line in root.get("/ops/").context["lines"]]
    assert (before, after) == (
        ["node_silent", "queue_starved"],
        ["queue_starved", "node_silent"],
    )


def test_part_asked_for_after_signing_out_is_not_the_page_to_sign_in(
    site: Site, client: Client
) -> None:
    """A part that asks again is told 401; a person who opens the address is led to sign in."""
    for path in ("/ops/", "/ops/figures/?span=1h"):
        assert client.get(path, headers={"hx-request": "true"}).status_code == 401
        assert client.get(path).headers["location"].startswith("/accounts/login/?next=/ops/")


def test_wallboard_tells_the_same_as_operations(site: Site, browse: Browse) -> None:
    """The board has no controls; its numbers are the reader's own, with a bar for each queue."""
    client = browse(site.people.bob)

    board = client.get("/wall/").content.decode()
    numbers = client.get("/wall/numbers/", headers={"hx-request": "true"})
    figures = client.get("/ops/figures/").context["figures"]

    assert board.count("<button") == 1  # the note of a part that is stale
    assert 'hx-get="/wall/numbers/?cluster=main"' in board
    assert numbers.context["figures"].waiting == figures.waiting
    assert [name for name, _bar in numbers.context["bars"]] == ["robots"]
    assert "mill" not in numbers.content.decode()
