"""The default configuration, and the reader of Volcano's scheduler configuration."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import yaml

from scheduling.engine import registry
from scheduling.engine.callbacks import CALLBACKS, FLAG_OF, UNGATED
from scheduling.engine.durations import parse_duration
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
            PluginConfig("drf", disabled=frozenset({"preemptable"})),
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

DURATIONS = frozenset({"sla-waiting-time"})


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
    problems: list[ConfigProblem] = [
        ConfigProblem(str(key), "unknown_key", {"known": sorted(TOP_KEYS)})
        for key in data
        if key not in TOP_KEYS
    ]
    arguments = _action_arguments(data.get("configurations"), problems)
    actions = tuple(_actions(data.get("actions"), arguments, problems))
    tiers = tuple(_tiers(data.get("tiers"), problems))
    _check_pairs(tiers, problems)
    if problems:
        return ParsedConfig(None, tuple(problems))
    return ParsedConfig(Config(actions=actions, tiers=tiers))


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
    value: object, arguments: Mapping[str, Mapping[str, str]], problems: list[ConfigProblem]
) -> Iterator[ActionConfig]:
    if not isinstance(value, str) or not value.strip():
        problems.append(ConfigProblem("actions", "no_actions", {"known": _known_actions()}))
        return
    for position, name in enumerate(part.strip() for part in value.split(",")):
        if name not in registry.ACTIONS:
            problems.append(
                ConfigProblem(
                    f"actions[{position}]",
                    "unknown_action",
                    {"name": name, "known": _known_actions()},
                )
            )
        else:
            yield ActionConfig(name, arguments.get(name, {}))


def _known_actions() -> list[str]:
    return sorted(registry.ACTIONS)


def _action_arguments(value: object, problems: list[ConfigProblem]) -> dict[str, Mapping[str, str]]:
    result: dict[str, Mapping[str, str]] = {}
    for position, item in enumerate(_list(value, "configurations", problems)):
        path = f"configurations[{position}]"
        if not isinstance(item, dict) or not isinstance(item.get("name"), str):
            problems.append(ConfigProblem(path, "no_name", {}))
            continue
        result[item["name"]] = _arguments(item.get("arguments"), f"{path}.arguments", problems)
    return result


def _tiers(value: object, problems: list[ConfigProblem]) -> Iterator[tuple[PluginConfig, ...]]:
    tiers = _list(value, "tiers", problems)
    if not tiers:
        problems.append(ConfigProblem("tiers", "no_tiers", {}))
    for position, tier in enumerate(tiers):
        path = f"tiers[{position}]"
        if not isinstance(tier, dict):
            problems.append(ConfigProblem(path, "not_a_mapping", {}))
            continue
        plugins = _list(tier.get("plugins"), f"{path}.plugins", problems)
        yield tuple(
            plugin
            for i, item in enumerate(plugins)
            if (plugin := _plugin(item, f"{path}.plugins[{i}]", problems)) is not None
        )


def _plugin(item: object, path: str, problems: list[ConfigProblem]) -> PluginConfig | None:
    name = item.get("name") if isinstance(item, dict) else None
    if not isinstance(item, dict) or not isinstance(name, str):
        problems.append(ConfigProblem(path, "no_name", {}))
        return None
    if name not in registry.PLUGINS:
        problems.append(_no_plugin(name, f"{path}.name"))
        return None
    disabled = set(DEFAULT_OFF)
    for key, value in item.items():
        if key in OTHER_KEYS:
            continue
        flag = FLAG_BY_KEY.get(re.sub("^enabled", "enable", str(key)))
        if flag is None:
            problems.append(
                ConfigProblem(f"{path}.{key}", "unknown_key", {"known": sorted(FLAG_BY_KEY)})
            )
        elif not isinstance(value, bool):
            problems.append(ConfigProblem(f"{path}.{key}", "not_a_boolean", {"value": str(value)}))
        elif value:
            disabled.discard(flag)
        else:
            disabled.add(flag)
    arguments = _arguments(item.get("arguments"), f"{path}.arguments", problems)
    return PluginConfig(name, arguments, frozenset(disabled))


def _no_plugin(name: str, path: str) -> ConfigProblem:
    """Say that a plugin is not known, or why an installed one could not be loaded."""
    if name in registry.FAULTY:
        detail = {"name": name, "detail": registry.FAULTY[name]}
        return ConfigProblem(path, "faulty_plugin", detail)
    return ConfigProblem(path, "unknown_plugin", {"name": name, "known": sorted(registry.PLUGINS)})


def _arguments(value: object, path: str, problems: list[ConfigProblem]) -> dict[str, str]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        problems.append(ConfigProblem(path, "not_a_mapping", {}))
        return {}
    result: dict[str, str] = {}
    for key, item in value.items():
        text = str(item).lower() if isinstance(item, bool) else str(item)
        result[str(key)] = text
        if str(key) in DURATIONS and not (parse_duration(text) or 0) > 0:
            problems.append(ConfigProblem(f"{path}.{key}", "not_a_duration", {"value": text}))
        if str(key).endswith(".weight") and not re.fullmatch(r"-?\d+(\.\d+)?", text):
            problems.append(ConfigProblem(f"{path}.{key}", "not_a_number", {"value": text}))
    return result


def _list(value: object, path: str, problems: list[ConfigProblem]) -> Sequence[object]:
    if value is None:
        return ()
    if not isinstance(value, list):
        problems.append(ConfigProblem(path, "not_a_list", {}))
        return ()
    return value


def _check_pairs(tiers: Sequence[Sequence[PluginConfig]], problems: list[ConfigProblem]) -> None:
    """Refuse plugins that contradict each other: two rules of what a queue deserves."""
    rules = [p.name for tier in tiers for p in tier if p.name in SHARE_RULES]
    if len(rules) > 1:
        problems.append(ConfigProblem("tiers", "two_share_rules", {"plugins": rules}))


SHARE_RULES = frozenset({"shares", "proportion", "capacity"})
