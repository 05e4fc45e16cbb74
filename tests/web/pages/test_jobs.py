"""The list of jobs pages by keyset and filters by its address; actions reach the domain."""

from collections.abc import Callable
from datetime import timedelta

import pytest
from django.test import Client

from scheduling.domain.queries import jobs as job_queries
from scheduling.models import Job, Role, Task
from tenants.models import AuditRow, User
from tests.factories.demo import make_job
from tests.web.pages.conftest import Site

Browse = Callable[[User], Client]


def _names(client: Client, path: str) -> list[str]:
    return [job.name for job in client.get(path).context["jobs"]]


def test_list_pages_by_keyset_without_gap_or_repeat(site: Site, browse: Browse) -> None:
    """Following `Older` shows every job once, the newest first, though new ones come in."""
    for number in range(120):
        make_job(
            site.robots,
            site.people.bob,
            f"job-{number:03}",
            site.now - timedelta(minutes=number + 1),
            replicas=1,
        )
    client = browse(site.people.bob)
    seen: list[str] = []
    path = "/jobs/"
    while path:
        page = client.get(path)
        seen += [job.name for job in page.context["jobs"]]
        make_job(site.robots, site.people.bob, f"late-{len(seen)}", site.now, replicas=1)
        cursor = page.context["next_cursor"]
        path = f"/jobs/?after={cursor}" if cursor else ""

    assert seen == ["bobs-training", *(f"job-{number:03}" for number in range(120))]


def test_list_filters_by_its_address(site: Site, browse: Browse) -> None:
    """State, queue (with what lies below), user and text narrow the list."""
    make_job(site.vision, site.people.alice, "ended", site.now, phase="Completed")
    client = browse(site.people.alice)

    found = {
        query: sorted(_names(client, f"/jobs/?{query}"))
        for query in ("state=completed", "queue=vision", "queue=robots", "user=me", "q=BOBS")
    }

    assert found == {
        "state=completed": ["ended"],
        "queue=vision": ["bobs-training", "ended"],
        "queue=robots": ["bobs-training"],
        "user=me": ["ended"],
        "q=BOBS": ["bobs-training"],
    }


def test_damaged_cursor_leads_to_the_first_page(site: Site, browse: Browse) -> None:
    """An address that somebody cut shows the first page and says so."""
    page = browse(site.people.bob).get("/jobs/?after=nonsense")

    assert page.status_code == 200
    assert "damaged" in page.content.decode()
    assert [job.name for job in page.context["jobs"]] == ["bobs-training"]


def test_owner_suspends_and_cancels(site: Site, browse: Browse) -> None:
    """A suspend reaches the job, leaves a row in the record and is told; so does a cancel."""
    client = browse(site.people.bob)
    url = f"/jobs/{site.bobs.id}/act/"

    client.post(url, {"action": "suspend"})
    suspended = Job.objects.get(id=site.bobs.id).phase
    page = client.post(url, {"action": "cancel"}, follow=True)

    assert suspended in {"Aborting", "Aborted"}
    assert "The job is being cancelled." in page.content.decode()
    actions = AuditRow.objects.filter(subject_id=str(site.bobs.id)).order_by("id")
    assert list(actions.values_list("action", flat=True)) == ["job.suspend", "job.cancel"]


def test_strangers_action_is_not_found(site: Site, browse: Browse) -> None:
    """A person of another tenant cannot act on a job, nor learn that it is there."""
    reply = browse(site.people.charlie).post(f"/jobs/{site.bobs.id}/act/", {"action": "cancel"})

    assert reply.status_code == 404
    assert Job.objects.get(id=site.bobs.id).phase == "Pending"


def test_bulk_says_how_it_went_for_each(site: Site, browse: Browse) -> None:
    """Of three chosen jobs the one that is over is refused by name, the others are suspended."""
    other = make_job(site.robots, site.people.bob, "other", site.now)
    over = make_job(site.robots, site.people.bob, "over", site.now, phase="Completed")
    ids = [str(site.bobs.id), str(other.id), str(over.id)]

    page = browse(site.people.bob).post(
        "/jobs/bulk/", {"action": "suspend", "job": ids}, follow=True
    )

    text = page.content.decode()
    assert "Done for 2 jobs." in text
    assert "over: " in text
    assert Job.objects.get(id=over.id).phase == "Completed"


def test_unknown_action_is_refused(site: Site, browse: Browse) -> None:
    """An action that does not exist is a 422 and changes nothing."""
    reply = browse(site.people.bob).post(f"/jobs/{site.bobs.id}/act/", {"action": "explode"})

    assert reply.status_code == 422
    assert Job.objects.get(id=site.bobs.id).phase == "Pending"


def test_empty_list_leads_on(site: Site, browse: Browse) -> None:
    """Without a job the list offers the form; with filters that fit none, to take them away."""
    Job.objects.filter(id=site.charlies.id).delete()
    client = browse(site.people.charlie)

    empty = client.get("/jobs/").content.decode()
    narrowed = client.get("/jobs/?q=nothing").content.decode()

    assert "No jobs yet" in empty
    assert 'href="/jobs/new/"' in empty
    assert "No job fits these filters" in narrowed


def test_tasks_of_large_roles_come_in_pages(
    site: Site, browse: Browse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cells show the first of each role, the list all of them, role by role; none is left out."""
    monkeypatch.setattr(job_queries, "TASKS_PER_PAGE", 3)
    job = make_job(site.robots, site.people.bob, "wide", site.now, replicas=5)
    second = Role.objects.create(
        job=job, position=1, name="ps", replicas=2, min_available=2, request={}
    )
    for index in range(2):
        Task.objects.create(job=job, role=second, index=index, state_at=site.now)
    client = browse(site.people.bob)
    told, address = [], f"/jobs/{job.id}/tasks/"

    while address:
        page = client.get(address).context["page"]
        told.append([f"{task.role.name}-{task.index}" for task in page.tasks])
        cursor = page.next_cursor
        address = f"/jobs/{job.id}/tasks/?after={cursor}" if cursor else ""

    assert told == [
        ["worker-0", "worker-1", "worker-2"],
        ["worker-3", "worker-4", "ps-0"],
        ["ps-1"],
    ]


@pytest.mark.parametrize("cursor", ["x", "1-", "-1", "1-1-1", "9999999999999999999999-1"])
def test_bad_cursor_of_tasks_is_refused(site: Site, browse: Browse, cursor: str) -> None:
    """What is no place in the list is said to be none, instead of failing."""
    page = browse(site.people.bob).get(f"/jobs/{site.bobs.id}/tasks/?after={cursor}")

    assert page.status_code == 422


def test_rest_of_a_large_role_is_led_to(
    site: Site, browse: Browse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What has no cell is behind a link: the list after the last cell."""
    monkeypatch.setattr(job_queries, "TASKS_PER_ROLE", 2)
    job = make_job(site.robots, site.people.bob, "wide", site.now, replicas=5)
    client = browse(site.people.bob)

    text = client.get(f"/jobs/{job.id}/tasks/").content.decode()
    cursor = f"{job.roles.get().id}-1"
    rest = client.get(f"/jobs/{job.id}/tasks/?after={cursor}").context["page"]

    assert f'/tasks/?after={cursor}">and 3 more</a>' in text
    assert [task.index for task in rest.tasks] == [2, 3, 4]
