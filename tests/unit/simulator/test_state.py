"""The state between two cycles of a simulation."""

from __future__ import annotations

from scheduling.simulator.state import release
from tests.scenarios import read


def test_release_without_anything_stopping_changes_nothing() -> None:
    """A snapshot at rest has the same jobs afterwards."""
    snapshot = read("nodes n1: gpu=1\nqueue q:\njob q/a: 1 x gpu=1")

    assert release(snapshot).jobs == snapshot.jobs
