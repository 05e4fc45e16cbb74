"""Queues and nodes are taken out of service with what it concerns shown first."""

from collections.abc import Callable

import pytest
from django.test import Client

from scheduling.models import Job, Node, Queue
from tenants.models import User
from tests.factories.demo import make_queue, run_task
from tests.people import make_unit
from tests.web.pages.conftest import Site

Browse = Callable[[User], Client]


def test_wizard_counts_and_offers(site: Site, browse: Browse) -> None:
    """What waits, runs and lies below is counted; other queues of the tenant are offered."""
    make_queue(site.cluster, site.people.speech, site.vision.parent, "speech", site.now)

    page = browse(site.people.root).get("/queues/vision/retire/")

    contents = page.context["contents"]
    assert (contents.waiting, contents.running, contents.open_below) == (1, 0, 1)
    assert [queue.name for queue in page.context["targets"]] == ["speech"]


def test_jobs_are_moved_and_the_queue_closes(site: Site, browse: Browse) -> None:
    """Closing with a move leaves the queue empty, and the page tells what was done."""
    target = make_queue(site.cluster, site.people.speech, site.vision.parent, "speech", site.now)
    form = {"waiting": "move", "running": "keep", "target": str(target.id), "reason": "merged"}

    page = browse(site.people.root).post("/queues/robots/retire/", form, follow=True)

    text = page.content.decode()
    assert "Done for 1 job." in text
    assert Job.objects.get(id=site.bobs.id).queue_id == target.id
    assert Queue.objects.get(name="robots").state in {"Closing", "Closed"}


@pytest.mark.parametrize(
    "form",
    [
        {"waiting": "explode"},
        {"running": "explode"},
        {"waiting": "move", "target": "nonsense"},
        {"waiting": "move"},
    ],
)
def test_nonsense_closes_nothing(site: Site, browse: Browse, form: dict[str, str]) -> None:
    """A choice that there is not, or no place to move to, leaves the queue open."""
    page = browse(site.people.root).post("/queues/robots/retire/", form, follow=True)

    assert page.status_code == 200
    assert Queue.objects.get(name="robots").state == "Open"


def test_who_may_close(site: Site, browse: Browse) -> None:
    """Bob sees the page without a form and is refused; for Charlie there is none."""
    people = site.people

    seen = {
        user.username: browse(user).get("/queues/robots/retire/").status_code
        for user in people.everyone
    }
    done = {
        user.username: browse(user)
        .post("/queues/robots/retire/", {"waiting": "cancel"})
        .status_code
        for user in (people.bob, people.charlie)
    }
    bobs = browse(people.bob).get("/queues/robots/retire/").content.decode()

    assert seen == {"root": 200, "alice": 200, "bob": 200, "charlie": 404}
    assert done == {"bob": 403, "charlie": 404}
    assert 'name="waiting"' not in bobs
    assert Job.objects.get(id=site.bobs.id).phase == "Pending"


def test_root_is_never_closed(site: Site, browse: Browse) -> None:
    """The page of the root says that it is always open, and closing it is refused."""
    client = browse(site.people.root)

    page = client.get("/queues/root/retire/").content.decode()
    client.post("/queues/root/retire/", {})

    assert "always open" in page
    assert "built in" in page
    assert Queue.objects.get(parent__isnull=True).state == "Open"


def test_empty_closed_queue_is_deleted(site: Site, browse: Browse) -> None:
    """One that never had a job can be deleted once it is closed; one with history stays."""
    unit = make_unit("empty", site.people.vision)
    make_queue(site.cluster, unit, site.vision, "empty", site.now)
    client = browse(site.people.alice)
    before = client.get("/queues/empty/retire/").context["can_delete"]
    client.post("/queues/empty/retire/", {})

    page = client.get("/queues/empty/retire/")
    version = page.context["queue"].version
    client.post("/queues/empty/act/", {"action": "delete", "version": version})

    assert (before, page.context["can_delete"]) == (False, True)
    assert not Queue.objects.filter(name="empty").exists()
    assert "on record" in client.get("/queues/robots/retire/").content.decode()


def test_busy_node_is_drained_by_its_name(site: Site, browse: Browse) -> None:
    """With tasks on it a node is drained only with its name typed; what runs there is listed."""
    task = site.bobs.tasks.get(index=0)
    run_task(task, site.node, site.robots, [], site.now)
    client = browse(site.people.root)
    path = "/cluster/nodes/gpu-01/retire/"

    page = client.get(path)
    client.post(path, {"action": "drain"})
    unconfirmed = Node.objects.get(id=site.node.id).is_draining
    client.post(path, {"action": "drain", "confirmation": "gpu-01"})

    assert [attempt.job.name for attempt in page.context["attempts"]] == ["bobs-training"]
    assert (unconfirmed, Node.objects.get(id=site.node.id).is_draining) == (False, True)


def test_empty_node_is_removed_at_once(site: Site, browse: Browse) -> None:
    """Nothing needs confirming where nothing runs."""
    client = browse(site.people.root)

    page = client.post("/cluster/nodes/gpu-01/retire/", {"action": "remove"})

    assert page.headers["Location"] == "/cluster/"
    assert Node.objects.get(id=site.node.id).state == "Removed"


def test_nodes_are_the_platforms(site: Site, browse: Browse) -> None:
    """Only who administers nodes gets the page."""
    statuses = {
        user.username: browse(user).get("/cluster/nodes/gpu-01/retire/").status_code
        for user in site.people.everyone
    }

    assert statuses == {"root": 200, "alice": 403, "bob": 403, "charlie": 403}
