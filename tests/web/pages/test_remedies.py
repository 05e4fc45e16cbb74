"""What would start a waiting job leads to the action: moved to a queue, or copied and changed."""

from collections.abc import Callable

from django.test import Client

from scheduling.models import Job
from tenants.models import AuditRow, User
from tests.factories.demo import make_job, make_queue
from tests.people import make_unit
from tests.web.pages.conftest import Site

Browse = Callable[[User], Client]


def test_minimum_that_is_too_high_is_lowered_in_a_copy(site: Site, browse: Browse) -> None:
    """Of 10 workers 8 fit: the copy opens with a minimum of 8, and all 10 of them."""
    job = make_job(site.robots, site.people.bob, "wide", site.now, replicas=10)
    Job.objects.exclude(id=job.id).delete()
    client = browse(site.people.bob)

    page = client.get(f"/jobs/{job.id}/why/now/")
    found = next(one for one in page.context["changes"] if one.code == "change_lower_min")
    form = client.get(found.copy_url).context["form"]

    assert "Copy it with this changed" in page.content.decode()
    assert (form.values["min_available"], form.roles[0].values["min_available"]) == ("8", "8")
    assert (form.values["name"], form.roles[0].values["replicas"]) == ("wide-2", "10")


def test_constraint_is_left_out_of_a_copy(site: Site, browse: Browse) -> None:
    """A label that no node has is gone from the copy, and the rest stays."""
    job = make_job(site.robots, site.people.bob, "picky", site.now)
    job.spec["roles"][0]["node_selector"] = {"gpu": "h200", "zone": "a"}
    job.save(update_fields=["spec"])
    query = "change=drop_constraint&role=worker&constraint=node_selector&key=gpu"

    page = browse(site.people.bob).get(f"/jobs/{job.id}/clone/?{query}")

    assert page.context["form"].roles[0].values["node_selector"] == "zone=a"
    assert "goes on waiting" in page.content.decode()


def test_job_moves_to_the_queue_that_has_room(site: Site, browse: Browse) -> None:
    """The button lets it wait there; a queue of strangers is not there, one's own says no."""
    unit = make_unit("speech-2", site.people.vision)
    make_queue(site.cluster, unit, site.vision, "speech-2", site.now)
    job = make_job(site.robots, site.people.bob, "stuck", site.now)
    address = f"/jobs/{job.id}/act/"
    client = browse(site.people.root)

    strangers = client.post(address, {"action": "move", "queue": "mill"}, follow=True)
    nowhere = client.post(address, {"action": "move", "queue": "nowhere"})
    done = client.post(address, {"action": "move", "queue": "speech-2"}, follow=True)

    assert "can be moved inside its tenant" in strangers.content.decode()
    assert nowhere.status_code == 404
    assert "It waits in “speech-2” now" in done.content.decode()
    assert Job.objects.get(id=job.id).queue.name == "speech-2"
    assert AuditRow.objects.filter(action="job.move").count() == 1
