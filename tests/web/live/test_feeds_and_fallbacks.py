"""Logs that grow, pages without Redis or without a socket, and every fragment of the pages."""

import base64
from datetime import datetime

import pytest
from asgiref.sync import sync_to_async
from django.test import Client as HttpClient
from pytest_django.fixtures import Settings

from controlplane.live import changes, feeds
from controlplane.live.authority import reader_of
from controlplane.live.frames import render
from controlplane.live.regions import Region
from controlplane.pages import fragments
from scheduling.domain.jobs import suspend_job
from scheduling.models import Attempt, Job, LogChunk, Node
from tenants.domain.access import load_actor
from tenants.models import GrantRole
from tests.people import NOW, People, make_grant, make_user
from tests.web.live.harness import OpenPage, hint, key_of, suspend

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("probe")]


def start(job: Job) -> Attempt:
    """Write a running attempt of the job's first task."""
    node = Node.objects.create(cluster=job.queue.cluster, name="n1", created_at=NOW)
    return Attempt.objects.create(
        task=job.tasks.order_by("id")[0],
        job=job,
        node=node,
        number=1,
        generation=1,
        epoch=1,
        bound_at=NOW,
    )


def log_line(attempt: Attempt, offset: int, data: bytes) -> None:
    LogChunk.objects.create(
        attempt=attempt, stream="stdout", offset=offset, size_bytes=len(data), data=data, at=NOW
    )


def log_key(attempt: Attempt) -> str:
    return f"job:{attempt.job_id}/feed/log/{attempt.id}:stdout"


async def test_log_is_appended_from_where_the_page_ends(
    people: People, job: Job, open_page: OpenPage
) -> None:
    """A page that has three bytes gets the rest, and then what is written later, once."""
    attempt = await sync_to_async(start)(job)
    await sync_to_async(log_line)(attempt, 0, b"abcdef")
    page = await open_page(people.bob)

    await page.follow(log_key(attempt), has="3")
    first = await page.frame()
    await sync_to_async(log_line)(attempt, 6, b"ghi")
    await hint(f"job:{job.id}", "log")
    second = await page.frame()

    told = [(one["from"], base64.b64decode(one["bytes"])) for one in (*first, *second)]
    assert told == [(3, b"def"), (6, b"ghi")]


async def test_log_needs_the_right_to_logs(people: People, job: Job, open_page: OpenPage) -> None:
    """Who may see a job but not its logs gets none of their bytes."""
    attempt = await sync_to_async(start)(job)
    await sync_to_async(log_line)(attempt, 0, b"secret")
    viewer = await sync_to_async(make_user)("viewer")
    await sync_to_async(make_grant)(viewer, GrantRole.VIEWER, people.lab)
    page = await open_page(viewer)

    await page.follow(log_key(attempt))

    assert await page.frame() == [{"key": log_key(attempt), "gone": True}]


def test_page_far_behind_is_moved_to_the_tail(
    people: People, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was written long before the end is left out, and the place is told."""
    monkeypatch.setattr(feeds, "LOG_LAG_BYTES", 100)
    monkeypatch.setattr(feeds, "LOG_BYTES", 10)
    attempt = start(job)
    log_line(attempt, 0, b"x" * 190)
    log_line(attempt, 190, b"0123456789")

    update = feeds.read(Region.parse(log_key(attempt)), "0")

    assert update is not None
    assert '"from":190' in update.text
    assert update.mark == "200"


def test_changed_rows_are_found_without_hints(people: People, job: Job) -> None:
    """Looking at the rows names the job, its list and its owner, and nothing that stood still."""
    topics = [
        f"job:{job.id}",
        f"jobs:{job.queue_id}",
        f"user:{people.bob.id}",
        f"user:{people.alice.id}",
    ]
    seen = changes.begin()
    before, seen = changes.since(seen, topics)

    suspend_job(actor=load_actor(people.bob), job_id=job.id, now=NOW)
    after, _ = changes.since(seen, topics)

    assert [one for one in before if one[1] == "state"] == []
    assert [topic for topic, kind in after if kind == "state"] == topics[:3]


async def test_page_follows_its_job_without_redis(
    people: People,
    job: Job,
    open_page: OpenPage,
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With Redis away the page says delayed and still shows the change."""
    settings.REDIS_URL = "redis://127.0.0.1:1/0"
    monkeypatch.setattr("controlplane.live.watch.LOOK_SECONDS", 0.05)
    page = await open_page(people.bob)
    await page.follow(key_of(job))
    await page.until(key_of(job), "Pending")

    await suspend(job, people.bob)
    await page.until(key_of(job), "Abort")

    assert {"mode": "delayed"} in page.updates


def test_poll_answers_like_the_socket(people: People, job: Job) -> None:
    """By HTTP a page gets the same update once, nothing while it has it, and nothing foreign."""
    client, stranger = HttpClient(), HttpClient()
    client.force_login(people.bob)
    stranger.force_login(people.charlie)
    query = {"region": key_of(job), "has": ""}

    first = client.get("/live/poll", query).json()["updates"]
    again = client.get("/live/poll", {**query, "has": first[0]["has"]}).json()["updates"]
    foreign = stranger.get("/live/poll", query).json()["updates"]

    assert "Pending" in first[0]["html"]
    assert again == []
    assert foreign == [{"key": key_of(job), "gone": True}]


JOB_FRAGMENTS = sorted(name for name in fragments.FRAGMENTS if name.startswith("job_"))


@pytest.mark.parametrize("name", JOB_FRAGMENTS)
async def test_every_fragment_of_a_job_is_kept_like_a_fresh_page(
    name: str, people: People, job: Job, open_page: OpenPage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For each fragment: what a page has after a change is what a fresh page shows."""
    monkeypatch.setattr(fragments, "_now", lambda: datetime.fromisoformat(NOW.isoformat()))
    page = await open_page(people.bob)
    key = key_of(job, name)
    await page.follow(key)
    await page.frame()

    await suspend(job, people.bob)
    await page.say({"do": "resync"})
    await page.frame()

    reader = await sync_to_async(reader_of)(people.bob, "en")
    assert page.html[key] == await sync_to_async(render)(Region.parse(key), reader)
