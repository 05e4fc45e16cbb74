"""Every door of the gateway, and what each credential gets there, against a matrix kept by hand.

The columns of `gateway_matrix.csv`: nobody; a person with an API token; another node than the one
whose things are asked for; a removed node; the node itself. A join is refused to all: it goes by
its token, not by a credential.
"""

from __future__ import annotations

import ast
import csv
import hashlib
import inspect
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest
from asgiref.sync import sync_to_async
from asgiref.testing import ApplicationCommunicator
from django.core.files.base import ContentFile
from django.core.files.storage import default_storage
from django.utils import timezone

from scheduling.models import Attempt, Cluster, Job, JobFile, Node
from scheduling.models.node import NodeState
from tenants.domain import tokens
from tenants.domain.access import load_actor
from tests.factories.demo import make_node
from tests.web.walls.scene import make_scene
from worker.gateway.application import Gateway

MATRIX = Path(__file__).with_name("gateway_matrix.csv")
OK = 200


@dataclass(frozen=True, slots=True)
class Place:
    """What is asked for, and the credential of each column."""

    file: str
    attempt: str
    credentials: dict[str, str]


def declared() -> dict[tuple[str, str], dict[str, str]]:
    with MATRIX.open(encoding="utf-8", newline="") as file:
        return {(row.pop("method"), row.pop("path")): row for row in csv.DictReader(file)}


def doors() -> Iterator[tuple[str, str]]:
    """Read the gateway's addresses out of its source: it has no table of them."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(Gateway)))
    for node in ast.walk(tree):
        if isinstance(node, ast.match_case) and isinstance(node.pattern, ast.MatchSequence):
            method, path = node.pattern.patterns
            assert isinstance(method, ast.MatchValue)
            assert isinstance(path, ast.MatchSequence)
            yield ast.literal_eval(method.value), "/" + "/".join(map(_part, path.patterns))
        if isinstance(node, ast.Compare) and isinstance(node.comparators[0], ast.Constant):
            value = node.comparators[0].value
            if isinstance(value, str) and value.startswith("/"):
                yield "WS", value


def _part(pattern: ast.pattern) -> str:
    return ast.literal_eval(pattern.value) if isinstance(pattern, ast.MatchValue) else "*"


def make_place() -> Place:
    """Let a task of a job with code run on one node; another is there, and one is removed."""
    scene, now = make_scene(), timezone.now()
    own = Node.objects.get(id=scene.values["node_id"])
    cluster = Cluster.objects.get()
    other, gone = (make_node(cluster, name, now, gpus=0) for name in ("other", "gone"))
    for node in (own, other, gone):
        digest = hashlib.sha256(f"secret of {node.name}".encode()).hexdigest()
        Node.objects.filter(id=node.id).update(credential_hash=digest)
    Node.objects.filter(id=gone.id).update(state=NodeState.REMOVED)
    _token, secret = tokens.create_token(
        actor=load_actor(scene.owner), user=scene.owner, name="cli", verbs=(), unit=None,
        expires_at=now + timedelta(days=1), now=now,
    )  # fmt: skip
    job = Job.objects.get(id=scene.values["job_id"])
    code = JobFile.objects.create(
        unit=job.unit, owner=scene.owner, job=job, purpose="code", path="code.tar.gz",
        size_bytes=1, sha256="0" * 64, created_at=now,
        storage_name=default_storage.save("walls/code", ContentFile(b"x")),
    )  # fmt: skip
    return Place(
        file=str(code.id),
        attempt=str(Attempt.objects.get(job=job).id),
        credentials={
            "nobody": "",
            "person": secret,
            "stranger": "secret of other",
            "removed": "secret of gone",
            "own": f"secret of {own.name}",
        },
    )


async def ask(gateway: Gateway, method: str, path: str, credential: str, place: Place) -> str:
    """Knock at a door and return the status, or whether the socket was accepted."""
    filled = path.replace("files/*", f"files/{place.file}")
    filled = filled.replace("outputs/*", f"outputs/{place.attempt}")
    headers = [(b"authorization", f"Bearer {credential}".encode())] if credential else []
    scope = {
        "type": "websocket" if method == "WS" else "http",
        "method": method,
        "path": filled,
        "query_string": b"path=model.npz",
        "headers": headers,
        "client": ("192.0.2.1", 1),
    }
    talk = ApplicationCommunicator(gateway, scope)
    if method == "WS":
        await talk.send_input({"type": "websocket.connect"})
        answer = await talk.receive_output(timeout=10)
        if answer["type"] == "websocket.accept":
            await talk.send_input({"type": "websocket.disconnect", "code": 1001})
        await talk.wait(timeout=10)
        return "accepted" if answer["type"] == "websocket.accept" else "refused"
    body = b'{"token": "trj_unknown", "name": "box"}' if path == "/agent/join" else b"x"
    await talk.send_input({"type": "http.request", "body": body})
    status = str((await talk.receive_output(timeout=10))["status"])
    while (await talk.receive_output(timeout=10)).get("more_body"):
        pass
    await talk.wait(timeout=10)
    return status


async def stop(gateway: Gateway) -> None:
    """End what the gateway does by itself."""
    talk = ApplicationCommunicator(gateway, {"type": "lifespan"})
    await talk.send_input({"type": "lifespan.shutdown"})
    await talk.receive_output(timeout=10)


def test_every_door_has_a_row_and_every_row_a_door() -> None:
    """A new address of the gateway fails here until somebody has said who may use it."""
    assert sorted(doors()) == sorted(declared())


@pytest.mark.django_db(transaction=True)
async def test_every_door_lets_in_whom_the_matrix_lets_in() -> None:
    """A node gets what its own tasks need and brings what they made; nobody else does."""
    place = await sync_to_async(make_place)()
    gateway = Gateway()

    found = {
        door: {
            column: await ask(gateway, *door, credential, place)
            for column, credential in place.credentials.items()
        }
        for door in declared()
    }
    await stop(gateway)

    assert found == declared()


@pytest.mark.django_db(transaction=True)
async def test_a_nodes_credential_opens_nothing_of_the_api() -> None:
    """What a node has been given is no API token: every address of the API says 401."""
    from tests.web.walls.routes import routes

    place = await sync_to_async(make_place)()
    credential = place.credentials["own"]

    def statuses() -> dict[str, int]:
        from django.test import Client

        client = Client(headers={"authorization": f"Bearer {credential}"})
        nothing = "00000000-0000-4000-8000-000000000000"
        return {
            f"{route.method} {route.path}": getattr(client, route.method)(
                route.address(lambda _path, _name: nothing)
            ).status_code
            for route in routes()
            if route.path.startswith("api/v1/") and route.path != "api/v1/schema"
        }

    found = await sync_to_async(statuses)()

    assert {where: code for where, code in found.items() if code != 401} == {}
