"""The socket of a page: who may open it, what it may follow, and what it is told."""

import json
from datetime import timedelta

import pytest
from asgiref.sync import sync_to_async

from controlplane.live import consumers, hub
from controlplane.live.authority import reader_of
from controlplane.live.frames import render
from controlplane.live.regions import Region
from scheduling.models import Job
from tenants.models import BrowserSession, Grant, OrgClosure, OrgUnit, User
from tests.people import NOW, People
from tests.web.live.harness import RENDERED, OpenPage, hint, key_of, suspend

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("probe")]


async def test_old_page_and_frames_equal_a_fresh_page(
    people: People, job: Job, open_page: OpenPage
) -> None:
    """After a change, what the frames made of the page is what a new page would show."""
    page = await open_page(people.bob)
    key = key_of(job)
    await page.follow(key)
    before = await page.until(key, "Pending")

    await suspend(job, people.bob)
    await hint(f"job:{job.id}")
    after = await page.until(key, "Abort")

    reader = await sync_to_async(reader_of)(people.bob, "en")
    assert after == await sync_to_async(render)(Region.parse(key), reader)
    assert after != before
    assert page.frames == list(range(1, len(page.frames) + 1))


async def test_page_that_has_the_newest_is_sent_nothing(
    people: People, job: Job, open_page: OpenPage
) -> None:
    """A page that comes back with what it had costs no transfer."""
    first = await open_page(people.bob)
    await first.follow(key_of(job))
    await first.until(key_of(job), "Pending")
    again = await open_page(people.bob)

    await again.follow(key_of(job), has=first.updates[-1]["has"])

    assert await again.socket.receive_nothing(timeout=0.5)


async def test_resync_sends_everything_again(people: People, job: Job, open_page: OpenPage) -> None:
    """A page that missed a frame asks, and gets its regions in full."""
    page = await open_page(people.bob)
    await page.follow(key_of(job))
    html = await page.until(key_of(job), "Pending")

    await page.say({"do": "resync"})

    assert [update["html"] for update in await page.frame()] == [html]


async def test_readers_of_one_class_share_a_rendering(
    people: People, job: Job, open_page: OpenPage
) -> None:
    """A fragment that depends on rights only is rendered once for people with the same rights."""
    twin = await sync_to_async(_twin_of)(people.bob)
    pages = [await open_page(people.bob), await open_page(twin)]
    for page in pages:
        await page.follow(key_of(job))
        await page.until(key_of(job), "Pending")
    RENDERED.clear()

    await suspend(job, people.bob)
    await hint(f"job:{job.id}")
    for page in pages:
        await page.until(key_of(job), "Abort")

    assert len(RENDERED) == 1


def _twin_of(user: User) -> User:
    twin = User.objects.create(username="twin")
    for grant in Grant.objects.filter(user=user):
        Grant.objects.create(user=twin, role=grant.role, unit=grant.unit, created_at=NOW)
    return twin


async def test_foreign_and_unknown_regions_are_refused_alike(
    people: People, job: Job, open_page: OpenPage
) -> None:
    """A job of another tenant, one that is not there and an unknown fragment read the same."""
    page = await open_page(people.charlie)
    keys = [key_of(job), key_of(job).replace(str(job.id)[:4], "0000"), key_of(job, "nothing")]

    await page.follow(*keys)

    updates = await page.frame()
    assert updates == [{"key": key, "gone": True} for key in keys]


async def test_lost_grant_empties_the_region(people: People, job: Job, open_page: OpenPage) -> None:
    """When a grant is taken away its hint removes what it showed."""
    page = await open_page(people.bob)
    await page.follow(key_of(job))
    await page.until(key_of(job), "Pending")

    await sync_to_async(Grant.objects.filter(user=people.bob).delete)()
    await hint(f"user:{people.bob.id}", "grants")

    assert await page.frame() == [{"key": key_of(job), "gone": True}]


async def test_job_that_moved_out_of_sight_is_removed_by_the_recheck(
    people: People, job: Job, open_page: OpenPage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without any hint the recheck notices that a unit left the reader's subtree."""
    monkeypatch.setattr("controlplane.live.watch.RECHECK_SECONDS", 0.05)
    page = await open_page(people.bob)
    await page.follow(key_of(job))
    await page.until(key_of(job), "Pending")

    await sync_to_async(_move_away)(people.vision, people.lab)

    (update,) = await page.frame()
    if update.get("html") == "":  # drawn anew before the recheck came: nothing is seen already
        (update,) = await page.frame()
    assert update == {"key": key_of(job), "gone": True}


def _move_away(unit: OrgUnit, to: OrgUnit) -> None:
    """Give the jobs of a unit to another one, and take the closure away that showed them."""
    OrgClosure.objects.filter(descendant=unit).exclude(ancestor=to).delete()


@pytest.mark.parametrize("ending", ["session", "user", "password"])
async def test_socket_closes_when_the_session_ends(
    ending: str, people: People, open_page: OpenPage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Signing out, being disabled and a new password end the socket at the next check."""
    monkeypatch.setattr("controlplane.live.watch.RECHECK_SECONDS", 0.05)
    page = await open_page(people.bob)

    await sync_to_async(_end)(ending, people.bob)

    closed = await page.socket.receive_output(timeout=5)
    assert (closed["type"], closed["code"]) == ("websocket.close", 4401)


def _end(ending: str, user: User) -> None:
    if ending == "session":
        BrowserSession.objects.update(expire_date=NOW - timedelta(days=1))
    elif ending == "user":
        User.objects.filter(id=user.id).update(is_active=False)
    else:
        user.set_unusable_password()
        user.save()


@pytest.mark.parametrize(
    "origin",
    [
        None,
        "null",
        "http://evil.example",
        "http://testserver.evil.example",
        "http://eviltestserver",
        "https://testserver",
        "http://testserver:81",
        "http://TESTSERVER",
        "http://user@testserver",
        "http://testserver/",
    ],
)
async def test_foreign_origin_is_refused(
    origin: str | None, people: People, open_page: OpenPage
) -> None:
    """Only a page of our own opens a socket, whatever cookie comes along."""
    with pytest.raises(ConnectionRefusedError):
        await open_page(people.bob, origin=origin)


async def test_origin_equal_to_a_foreign_host_is_refused(
    people: People, open_page: OpenPage
) -> None:
    """A host that is not ours does not become so by being asked."""
    with pytest.raises(ConnectionRefusedError):
        await open_page(people.bob, origin="http://evil.example", host="evil.example")


async def test_anonymous_visitor_is_refused(open_page: OpenPage) -> None:
    """Without a session there is no socket."""
    with pytest.raises(ConnectionRefusedError):
        await open_page(None)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("{", 4400),
        ("[]", 4400),
        ('{"do":"grant"}', 4400),
        ('{"do":"subscribe","regions":{}}', 4400),
        ('{"do":"subscribe","regions":[{"key":"job:*/fragment/probe/"}]}', 4400),
        ('{"do":"subscribe","regions":[{"key":"job:1/../x"}]}', 4400),
        pytest.param("[" * 40_000, 4400, id="deep"),
        pytest.param(json.dumps({"do": "ping", "padding": "x" * 70_000}), 1009, id="long"),
    ],
)
async def test_socket_that_breaks_the_protocol_is_closed(
    text: str, code: int, people: People, open_page: OpenPage
) -> None:
    """Nonsense, wildcards and bombs end the socket with a code that says which."""
    page = await open_page(people.bob)

    await page.socket.send(text)

    closed = await page.socket.receive_output(timeout=5)
    assert (closed["type"], closed["code"]) == ("websocket.close", code)


async def test_flood_of_messages_is_closed(people: People, open_page: OpenPage) -> None:
    """A page that talks without end is cut off."""
    page = await open_page(people.bob)

    for _ in range(consumers.BURST + consumers.MESSAGES_A_SECOND):
        await page.socket.send('{"do":"ping"}')

    while (output := await page.socket.receive_output(timeout=5))["type"] != "websocket.close":
        assert output == {"type": "websocket.send", "text": '{"pong":true}'}
    assert output["code"] == consumers.TOO_MUCH


async def test_regions_beyond_the_limit_are_refused_by_name(
    people: People, job: Job, open_page: OpenPage
) -> None:
    """The region after the last one allowed is refused with the limit."""
    page = await open_page(people.bob)
    keys = [key_of(job, argument=str(n)) for n in range(hub.MAX_REGIONS + 1)]

    await page.follow(*keys)

    refused: list[object] = []
    while not refused:
        refused = [one for one in await page.frame() if "refused" in one]
    assert refused == [{"key": keys[-1], "refused": "limit", "limit": hub.MAX_REGIONS}]
