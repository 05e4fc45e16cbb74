"""Tails: what is read, from where, and what is read again."""

from __future__ import annotations

import base64
import os
from pathlib import Path

import pytest

from worker.agent.tailing import LogTail, MetricsTail, parse_line


def test_log_again_from_the_acknowledged_byte(tmp_path: Path) -> None:
    """After a broken connection reading begins where the control plane stopped knowing."""
    path = tmp_path / "stdout.log"
    path.write_bytes(b"one two")
    tail = LogTail("a", "stdout", path)
    first = tail.read()
    tail.acknowledged = 4
    path.write_bytes(b"one two three")

    tail.sent = tail.acknowledged
    again = tail.read()

    assert first is not None
    assert again is not None
    assert (first.offset, base64.b64decode(first.data)) == (0, b"one two")
    assert (again.offset, base64.b64decode(again.data)) == (4, b"two three")
    assert tail.read() is None


def test_marker_of_a_capped_log_is_a_piece_of_its_own(tmp_path: Path) -> None:
    """Readers can tell the marker from the task's own output."""
    path = tmp_path / "stdout.log"
    path.write_bytes(b"output[marker]")
    (tmp_path / "stdout.log.cut").write_text("6")
    tail = LogTail("a", "stdout", path)

    pieces = [tail.read(), tail.read()]

    assert [
        (base64.b64decode(piece.data), piece.is_dropped) for piece in pieces if piece is not None
    ] == [(b"output", False), (b"[marker]", True)]


def test_metrics_by_whole_lines(tmp_path: Path) -> None:
    """Half a line waits; a line that is no object is counted and left out."""
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b'{"loss": 1, "time": 7}\nnonsense\n{"loss": 2, "name": "x"}\n{"lo')
    tail = MetricsTail("a", path)

    points = tail.read(10)
    with path.open("ab") as stream:
        stream.write(b'ss": 3}\n')
    rest = tail.read(10)

    assert [(point.line, point.values) for point in points + rest] == [
        (0, {"loss": 1.0}),
        (2, {"loss": 2.0}),
        (3, {"loss": 3.0}),
    ]
    assert points[0].at == 7.0


def test_metrics_in_parts(tmp_path: Path) -> None:
    """No more than asked is read at once, and nothing twice."""
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b'{"x": 1}\n' * 5)
    tail = MetricsTail("a", path)

    lines = [[point.line for point in tail.read(2)] for _ in range(4)]

    assert lines == [[0, 1], [2, 3], [4], []]


@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_metrics_that_are_no_file(tmp_path: Path, kind: str) -> None:
    """A task cannot make the agent read a link's target or wait for a pipe."""
    path = tmp_path / "metrics.jsonl"
    if kind == "pipe":
        os.mkfifo(path)
    else:
        (tmp_path / "secret").write_text('{"secret": 1}\n')
        path.symlink_to(tmp_path / "secret")

    assert MetricsTail("a", path).read(10) == []


@pytest.mark.parametrize(
    ("raw", "values"),
    [
        (b'{"a": true, "b": null, "c": "1", "d": [1], "e": 2}', {"e": 2.0}),
        (b'{"a": NaN, "b": Infinity, "c": 1e999, "d": -0.5}', {"d": -0.5}),
        (b'{"%s": 1}' % (b"x" * 101), {}),
        (b'{"a": %s}' % (b"9" * 400), {}),
        (b"[" * 10_000, {}),
        (b"[1]", {}),
        (b"\xff\xfe", {}),
        (b'{"a": 1, "pad": "%s"}' % (b"x" * 17_000), {}),
    ],
)
def test_parse_line(raw: bytes, values: dict[str, float]) -> None:
    """Only finite numbers under names of bearable length are taken."""
    assert parse_line(raw) == values
