"""The default configuration, and the reader of Volcano's scheduler configuration."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import yaml

from scheduling.engine import arguments as takes
from scheduling.engine import registry
from scheduling.engine.callbacks import CALLBACKS, FLAG_OF, UNGATED
from scheduling.engine.types import ActionConfig, Config, PluginConfig

DEFAULT_CONFIG = Config(
    actions=(
        ActionConfig("enqueue"),
        ActionConfig("reserve"),
        ActionConfig("allocate", {"elastic": "false"}),
        ActionConfig("preempt"),
        ActionConfig("reclaim"),
        ActionConfig("elastic", {"takeBack": "true"}),
        ActionConfig("backfill"),
    ),
    tiers=(
        (
            PluginConfig("queue_policy"),
            PluginConfig(
                "sla",
                {"sla.overdueOnly": "true"},
                disabled=frozenset({"job_pipelined", "job_enqueued"}),
            ),
            PluginConfig("priority", {"priority.elasticForAll": "true"}),
            PluginConfig("gang", {"gang.wholeGangs": "true"}),
            PluginConfig("conformance"),
            PluginConfig("cdp"),
            PluginConfig("pdb"),
        ),
        (
            PluginConfig("fair_users"),
            PluginConfig("drf", disabled=frozenset({"preemptable", "hierarchy"})),
            PluginConfig("shares"),
            PluginConfig("predicates"),
            PluginConfig(
                "network-topology-aware", {"hypernode.binpack.normal-pod.enable": "false"}
            ),
            PluginConfig("numa-aware"),
            PluginConfig("data-locality"),
            PluginConfig("fragmentation"),
            PluginConfig("packing", {"packing.weight": "0.0001"}),
        ),
    ),
)
"""Serves a GPU cluster: shares by water-filling, gangs, elastic growth, preemption, reclaim,
and the rules that jobs, nodes and budgets state: neighbours, topology, cooldown, disruption."""

FLAGS = frozenset(FLAG_OF.get(name, name) for name in CALLBACKS if name not in UNGATED)
"""Flags that switch a plugin's callbacks."""

FLAG_BY_KEY = {
    "enableJobOrder": "job_order",
    "enableJobReady": "job_ready",
    "enableJobPipelined": "job_pipelined",
    "enableJobStarving": "job_starving",
    "enableJobEnqueued": "job_enqueued",
    "enableTaskOrder": "task_order",
    "enableQueueOrder": "queue_order",
    "enableVictimQueueOrder": "queue_order",
    "enablePreemptable": "preemptable",
    "enableReclaimable": "reclaimable",
    "enablePreemptive": "preemptive",
    "enablePredicate": "predicate",
    "enableNodeOrder": "node_order",
    "enableBestNode": "best_node",
    "enableTargetJob": "target_job",
    "enableReservedNodes": "reserved_nodes",
    "enableHierarchy": "hierarchy",
    "enableClusterOrder": "cluster_order",
    "enableSubJobReady": "sub_job_ready",
    "enableSubJobPipelined": "sub_job_pipelined",
    "enableSubJobOrder": "sub_job_order",
    "enableHyperNodeOrder": "hyper_node_order",
    "enableHyperNodeGradient": "hyper_node_gradient",
    "enableVictim": "victim",
    "enableOverused": "overused",
    "enableAllocatable": "allocatable",
}
"""Volcano's keys; its `enabled` prefix is understood for all of them too."""

DEFAULT_OFF = frozenset({"hierarchy", "cluster_order"})

OTHER_KEYS = frozenset({"name", "arguments"})

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
DEEPEST = 20


@dataclass(frozen=True, slots=True)
class ConfigProblem:
    """What is wrong with a configuration text, and where: a path such as `tiers[0].plugins[2]`."""

    path: str
    code: str
    params: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ParsedConfig:
    """The result of reading a text: a configuration, or the problems that it has."""

    config: Config | None
    problems: tuple[ConfigProblem, ...] = ()
    notes: tuple[ConfigProblem, ...] = ()
    """What is read and changes nothing: it may be a slip of the pen."""


@dataclass(slots=True)
class _Found:
    """What was noticed while a text was read."""

    problems: list[ConfigProblem] = field(default_factory=list)
    notes: list[ConfigProblem] = field(default_factory=list)

    def refuse(self, path: str, code: str, **params: object) -> None:
        self.problems.append(ConfigProblem(path, code, params))

    def note(self, path: str, code: str, **params: object) -> None:
        self.notes.append(ConfigProblem(path, code, params))


def parse_config(text: str) -> ParsedConfig:
    """Read the text of a `volcano-scheduler.conf`; every problem is named with its place."""
    try:
        _check_shape(text)
        data = yaml.load(text, Loader=_LOADER)  # noqa: S506 - one of the two safe loaders
    except yaml.MarkedYAMLError as error:
        detail = error.problem or ""
        place = _place(text, error.problem_mark)
        return ParsedConfig(None, (ConfigProblem(place, "invalid_yaml", {"detail": detail}),))
    except (yaml.YAMLError, ValueError):  # a character that YAML has not, an endless number
        detail = "it holds a character that cannot be printed, or a number of too many digits"
        return ParsedConfig(None, (ConfigProblem("", "invalid_yaml", {"detail": detail}),))
    if not isinstance(data, dict):
        return ParsedConfig(None, (ConfigProblem("", "not_a_mapping", {}),))
    found = _Found()
    for key in data:
        if key not in TOP_KEYS:
            found.refuse(str(key), "unknown_key", known=sorted(TOP_KEYS))
    arguments = _action_arguments(data.get("configurations"), found)
    actions = tuple(_actions(data.get("actions"), arguments, found))
    tiers = tuple(_tiers(data.get("tiers"), found))
    _check_pairs(tiers, found)
    if found.problems:
        return ParsedConfig(None, tuple(found.problems))
    return ParsedConfig(Config(actions=actions, tiers=tiers), notes=tuple(found.notes))


def _place(text: str, mark: yaml.Mark | None) -> str:
    """Say where something is; an end that is missed is missed at the end of the last line."""
    if mark is None:
        return ""
    lines = text.splitlines()
    if mark.line >= len(lines):
        return f"line {len(lines)}, column {len(lines[-1]) + 1}" if lines else "line 1, column 1"
    return f"line {mark.line + 1}, column {mark.column + 1}"


def _check_shape(text: str) -> None:
    """Refuse what costs more than it says, before anything is built: by events, not by recursion.

    Raises:
        yaml.YAMLError: it is no YAML, too deep, has an alias, or says a key twice.
    """
    around: list[_Collection] = []
    for event in yaml.parse(text, Loader=_LOADER):
        if isinstance(event, yaml.AliasEvent):
            raise _malformed("an alias; write out what it stands for", event)
        if isinstance(event, yaml.CollectionEndEvent):
            around.pop()
        if isinstance(event, yaml.NodeEvent) and around:
            around[-1].take(event)
        if isinstance(event, yaml.CollectionStartEvent):
            if len(around) >= DEEPEST:
                raise _malformed(f"it is nested deeper than {DEEPEST}", event)
            around.append(_Collection(is_map=isinstance(event, yaml.MappingStartEvent)))


@dataclass(slots=True)
class _Collection:
    """A list or map that is being read: how many nodes came, and its keys."""

    is_map: bool
    nodes: int = 0
    keys: set[str] = field(default_factory=set)

    def take(self, node: yaml.NodeEvent) -> None:
        """Count a node; every other one of a map is a key."""
        if self.is_map and self.nodes % 2 == 0 and isinstance(node, yaml.ScalarEvent):
            if node.value in self.keys:
                raise _malformed(f"the key {node.value[:80]} is there twice", node)
            self.keys.add(node.value)
        self.nodes += 1


def _malformed(problem: str, event: yaml.Event) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=problem, problem_mark=event.start_mark)  # type: ignore[arg-type]  # the mark of either parser


TOP_KEYS = frozenset({"actions", "tiers", "configurations", "metrics"})


def _actions(
    value: object, arguments: Mapping[str, Mapping[str, str]], found: _Found
) -> Iterator[ActionConfig]:
    if not isinstance(value, str) or not value.strip():
        found.refuse("actions", "no_actions", known=sorted(registry.ACTIONS))
        return
    for position, name in enumerate(part.strip() for part in value.split(",")):
        if _is_action(name, f"actions[{position}]", found):
            yield ActionConfig(name, arguments.get(name, {}))


def _is_action(name: str, path: str, found: _Found) -> bool:
    if name not in registry.ACTIONS:
        found.refuse(path, "unknown_action", name=name, known=sorted(registry.ACTIONS))
    return name in registry.ACTIONS


def _action_arguments(value: object, found: _Found) -> dict[str, Mapping[str, str]]:
    result: dict[str, Mapping[str, str]] = {}
    for position, item in enumerate(_list(value, "configurations", found)):
        path = f"configurations[{position}]"
        if not isinstance(item, dict) or not isinstance(item.get("name"), str):
            found.refuse(path, "no_name")
        elif _is_action(item["name"], f"{path}.name", found):
            known = takes.OF_ACTIONS[item["name"]]
            stated = item.get("arguments")
            result[item["name"]] = _arguments(stated, known, f"{path}.arguments", found)
    return result


def _tiers(value: object, found: _Found) -> Iterator[tuple[PluginConfig, ...]]:
    tiers = _list(value, "tiers", found)
    if not tiers:
        found.refuse("tiers", "no_tiers")
    for position, tier in enumerate(tiers):
        path = f"tiers[{position}]"
        if not isinstance(tier, dict):
            found.refuse(path, "not_a_mapping")
            continue
        plugins = _list(tier.get("plugins"), f"{path}.plugins", found)
        yield tuple(
            plugin
            for i, item in enumerate(plugins)
            if (plugin := _plugin(item, f"{path}.plugins[{i}]", found)) is not None
        )


def _plugin(item: object, path: str, found: _Found) -> PluginConfig | None:
    name = item.get("name") if isinstance(item, dict) else None
    if not isinstance(item, dict) or not isinstance(name, str):
        found.refuse(path, "no_name")
        return None
    if name not in registry.PLUGINS:
        _refuse_plugin(name, f"{path}.name", found)
        return None
    disabled = set(DEFAULT_OFF)
    for key, value in item.items():
        if key in OTHER_KEYS:
            continue
        flag = FLAG_BY_KEY.get(re.sub("^enabled", "enable", str(key)))
        if flag is None:
            found.refuse(f"{path}.{key}", "unknown_key", known=sorted(FLAG_BY_KEY))
        elif not isinstance(value, bool):
            found.refuse(f"{path}.{key}", "not_a_boolean", value=str(value))
        elif value:
            disabled.discard(flag)
        else:
            disabled.add(flag)
    known = takes.OF_PLUGINS.get(name, takes.OF_OTHERS)
    arguments = _arguments(item.get("arguments"), known, f"{path}.arguments", found)
    return PluginConfig(name, arguments, frozenset(disabled))


def _refuse_plugin(name: str, path: str, found: _Found) -> None:
    """Say that a plugin is not known, or why an installed one could not be loaded."""
    if name in registry.FAULTY:
        found.refuse(path, "faulty_plugin", name=name, detail=registry.FAULTY[name])
    else:
        found.refuse(path, "unknown_plugin", name=name, known=sorted(registry.PLUGINS))


def _arguments(value: object, known: takes.Arguments, path: str, found: _Found) -> dict[str, str]:
    """Read arguments as texts."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        found.refuse(path, "not_a_mapping")
        return {}
    result = {str(key): takes.as_text(item) for key, item in value.items()}
    for name, text in result.items():
        kind = takes.kind_of(name, known)
        place = f"{path}.{name}"
        if kind is None:
            found.note(place, "argument_unknown", name=name, known=sorted(known))
        elif kind is takes.IGNORED:
            found.note(place, "argument_ignored", name=name)
        elif not kind.accepts(text):
            found.refuse(place, kind.code, value=text[:MOST_SHOWN], **kind.params)
    return result


MOST_SHOWN = 200
"""Letters of a wrong value that are shown again."""


def _list(value: object, path: str, found: _Found) -> Sequence[object]:
    if value is None:
        return ()
    if not isinstance(value, list):
        found.refuse(path, "not_a_list")
        return ()
    return value


def _check_pairs(tiers: Sequence[Sequence[PluginConfig]], found: _Found) -> None:
    """Refuse plugins that contradict each other: two rules of what a queue deserves."""
    rules = [p.name for tier in tiers for p in tier if p.name in SHARE_RULES]
    if len(rules) > 1:
        found.refuse("tiers", "two_share_rules", plugins=rules)


SHARE_RULES = frozenset({"shares", "proportion", "capacity"})
