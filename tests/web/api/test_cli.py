"""The command line against the real API, over its own HTTP client."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest
from django.test import Client

from controlplane.client import cli
from controlplane.client.rest import RefusedError, RestClient, UnreachableError
from scheduling.models import Job, LogChunk, Queue
from tenants.domain.access import load_actor
from tenants.domain.tokens import create_token
from tests.factories.demo import run_task
from tests.web.api.conftest import Site

pytestmark = pytest.mark.django_db
Run = Callable[..., int]


def ask_django(request: httpx.Request) -> httpx.Response:
    """Answer by the installed application, in the test's own transaction."""
    reply = Client().generic(
        request.method,
        request.url.raw_path.decode(),
        request.read(),
        content_type=request.headers.get("Content-Type", ""),
        headers={"Authorization": request.headers["Authorization"]}
        | {
            name: request.headers[name]
            for name in ("Idempotency-Key", "If-Match")
            if name in request.headers
        },
    )
    return httpx.Response(reply.status_code, headers=dict(reply.items()), content=reply.content)


@pytest.fixture
def run(site: Site, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Return the command line, signed in as Alice."""
    now = datetime.now(UTC)
    alice = site.people.alice
    _, secret = create_token(
        actor=load_actor(alice),
        user=alice,
        name="cli",
        verbs=[],
        unit=None,
        expires_at=now + timedelta(days=1),
        now=now,
    )
    monkeypatch.setenv("TERRACE_URL", "http://testserver")
    monkeypatch.setenv("TERRACE_TOKEN", secret)
    transport = httpx.MockTransport(ask_django)

    def connect(url: str, token: str) -> RestClient:
        return RestClient(url, token, transport=transport)

    return lambda *words: cli.main(words, connect=connect)


def test_submission_by_flags(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    """Flags describe a job of one role; the words after -- are its command."""
    status = run("sub", "-N", "hello", "-q", "robots", "-r", "2", "-e", "A=b=c", "--", "echo", "-n")

    job = Job.objects.get(name="hello")
    assert (status, job.tasks.count()) == (0, 2), capsys.readouterr().err
    assert job.spec["roles"][0]["command"] == ["echo", "-n"]
    assert job.spec["roles"][0]["env"] == {"A": "b=c"}
    assert capsys.readouterr().out.splitlines()[0] == "run job hello successfully"


def test_submission_by_file(run: Run, tmp_path: Path) -> None:
    """A file is sent as it is."""
    file = tmp_path / "job.yaml"
    file.write_text("name: filed\nqueue: robots\nroles:\n- {name: worker, command: [sleep, '1']}\n")

    assert run("sub", "-f", str(file)) == 0
    assert Job.objects.filter(name="filed").count() == 1


def test_refusal_names_the_field(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit status 1, and on standard error what is wrong and where."""
    status = run("sub", "-N", "x", "-q", "nowhere", "--", "true")

    error = capsys.readouterr().err
    assert status == cli.REFUSED
    assert "queue: " in error
    assert "nowhere" in error


def test_jobs_are_listed_as_table_and_json(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    """People get columns, programs get the API's own values."""
    run("jobs")
    table = capsys.readouterr().out.splitlines()
    run("jobs", "-o", "json")
    found = json.loads(capsys.readouterr().out)

    assert table[0].split()[:3] == ["NAME", "ID", "PHASE"]
    assert [one["name"] for one in found] == ["bobs-training"]
    assert len(table) == 2


def test_cancel_takes_names(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    """A job is found by its name among those that one may see."""
    assert run("cancel", "bobs-training", "--reason", "test") == 0
    assert capsys.readouterr().out == "cancel job bobs-training successfully\n"
    assert run("cancel", "charlies-secret") == cli.USAGE


def test_queue_weight_is_changed(run: Run, site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    """`queue set` changes what is named and keeps the rest."""
    status = run("queue", "set", "robots", "--weight", "5", "--max", "gpu=4")

    queue = Queue.objects.get(id=site.robots.id)
    assert status == 0, capsys.readouterr().err
    assert (queue.weight, queue.max["nvidia.com/gpu"]) == (5, 4000)


def test_queue_is_placed_part_by_part(
    run: Run, site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    """`queue place` changes what is named, keeps the rest, and shows it without options."""
    run("queue", "place", "robots", "--required", "a100, h100", "--limit", "a100:gpu=4")
    run("queue", "place", "robots", "--deserved", "gpu=500m", "--limit", "h100:memory=4Gi")
    capsys.readouterr()

    shown = run("queue", "place", "robots")
    text = capsys.readouterr().out
    run("queue", "place", "robots", "--required", "", "--limit", "a100:gpu=", "--deserved", "gpu=")
    rest = capsys.readouterr().out

    assert shown == 0
    assert text == (
        "queue robots: runs on a100, h100; at most gpu=4 on a100; at most memory=4Gi on h100;"
        " deserves gpu=0.5\n"
    )
    assert rest == "queue robots: at most memory=4Gi on h100\n"


def test_wrong_placement_is_named(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    """What is no option's form is told at once, what is no amount by the server."""
    misused = run("queue", "place", "robots", "--limit", "gpu=4")
    refused = run("queue", "place", "robots", "--deserved", "memory=much")

    error = capsys.readouterr().err
    assert (misused, refused) == (cli.USAGE, cli.REFUSED)
    assert "gpu=4 is not GROUP:RESOURCE=AMOUNT, such as a100:gpu=4." in error
    assert 'stated_deserved.memory: "much" is not an amount of memory.' in error


def test_logs_are_written_as_they_were(
    run: Run, site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    """What a task wrote comes out, a character cut between two chunks included."""
    now = datetime.now(UTC)
    attempt = run_task(site.bobs.tasks.order_by("id")[0], site.node, site.robots, [], now)
    LogChunk.objects.filter(attempt=attempt).delete()
    text = "größe 量\n".encode()
    for start, end in ((0, 3), (3, len(text))):
        LogChunk.objects.create(
            attempt=attempt,
            stream="stdout",
            offset=start,
            size_bytes=end - start,
            data=text[start:end],
            at=now,
        )

    status = run("logs", "bobs-training")

    assert (status, capsys.readouterr().out) == (0, "größe 量\n")


@pytest.mark.parametrize(
    "words", [["queues"], ["nodes"], ["explain", "bobs-training"], ["job", "bobs-training"]]
)
def test_other_verbs_answer(words: list[str], run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    """Each verb that only reads writes something."""
    assert run(*words) == 0, capsys.readouterr().err
    assert capsys.readouterr().out


def test_without_login_the_way_out_is_said(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With neither variables nor file the command says what to do."""
    monkeypatch.delenv("TERRACE_URL", raising=False)
    monkeypatch.delenv("TERRACE_TOKEN", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))

    assert cli.main(["jobs"]) == cli.USAGE
    assert "terrace login URL" in capsys.readouterr().err


def flaky(replies: list[httpx.Response | Exception]) -> tuple[RestClient, list[httpx.Request]]:
    """Return a client whose server answers with these, in order, and what it was sent."""
    sent: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        sent.append(request)
        reply = replies[len(sent) - 1]
        if isinstance(reply, Exception):
            raise reply
        return reply

    transport = httpx.MockTransport(answer)
    return RestClient("http://t", "x", transport=transport, sleep=lambda _: None), sent


def test_lost_reply_is_asked_for_with_the_same_key() -> None:
    """A POST whose reply was lost is sent again under its key, so it is done once."""
    busy = httpx.Response(503, headers={"Retry-After": "1"}, json={})
    client, sent = flaky([httpx.ReadError("lost"), busy, httpx.Response(201, json={"id": "1"})])

    assert client.post("jobs", {}) == {"id": "1"}
    assert len({one.headers["Idempotency-Key"] for one in sent}) == 1


def test_refusal_is_not_tried_again() -> None:
    """What the server refused once it would refuse again."""
    client, sent = flaky([httpx.Response(403, json={"code": "denied", "detail": "No."})])

    with pytest.raises(RefusedError, match=r"No\."):
        client.get("jobs")
    assert len(sent) == 1


def test_foreign_server_is_recognised() -> None:
    """A page of something else is no reply of Terrace."""
    client, _ = flaky([httpx.Response(404, text="<html>")])

    with pytest.raises(UnreachableError, match="TERRACE_URL"):
        client.get("jobs")
