"""Programs with an API token open a live socket by a ticket that works once."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from urllib.parse import urlsplit

import pytest
from asgiref.sync import sync_to_async
from django.conf import settings
from django.test import Client as HttpClient

from scheduling.models import Job
from tenants.domain import socket_tickets, tokens
from tenants.domain.access import load_actor
from tenants.models import ApiToken, OrgUnit, SocketTicket, User
from tests.people import People
from tests.web.live.harness import OpenPage, key_of

pytestmark = pytest.mark.usefixtures("probe")


def make_token(user: User, unit: OrgUnit | None = None, verbs: Collection[str] = ()) -> str:
    now = datetime.now(UTC)
    _, secret = tokens.create_token(
        actor=load_actor(user),
        user=user,
        name="follower",
        verbs=verbs,
        unit=unit,
        expires_at=now + timedelta(hours=1),
        now=now,
    )
    return secret


def ask(secret: str) -> str:
    """Return the query of the address that the API gives a token."""
    reply = HttpClient().post("/api/v1/live/tickets", headers={"Authorization": f"Bearer {secret}"})
    assert reply.status_code == 201, reply.content
    address = urlsplit(reply.json()["url"])
    assert (address.scheme, address.path) == ("ws", "/ws/live/")
    assert address.netloc == urlsplit(settings.PUBLIC_URL).netloc
    assert secret not in address.query
    return str(address.query)


@sync_to_async
def ticket_of(user: User, unit: OrgUnit | None = None, verbs: Collection[str] = ()) -> str:
    return ask(make_token(user, unit, verbs))


async def test_ticket_opens_one_socket(people: People, job: Job, open_page: OpenPage) -> None:
    """It needs no Origin, shows what the token may see, and is worth nothing the second time."""
    query = await ticket_of(people.bob)

    page = await open_page(None, origin=None, query=query)
    await page.follow(key_of(job))
    await page.until(key_of(job), "Pending")

    with pytest.raises(ConnectionRefusedError):
        await open_page(None, origin=None, query=query)
    assert await SocketTicket.objects.acount() == 0


async def test_ticket_races_open_one_socket(people: People, open_page: OpenPage) -> None:
    """Of several that come with one ticket at the same time one gets in."""
    query = await ticket_of(people.bob)

    opened = await asyncio.gather(
        *(open_page(None, origin=None, query=query) for _ in range(4)), return_exceptions=True
    )

    assert sum(not isinstance(one, ConnectionRefusedError) for one in opened) == 1


@pytest.mark.parametrize("query", ["ticket=", "ticket=trw_unknown", "ticket=trw_" + "x" * 5000])
async def test_unknown_ticket_is_refused(query: str, people: People, open_page: OpenPage) -> None:
    """Who comes with a ticket is judged by it, whatever session comes along."""
    with pytest.raises(ConnectionRefusedError):
        await open_page(people.bob, query=query)


async def test_old_ticket_is_refused(people: People, open_page: OpenPage) -> None:
    """A ticket is good for half a minute."""
    query = await ticket_of(people.bob)
    past = datetime.now(UTC) - timedelta(seconds=1)
    await SocketTicket.objects.aupdate(expires_at=past)

    with pytest.raises(ConnectionRefusedError):
        await open_page(None, origin=None, query=query)


async def test_ticket_opens_nothing_for_foreign_pages(people: People, open_page: OpenPage) -> None:
    """A browser says where a page came from; a foreign one gets no socket with a ticket either."""
    query = await ticket_of(people.bob)

    with pytest.raises(ConnectionRefusedError):
        await open_page(None, origin="http://evil.example", query=query)


async def test_narrow_token_follows_no_more_than_it_reads(
    people: People, job: Job, open_page: OpenPage
) -> None:
    """A token for another unit, or without the verb, sees nothing of a job of its user's."""
    elsewhere = await open_page(
        None, origin=None, query=await ticket_of(people.root, unit=people.mill)
    )
    verbless = await open_page(
        None, origin=None, query=await ticket_of(people.bob, verbs=["queue.read"])
    )

    for page in (elsewhere, verbless):
        await page.follow(key_of(job))
        assert await page.frame() == [{"key": key_of(job), "gone": True}]


@pytest.mark.parametrize("ending", ["revoked", "expired", "user"])
async def test_socket_closes_when_the_token_ends(
    ending: str, people: People, open_page: OpenPage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A token that is revoked or runs out, and a disabled user, end the socket."""
    monkeypatch.setattr("controlplane.live.watch.RECHECK_SECONDS", 0.05)
    page = await open_page(None, origin=None, query=await ticket_of(people.bob))
    past = datetime.now(UTC) - timedelta(seconds=1)

    if ending == "revoked":
        await ApiToken.objects.aupdate(revoked_at=past)
    elif ending == "expired":
        await ApiToken.objects.aupdate(expires_at=past)
    else:
        await User.objects.filter(id=people.bob.id).aupdate(is_active=False)

    closed = await page.socket.receive_output(timeout=5)
    assert (closed["type"], closed["code"]) == ("websocket.close", 4401)


async def test_session_gets_no_ticket(people: People) -> None:
    """A browser has its session; a ticket of it would only be one more secret."""

    @sync_to_async
    def refused() -> tuple[int, str]:
        client = HttpClient()
        client.force_login(people.bob)
        reply = client.post("/api/v1/live/tickets")
        return reply.status_code, reply.json()["errors"][0]["code"]

    assert await refused() == (422, "ticket_without_token")


@pytest.mark.django_db(transaction=True)
def test_tickets_that_nobody_used_are_forgotten(people: People) -> None:
    """Making one takes those away whose time is over."""
    query = ask(make_token(people.bob))
    SocketTicket.objects.update(expires_at=datetime.now(UTC) - timedelta(seconds=1))

    ask(make_token(people.charlie))

    assert SocketTicket.objects.get().token.user == people.charlie
    assert socket_tickets.redeem(query.partition("=")[2], datetime.now(UTC)) is None
