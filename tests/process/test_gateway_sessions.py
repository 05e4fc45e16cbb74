"""The gateway against agents that are wrong, old, cloned or hostile."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from uuid import uuid4

import httpx
import pytest
from pytest_django import DjangoDbBlocker
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from scheduling.domain import clock, nodes
from scheduling.models import Attempt, Job, LogChunk, Node, Usage
from tenants.models import OutboxRow
from tests.process.fake_gateway import wait_for
from tests.process.gateway_process import GatewayProcess, Installed
from worker import protocol
from worker.protocol import (
    Ack,
    AttemptReport,
    CommandDone,
    Heartbeat,
    Hello,
    Launch,
    Refused,
    Report,
    UsageSample,
    Welcome,
)
from worker.protocol import (
    LogChunk as LogPiece,
)

pytestmark = pytest.mark.django_db(transaction=True)


class RawNode:
    """A node whose every frame is written by the test."""

    def __init__(
        self,
        installed: Installed,
        gateway: GatewayProcess,
        connections: ExitStack,
        name: str = "raw",
    ) -> None:
        self.gateway = gateway
        self._connections = connections
        self.node, self.credential = nodes.join(
            token=installed.join_token(), name=name, now=clock.database_now()
        )
        self.hello = Hello(
            version=protocol.VERSION,
            node=str(self.node.id),
            boot_id="boot",
            agent_version="1",
            highest_epoch=0,
            cpu_milli=4_000,
            memory_bytes=8 << 30,
        )

    def connect(self, credential: str | None = None) -> ClientConnection:
        opening = connect(
            f"ws://127.0.0.1:{self.gateway.port}/agent/session",
            additional_headers={"Authorization": f"Bearer {credential or self.credential}"},
            proxy=None,
            max_size=4 << 20,
        )
        return self._connections.enter_context(opening)

    def open(self) -> tuple[ClientConnection, Welcome]:
        connection = self.connect()
        welcome = exchange(connection, self.hello)
        assert isinstance(welcome, Welcome), welcome
        return connection, welcome


def exchange(connection: ClientConnection, message: protocol.Message | str) -> protocol.Message:
    frame = message if isinstance(message, str) else protocol.encode(message)
    connection.send(frame)
    return protocol.decode(connection.recv(timeout=10))


def is_closed(connection: ClientConnection) -> bool:
    try:
        connection.recv(timeout=10)
    except ConnectionClosed:
        return True
    return False


@pytest.fixture
def installed() -> Installed:
    return Installed()


@pytest.fixture(scope="module")
def gateway(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[GatewayProcess]:
    with django_db_blocker.unblock(), GatewayProcess() as running:
        yield running


@pytest.fixture
def connections() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def raw(installed: Installed, gateway: GatewayProcess, connections: ExitStack) -> RawNode:
    return RawNode(installed, gateway, connections)


def test_unknown_credential(raw: RawNode) -> None:
    """Without a known credential no session is opened, whatever the Hello would say."""
    with pytest.raises(InvalidStatus) as refused:
        raw.connect("trn_guess")

    assert refused.value.response.status_code == 403


def test_newer_session_wins(raw: RawNode) -> None:
    """A second session of the same node ends the first, which is told so."""
    first, old = raw.open()

    second, new = raw.open()

    answer = protocol.decode(first.recv(timeout=10))
    assert isinstance(answer, Refused)
    assert answer.code == protocol.SUPERSEDED
    assert is_closed(first)
    assert new.session_epoch == old.session_epoch + 1
    beat = exchange(second, Heartbeat(new.session, sent=5.0))
    assert isinstance(beat, Ack)
    assert beat.echo == 5.0


def test_newer_session_at_another_copy_wins(raw: RawNode) -> None:
    """The database decides: a copy that did not see the newer session ends its own all the same."""
    with GatewayProcess() as other:
        first, old = raw.open()
        raw.gateway = other
        raw.open()

        answer = exchange(first, Heartbeat(old.session))

    assert isinstance(answer, Refused)
    assert answer.code == protocol.SUPERSEDED


def test_node_given_up_opens_again(raw: RawNode) -> None:
    """A node that was silent for too long is not superseded: it may come back."""
    connection, welcome = raw.open()
    Node.objects.filter(id=raw.node.id).update(session_id="", state="NotReady")

    answer = exchange(connection, Heartbeat(welcome.session))

    assert isinstance(answer, Refused)
    assert answer.code == protocol.LAPSED


def test_version_that_is_not_spoken(raw: RawNode) -> None:
    """An agent of another time is told which versions would do."""
    answer = exchange(raw.connect(), replace(raw.hello, version=99))

    assert isinstance(answer, Refused)
    assert answer.code == "version"
    assert "speaks version 99" in answer.message


@pytest.mark.parametrize(
    ("frame", "words"),
    [
        ("nonsense", "not JSON"),
        ('{"type":"Ack","session":"s","seq":1,"lease_seconds":1}', "unexpected Ack"),
        (" " * (protocol.MAX_FRAME_BYTES + 1), "the limit is 1048576"),
    ],
    ids=["nonsense", "not an agent's", "too big"],
)
def test_frame_that_breaks_the_protocol(raw: RawNode, frame: str, words: str) -> None:
    """The session ends, and the agent's log will say why."""
    connection, _ = raw.open()

    answer = exchange(connection, frame)

    assert isinstance(answer, Refused)
    assert words in answer.message
    assert is_closed(connection)


def test_report_out_of_order(raw: RawNode) -> None:
    """Reports count up by one; a gap means that something was lost."""
    connection, welcome = raw.open()

    answer = exchange(connection, Report(welcome.session, seq=2))

    assert isinstance(answer, Refused)
    assert "seq 2 after 0" in answer.message


def test_too_many_items(raw: RawNode) -> None:
    """A report has limits per kind, beside that of the frame."""
    connection, welcome = raw.open()
    reports = [AttemptReport(attempt=str(uuid4()), state="Running", at=1.0)] * 1_001

    answer = exchange(connection, Report(welcome.session, seq=1, attempts=reports))

    assert isinstance(answer, Refused)
    assert "attempts: 1001 in one report; the limit is 1000" in answer.message


def test_attempt_of_another_node(
    installed: Installed, gateway: GatewayProcess, connections: ExitStack
) -> None:
    """A node can neither end nor write to an attempt that is not its own; its own report counts."""
    owner = RawNode(installed, gateway, connections, "owner")
    thief = RawNode(installed, gateway, connections, "thief")
    owner.open()
    connection, welcome = thief.open()
    node = Node.objects.get(id=owner.node.id)
    (attempt,) = installed.bind(installed.submit("mine", ["true"]), node)
    text = base64.b64encode(b"forged").decode()
    forged = Report(
        welcome.session,
        seq=1,
        attempts=[AttemptReport(attempt=str(attempt.id), state="Exited", at=1.0, exit_code=0)],
        logs=[LogPiece(attempt=str(attempt.id), stream="stdout", offset=0, data=text)],
        usage=[UsageSample(subject=str(attempt.id), at=1.0, cpu_milli=5)],
    )

    answer = exchange(connection, forged)

    assert isinstance(answer, Ack)
    attempt.refresh_from_db()
    assert attempt.state == "Bound"
    assert (LogChunk.objects.count(), Usage.objects.count()) == (0, 0)


def test_command_is_repeated_until_confirmed(installed: Installed, raw: RawNode) -> None:
    """A launch that was not confirmed is sent again in the next session, and then is gone."""
    connection, _ = raw.open()
    installed.bind(installed.submit("again", ["true"]), Node.objects.get())
    first = protocol.decode(connection.recv(timeout=10))
    connection.close()

    connection, _ = raw.open()
    second = protocol.decode(connection.recv(timeout=10))

    assert isinstance(first, Launch)
    assert second == first
    connection.send(protocol.encode(CommandDone(first.command_id)))
    wait_for(lambda: not OutboxRow.objects.filter(node__isnull=False).exists())


def test_foreign_command_cannot_be_confirmed(
    installed: Installed, gateway: GatewayProcess, connections: ExitStack
) -> None:
    """Only a command that was sent through a session can be confirmed through it."""
    owner = RawNode(installed, gateway, connections, "owner")
    thief = RawNode(installed, gateway, connections, "thief")
    owner.open()
    connection, welcome = thief.open()
    installed.bind(installed.submit("mine", ["true"]), Node.objects.get(id=owner.node.id))
    row = OutboxRow.objects.get(node=owner.node.id)

    connection.send(protocol.encode(CommandDone(row.id)))
    answer = exchange(connection, Heartbeat(welcome.session, sent=1.0))

    assert isinstance(answer, Ack)
    assert OutboxRow.objects.filter(id=row.id).exists()


def test_refused_launch_is_tried_elsewhere(installed: Installed, raw: RawNode) -> None:
    """A launch that the node will never carry out ends its attempt, as the platform's fault."""
    connection, _ = raw.open()
    (attempt,) = installed.bind(installed.submit("stale", ["true"]), Node.objects.get())
    command = protocol.decode(connection.recv(timeout=10))
    assert isinstance(command, Launch)

    connection.send(protocol.encode(CommandDone(command.command_id, refused="StaleEpoch")))

    ended = wait_for(lambda: Attempt.objects.filter(id=attempt.id, state="Evicted").first())
    assert (ended.reason_code, ended.message) == ("NeverStarted", "StaleEpoch")


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"nonsense", 400, "bad_request"),
        (b'{"token": 1, "name": "x"}', 400, "bad_request"),
        (b'{"token": "t", "name": "../x"}', 400, "bad_name"),
        (b'{"token": "t", "name": "x"}', 403, "join_token_unknown"),
        (b'{"token": "t", "names": []}', 400, "bad_request"),
        (b'{"token": "t", "names": "x"}', 400, "bad_request"),
        (b'{"token": "t", "names": [["x"]]}', 400, "bad_request"),
        (b'{"token": "t", "names": ["x", "../x"]}', 400, "bad_name"),
        (b'{"token": "t", "names": [%s"x"]}' % (b'"x",' * 200), 400, "bad_request"),
        (b"x" * 70_000, 413, "too_large"),
    ],
)
def test_join_with_nonsense(gateway: GatewayProcess, body: bytes, status: int, code: str) -> None:
    """A wrong join is answered with what is wrong."""
    answer = httpx.post(f"{gateway.url}/agent/join", content=body, trust_env=False)

    assert (answer.status_code, answer.json()["code"]) == (status, code)


@pytest.mark.parametrize(
    "path", ["/agent/v1/files/x", f"/agent/v1/files/{uuid4()}"], ids=["no id", "unknown"]
)
def test_file_that_is_not_for_the_node(raw: RawNode, path: str) -> None:
    """A file is served to a node that runs a task of its job, and is not there for others."""
    url = f"{raw.gateway.url}{path}"
    key = {"Authorization": f"Bearer {raw.credential}"}

    assert httpx.get(url, trust_env=False).status_code == 401
    assert httpx.get(url, headers=key, trust_env=False).status_code == 404


def test_output_for_a_foreign_attempt(installed: Installed, raw: RawNode) -> None:
    """A node cannot leave files with an attempt that is not its own."""
    url = f"{raw.gateway.url}/agent/v1/outputs/{uuid4()}?path=x"
    key = {"Authorization": f"Bearer {raw.credential}"}

    assert httpx.post(url, content=b"x", headers=key, trust_env=False).status_code == 404


def test_health(gateway: GatewayProcess) -> None:
    """Probes and figures answer."""
    assert json.loads(httpx.get(f"{gateway.url}/healthz", trust_env=False).text) == {"status": "ok"}
    assert "terrace_gateway_sessions" in httpx.get(f"{gateway.url}/metrics", trust_env=False).text


def test_poison_job_does_not_stop_others(installed: Installed, raw: RawNode) -> None:
    """A launch that cannot be put together is set aside with its error; the next one is sent."""
    connection, _ = raw.open()
    connection.close()
    node = Node.objects.get()
    poison, healthy = (installed.submit(name, ["true"]) for name in ("poison", "healthy"))
    (broken,) = installed.bind(poison, node)
    (sound,) = installed.bind(healthy, node)
    Job.objects.filter(id=poison.id).update(spec={"roles": "nonsense"})

    connection, _ = raw.open()
    command = protocol.decode(connection.recv(timeout=20))

    assert isinstance(command, Launch)
    assert command.attempt == str(sound.id)
    row = wait_for(lambda: OutboxRow.objects.filter(key=str(broken.id), last_error__gt="").first())
    assert "ValidationError" in row.last_error
