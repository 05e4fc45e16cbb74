"""Every registered action acts through the registry: without it another plan is made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from scheduling.engine import registry
from scheduling.engine.config import DEFAULT_CONFIG
from scheduling.engine.cycle import plan
from scheduling.engine.plugins import tdm
from scheduling.engine.session import Session
from scheduling.engine.types import ActionConfig, PluginConfig
from tests.scenarios import read

FULL = "nodes n1: cpu=1\nqueue q:\njob q/old: 1 x cpu=1 running n1*1 phase=Running\n"
LENT = (
    "nodes n1: cpu=2\nqueue a:\nqueue b:\njob a/old: 2 x cpu=1 min=1 running n1*2 phase=Running\n"
)

CASES: dict[str, str] = {
    "enqueue": "nodes n1: cpu=1\nqueue q:\njob q/a: 1 x cpu=1",
    "allocate": "nodes n1: cpu=1\nqueue q:\njob q/a: 1 x cpu=1 phase=Inqueue",
    "reserve": "nodes n1: cpu=2\nqueue q:\njob q/old: 1 x cpu=1 running n1*1 phase=Running\n"
    "job q/big: 1 x cpu=2 created=0 sla=10 phase=Inqueue",
    "preempt": FULL + "job q/new: 1 x cpu=1 priority=1 phase=Inqueue",
    "gangpreempt": FULL + "job q/new: 1 x cpu=1 priority=1 phase=Inqueue",
    "reclaim": LENT + "job b/new: 1 x cpu=1 phase=Inqueue",
    "gangreclaim": LENT + "job b/new: 1 x cpu=1 phase=Inqueue",
    "elastic": "nodes n1: cpu=2\nqueue q:\njob q/a: 2 x cpu=1 min=1 running n1*1 phase=Running",
    "backfill": "nodes n1: cpu=2\nqueue q:\njob q/a: 1 x pods=0 phase=Inqueue",
    "shuffle": f"nodes n1: cpu=2 label.{tdm.ZONE}=z\nqueue q:\n"
    "job q/a: 1 x cpu=1 running n1*1 phase=Running",
}
"""A cluster on which the action alone makes the difference."""


def _nothing(session: Session, arguments: Mapping[str, str]) -> None:
    """Stand in the place of an action that is broken."""
    del session, arguments


def decided(name: str) -> tuple[object, ...]:
    """Return what a cycle of this one action decides."""
    withdrawing = (PluginConfig("tdm", {"tdm.revocable-zone.z": "0:00-0:01"}),)
    tiers = (*DEFAULT_CONFIG.tiers, *((withdrawing,) if name == "shuffle" else ()))
    config = replace(DEFAULT_CONFIG, actions=(ActionConfig(name),), tiers=tiers)
    made = plan(read(CASES[name]), config)
    return (
        {bind.task for bind in made.binds},
        {eviction.task for eviction in made.evictions},
        {one.job for one in made.reservations},
        dict(made.phases),
    )


def test_every_registered_action_has_a_case() -> None:
    """None is left out, none is too many."""
    assert set(CASES) == set(registry.ACTIONS)


@pytest.mark.parametrize("name", sorted(CASES))
def test_a_broken_action_changes_what_is_decided(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The decision is the action's own: without it another one is made."""
    whole = decided(name)
    monkeypatch.setitem(registry.ACTIONS, name, _nothing)

    assert decided(name) != whole
