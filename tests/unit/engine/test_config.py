"""Reading Volcano's scheduler configuration."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from scheduling.engine import arguments, registry
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


def of_plugin(name: str, arguments: str) -> str:
    return f"actions: allocate\ntiers:\n- plugins:\n  - {{name: {name}, arguments: {arguments}}}\n"


@pytest.mark.parametrize(
    ("plugin", "argument", "value", "code"),
    [
        ("binpack", "binpack.resources.nvidia.com/gpu", "much", "not_a_number"),
        ("overcommit", "overcommit-factor", ".nan", "not_a_number"),
        ("gang", "gang.wholeGangs", "1", "not_a_boolean"),
        ("fragmentation", "fragmentation.shapes", "1.5", "not_a_count"),
        ("fragmentation", "fragmentation.shapes", "0", "not_a_count"),
        ("deviceshare", "deviceshare.SchedulePolicy", "pack", "not_a_choice"),
        ("tdm", "tdm.revocable-zone.night", '"22-6"', "not_hours"),
        ("tdm", "tdm.revocable-zone.night", '"22:00-24:30"', "not_hours"),
        ("tdm", "tdm.time-zone", "Moon/Crater", "not_a_time_zone"),
        ("tdm", "tdm.time-zone", "../../etc/passwd", "not_a_time_zone"),
        ("usage", "thresholds", "{cpu: hot}", "argument_form"),
        ("usage", "thresholds", "{cpus: 80}", "argument_form"),
        ("usage", "estimator", "'{'", "argument_form"),
        ("rescheduling", "strategies", "{name: lowNodeUtilization}", "argument_form"),
        ("rescheduling", "strategies", "[{params: {thresholds: {cpu: x}}}]", "argument_form"),
        ("resource-strategy-fit", "resources", "{cpu: {type: Most}}", "argument_form"),
        ("resource-strategy-fit", "sra", "{resourceWeight: {a: b}}", "argument_form"),
    ],
)
def test_a_value_that_its_plugin_cannot_read_is_refused(
    plugin: str, argument: str, value: str, code: str
) -> None:
    """Where it stands is told; otherwise each cycle would fail over it."""
    parsed = parse_config(of_plugin(plugin, f"{{{argument}: {value}}}"))

    place = f"tiers[0].plugins[0].arguments.{argument}"
    assert [(one.path, one.code) for one in parsed.problems] == [(place, code)]
    assert parsed.config is None


NESTED = """
actions: "enqueue, allocate, shuffle"
tiers:
- plugins:
  - name: gang
  - name: usage
    arguments:
      usage.weight: 5
      thresholds: {cpu: 80, mem: 70.5}
      estimator: {request_ratio: 0.5}
  - name: rescheduling
    arguments:
      interval: 5m
      strategies:
      - name: lowNodeUtilization
        params:
          thresholds: {cpu: 20, memory: 20}
          targetThresholds: {cpu: 50, memory: 50}
  - name: resource-strategy-fit
    arguments:
      resourceStrategyFitWeight: 10
      resources: {nvidia.com/*: {type: MostAllocated, weight: 2}}
      sra: {enable: true, resources: nvidia.com/gpu, resourceWeight: {nvidia.com/gpu: 1}}
"""


def test_arguments_of_maps_and_lists_reach_their_plugins() -> None:
    """Volcano's files have them as YAML: a cycle plans by them."""
    parsed = parse_config(NESTED)

    assert parsed.config is not None
    assert [one.path for one in parsed.notes] == ["tiers[0].plugins[2].arguments.interval"]
    outcome = cycle("nodes n1: gpu=4 cpu=8\nqueue q:\njob q/a: 4 x gpu=1", config=parsed.config)
    assert outcome.bound("q/a") == 4


def test_what_nobody_reads_is_noted() -> None:
    """A slip of the pen and what means nothing here: the text is good, and both are told."""
    parsed = parse_config(
        HELM.replace("binpack.weight: 5", "binpack.wieght: 5")
        + "- name: preempt\n  arguments: {enableTopologyAwarePreemption: true}\n"
    )

    assert parsed.config is not None
    assert [(one.path, one.code) for one in parsed.notes] == [
        ("configurations[0].arguments.some", "argument_unknown"),
        ("configurations[1].arguments.enableTopologyAwarePreemption", "argument_ignored"),
        ("tiers[1].plugins[5].arguments.binpack.wieght", "argument_unknown"),
    ]


def test_arguments_of_an_action_are_read_like_a_plugins() -> None:
    """A wrong value and the name of no action are refused at their places."""
    text = HELM.replace("some: 1", "lapseSeconds: -1") + "- name: dance\n  arguments: {}\n"

    found = [(one.path, one.code) for one in parse_config(text).problems]

    assert found == [
        ("configurations[0].arguments.lapseSeconds", "not_a_number_from"),
        ("configurations[1].name", "unknown_action"),
    ]


def test_every_action_and_plugin_says_what_it_takes() -> None:
    """None is left to guesses, and none outlives its action or plugin."""
    assert set(arguments.OF_ACTIONS) == set(registry.ACTIONS)
    assert set(arguments.OF_PLUGINS) == set(registry.PLUGINS)


SOURCES = Path(registry.__file__).parent


def asked_for(source: str) -> set[str]:
    """Return the arguments that a module asks for by a text of its own."""
    return {
        node.args[0].value
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and ast.unparse(node.func).endswith((".number", ".flag", "arguments.get", "._weight"))
        and isinstance(node.args[0], ast.Constant)
        and isinstance(node.args[0].value, str)
    }


@pytest.mark.parametrize("name", sorted(registry.PLUGINS))
def test_a_plugin_asks_for_no_argument_that_is_not_declared(name: str) -> None:
    """What its module reads is checked when a configuration is."""
    module = SOURCES / "plugins" / f"{registry.PLUGINS[name].__module__.rpartition('.')[2]}.py"

    asked = asked_for(module.read_text(encoding="utf-8"))

    known = arguments.OF_PLUGINS[name]
    assert {one for one in asked if arguments.kind_of(one, known) is None} == set()


def test_each_argument_is_documented() -> None:
    """The page about the engine has each name that is read."""
    page = (SOURCES.parents[1] / "docs" / "engine.md").read_text(encoding="utf-8")
    known = {
        name: kind
        for takes in (*arguments.OF_ACTIONS.values(), *arguments.OF_PLUGINS.values())
        for name, kind in takes.items()
    }
    read = {name for name, kind in known.items() if kind is not arguments.IGNORED}

    missing = {n for n in read if not any(part in page for part in (n, _short(n)))}
    assert missing == set()


def _short(name: str) -> str:
    """Return how a table writes one of several names that begin alike, or a pattern."""
    if name.endswith("*"):
        return name.removesuffix("*") + "<"
    if name.startswith("predicate."):
        return name.removeprefix("predicate.").removesuffix("Enable")
    return name.partition(".")[0] if name.endswith(".weight") else "`." + name.rpartition(".")[2]


def test_unknown_plugin_stops_the_cycle() -> None:
    """A configuration made by hand with a wrong name is an error, not a silence."""
    config = parse_config(HELM.replace("name: overcommit", "name: conformance")).config
    assert config is not None
    state = read("nodes n1: gpu=1\nqueue q:")
    wrong = type(config)(actions=(ActionConfig("dance"),), tiers=DEFAULT_CONFIG.tiers)

    with pytest.raises(ValueError, match="unknown action 'dance'; known are"):
        plan(state, wrong)
