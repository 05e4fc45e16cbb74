"""The arguments that actions and plugins take: their names, and what a value may be.

`config.parse_config` refuses a value that its reader could not read, so that no cycle fails over
one. A name that nobody reads is only noted: a file of Volcano's, with arguments that are newer or
that mean nothing here, carries over.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from scheduling.engine.durations import parse_duration


@dataclass(frozen=True, slots=True)
class Kind:
    """What a value may be: `code` and `params` tell of one that is something else."""

    code: str
    accepts: Callable[[str], bool]
    params: Mapping[str, object] = field(default_factory=dict)


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def _is_number_from(least: float) -> Callable[[str], bool]:
    return lambda text: _is_number(text) and float(text) >= least


def _is_zone(text: str) -> bool:
    try:
        ZoneInfo(text)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return False
    return True


_TIME = r"\s*(?:(?:[01]?\d|2[0-3]):[0-5]\d|24:00)\s*"
HOURS_OF_A_DAY = re.compile(f"{_TIME}-{_TIME}")
"""Such as `22:00-06:00`."""

FLAG = Kind("not_a_boolean", lambda text: text.strip().lower() in ("true", "false"))
NUMBER = Kind("not_a_number", _is_number)
SECONDS = Kind("not_a_number_from", _is_number_from(0), {"least": 0})
DURATION = Kind("not_a_duration", lambda text: (parse_duration(text) or 0) > 0)
HOURS = Kind("not_hours", lambda text: HOURS_OF_A_DAY.fullmatch(text) is not None)
TIME_ZONE = Kind("not_a_time_zone", _is_zone)
TEXT = Kind("", lambda _: True)
IGNORED = Kind("", lambda _: True)
"""Read, so that a file of Volcano's carries over; it changes nothing here."""


def _count(least: int) -> Kind:
    def accepts(text: str) -> bool:
        return re.fullmatch(r"\d{1,9}", text) is not None and int(text) >= least

    return Kind("not_a_count", accepts, {"least": least})


def _choice(*known: str) -> Kind:
    return Kind("not_a_choice", lambda text: text in known, {"known": [k for k in known if k]})


def _form(example: str, accepts: Callable[[object], bool]) -> Kind:
    """Return a kind that is written as YAML or JSON, told by an example."""

    def reads(text: str) -> bool:
        try:
            return accepts(json.loads(text))
        except (ValueError, RecursionError):
            return False

    return Kind("argument_form", reads, {"example": example})


def _are_numbers(value: object, names: Iterable[str] | None = None) -> bool:
    return isinstance(value, dict) and all(
        (names is None or key in names)
        and isinstance(number, int | float)
        and not isinstance(number, bool)
        and math.isfinite(number)
        for key, number in value.items()
    )


def _numbers(*names: str) -> Kind:
    example = json.dumps(dict.fromkeys(names, 50))
    return _form(example, lambda value: _are_numbers(value, names))


def _are_rules(value: object) -> bool:
    """Say whether each resource has a type, and a weight where it has one."""
    return isinstance(value, dict) and all(
        isinstance(rule, dict)
        and rule.get("type") in ("MostAllocated", "LeastAllocated")
        and _are_numbers({"weight": rule.get("weight", 1)})
        for rule in value.values()
    )


def _is_scarcity(numbers: str) -> Callable[[object], bool]:
    """Say whether a map names resources, and under `numbers` has numbers only."""

    def accepts(value: object) -> bool:
        return (
            isinstance(value, dict)
            and isinstance(value.get("resources", ""), str)
            and _are_numbers(value.get(numbers, {}))
            and _are_numbers({"weight": value.get("weight", 1)})
        )

    return accepts


def _are_strategies(value: object) -> bool:
    names = ("cpu", "memory", "mem", "pods")
    return isinstance(value, list) and all(
        isinstance(one, dict)
        and isinstance(params := one.get("params", {}), dict)
        and _are_numbers(params.get("thresholds", {}), names)
        and _are_numbers(params.get("targetThresholds", {}), names)
        for one in value
    )


Arguments = Mapping[str, Kind]
"""Name -> kind; a name that ends in `*` stands for all that begin like it."""

OF_ACTIONS: Mapping[str, Arguments] = {
    "enqueue": {"lapseSeconds": SECONDS},
    "reserve": {"maxPerQueue": _count(0), "expireSeconds": SECONDS},
    "allocate": {"elastic": FLAG},
    "preempt": {
        "enableTopologyAwarePreemption": IGNORED,
        "topologyAwarePreemptWorkerNum": IGNORED,
        "minCandidateNodesPercentage": IGNORED,
        "minCandidateNodesAbsolute": IGNORED,
        "maxCandidateNodesAbsolute": IGNORED,
        "predicateErrorCacheEnable": IGNORED,
    },
    "reclaim": {},
    "elastic": {"takeBack": FLAG},
    "backfill": {},
    "gangpreempt": {"maxDomains": _count(1), "allowWholeBundle": FLAG},
    "gangreclaim": {"maxDomains": _count(1), "allowWholeBundle": FLAG},
    "shuffle": {},
}

OF_PLUGINS: Mapping[str, Arguments] = {
    "binpack": {
        "binpack.weight": NUMBER,
        "binpack.cpu": NUMBER,
        "binpack.memory": NUMBER,
        "binpack.resources": TEXT,
        "binpack.resources.*": NUMBER,
    },
    "capacity": {
        "ancestorReclaimLevel": NUMBER,
        "capacity.DynamicResourceAllocationEnable": IGNORED,
        "capacity.DRAConsumableCapacityEnable": IGNORED,
    },
    "cdp": {},
    "conformance": {},
    "data-locality": {"data-locality.weight": NUMBER, "data-locality.required": FLAG},
    "deviceshare": {
        "deviceshare.SchedulePolicy": _choice("", "binpack", "spread"),
        "deviceshare.ScheduleWeight": NUMBER,
        "deviceshare.*Enable": IGNORED,
        "deviceshare.KnownGeometries*": IGNORED,
        "deviceshare.GPUExclusiveRules": IGNORED,
    },
    "drf": {},
    "fair_users": {},
    "fragmentation": {
        "fragmentation.weight": NUMBER,
        "fragmentation.shapes": _count(1),
        "fragmentation.stranded": NUMBER,
    },
    "gang": {"gang.wholeGangs": FLAG},
    "network-topology-aware": {
        "weight": NUMBER,
        "hypernode.binpack.cpu": NUMBER,
        "hypernode.binpack.memory": NUMBER,
        "hypernode.binpack.resources": TEXT,
        "hypernode.binpack.resources.*": NUMBER,
        "hypernode.binpack.normal-pod.enable": FLAG,
        "hypernode.binpack.normal-pod.fading": NUMBER,
        "hypernode.gradient.evict.max-hypernodes": IGNORED,
    },
    "nodegroup": {"strict": FLAG, "enablePreferredOrder": FLAG},
    "nodeorder": {
        f"{score}.weight": NUMBER
        for score in (
            "leastrequested",
            "mostrequested",
            "balancedresource",
            "nodeaffinity",
            "podaffinity",
            "podtopologyspread",
            "tainttoleration",
            "imagelocality",
        )
    },
    "numa-aware": {"weight": NUMBER},
    "overcommit": {"overcommit-factor": NUMBER},
    "packing": {"packing.weight": NUMBER},
    "pdb": {},
    "predicates": {
        f"predicate.{rule}Enable": FLAG
        for rule in (
            "NodeAffinity",
            "TaintToleration",
            "PodAffinity",
            "PodTopologySpread",
            "NodePorts",
            "VolumeBinding",
            "DynamicResourceAllocation",
        )
    }
    | {
        "predicate.NodeVolumeLimitsEnable": IGNORED,
        "predicate.VolumeZoneEnable": IGNORED,
        "predicate.CacheEnable": IGNORED,
    },
    "priority": {"priority.elasticForAll": FLAG},
    "proportion": {},
    "queue_policy": {},
    "rescheduling": {
        "strategies": _form(
            '[{"name": "lowNodeUtilization",'
            ' "params": {"thresholds": {"cpu": 20}, "targetThresholds": {"cpu": 50}}}]',
            _are_strategies,
        ),
        "interval": IGNORED,
        "metricsPeriod": IGNORED,
    },
    "resource-strategy-fit": {
        "resourceStrategyFitWeight": NUMBER,
        "resources": _form('{"cpu": {"type": "MostAllocated", "weight": 1}}', _are_rules),
        "sra": _form(
            '{"enable": true, "resources": "nvidia.com/gpu", "weight": 10,'
            ' "resourceWeight": {"nvidia.com/gpu": 1}}',
            _is_scarcity("resourceWeight"),
        ),
        "proportional": _form(
            '{"enable": true, "resources": "nvidia.com/gpu",'
            ' "resourceProportion": {"nvidia.com/gpu.cpu": 4, "nvidia.com/gpu.memory": 8}}',
            _is_scarcity("resourceProportion"),
        ),
    },
    "resourcequota": {},
    "shares": {},
    "sla": {"sla-waiting-time": DURATION, "sla.overdueOnly": FLAG},
    "task-topology": {"task-topology.weight": NUMBER},
    "tdm": {
        "tdm.revocable-zone.*": HOURS,
        "tdm.time-zone": TIME_ZONE,
        "tdm.evict.period": IGNORED,
    },
    "usage": {
        "usage.weight": NUMBER,
        "cpu.weight": NUMBER,
        "memory.weight": NUMBER,
        "thresholds": _numbers("cpu", "mem"),
        "estimator": _numbers(
            "request_ratio", "burst_ratio", "risk_threshold", "risk_factor", "be_cpu", "be_mem"
        ),
        "metrics.interval": DURATION,
    },
}

OF_OTHERS: Arguments = {"*.weight": NUMBER, "*": TEXT}
"""Of installed plugins, which alone know what they take."""


def kind_of(name: str, known: Arguments) -> Kind | None:
    """Return what an argument may be; None for one that nobody reads."""
    if name in known:
        return known[name]
    for pattern, kind in known.items():
        first, star, last = pattern.partition("*")
        if star and name.startswith(first) and name.endswith(last):
            return kind
    return None


def as_text(value: object) -> str:
    """Return a value of YAML as the text that its reader takes: maps and lists as JSON."""
    if isinstance(value, bool):
        return str(value).lower()
    return json.dumps(value, default=str) if isinstance(value, dict | list) else str(value)
