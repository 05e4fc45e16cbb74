"""Cases about the admission of queues."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from scheduling.spec.controller_cases.words import faults, verdict
from scheduling.spec.problems import Problem
from scheduling.spec.quantities import read_quantity
from scheduling.spec.queue_admission import (
    AdmissionConfig,
    QueueRecord,
    check_create,
    check_delete,
    check_update,
)


def answer(case: Mapping[str, Any]) -> dict[str, Any]:
    """Judge one change of one queue."""
    given, when = case["given"], case["when"]
    stored = [_record(queue) for queue in given["queues"]]
    config = AdmissionConfig(
        max_depth=given["config"]["max_depth"],
        blocks_delete_with_pods=bool(given["config"].get("block_delete_with_allocated_pods")),
        protects_root=bool(given["config"].get("protect_root")),
    )
    match when["operation"]:
        case "create":
            problems = check_create(_record(when["queue"]), stored, config)
        case "update":
            old, new = _record(when["old_queue"]), _record(when["queue"])
            problems = check_update(old, new, stored, config)
        case "delete":
            problems = check_delete(when["name"], stored, config)
        case _:
            problems = [Problem("operation", "unsupported_operation")]
    depth = {"queue_depth": "too_deep"}
    renamed = [Problem(one.path, depth.get(one.code, one.code), one.params) for one in problems]
    return verdict(faults(renamed))


def _record(queue: Mapping[str, Any]) -> QueueRecord:
    hierarchy = queue.get("hierarchy") or {}
    return QueueRecord(
        name=queue["name"],
        parent=queue.get("parent") or "",
        weight=queue.get("weight"),
        min=_amounts(queue.get("min")),
        deserved=_amounts(queue["deserved"]) if queue.get("deserved") is not None else None,
        max=_amounts(queue.get("max")),
        state=queue.get("state") or "",
        allocated_pods=queue.get("allocated_pods", 0),
        hierarchy_path=hierarchy.get("path"),
        hierarchy_weights=hierarchy.get("weights", ""),
        dequeue_strategy=queue.get("dequeue_strategy") or "",
    )


def _amounts(amounts: Mapping[str, Any] | None) -> dict[str, Decimal]:
    return {name: read_quantity(value) or Decimal(0) for name, value in (amounts or {}).items()}
