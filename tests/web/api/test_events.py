"""Events and webhooks by the API: pages, a stream that goes on, and the walls around both."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import aclosing
from datetime import UTC, datetime
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.http import StreamingHttpResponse
from django.test import AsyncClient, Client

from controlplane.api.v1 import events as events_api
from scheduling.domain import jobs
from tenants.domain.access import load_actor
from tenants.models import User, Webhook
from tests.web.api.conftest import As, Site

URL = "/api/v1/events"
HOOKS = "/api/v1/webhooks"


def names(reply: Any) -> list[str]:
    return [item["job"]["name"] for item in reply.json()["items"]]


@pytest.mark.django_db(transaction=True)
def test_everybody_reads_the_events_of_their_own_jobs(site: Site, as_user: As) -> None:
    """Each sees what happened to the jobs that they see, and nothing of another tenant's."""
    cancel(site)
    people = site.people

    seen = {user.username: set(names(as_user(user).get(URL))) for user in people.everyone}

    assert seen["root"] == {"bobs-training", "charlies-secret"}
    assert seen["alice"] == seen["bob"] == {"bobs-training"}
    assert seen["charlie"] == {"charlies-secret"}


@pytest.mark.django_db(transaction=True)
def test_reading_on_gives_what_is_new(site: Site, as_user: As) -> None:
    """The cursor of one page begins the next; `now` begins behind all that was."""
    bob = as_user(site.people.bob)
    first = bob.get(URL).json()
    assert bob.get(URL, {"after": "now"}).json()["items"] == []
    cancel(site)

    news = bob.get(URL, {"after": first["next"], "subject": "job"}).json()

    assert {item["subject"] for item in news["items"]} == {"job"}
    assert news["is_end"]
    assert news["items"][-1]["to"] in {"Terminating", "Terminated"}
    assert set(news["items"][0]) == {
        "id", "at", "subject", "event", "from", "to", "reason", "job", "task", "attempt"
    }  # fmt: skip


@pytest.mark.parametrize(
    ("query", "field", "code"),
    [
        ({"after": "yesterday"}, "after", "event_cursor"),
        ({"after": "1.2.3"}, "after", "event_cursor"),
        ({"after": "9" * 40 + ".1"}, "after", "event_cursor"),
        ({"subject": "pod"}, "subject", "invalid_choice"),
    ],
)
def test_nonsense_is_named(
    query: dict[str, str], field: str, code: str, site: Site, as_user: As
) -> None:
    """What is no cursor or subject is refused by its field."""
    reply = as_user(site.people.bob).get(URL, query)

    assert reply.status_code == 422
    assert [(one["field"], one["code"]) for one in reply.json()["errors"]] == [(field, code)]


def cancel(site: Site) -> None:
    for user, job in ((site.people.bob, site.bobs), (site.people.charlie, site.charlies)):
        jobs.cancel_job(actor=load_actor(user), job_id=job.id, now=datetime.now(UTC))


async def open_stream(user: User, **headers: str) -> AsyncIterator[str]:
    client = AsyncClient()
    await client.aforce_login(user)
    reply = await client.get(URL, headers={"Accept": "text/event-stream", **headers})
    assert isinstance(reply, StreamingHttpResponse)
    assert (reply.status_code, reply["Content-Type"]) == (200, "text/event-stream")
    async with aclosing(aiter(reply)) as parts:
        async for part in parts:
            yield part.decode()


async def next_events(stream: AsyncIterator[str]) -> list[dict[str, Any]]:
    async with asyncio.timeout(10):
        text = await anext(stream)
    lines = text.splitlines()
    return [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: ")]


@pytest.mark.django_db(transaction=True)
async def test_stream_brings_what_happens_and_goes_on_after_a_break(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stream begins now; one that comes again with the last id gets what it missed, once."""
    monkeypatch.setattr(events_api, "LOOK_SECONDS", 0.02)
    stream = open_stream(site.people.bob)
    hello = await anext(stream)
    await sync_to_async(cancel)(site)

    heard = await next_events(stream)
    await stream.aclose()  # type: ignore[attr-defined]  # a generator
    again = open_stream(site.people.bob, **{"Last-Event-ID": hello.split()[-1]})
    await anext(again)
    repeated = await next_events(again)
    await again.aclose()  # type: ignore[attr-defined]  # a generator

    assert hello.startswith("retry: ")
    assert {one["job"]["name"] for one in heard} == {"bobs-training"}
    assert repeated[: len(heard)] == heard


@pytest.mark.django_db(transaction=True)
async def test_stream_ends_with_its_session(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disabled user hears nothing more."""
    monkeypatch.setattr(events_api, "LOOK_SECONDS", 0.02)
    monkeypatch.setattr(events_api, "RECHECK_SECONDS", 0.0)
    stream = open_stream(site.people.bob)
    await anext(stream)

    await User.objects.filter(id=site.people.bob.id).aupdate(is_active=False)

    async with asyncio.timeout(10):
        assert [part async for part in stream] == []


def test_streams_are_limited(site: Site, as_user: As, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that serves as many as it may says so, and when to come again."""
    streams = {object(): time.monotonic() for _ in range(events_api.MOST_STREAMS)}
    monkeypatch.setattr(events_api.EventsView, "streams", streams)
    ask = {"Accept": "text/event-stream"}

    reply = as_user(site.people.bob).get(URL, headers=ask)
    streams[next(iter(streams))] -= 2 * events_api.SILENT_SECONDS
    later = as_user(site.people.bob).get(URL, headers=ask)

    assert (reply.status_code, json.loads(reply.content)["code"]) == (503, "streams_full")
    assert later.status_code == 200


def test_webhook_by_the_api(site: Site, as_user: As) -> None:
    """Made with a secret that is shown once; switched, renewed, retried and removed by version."""
    alice = as_user(site.people.alice)
    wanted = {
        "unit_id": str(site.people.vision.id),
        "name": "ci",
        "url": "https://hooks.example.com/terrace",
    }

    made = alice.post(HOOKS, wanted)
    address = f"{HOOKS}/{made.json()['id']}"
    shown = alice.get(address)
    without = alice.patch(address, {"is_active": False})
    off = alice.patch(address, {"is_active": False}, headers={"If-Match": shown["ETag"]})
    renewed = alice.post(f"{address}/secret", headers={"If-Match": off["ETag"]})
    retried = alice.post(f"{address}/retry")
    listed = alice.get(HOOKS).json()["items"]
    removed = alice.delete(address, headers={"If-Match": alice.get(address)["ETag"]})

    assert made.status_code == 201
    assert made.json()["secret"].startswith("trh_")
    assert "secret" not in shown.json()
    assert without.status_code == 428
    assert (off.status_code, off.json()["is_active"]) == (200, False)
    assert renewed.json()["secret"] not in {made.json()["secret"], None}
    assert retried.json() == {"deliveries": 0}
    assert [(one["name"], one["dead_deliveries"]) for one in listed] == [("ci", 0)]
    assert (removed.status_code, Webhook.objects.count()) == (204, 0)


def test_webhooks_of_others_do_not_exist(site: Site, as_user: As) -> None:
    """Another tenant gets 404 for all of it, a researcher is refused."""
    vision = str(site.people.vision.id)
    wanted = {"unit_id": vision, "name": "ci", "url": "https://hooks.example.com/"}
    made = as_user(site.people.alice).post(HOOKS, wanted).json()
    charlie, bob = as_user(site.people.charlie), as_user(site.people.bob)
    address = f"{HOOKS}/{made['id']}"

    assert charlie.get(HOOKS).json()["items"] == []
    replies = [
        charlie.get(address),
        charlie.patch(address, {"is_active": False}, headers={"If-Match": '"1"'}),
        charlie.delete(address, headers={"If-Match": '"1"'}),
        charlie.post(f"{address}/secret", headers={"If-Match": '"1"'}),
        charlie.post(f"{address}/retry"),
        charlie.post(HOOKS, {**wanted, "name": "other"}),
    ]
    assert {reply.status_code for reply in replies} == {404}
    assert bob.post(HOOKS, {**wanted, "name": "other"}).status_code == 403
    assert Client().get(HOOKS).status_code == 401


def test_private_address_is_refused_with_the_way_out(site: Site, as_user: As) -> None:
    """Nobody makes Terrace talk to its own network by a webhook."""
    wanted = {
        "unit_id": str(site.people.vision.id),
        "name": "ci",
        "url": "http://169.254.169.254/latest/",
    }

    reply = as_user(site.people.alice).post(HOOKS, wanted)

    assert reply.status_code == 422
    (problem,) = reply.json()["errors"]
    assert problem["field"] == "url"
    assert "TERRACE_WEBHOOK_ALLOWED" in problem["message"]
