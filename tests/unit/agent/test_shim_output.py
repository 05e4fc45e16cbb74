"""Output within limits: lines are cut, the file is capped, nothing blocks."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.shim.output import CAP_MARKER, CUT_LINE, Budget, CappedStream

LINE_LIMIT = 10


def written(tmp_path: Path, pieces: list[bytes], *, limit: int = 1_000) -> bytes:
    path = tmp_path / "stdout.log"
    path.unlink(missing_ok=True)
    stream = CappedStream(str(path), Budget(limit), line_limit=LINE_LIMIT)
    for piece in pieces:
        stream.write(piece)
    stream.close()
    assert stream.problem == ""
    return path.read_bytes()


def cut(data: bytes) -> bytes:
    """Say plainly what the limit on lines means."""
    lines = data.split(b"\n")
    return b"\n".join(
        line if len(line) <= LINE_LIMIT else line[:LINE_LIMIT] + CUT_LINE % LINE_LIMIT
        for line in lines
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("output")


@given(st.lists(st.text("ab\n", max_size=40).map(str.encode), max_size=6))
def test_lines_are_cut_wherever_the_reads_fall(folder: Path, pieces: list[bytes]) -> None:
    """The result depends on the bytes, not on how they were chopped."""
    assert written(folder, pieces) == cut(b"".join(pieces))


def test_cap_leaves_a_marker_and_its_place(tmp_path: Path) -> None:
    """Exactly the limit is kept, then one marker; the offset of the marker is noted."""
    kept = written(tmp_path, [b"abc\n", b"defgh\n", b"more\n"], limit=7)

    assert kept == b"abc\ndef" + CAP_MARKER % 7
    assert (tmp_path / "stdout.log.cut").read_text() == "7"


def test_budget_is_shared(tmp_path: Path) -> None:
    """Both streams of an attempt draw on one budget."""
    budget = Budget(6)
    out = CappedStream(str(tmp_path / "out"), budget)
    err = CappedStream(str(tmp_path / "err"), budget)

    out.write(b"1234")
    err.write(b"5678")
    out.close()
    err.close()

    assert (tmp_path / "out").read_bytes() == b"1234"
    assert (tmp_path / "err").read_bytes() == b"56" + CAP_MARKER % 6


def test_full_disk_is_told_and_does_not_raise() -> None:
    """A write that fails stops the file, not the task; the problem is kept for the record."""
    stream = CappedStream("/dev/full", Budget(1_000))

    stream.write(b"x")
    stream.write(b"y")

    assert stream.problem == "output lost from here on: No space left on device"
