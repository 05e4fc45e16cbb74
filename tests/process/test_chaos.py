"""A few drawn faults while jobs run: nothing is lost or run twice, and pages show what is."""

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict

import pytest

from tests.process import chaos
from tests.process.struck import LINKS, Struck

SEED = 107_640
"""Its first ten faults are of all six kinds, and kill agent, loops, Redis and PostgreSQL."""

FAULTS = 10
LONGEST_SECONDS = 1.5
NODES = 2


@pytest.fixture
def struck() -> Iterator[Struck]:
    with Struck(fleet=NODES) as running:
        yield running


def test_seed_repeats_the_faults_and_every_victim_has_its_turn() -> None:
    """The same seed draws the same faults; each victim and each kind has its turn."""
    faults = chaos.drawn(SEED, 4 * len(chaos.VICTIMS))

    assert chaos.drawn(SEED, FAULTS) == faults[:FAULTS]
    assert chaos.drawn(SEED + 1, len(faults)) != faults
    assert {one.victim for one in faults[: len(chaos.VICTIMS)]} == set(chaos.VICTIMS)
    assert {one.kind for one in faults} == set(chaos.Kind)
    struck = {(one.victim, one.kind) for one in chaos.drawn(SEED, 3 * len(chaos.VICTIMS))}
    assert struck == {(victim, kind) for victim, kinds in chaos.KINDS.items() for kind in kinds}
    lasting = [one.lasts_seconds for one in faults if one.kind not in chaos.AT_ONCE]
    assert min(lasting) >= 1
    assert 10 < max(lasting) <= 30
    assert all((one.victim in LINKS) == (one.kind in chaos.KINDS["redis-link"]) for one in faults)


def test_nothing_is_lost_or_run_twice_under_drawn_faults(
    struck: Struck, record_property: Callable[[str, object], None]
) -> None:
    """What was acknowledged completes, attempts do not overlap, and the invariants hold."""
    found = chaos.run(struck, seed=SEED, faults=FAULTS, longest_seconds=LONGEST_SECONDS)

    record_property("chaos", json.dumps(asdict(found) | {"by_kind": found.by_kind()}))
    assert {one.fault.kind for one in found.faults} == set(chaos.Kind)
    killed = {one.fault.victim for one in found.faults if one.fault.kind is chaos.Kind.KILL}
    assert killed == {"agent", "loops", "postgres", "redis"}
    assert len(found.faults) == FAULTS
    assert found.jobs > FAULTS
    assert found.is_clean(), asdict(found)
