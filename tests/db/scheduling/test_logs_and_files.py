"""Logs are read in part, searched and folded; files keep to their folder and their owner."""

from __future__ import annotations

import hashlib
from datetime import timedelta
from pathlib import Path

import pytest
from django.core.files.base import ContentFile

from scheduling.domain import files, logs, reports, retention
from scheduling.models import Attempt, JobFile, LogChunk
from tenants.domain.errors import Denied, Invalid, NotFound
from tests.factories.cluster import Site, fresh
from tests.people import People


@pytest.fixture(autouse=True)
def store(tmp_path: Path, settings: object) -> None:
    settings.STORAGES = {  # type: ignore[attr-defined]  # pytest-django's settings
        **settings.STORAGES,  # type: ignore[attr-defined]  # as above
        "default": {
            "BACKEND": "django.core.files.storage.FileSystemStorage",
            "OPTIONS": {"location": str(tmp_path)},
        },
    }


@pytest.fixture
def attempt(site: Site) -> Attempt:
    """An attempt that wrote three chunks, with a gap before the last."""
    node = site.node()
    job = site.started()
    (one,) = site.live(job)
    node.report(
        site.now,
        logs=[
            reports.LogReceived(one.id, "stdout", 0, b"first line\nsec"),
            reports.LogReceived(one.id, "stdout", 14, b"ond LINE\n"),
            reports.LogReceived(one.id, "stdout", 100, b"after the gap\n"),
            reports.LogReceived(one.id, "stderr", 0, b"warning\n"),
        ],
    )
    return one


def read(attempt: Attempt, offset: int = 0, length: int = 1000) -> tuple[bytes, int]:
    part = logs.read_log(attempt=attempt, stream="stdout", offset=offset, length=length)
    return part.data, part.offset


def finish(site: Site, attempt: Attempt) -> Attempt:
    site.exited(attempt)
    site.later(60)
    assert logs.to_fold(site.now, limit=9) == [attempt.id]
    assert logs.fold(attempt.id) == 3
    assert logs.to_fold(site.now, limit=9) == []
    return Attempt.objects.get(id=attempt.id)


@pytest.mark.parametrize("is_folded", [False, True])
def test_parts_are_read_across_chunks(site: Site, attempt: Attempt, *, is_folded: bool) -> None:
    """Any part of a stream can be read, before and after it is folded, with gaps as gaps."""
    one = finish(site, attempt) if is_folded else attempt

    assert read(one) == (b"first line\nsecond LINE\n", 0)
    assert read(one, 11, 6) == (b"second", 11)
    assert read(one, 50) == (b"after the gap\n", 100)
    assert read(one, -4) == (b"gap\n", 110)
    assert read(one, 500) == (b"", 500)
    assert logs.stream_size(one, "stdout") == 114


def test_end_is_told(site: Site, attempt: Attempt) -> None:
    """A reader learns whether more may come."""
    assert not logs.read_log(attempt=attempt, stream="stdout").is_final

    assert logs.read_log(attempt=finish(site, attempt), stream="stdout").is_final


@pytest.mark.parametrize("is_folded", [False, True])
def test_search_finds_lines_across_chunks(site: Site, attempt: Attempt, *, is_folded: bool) -> None:
    """A line that came in two chunks is found whole, whatever the case."""
    one = finish(site, attempt) if is_folded else attempt

    hits = logs.search(attempt=one, stream="stdout", text="second line")

    assert [(hit.number, hit.offset, hit.line) for hit in hits] == [(2, 11, "second LINE")]


def test_download_is_the_stream(attempt: Attempt) -> None:
    """A download is all bytes in order."""
    data = b"".join(logs.download(attempt=attempt, stream="stdout"))

    assert data == b"first line\nsecond LINE\nafter the gap\n"


def test_logs_need_their_own_right(site: Site, people: People, attempt: Attempt) -> None:
    """Who sees nothing of a tenant does not see its logs; sharing is the queue's setting."""
    job = fresh(attempt.job)

    logs.require_logs(site.admin, job)
    with pytest.raises((NotFound, Denied)):
        logs.require_logs(people.actor(people.charlie), job)


def test_clean_up_leaves_the_rows_of_the_job(site: Site, attempt: Attempt) -> None:
    """When a job's time to live is over its bytes go; job, attempts and history stay."""
    one = finish(site, attempt)
    job = fresh(one.job)
    assert job.delete_after is not None
    assert retention.expired_jobs(job.delete_after - timedelta(seconds=1), limit=9) == []
    assert retention.expired_jobs(job.delete_after, limit=9) == [job.id]

    retention.clean_up(job_id=job.id)
    retention.clean_up(job_id=job.id)

    assert not LogChunk.objects.exists()
    assert Attempt.objects.filter(job=job).count() == 1
    assert retention.expired_jobs(job.delete_after, limit=9) == []


@pytest.mark.parametrize(
    "path", ["", "/etc/passwd", "../up", "a/../../b", "a\\b", "a\x00b", "a\nb", "x" * 501]
)
def test_path_that_leaves_is_refused(path: str) -> None:
    """A path that could leave its folder, or confuse a reader, is refused with its place."""
    with pytest.raises(Invalid) as caught:
        files.safe_path(path)

    assert [(p.path, p.code) for p in caught.value.problems] == [("path", "path_unsafe")]


def test_upload_is_kept_with_its_hash(site: Site) -> None:
    """An upload comes back byte for byte, and reaches only a node that runs its job."""
    unit = site.queue.unit_id
    assert unit is not None
    file = files.store_upload(
        actor=site.admin,
        unit_id=unit,
        path="train.py",
        content=ContentFile(b"x = 1\n"),
        now=site.now,
    )
    node, other = site.node(), site.node()
    job = site.submit(code=None)
    JobFile.objects.filter(id=file.id).update(job=job)
    site.cycle()
    (attempt,) = site.live(job)
    stranger = other if attempt.node_id == node.id else node

    assert b"".join(files.read(files.code_for_node(node_id=attempt.node_id, file_id=file.id))) == (
        b"x = 1\n"
    )
    assert file.sha256 == hashlib.sha256(b"x = 1\n").hexdigest()
    with pytest.raises(NotFound):
        files.code_for_node(node_id=stranger.id, file_id=file.id)


def test_output_replaces_itself(site: Site, attempt: Attempt) -> None:
    """A path that an attempt brings again is kept once; another node cannot bring it."""
    for content in (b"one", b"two"):
        files.store_output(
            node_id=attempt.node_id,
            attempt_id=attempt.id,
            path="model.bin",
            content=ContentFile(content),
            now=site.now,
        )
    (kept,) = files.outputs(attempt.job)
    assert b"".join(files.read(kept)) == b"two"

    with pytest.raises(NotFound):
        files.store_output(
            node_id=site.node().id,
            attempt_id=attempt.id,
            path="model.bin",
            content=ContentFile(b"x"),
            now=site.now,
        )


def test_too_big_an_upload_names_the_limit(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file over the limit is refused with both numbers and leaves nothing behind."""
    monkeypatch.setattr(files, "LARGEST_UPLOAD", 3)
    unit = site.queue.unit_id
    assert unit is not None

    with pytest.raises(Invalid) as caught:
        files.store_upload(
            actor=site.admin, unit_id=unit, path="a", content=ContentFile(b"1234"), now=site.now
        )

    assert [dict(p.params) for p in caught.value.problems] == [{"size": 4, "max": 3}]
    assert not JobFile.objects.exists()
