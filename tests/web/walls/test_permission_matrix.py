"""Every address, method and role, in each relation to the thing, against the matrix kept by hand.

`permission_matrix.csv` has a row for each address and method. A cell says where the role may: a
letter for each relation of its grant to the thing: (s)elf, (p)arent above it, (c)hild below it,
si(b)ling, (o)ther tenant; `-` nowhere. `anon`, `platform_admin` and `owner` have no relation: `y`
or `-`; `405` where there is no such method. May not is 401, 403, 404 or the way to sign in; may is
anything else, also 409 where the state is in the way. What is sent to the API is whole
(`bodies.py`): an answer that finds fault with it says nothing about rights and is wrong.

Each run asks for every role in one relation by turns; TERRACE_WHOLE_MATRIX=1 asks for all.
"""

from __future__ import annotations

import csv
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.db import transaction
from pytest_django.fixtures import Settings

from tenants.domain.sealing import Keyring
from tenants.models import User
from tests.web.walls.bodies import BODIES, FAULTED, Body
from tests.web.walls.routes import Route, routes
from tests.web.walls.scene import RELATIONS, ROLES, Scene, chosen, is_whole, make_scene

MATRIX = Path(__file__).with_name("permission_matrix.csv")
REFUSED = frozenset({401, 403, 404})
FAULTS = frozenset({400, 412, 415, 422, 428})
"""Of the request itself."""
UNSEEN_QUEUE = "queue_missing"
BATCH = {"done", "refused", "results"}
NOT_THERE = 405
SERVER_ERROR = 500
FOUND = 302
LOGIN = "/accounts/login/"


@pytest.fixture
def scene(db: None, settings: Settings) -> Scene:
    settings.TERRACE_SECRETS_KEYRING = Keyring([bytes(32)])
    return make_scene()


def declared() -> dict[Route, dict[str, str]]:
    with MATRIX.open(encoding="utf-8", newline="") as file:
        return {Route(row.pop("path"), row.pop("method")): row for row in csv.DictReader(file)}


def status(user: User | None, route: Route, scene: Scene) -> int:
    """Send the request and take back what it wrote; the way to sign in counts as 401."""
    client = scene.client(user)
    body = BODIES.get((route.method, route.path), Body())
    sent: dict[str, Any] = {}  # Any: as the client of the tests takes it
    if route.method != "get":
        sent = {"data": body.filled(scene.values), "headers": body.headers}
        if route.path.startswith("api/") and not body.upload:
            sent["content_type"] = "application/json"
    with transaction.atomic():
        reply = getattr(client, route.method)(route.address(scene.value), **sent)
        if reply.streaming:
            b"".join(reply.streaming_content)
        transaction.set_rollback(True)
    is_sent_away = reply.status_code == FOUND and reply.headers["Location"].startswith(LOGIN)
    if is_sent_away:
        return 401
    return 404 if _is_refused_within(reply) else int(reply.status_code)


def _is_refused_within(reply: Any) -> bool:
    """Tell whether a body says what no status does: no such queue, or nothing of the batch done."""
    if not reply.headers.get("Content-Type", "").endswith("json") or reply.streaming:
        return False
    document = reply.json()
    if not isinstance(document, dict):
        return False
    if document.keys() == BATCH:
        return bool(document["done"] == 0)
    return [one.get("code") for one in document.get("errors", ())] == [UNSEEN_QUEUE]


def asked(route: Route) -> Iterator[tuple[str, str]]:
    """Yield the columns and relations to ask for: a share of them by turns, all where told to.

    Every column is asked for in every address, each relation in a share of them.
    """
    yield "anon", ""
    yield "platform_admin", ""
    yield "owner", ""
    turn = zlib.crc32(f"{route.method} {route.path}".encode())
    relations = list(RELATIONS)
    for position, role in enumerate(ROLES):
        for relation in (
            relations if is_whole() else [relations[(turn + position) % len(relations)]]
        ):
            yield role.value, relation


def asker(scene: Scene, column: str, relation: str) -> User | None:
    """Return who stands in a column."""
    if relation:
        return scene.people[column, relation]
    return {"anon": None, "platform_admin": scene.root, "owner": scene.owner}[column]


def test_every_address_has_a_row_and_every_row_an_address() -> None:
    """A new address fails here until somebody has said who may use it."""
    there = set(routes())
    rows = declared()

    assert sorted(there - rows.keys()) == []
    assert sorted(rows.keys() - there) == []


def test_every_address_lets_in_whom_the_matrix_lets_in(scene: Scene) -> None:
    """Role by role, in each relation to the thing: nobody more, nobody less."""
    wrong: list[str] = []

    rows = declared()
    for route in chosen(sorted(rows)):
        row = rows[route]
        for column, relation in asked(route):
            code = status(asker(scene, column, relation), route, scene)
            is_in = code not in REFUSED
            said = row[column]
            should = (relation in said) if relation and said != "-" else said == "y"
            if code == NOT_THERE:
                is_in = should = said == "405"
            is_unclear = (
                code in FAULTS and route.path.startswith("api/") and route.path not in FAULTED
            )
            if code >= SERVER_ERROR or is_unclear or is_in is not should:
                wrong.append(f"{route.method} {route.path}: {column} {relation}: {code}")

    assert wrong == []
