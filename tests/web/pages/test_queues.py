"""Queues are edited in place: rules at the field, the effect first, a conflict shown three ways."""

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from controlplane.pages.fragments import queue_chart, queue_rows
from scheduling.domain import queue_placement, samples
from scheduling.domain.deeds import Deed
from scheduling.domain.queries import queues as queue_queries
from scheduling.domain.queue_placement import NodeGroups
from scheduling.models import ChangeSet, Job, Node, Queue, QueueShare
from tenants.domain.access import load_actor
from tenants.models import AuditRow, User
from tests.factories.demo import make_job
from tests.web.pages.conftest import Site

Browse = Callable[[User], Client]
GPU = "nvidia.com/gpu"


def _form(queue: Queue, **values: str) -> dict[str, Any]:
    """Return what the browser sends for one queue that was seen as it is now."""
    base = {"weight": queue.weight, "min": queue.min, "max": queue.max}
    shown = {"weight": str(queue.weight), "min": "", "max": ""} | values
    return {
        "resource": GPU,
        "queue": [str(queue.id)],
        f"q-{queue.id}-version": str(queue.version),
        f"q-{queue.id}-base": json.dumps(base),
        **{f"q-{queue.id}-{name}": value for name, value in shown.items()},
    }


def test_only_the_parents_manager_gets_fields(site: Site, browse: Browse) -> None:
    """Root may edit both trees' tops, Alice what lies below her unit's queue, Bob nothing."""
    people = site.people

    fields = {
        user.username: sorted(
            row.name
            for row, _is_group, fields in browse(user).get("/queues/?edit=1").context["rows"]
            if fields
        )
        for user in people.everyone
    }

    assert fields == {
        "root": ["mill", "robots", "vision"],
        "alice": ["robots"],
        "bob": [],
        "charlie": [],
    }


def test_change_is_applied_with_its_reason(site: Site, browse: Browse) -> None:
    """A weight and a max reach the queue, and the record says who and why."""
    form = _form(site.robots, weight="5", max="8") | {"action": "apply", "reason": "new team"}

    page = browse(site.people.root).post("/queues/edit/", form, follow=True)

    queue = Queue.objects.get(id=site.robots.id)
    row = AuditRow.objects.get(subject_id=str(queue.id), action="queue.update")
    assert "Applied to robots." in page.content.decode()
    assert (queue.weight, queue.max) == (5, {GPU: 8000})
    assert (row.actor_label, row.reason) == ("root", "new team")


def test_broken_rule_stands_at_the_field(site: Site, browse: Browse) -> None:
    """A min above its max is told at its queue, and nothing is changed."""
    form = _form(site.robots, min="9", max="8") | {"action": "apply"}

    page = browse(site.people.root).post("/queues/edit/", form)

    errors = page.context["form"].rows[str(site.robots.id)].errors
    assert page.status_code == 422
    assert list(errors) == ["min"]
    assert Queue.objects.get(id=site.robots.id).version == site.robots.version


def test_unreadable_amount_stands_at_the_field(site: Site, browse: Browse) -> None:
    """What is not an amount is told at its field."""
    form = _form(site.robots, max="many") | {"action": "apply"}

    page = browse(site.people.root).post("/queues/edit/", form)

    assert page.status_code == 422
    assert list(page.context["form"].rows[str(site.robots.id)].errors) == ["max"]


def test_effect_is_shown_before_anything_changes(site: Site, browse: Browse) -> None:
    """The preview names the queues whose share would change and writes nothing."""
    form = _form(site.robots, max="1") | {"action": "preview"}

    page = browse(site.people.root).post("/queues/edit/", form, headers={"hx-request": "true"})

    assert page.status_code == 200
    assert "Deserved then" in page.content.decode()
    assert "robots" in page.content.decode()
    assert Queue.objects.get(id=site.robots.id).max == {}


def test_cluster_without_gpus_is_looked_at_by_cpus(site: Site, browse: Browse) -> None:
    """Shares are shown by GPUs where a node has one, else by CPUs; the address decides first."""
    client = browse(site.people.root)
    share, _made = QueueShare.objects.update_or_create(
        queue=site.vision, defaults={"deserved": {GPU: 0, "cpu": 0}, "updated_at": timezone.now()}
    )
    with_gpus = client.get("/queues/").context["resource"]
    Node.objects.update(capacity={"cpu": 2000}, allocatable={"cpu": 2000})
    share.deserved = {"cpu": 0}
    share.save()

    without = client.get("/queues/").context["resource"]
    asked = client.get("/queues/?resource=memory").context["resource"]
    one = client.get("/queues/vision/").context["resource"]

    assert (with_gpus, without, asked, one) == (GPU, "cpu", "memory", "cpu")


def test_idle_tree_says_what_will_be_drawn(site: Site, browse: Browse) -> None:
    """While nobody holds or deserves anything there is no chart of equal grey fields."""
    idle = browse(site.people.root).get("/queues/")
    now = timezone.now()
    QueueShare.objects.update_or_create(
        queue=site.robots, defaults={"deserved": {GPU: 2000}, "allocated": {}, "updated_at": now}
    )

    busy = browse(site.people.root).get("/queues/")

    assert idle.context["chart"] is None
    assert "each queue is a field here" in idle.content.decode()
    assert busy.context["chart"] is not None


def test_order_of_jobs_is_changed_on_the_page_of_the_queue(site: Site, browse: Browse) -> None:
    """Its manager chooses the order there; a stale page and a made-up order change nothing."""
    client = browse(site.people.root)
    page = client.get("/queues/robots/").content.decode()
    wanted = {"action": "order", "policy": "fifo", "version": str(site.robots.version)}

    done = client.post("/queues/robots/act/", {**wanted, "reason": "asked for"}, follow=True)
    stale = client.post("/queues/robots/act/", {**wanted, "policy": "sla"}, follow=True)
    queue = Queue.objects.get(id=site.robots.id)
    wrong = {**wanted, "policy": "dice", "version": str(queue.version)}
    unknown = client.post("/queues/robots/act/", wrong, follow=True)

    assert "Change the order" in page
    assert "Change the order" not in browse(site.people.bob).get("/queues/robots/").content.decode()
    assert "first in, first out" in done.content.decode()
    assert "message-error" in stale.content.decode()
    assert "choose one of" in unknown.content.decode()
    assert Queue.objects.get(id=site.robots.id).policy == "fifo"
    assert AuditRow.objects.filter(reason="asked for").exists()


def test_where_a_queues_jobs_run_is_shown(site: Site, browse: Browse) -> None:
    """The page of a queue names its groups of nodes and what it may hold there."""
    groups = NodeGroups(required=("fast",), limits={"fast": {"nvidia.com/gpu": 2000}})
    queue_placement.edit(
        deed=Deed(load_actor(site.people.root), timezone.now()),
        queue_id=site.robots.id,
        node_groups=groups,
        stated_deserved=None,
        expected_version=site.robots.version,
    )

    text = browse(site.people.root).get(f"/queues/{site.robots.name}/").content.decode()

    assert "<dt>Runs on the node groups</dt><dd>fast</dd>" in text
    assert "<dt>At most on fast</dt><dd>2 GPU" in text


def test_plan_begins_with_the_queue_that_one_looks_at(site: Site, browse: Browse) -> None:
    """From a queue's page a draft opens with its fields."""
    page = browse(site.people.root).post("/changes/new/", {"add": "robots"}, follow=True)

    assert "robots" in page.context["change"].title
    assert [item.queue for item in page.context["form"].items.values()] == ["robots"]


def test_effect_names_the_field_of_a_problem(site: Site, browse: Browse) -> None:
    """What is wrong carries its field while one types; without scripts it stands at the field."""
    client = browse(site.people.root)
    form = _form(site.robots, weight="many") | {"action": "preview"}

    panel = client.post("/queues/edit/", form, headers={"hx-request": "true"}).content.decode()
    page = client.post("/queues/edit/", form)

    assert f'data-problem="q-{site.robots.id}-weight"' in panel
    assert "is no whole number from 1 to 65535" in panel
    assert page.status_code == 422
    assert f'aria-describedby="q-{site.robots.id}-weight-error"' in page.content.decode()


def test_conflict_is_shown_and_not_overwritten(site: Site, browse: Browse) -> None:
    """Of two who saw the same version the second sees base, theirs and yours, and can choose."""
    client = browse(site.people.root)
    first = _form(site.robots, weight="3") | {"action": "apply"}
    second = _form(site.robots, weight="7") | {"action": "apply"}

    client.post("/queues/edit/", first)
    page = client.post("/queues/edit/", second)
    after_conflict = Queue.objects.get(id=site.robots.id).weight
    row = page.context["rows"][0]
    chosen = {
        "resource": GPU,
        "queue": [row.fields.id],
        f"q-{row.fields.id}-version": str(row.fields.version),
        f"q-{row.fields.id}-base": row.fields.base_json,
        **{f"q-{row.fields.id}-{name}": value for name, value in row.fields.values.items()},
        f"q-{row.fields.id}-weight": "7",
        "action": "apply",
    }
    client.post("/queues/edit/", chosen)

    assert page.status_code == 409
    one = row.contested[0]
    assert (one.field, one.base, one.theirs, one.yours) == ("weight", "1", "3", "7")
    assert after_conflict == 3
    assert Queue.objects.get(id=site.robots.id).weight == 7


def test_others_queue_cannot_be_edited(site: Site, browse: Browse) -> None:
    """A researcher is refused by name of the role; a stranger is told that there is no queue."""
    form = _form(site.robots, weight="9") | {"action": "apply"}

    statuses = [
        browse(user).post("/queues/edit/", form).status_code
        for user in (site.people.bob, site.people.charlie)
    ]

    assert statuses == [403, 404]
    assert Queue.objects.get(id=site.robots.id).weight == 1


def test_queue_is_closed_and_opened(site: Site, browse: Browse) -> None:
    """Closing a queue with a job makes it Closing; opening takes that back."""
    client = browse(site.people.alice)

    client.post("/queues/robots/act/", {"action": "close"})
    closing = Queue.objects.get(id=site.robots.id).state
    client.post("/queues/robots/act/", {"action": "open"})

    assert closing == "Closing"
    assert Queue.objects.get(id=site.robots.id).state == "Open"


def test_unit_gets_a_queue(site: Site, browse: Browse) -> None:
    """Root gives a unit without a queue one below the root; a wrong name is told."""
    client = browse(site.people.root)
    root = Queue.objects.get(parent__isnull=True)
    form = {"parent": root.id, "unit": site.people.speech.id, "weight": "2"}

    wrong = client.post("/queues/new/", {**form, "name": "Not a name!"})
    heavy = client.post("/queues/new/", {**form, "name": "speech", "weight": "0"})
    made = client.post("/queues/new/", {**form, "name": "speech"})

    assert wrong.status_code == heavy.status_code == 422
    assert (list(wrong.context["form"].errors), list(heavy.context["form"].errors)) == (
        ["name"],
        ["weight"],
    )
    assert made.headers["Location"] == "/queues/speech/"
    assert Queue.objects.get(name="speech").weight == 2


@pytest.mark.parametrize("resource", ["cpu", "memory"])
def test_tree_shows_one_resource_at_a_time(site: Site, browse: Browse, resource: str) -> None:
    """The resource of the address is the one whose numbers are shown and edited."""
    page = browse(site.people.root).get(f"/queues/?edit=1&resource={resource}")

    assert page.context["form"].resource == resource


def test_large_tree_opens_by_its_address(
    site: Site, browse: Browse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a large tree only what is open is there; each toggle is a link, and it stays live."""
    monkeypatch.setattr(queue_queries, "WHOLE", 1)
    client = browse(site.people.root)

    closed = client.get("/queues/")
    opened = client.get(closed.context["toggles"][site.vision.id])

    assert [row.name for row, _group, _fields in closed.context["rows"]] == [
        "root",
        "mill",
        "vision",
    ]
    assert [row.name for row, _group, _fields in opened.context["rows"]][-1] == "robots"
    assert 'data-live-arg="nvidia.com/gpu|vision"' in opened.content.decode()
    assert client.get(opened.context["toggles"][site.vision.id]).context["view"].opened == ()


def test_live_rows_of_a_part_equal_the_page(
    site: Site, browse: Browse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the live region loads by its argument are the rows that the page shows."""
    monkeypatch.setattr(queue_queries, "WHOLE", 1)
    page = browse(site.people.root).get("/queues/?open=vision&resource=cpu")
    actor = load_actor(site.people.root)

    live = queue_rows(actor, str(site.cluster.id), page.context["view"].argument)
    drawn = queue_chart(actor, str(site.cluster.id), page.context["view"].argument)

    assert live["rows"] == page.context["rows"]
    assert (live["resource"], live["toggles"]) == ("cpu", page.context["toggles"])
    assert drawn["chart"] == page.context["chart"]
    assert page.content.decode().count('data-live-fragment="queue_chart"') == 1


def test_refused_change_is_shown_beside_the_tree(site: Site, browse: Browse) -> None:
    """A planned change that was refused is told where the tree in force is shown."""
    ChangeSet.objects.create(
        cluster=site.cluster,
        title="Nights",
        state="failed",
        author=site.people.root,
        created_at=site.now,
    )

    page = browse(site.people.root).get("/queues/").content.decode()

    assert "A planned change was refused" in page


def test_siblings_borrow_and_lend(site: Site, browse: Browse) -> None:
    """Of 8 GPUs vision's even share is two thirds; who holds more borrows, who less lends."""
    for queue, milli in ((site.vision, 7000), (site.mill, 1000)):
        QueueShare.objects.create(
            queue=queue,
            deserved={GPU: 4000},
            allocated={GPU: milli},
            requested={},
            updated_at=site.now,
        )

    page = browse(site.people.root).get("/queues/vision/sharing/")
    others = browse(site.people.alice).get("/queues/vision/sharing/")

    told = [(one.queue, one.even, one.borrowed, one.lent) for one in page.context["balances"]]
    assert told == [("mill", 2667, 0, 1667), ("vision", 5333, 1667, 0)]
    assert others.context["balances"] == []
    assert "mill" not in others.content.decode()


@pytest.mark.parametrize(
    ("policy", "order"),
    [("priority", ["urgent", "bobs-training"]), ("fifo", ["bobs-training", "urgent"])],
)
def test_waiting_jobs_stand_in_their_order(
    site: Site, browse: Browse, policy: str, order: list[str]
) -> None:
    """The waiting list is in the order of the queue's policy."""
    Queue.objects.filter(id=site.robots.id).update(policy=policy)
    urgent = make_job(site.robots, site.people.bob, "urgent", site.now)
    Job.objects.filter(id=urgent.id).update(
        priority=100, created_at=site.bobs.created_at + timedelta(seconds=5)
    )

    page = browse(site.people.bob).get("/queues/robots/")

    assert [job.name for job in page.context["waiting"]] == order


def test_queue_over_time_is_drawn(site: Site, browse: Browse) -> None:
    """What a queue held and deserved is drawn from its samples; without any it says so."""
    client = browse(site.people.bob)
    before = client.get("/queues/robots/sharing/").context["chart"]
    QueueShare.objects.create(
        queue=site.robots,
        deserved={GPU: 4000},
        allocated={GPU: 3000},
        requested={},
        updated_at=site.now,
    )
    samples.take(now=timezone.now() - timedelta(minutes=10))

    chart = client.get("/queues/robots/sharing/").context["chart"]

    assert before is None
    assert [trace["y"][-1] for trace in chart.data] == [3.0, 4.0]
