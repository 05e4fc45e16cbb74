"""A few drawn faults while jobs run: nothing is lost or run twice."""

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict

import pytest

from tests.process import chaos
from tests.process.running import Up, data_folder, remove

SEED = 11
FAULTS = 4


@pytest.fixture
def up() -> Iterator[Up]:
    data = data_folder()
    running = Up(data, with_agent=True)
    yield running
    if running.process.poll() is None:
        running.end()
    remove(data)


def test_seed_repeats_the_faults_and_every_victim_has_its_turn() -> None:
    """The same seed draws the same faults; a round strikes each victim once."""
    faults = chaos.drawn(SEED, 2 * len(chaos.VICTIMS))

    assert chaos.drawn(SEED, FAULTS) == faults[:FAULTS]
    assert chaos.drawn(SEED + 1, len(faults)) != faults
    assert {one.victim for one in faults[: len(chaos.VICTIMS)]} == set(chaos.VICTIMS)


def test_nothing_is_lost_or_run_twice_under_drawn_faults(
    up: Up, record_property: Callable[[str, object], None]
) -> None:
    """What was acknowledged completes, attempts do not overlap, and the invariants hold."""
    found = chaos.run(up, seed=SEED, faults=FAULTS)

    record_property("chaos", json.dumps(asdict(found)))
    assert len(found.faults) == FAULTS
    assert found.jobs > FAULTS
    assert found.is_clean(), asdict(found)
