"""What the store has lost though a row names it: said with what to do, never a failure of ours."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest
from django.core.files.base import ContentFile
from django.core.files.storage import default_storage
from django.test import Client

from scheduling.domain import files, logs
from scheduling.models import Attempt, JobFile, LogChunk
from tenants.domain.errors import Gone
from tenants.models import User
from tests.factories.demo import run_task
from tests.web.pages.conftest import Site

Browse = Callable[[User], Client]


@pytest.fixture
def attempt(site: Site) -> Attempt:
    """Return an ended attempt whose output lies in the store."""
    ended = run_task(
        site.bobs.tasks.get(index=0),
        site.node,
        site.robots,
        [site.node.devices.get(index=0)],
        site.now,
    )
    ended.state = "Succeeded"
    ended.finished_at = site.now - timedelta(hours=1)
    ended.save()
    text = b"one\ntwo\n"
    LogChunk.objects.create(
        attempt=ended, stream="stdout", offset=0, size_bytes=len(text), data=text, at=site.now
    )
    logs.fold(ended.id)
    return ended


@pytest.fixture
def output(site: Site, attempt: Attempt) -> JobFile:
    return files.store_output(
        node_id=site.node.id,
        attempt_id=attempt.id,
        path="model.bin",
        content=ContentFile(b"weights"),
        now=site.now,
    )


def lose(storage_name: str) -> None:
    assert default_storage.exists(storage_name)
    default_storage.delete(storage_name)


@pytest.mark.parametrize("prefix", ["/jobs", "/api/v1/jobs"])
def test_lost_file_is_named_with_what_to_do(
    site: Site, browse: Browse, output: JobFile, prefix: str
) -> None:
    """The download says 410, which file it is, and where its bytes may come from."""
    client = browse(site.people.bob)
    address = f"{prefix}/{site.bobs.id}/files/{output.id}"
    address += "/" if prefix == "/jobs" else ""
    whole = b"".join(client.get(address).streaming_content)  # type: ignore[attr-defined]  # a stream
    lose(output.storage_name)

    reply = client.get(address)

    assert whole == b"weights"
    assert reply.status_code == 410
    assert "model.bin" in reply.content.decode()
    assert "backup" in reply.content.decode()


def test_lost_log_is_a_refusal_of_the_api(site: Site, browse: Browse, attempt: Attempt) -> None:
    """Reading, searching and downloading answer 410 with a code, before the first byte."""
    client = browse(site.people.bob)
    lose(LogChunk.objects.get(attempt=attempt).storage_name)
    address = f"/api/v1/jobs/{site.bobs.id}/logs?role=worker&index=0"

    replies = [client.get(address + more) for more in ("", "&search=one", "&download=1")]

    assert [(one.status_code, one.json()["code"]) for one in replies] == [
        (410, "stored_bytes_gone")
    ] * 3


@pytest.mark.parametrize("query", ["", "?find=one", "?attempt=all", "?attempt=all&find=one"])
def test_page_of_a_lost_log_stands_and_says_so(
    site: Site, browse: Browse, attempt: Attempt, query: str
) -> None:
    """The logs page and the job's page stand; in place of the output is what became of it."""
    client = browse(site.people.bob)
    lose(LogChunk.objects.get(attempt=attempt).storage_name)

    page = client.get(f"/jobs/{site.bobs.id}/logs/{query}")
    overview = client.get(f"/jobs/{site.bobs.id}/")

    assert (page.status_code, overview.status_code) == (200, 200)
    assert "store" in page.content.decode()
    assert "no longer in the store" in overview.content.decode()


def test_node_is_told_that_code_is_lost(site: Site, attempt: Attempt) -> None:
    """Code that a node asks for is refused in the same words, not by a failure."""
    content = ContentFile(b"print()", name="train.py")
    code = files.store_output(
        node_id=site.node.id, attempt_id=attempt.id, path="train.py", content=content, now=site.now
    )
    lose(code.storage_name)

    with pytest.raises(Gone) as refused:
        files.open_bytes(code)

    assert refused.value.code == "stored_bytes_gone"
