"""Fixtures of the tests of live updates."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from django.template import engines

from controlplane.live import consumers
from controlplane.pages.fragments import FRAGMENTS
from scheduling.models import Cluster, Job
from tenants.models import User
from tests.people import NOW, People, make_people
from tests.web.live.harness import (
    ORIGIN,
    PROBE,
    RENDERED,
    OpenPage,
    Page,
    make_job,
    make_queue,
    open_socket,
)


@pytest.fixture
def probe(monkeypatch: pytest.MonkeyPatch) -> None:
    """Offer a fragment `probe` that depends on the reader's rights only."""
    engine = engines["django"].engine  # type: ignore[attr-defined]  # Django's own backend has it
    monkeypatch.setattr(engine, "dirs", [*engine.dirs, Path(__file__).parent / "templates"])
    monkeypatch.setitem(FRAGMENTS, "probe", PROBE)
    RENDERED.clear()


@pytest.fixture
def people(transactional_db: None) -> People:
    return make_people()


@pytest.fixture
def job(people: People) -> Job:
    """A waiting job of Bob's in `vision`."""
    cluster = Cluster.objects.create(name="default", created_at=NOW)
    root = make_queue(cluster, None, None, "root")
    lab = make_queue(cluster, people.lab, root, "lab")
    vision = make_queue(cluster, people.vision, lab, "vision")
    return make_job(people.bob, vision)


@pytest.fixture
async def open_page() -> AsyncIterator[OpenPage]:
    """Open sockets, and close them and the hub afterwards."""
    pages: list[Page] = []

    async def open_one(
        user: User | None,
        origin: str | None = ORIGIN,
        host: str = "testserver",
        query: str = "",
    ) -> Page:
        pages.append(await open_socket(user, origin, host, query))
        return pages[-1]

    yield open_one
    for page in pages:
        await page.socket.close()
    await consumers.stop_hub()
