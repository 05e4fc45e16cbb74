"""Output as nodes report it: kept once, kept whole, and only from the node that runs it."""

from __future__ import annotations

from datetime import timedelta
from uuid import uuid4

import pytest

from scheduling.domain import nodes, reports
from scheduling.domain.reports import LogReceived
from scheduling.models import Attempt, LogChunk, Node
from tests.people import NOW
from tests.process.gateway_process import Installed

pytestmark = pytest.mark.django_db


class RunningAttempt:
    """An attempt that is bound to a node with an open session."""

    def __init__(self) -> None:
        self.installed = Installed()
        self.node, self.session = self.make_node("machine")
        job = self.installed.submit("job", ["true"], cpu_milli=100, memory_bytes=1 << 20)
        (self.attempt,) = self.installed.bind(job, self.node)
        self.seq = 0

    def make_node(self, name: str) -> tuple[Node, str]:
        token = self.installed.join_token()
        node, _ = nodes.join(token=token, name=name, now=self.installed.now)
        facts = nodes.NodeFacts("boot", "1", cpu_milli=4000, memory_bytes=1 << 30)
        session = nodes.open_session(
            node_id=node.id, facts=facts, gateway="test", now=self.installed.now
        )
        node.refresh_from_db()
        return node, session.session_id

    def report(self, *pieces: tuple[int, bytes], stream: str = "stdout") -> None:
        self.seq += 1
        reports.record(
            node_id=self.node.id,
            session_id=self.session,
            seq=self.seq,
            now=NOW + timedelta(seconds=self.seq),
            logs=[LogReceived(self.attempt.id, stream, offset, data) for offset, data in pieces],
        )

    def stored(self, attempt: Attempt | None = None) -> list[tuple[int, bytes]]:
        rows = LogChunk.objects.filter(attempt=attempt or self.attempt).order_by("offset")
        return [(row.offset, bytes(row.data or b"")) for row in rows]


@pytest.fixture
def running() -> RunningAttempt:
    return RunningAttempt()


def test_repeated_piece_that_has_grown(running: RunningAttempt) -> None:
    """A killed agent repeats from its last acknowledged byte: no byte comes twice, none is lost."""
    running.report((0, b"one "), (4, b"two "))

    running.report((4, b"two three "), (14, b"four"))

    assert running.stored() == [(0, b"one "), (4, b"two "), (8, b"three "), (14, b"four")]


def test_piece_repeated_in_one_frame(running: RunningAttempt) -> None:
    """The same piece twice in a frame is one piece."""
    running.report((0, b"one"), (0, b"one"))

    assert running.stored() == [(0, b"one")]


def test_streams_are_apart(running: RunningAttempt) -> None:
    """The end of one stream says nothing about the other."""
    running.report((0, b"long output"))
    running.report((0, b"err"), stream="stderr")

    assert sorted(running.stored()) == [(0, b"err"), (0, b"long output")]


def test_log_of_another_nodes_attempt(running: RunningAttempt) -> None:
    """A node cannot write into the log of an attempt that is not its own."""
    mine = running.attempt
    running.node, running.session = running.make_node("other")
    running.seq = 0

    running.report((0, b"forged"))

    assert running.stored(mine) == []


def test_log_of_an_attempt_that_is_none(running: RunningAttempt) -> None:
    """An unknown attempt is left out, the rest of the frame is kept."""
    reports.record(
        node_id=running.node.id,
        session_id=running.session,
        seq=1,
        now=NOW,
        logs=[
            LogReceived(uuid4(), "stdout", 0, b"x"),
            LogReceived(running.attempt.id, "stdout", 0, b"mine"),
        ],
    )

    assert running.stored() == [(0, b"mine")]


def test_frames_of_several_nodes_at_once(running: RunningAttempt) -> None:
    """Each frame counts for its own node and session; a stale one is left out and told."""
    other, session = running.make_node("other")
    mine = [LogReceived(running.attempt.id, "stdout", 0, b"mine")]
    forged = [LogReceived(running.attempt.id, "stdout", 4, b"forged")]
    frames = [
        reports.Frame(running.node.id, running.session, 3, logs=mine),
        reports.Frame(other.id, session, 1, logs=forged),
        reports.Frame(other.id, "an older session", 7, logs=forged),
    ]

    first = reports.record_many(frames=frames, now=NOW)
    again = reports.record_many(frames=frames[:1], now=NOW)

    assert (first, again) == ([3, 1, None], [3])
    assert running.stored() == [(0, b"mine")]
    assert set(Node.objects.values_list("name", "report_seq")) == {("machine", 3), ("other", 1)}
