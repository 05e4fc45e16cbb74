"""A case as a snapshot and a configuration."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from scheduling.engine import registry
from scheduling.engine.types import (
    ActionConfig,
    Config,
    DeviceClass,
    PluginConfig,
    Queue,
    Quota,
    Snapshot,
    Volume,
    VolumeClaim,
)
from scheduling.scenario.clock import read_clock
from scheduling.scenario.cluster import (
    read_budget,
    read_devices,
    read_hypernode,
    read_node,
    read_queue,
    read_shard,
    read_storage_class,
)
from scheduling.scenario.jobs import label_keys, read_job, read_lonely, with_claims
from scheduling.scenario.quantities import Data, UnsupportedCaseError, amount, amounts
from scheduling.scenario.stand_ins import KNOWN


@dataclass(frozen=True, slots=True)
class Case:
    """A case with what was translated of it."""

    data: Data
    snapshot: Snapshot
    config: Config


def read_case(data: Data, *, groups: Sequence[str] | None = None) -> Case:
    """Translate the state and the configuration of a case, of all groups or of some."""
    priorities = {c["name"]: int(c.get("value", 0)) for c in data.get("priority_classes", [])}
    queues = [read_queue(q) for q in data["queues"]]
    names = {q.name for q in queues}
    jobs = []
    keys = label_keys(data)
    pods = with_claims(data)
    lost = [p for p in pods if p["phase"] == "Unknown"]
    pods = [p for p in pods if p["phase"] != "Unknown"]
    for group in data["podgroups"]:
        key = f"{group['namespace']}/{group['name']}"
        if groups is None or key in groups:
            jobs.append(read_job(group, pods, priorities, keys))
            if not group["queue"] and "" not in names:
                queues.append(Queue(""))
                names.add("")
    known = {(g["namespace"], g["name"]) for g in data["podgroups"]}
    alone = [p for p in pods if (p["namespace"], p["podgroup"]) not in known]
    if alone and groups is None:
        jobs.extend(read_lonely(pod, keys) for pod in alone)
        if "" not in names:
            queues.append(Queue(""))
            names.add("")
    here = [p for p in lost if p.get("node")]
    jobs.extend(read_lonely({**p, "phase": "Running", "preemptable": False}, keys) for p in here)
    if here and "" not in names:
        queues.append(Queue(""))
    return Case(
        data=data,
        snapshot=Snapshot(
            now=read_clock(data.get("clock")),
            nodes=tuple(
                read_node(
                    n, data.get("node_usage", {}).get(n["name"]), read_devices(data, n["name"])
                )
                for n in data["nodes"]
            ),
            queues=tuple(queues),
            jobs=tuple(jobs),
            shard=read_shard(data.get("sharding")),
            quotas=tuple(
                Quota(q["name"], q["namespace"], amounts(q.get("hard")), amounts(q.get("used")))
                for q in data.get("resource_quotas", [])
            ),
            hypernodes=tuple(read_hypernode(h) for h in data.get("hypernodes", [])),
            disruption_budgets=tuple(read_budget(b) for b in data.get("disruption_budgets", [])),
            device_classes=tuple(
                DeviceClass(c["name"], tuple(c.get("selectors", ())))
                for c in data.get("device_classes", [])
            ),
            storage_classes=tuple(
                read_storage_class(c, data.get("ignored_provisioners", ()))
                for c in data.get("storage_classes", [])
            ),
            volumes=tuple(
                Volume(
                    name=v["name"],
                    storage_class=v.get("storage_class", ""),
                    size_bytes=amount("memory", v.get("capacity", {}).get("storage", "0")),
                    is_available=v.get("phase", "Available") == "Available",
                )
                for v in data.get("persistent_volumes", [])
            ),
            volume_claims=tuple(
                VolumeClaim(
                    key=f"{c['namespace']}/{c['name']}",
                    storage_class=c.get("storage_class", ""),
                    size_bytes=amount("memory", c.get("request", {}).get("storage", "0")),
                )
                for c in data.get("volume_claims", [])
            ),
        ),
        config=read_config(data, data.get("actions", [])),
    )


def read_config(data: Data, actions: Sequence[str], *, has_enqueue: bool | None = None) -> Config:
    """Translate tiers and actions; admission may be configured though it does not run."""
    for name in actions:
        if name not in registry.ACTIONS:
            raise UnsupportedCaseError(f"action {name}")
    arguments = data.get("action_arguments", {})
    tiers = []
    for tier in data["tiers"]:
        plugins = []
        for plugin in tier:
            if plugin["name"] not in KNOWN:
                raise UnsupportedCaseError(f"plugin {plugin['name']}")
            plugins.append(
                PluginConfig(
                    plugin["name"],
                    {k: _text(v) for k, v in plugin.get("arguments", {}).items()},
                    frozenset(plugin.get("disabled", [])),
                    frozenset(plugin.get("enabled", [])),
                )
            )
        tiers.append(tuple(plugins))
    configured = ["enqueue", *actions] if has_enqueue and "enqueue" not in actions else actions
    return Config(
        actions=tuple(
            ActionConfig(n, {k: _text(v) for k, v in arguments.get(n, {}).items()})
            for n in configured
        ),
        tiers=tuple(tiers),
    )


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)
