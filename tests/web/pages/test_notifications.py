"""The bell and its page tell what happened to one's own jobs; the palette leads everywhere."""

from collections.abc import Callable
from datetime import timedelta

from django.test import Client

from controlplane.pages.notifications import unread
from scheduling.models import Attempt, Job
from tenants.domain import personal
from tenants.models import NotificationChoice, User
from tests.factories.demo import make_job, run_task
from tests.web.pages.conftest import Site

Browse = Callable[[User], Client]


def _end(site: Site, name: str, phase: str, *, minutes: int, owner: User | None = None) -> Job:
    at = site.now - timedelta(minutes=minutes)
    return make_job(site.robots, owner or site.people.bob, name, at, phase=phase, finished_at=at)


def _evict(site: Site) -> None:
    task = site.bobs.tasks.get(index=0)
    attempt = run_task(task, site.node, site.robots, [], site.now)
    Attempt.objects.filter(id=attempt.id).update(
        state="Evicted", finished_at=site.now - timedelta(minutes=2)
    )


def _told(client: Client) -> list[tuple[str, str]]:
    found = client.get("/notifications/").context["notifications"]
    return [(one.job.name, one.state) for one in found]


def test_own_ends_and_evictions_are_told(site: Site, browse: Browse) -> None:
    """Completed, failed and evicted stand there, the newest first; others' and cancelled do not."""
    _end(site, "done", "Completed", minutes=3)
    _end(site, "broken", "Failed", minutes=1)
    _end(site, "cancelled", "Terminated", minutes=1)
    _end(site, "old", "Failed", minutes=60 * 24 * 15)
    _end(site, "others", "Failed", minutes=1, owner=site.people.alice)
    _evict(site)

    told = _told(browse(site.people.bob))

    assert told == [("broken", "Failed"), ("bobs-training", "Evicted"), ("done", "Completed")]


def test_long_job_that_ended_lately_is_told(site: Site, browse: Browse) -> None:
    """What counts is when it ended, not when it began."""
    job = _end(site, "long", "Completed", minutes=3)
    Job.objects.filter(id=job.id).update(created_at=site.now - timedelta(days=90))

    assert _told(browse(site.people.bob)) == [("long", "Completed")]


def test_eviction_is_told_to_the_owner_alone(site: Site, browse: Browse) -> None:
    """Alice, who may read Bob's job, has no news of it."""
    _evict(site)

    assert _told(browse(site.people.bob)) == [("bobs-training", "Evicted")]
    assert _told(browse(site.people.alice)) == []
    assert Attempt.objects.get(state="Evicted").evicted_owner == site.people.bob


def test_events_are_chosen_one_by_one(site: Site, browse: Browse) -> None:
    """Only the events that were chosen are told, from then on."""
    _end(site, "done", "Completed", minutes=3)
    _end(site, "broken", "Failed", minutes=1)
    _evict(site)
    client = browse(site.people.bob)
    found = {}

    for event in ("ended", "failed", "preempted"):
        client.post("/notifications/choose/", {"event": [event]})
        found[event] = _told(client)
    client.post("/notifications/choose/", {})
    found["none"] = _told(client)

    assert found == {
        "ended": [("done", "Completed")],
        "failed": [("broken", "Failed")],
        "preempted": [("bobs-training", "Evicted")],
        "none": [],
    }


def test_bell_counts_what_was_not_read(site: Site, browse: Browse) -> None:
    """The bell counts up to nine; reading empties it, and what comes later counts again."""
    for number in range(12):
        _end(site, f"job-{number}", "Completed", minutes=number + 1)
    client = browse(site.people.bob)
    actor = site.people.actor(site.people.bob)
    shown = [unread(actor, personal.notification_choice(actor))]

    client.post("/notifications/read/")
    shown.append(unread(actor, personal.notification_choice(actor)))
    later = site.now + timedelta(minutes=5)
    make_job(site.robots, site.people.bob, "late", later, phase="Failed", finished_at=later)
    shown.append(unread(actor, personal.notification_choice(actor)))

    assert shown == ["9+", "", "1"]


def test_reading_never_goes_back(site: Site) -> None:
    """Two tabs that mark as read leave the later time, in whatever order they come."""
    actor = site.people.actor(site.people.bob)

    personal.mark_read(actor=actor, until=site.now)
    personal.mark_read(actor=actor, until=site.now - timedelta(minutes=1))

    assert NotificationChoice.objects.get().read_at == site.now


def test_empty_page_says_what_will_come(site: Site, browse: Browse) -> None:
    """Without an event the page says of what it would tell."""
    page = browse(site.people.bob).get("/notifications/").content.decode()

    assert "Nothing to tell" in page


def test_palette_finds_by_words_in_any_order(site: Site, browse: Browse) -> None:
    """Pages, actions, views, queues and jobs are found by the words that were typed."""
    client = browse(site.people.bob)
    client.post("/jobs/views/", {"name": "waiting at robots", "query": "state=waiting"})

    waiting = client.get("/palette/?q=waiting my").context
    robots = client.get("/palette/?q=robots").context
    job = client.get("/palette/?q=bobs-tr").content.decode()

    assert [label for _url, label in waiting["actions"]] == ["See my waiting jobs"]
    assert [label for _url, label in robots["views"]] == ["waiting at robots"]
    assert [queue.name for queue in robots["queues"]] == ["robots"]
    assert f"/jobs/{site.bobs.id}/why/" in job


def test_palette_offers_what_the_viewer_may_do(site: Site, browse: Browse) -> None:
    """Administration and adding machines are offered to those who may, and to nobody else."""
    people = site.people

    texts = [browse(user).get("/palette/").content.decode() for user in (people.root, people.bob)]

    assert ["/admin/health/" in text for text in texts] == [True, False]
    assert ["/cluster/join/" in text for text in texts] == [True, False]
