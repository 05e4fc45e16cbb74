"""Random organisations: whatever a reader asks, the answer is what walking up the tree says.

The oracle (`organisations.Built`) knows parents and grants only. A check is one reader, one channel
and one thing. `make walls` asks on until 100,000 are done (TERRACE_ORACLE_CHECKS says how many); a
run of the tests asks of a few organisations, and of each a share of the channels by turns.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable

import pytest
from django.db import transaction
from django.test import Client
from hypothesis import HealthCheck, Phase, given, settings

from scheduling.domain.queries import explain
from tests.patience import be_patient
from tests.web.walls.channels import CHANNELS, posted
from tests.web.walls.organisations import (
    MOST_UNITS,
    NAMES,
    Built,
    Organisation,
    build,
    organisations,
)

CHECKS = int(os.environ.get("TERRACE_ORACLE_CHECKS", "0"))
ONLY = os.environ.get("TERRACE_WALLS_CHANNELS", "")
"""Words that begin the names of the channels to ask, separated by commas; all without it."""
EXAMPLES = 2
TOLD_EVERY = 1_000
SIZES = (8, len(NAMES)) if CHECKS else (2, MOST_UNITS)
"""Fewest and most units: a list of many is asked as quickly as one of few, and checks more."""
SHARE = 3
"""In a run of the tests every third channel is asked of an organisation."""


def chosen(turn: int) -> list[str]:
    """Return the channels of one organisation."""
    if ONLY:
        return [name for name in CHANNELS if name.startswith(tuple(ONLY.split(",")))]
    return list(CHANNELS) if CHECKS else list(CHANNELS)[turn % SHARE :: SHARE]


def ask(built: Built, channels: Iterable[str]) -> int:
    """Ask as every reader through these channels and return how many checks that were."""
    checks = 0
    wrong: list[str] = []
    for number, user in enumerate(built.readers):
        client = Client()
        client.force_login(user)
        for name in channels:
            channel = CHANNELS[name]
            told, expected = channel.ask(client, built), channel.rule(built, number)
            checks += len(built.units)
            if told != expected:
                wrong.append(f"{user.username}, {name}: told {told}, not {expected}")
    assert wrong == []
    return checks


@pytest.mark.django_db
def test_whatever_is_asked_the_tree_says_who_sees_it(capsys: pytest.CaptureFixture[str]) -> None:
    """Lists, details, counts, searches, exports, live regions and logs agree with the oracle."""
    turns = itertools.count()
    done = [0]

    def tell(text: str) -> None:
        with capsys.disabled():
            print(text, flush=True)  # noqa: T201 - what the target is run for

    @settings(
        max_examples=10**6 if CHECKS else EXAMPLES,
        deadline=None,
        phases=(Phase.explicit, Phase.reuse, Phase.generate),  # a step of shrinking takes seconds
        suppress_health_check=list(HealthCheck),
    )
    @given(organisation=organisations(*SIZES))
    def check(organisation: Organisation) -> None:
        if CHECKS and done[0] >= CHECKS:
            return
        explain.WARM.forget()
        with transaction.atomic():
            built = build(organisation)
            before = done[0] // TOLD_EVERY
            done[0] += ask(built, chosen(next(turns)))
            transaction.set_rollback(True)
        if CHECKS and done[0] // TOLD_EVERY > before:
            tell(f"{done[0]} checks")

    be_patient()
    check()

    if CHECKS:
        tell(f"{done[0]} checks of {next(turns)} organisations")
    assert done[0] >= CHECKS


@pytest.mark.django_db
@settings(
    max_examples=2,
    deadline=None,
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
    suppress_health_check=list(HealthCheck),
)
@given(organisation=organisations())
def test_webhooks_hear_of_the_units_below_theirs(organisation: Organisation) -> None:
    """A webhook is posted what happened at or below its unit, and nothing else."""
    with transaction.atomic():
        built = build(organisation)

        told = posted(built)

        assert told == [
            {unit for unit in range(len(built.units)) if number in built.chain(unit)}
            for number in range(len(built.units))
        ]
        transaction.set_rollback(True)
