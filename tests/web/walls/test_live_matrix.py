"""Every live region and role, in each relation to the thing, against the matrix kept by hand.

`live_matrix.csv` is to regions what `permission_matrix.csv` is to addresses. Sockets and polls
decide by the same function; a socket of each kind of refusal is in `tests/web/live`.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode

import pytest
from django.urls import URLPattern

from controlplane.live.feeds import FEEDS
from controlplane.live.hub import MAX_REGIONS
from controlplane.live.regions import TOPICS
from controlplane.live.routing import websocket_urlpatterns
from controlplane.pages.fragments import FRAGMENTS
from scheduling.models import Attempt
from tenants.models import User
from tests.web.walls.scene import RELATIONS, ROLES, Scene, make_scene

MATRIX = Path(__file__).with_name("live_matrix.csv")
WITHOUT_REGION = {"jobs", "tenant"}
"""Topics that only carry hints: lists ask again by HTTP."""


def declared() -> dict[str, dict[str, str]]:
    """Return the rows by region: topic's word, kind and name."""
    with MATRIX.open(encoding="utf-8", newline="") as file:
        return {row.pop("region"): row for row in csv.DictReader(file)}


def key(region: str, scene: Scene) -> str:
    """Return the region of the scene's own thing."""
    word, kind, name = region.split("/")
    attempt = Attempt.objects.get(job_id=scene.values["job_id"])
    argument = f"{attempt.id}:stdout" if name == "log" else ""
    return f"{word}:{scene.values[f'{word}_id']}/{kind}/{name}/{argument}"


def people(scene: Scene) -> Iterator[tuple[str, str, User]]:
    """Yield every column, relation and who stands in it."""
    yield "platform_admin", "", scene.root
    yield "owner", "", scene.owner
    for role in ROLES:
        for relation in RELATIONS:
            yield role.value, relation, scene.people[role.value, relation]


def test_every_region_has_a_row_and_every_row_a_region() -> None:
    """A new fragment, feed or topic fails here until somebody has said who may follow it."""
    rows = declared()

    assert {one.split("/")[2] for one in rows if "/fragment/" in one} == set(FRAGMENTS)
    assert {one.split("/")[2] for one in rows if "/feed/" in one} == set(FEEDS)
    assert {one.split("/")[0] for one in rows} == TOPICS - WITHOUT_REGION
    assert len(rows) <= MAX_REGIONS


def test_every_socket_is_known() -> None:
    """There is one address for sockets; a second one needs a matrix of its own."""
    found = [one for one in websocket_urlpatterns if isinstance(one, URLPattern)]

    assert [str(one.pattern) for one in found] == ["ws/live/"]


@pytest.mark.django_db
def test_every_region_lets_in_whom_the_matrix_lets_in() -> None:
    """Role by role, in each relation to the thing: nobody more, nobody less."""
    scene, rows = make_scene(), declared()
    keys = {key(region, scene): region for region in rows}
    query = urlencode([pair for one in keys for pair in (("region", one), ("has", ""))])
    wrong: list[str] = []

    for column, relation, user in people(scene):
        updates = scene.client(user).get(f"/live/poll?{query}").json()["updates"]
        gone = {keys[one["key"]] for one in updates if one.get("gone")}
        for region, row in rows.items():
            said = row[column]
            should = (relation in said) if relation and said != "-" else said == "y"
            if (region not in gone) is not should:
                wrong.append(f"{region}: {column} {relation}")

    assert wrong == []


@pytest.mark.django_db
def test_nobody_polls_who_is_not_signed_in() -> None:
    """A stranger's poll is sent to the sign-in."""
    scene = make_scene()

    reply = scene.client(None).get(f"/live/poll?region={key('job/feed/log', scene)}&has=")

    assert (reply.status_code, reply.content) == (302, b"")
