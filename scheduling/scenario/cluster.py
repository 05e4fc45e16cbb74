"""A case's nodes, network, devices, budgets and queues as the engine has them."""

from __future__ import annotations

import json
from collections.abc import Sequence

from scheduling.engine.plugins.drf import HIERARCHY, HIERARCHY_WEIGHTS
from scheduling.engine.shapes import QUEUE_AFFINITY, QUEUE_GROUP_LIMITS
from scheduling.engine.types import (
    CPU_PERCENT,
    MEASURED_AT,
    MEMORY_PERCENT,
    PODS,
    Device,
    DisruptionBudget,
    HyperNode,
    Node,
    Queue,
    QueueState,
    Shard,
    ShardMode,
    StorageClass,
    Taint,
)
from scheduling.scenario.clock import NOW
from scheduling.scenario.quantities import Data, amounts


def read_devices(data: Data, node: str) -> tuple[Device, ...]:
    """Translate the devices that a node publishes."""
    slices = [s for s in data.get("device_slices", []) if s.get("node") == node]
    names = [(name, s.get("driver", "")) for s in slices for name in s.get("devices", ())]
    return tuple(
        Device(id=name, index=i, resource="", driver=driver)
        for i, (name, driver) in enumerate(names)
    )


def read_storage_class(data: Data, ignored: Sequence[str]) -> StorageClass:
    """Translate a kind of volume; one whose provisioner is ignored makes no volumes."""
    provisioner = data.get("provisioner", "")
    return StorageClass(
        name=data["name"],
        is_provisioned=provisioner not in ("", "kubernetes.io/no-provisioner", *ignored),
        waits_for_consumer=data.get("volume_binding_mode") == "WaitForFirstConsumer",
    )


def read_shard(data: Data | None) -> Shard | None:
    """Translate the part of the nodes that belongs to the scheduler."""
    if data is None or data.get("mode") not in set(ShardMode):
        return None
    return Shard(ShardMode(data["mode"]), frozenset(data["nodes"]))


def read_hypernode(data: Data) -> HyperNode:
    """Translate a domain of the network."""
    members = data["members"]
    return HyperNode(
        name=data["name"],
        tier=int(data["tier"]),
        tier_name=data.get("tier_name", ""),
        nodes=frozenset(m["name"] for m in members if m["kind"].lower() == "node"),
        members=tuple(m["name"] for m in members if m["kind"].lower() != "node"),
    )


def read_budget(data: Data) -> DisruptionBudget:
    """Translate a disruption budget."""
    return DisruptionBudget(
        name=data["name"],
        match_labels=data.get("match_labels", {}),
        disruptions_allowed=int(data["disruptions_allowed"]),
        namespace=data["namespace"],
    )


def read_node(data: Data, load: Data | None = None, devices: tuple[Device, ...] = ()) -> Node:
    """Translate a node; one that states no slots has none."""
    return Node(
        name=data["name"],
        allocatable={PODS: 0, **amounts(data["allocatable"])},
        labels=data.get("labels", {}),
        taints=tuple(
            Taint(t["key"], t.get("value", ""), t["effect"]) for t in data.get("taints", [])
        ),
        annotations={**data.get("annotations", {}), **_usage(load)},
        devices=devices,
    )


def _usage(load: Data | None) -> dict[str, str]:
    """Translate a node's measured load."""
    if load is None or load.get("age_seconds") is None:
        return {}
    return {
        CPU_PERCENT: str(load.get("cpu_avg_percent", 0)),
        MEMORY_PERCENT: str(load.get("memory_avg_percent", 0)),
        MEASURED_AT: str(NOW - load["age_seconds"]),
    }


def read_queue(data: Data) -> Queue:
    """Translate a queue; its min is kept free, as in Volcano."""
    deserved = data.get("deserved")
    return Queue(
        name=data["name"],
        parent=data.get("parent"),
        min=amounts(data.get("guarantee")),
        max=amounts(data.get("capability")),
        weight=int(data.get("weight", 1)),
        priority=int(data.get("priority", 0)),
        lend_min=False,
        reclaimable=data.get("reclaimable", True),
        state=QueueState(data.get("state", "Open")),
        deserved=amounts(deserved) if deserved is not None else None,
        annotations=_queue_annotations(data),
    )


def _queue_annotations(data: Data) -> dict[str, str]:
    """Translate what plugins read from a queue's annotations."""
    found = {}
    place = data.get("hierarchy")
    if place and place.get("path"):
        found[HIERARCHY] = place["path"]
        found[HIERARCHY_WEIGHTS] = place.get("weights", "")
    affinity = data.get("affinity")
    if affinity:
        found[QUEUE_AFFINITY] = json.dumps(
            {kind: affinity.get(f"node_group_{kind}", {}) for kind in ("affinity", "anti_affinity")}
        )
    if "node_group_limits_raw" in data:
        found[QUEUE_GROUP_LIMITS] = data["node_group_limits_raw"]
    elif data.get("node_group_limits"):
        found[QUEUE_GROUP_LIMITS] = json.dumps(
            {group: amounts(limit) for group, limit in data["node_group_limits"].items()}
        )
    return found
