"""Reading Volcano's scheduler configuration."""

from __future__ import annotations

import pytest

from scheduling.engine.config import DEFAULT_CONFIG, parse_config
from scheduling.engine.cycle import plan
from scheduling.engine.types import ActionConfig
from tests.scenarios import cycle, read

HELM = """
actions: "enqueue, allocate, backfill"
tiers:
- plugins:
  - name: priority
  - name: gang
    enablePreemptable: false
  - name: conformance
- plugins:
  - name: overcommit
  - name: drf
    enablePreemptable: false
  - name: predicates
  - name: proportion
  - name: nodeorder
  - name: binpack
    arguments:
      binpack.weight: 5
configurations:
- name: enqueue
  arguments:
    some: 1
"""


def test_a_cluster_of_volcano_carries_over() -> None:
    """Actions, tiers, flags and arguments are read as Volcano reads them, and plan a cycle."""
    config = parse_config(HELM).config

    assert config is not None
    assert config.actions[0] == ActionConfig("enqueue", {"some": "1"})
    assert [p.name for p in config.tiers[0]] == [
        "priority",
        "gang",
        "conformance",
    ]
    assert "preemptable" in config.tiers[0][1].disabled
    assert config.tiers[1][5].arguments == {"binpack.weight": "5"}
    outcome = cycle("nodes n1: gpu=4 cpu=8\nqueue q:\njob q/a: 4 x gpu=1 cpu=1", config=config)
    assert outcome.bound("q/a") == 4


@pytest.mark.parametrize(
    ("text", "path", "code"),
    [
        ("actions: [", "line 1, column 11", "invalid_yaml"),
        ("- a", "", "not_a_mapping"),
        ("tiers: [{plugins: [{name: gang}]}]", "actions", "no_actions"),
        (
            "actions: allocate, dance\ntiers: [{plugins: [{name: gang}]}]",
            "actions[1]",
            "unknown_action",
        ),
        ("actions: allocate", "tiers", "no_tiers"),
        (
            "actions: allocate\ntiers: [{plugins: [{name: gong}]}]",
            "tiers[0].plugins[0].name",
            "unknown_plugin",
        ),
        (
            "actions: allocate\ntiers: [{plugins: [{name: gang, enableDance: true}]}]",
            "tiers[0].plugins[0].enableDance",
            "unknown_key",
        ),
        (
            "actions: allocate\ntiers: [{plugins: [{name: gang, enableJobReady: maybe}]}]",
            "tiers[0].plugins[0].enableJobReady",
            "not_a_boolean",
        ),
        (
            "actions: allocate\ntiers:\n- plugins:\n  - name: sla\n"  # noqa: ISC003 - long text
            + "    arguments: {sla-waiting-time: soon}",
            "tiers[0].plugins[0].arguments.sla-waiting-time",
            "not_a_duration",
        ),
        (
            "actions: allocate\ntiers: [{plugins: [{name: shares}, {name: capacity}]}]",
            "tiers",
            "two_share_rules",
        ),
        ("actions: allocate\ntier: []", "tier", "unknown_key"),
    ],
)
def test_a_mistake_is_named_with_its_place(text: str, path: str, code: str) -> None:
    """Nothing is in force, and the problem says where it is."""
    parsed = parse_config(text)

    assert parsed.config is None
    assert (path, code) in {(problem.path, problem.code) for problem in parsed.problems}


def test_unknown_plugin_stops_the_cycle() -> None:
    """A configuration made by hand with a wrong name is an error, not a silence."""
    config = parse_config(HELM.replace("name: overcommit", "name: conformance")).config
    assert config is not None
    state = read("nodes n1: gpu=1\nqueue q:")
    wrong = type(config)(actions=(ActionConfig("dance"),), tiers=DEFAULT_CONFIG.tiers)

    with pytest.raises(ValueError, match="unknown action 'dance'; known are"):
        plan(state, wrong)
