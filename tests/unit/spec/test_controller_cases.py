"""Cases of controllers are answered by the rules that the product uses, in the cases' words."""

from __future__ import annotations

from typing import Any

import pytest

from scheduling.spec.controller_cases import UnsupportedCaseError, answer_controllers_case
from tests.unit.spec.manifests import VOLCANO

NOW = "2025-01-01T10:05:00Z"
JOB = {"name": "j", "version": 0, "policies": [], "tasks": [{"name": "w", "replicas": 2}]}
FAIL = {"events": ["PodFailed"], "action": "RestartJob", "timeout_s": 5}
STATE = {"phase": "Running", "max_retry": 3, "min_available": 2, "tasks": []}
PODS = [
    {"task": "w", "name": "j-w-0", "phase": "Running"},
    {"task": "w", "name": "j-w-1", "phase": "Failed"},
]
CRON = {"name": "c", "schedule": "*/5 * * * *", "created_at": "2025-01-01T10:00:00Z"}
FLOW = {"name": "f", "steps": [{"name": "a"}, {"name": "b", "depends_on": ["a"]}]}
QUEUE = {"name": "q", "weight": 1}

CASES: list[tuple[str, dict[str, Any], dict[str, Any], dict[str, Any]]] = [
    (
        "policy",
        {"job": {**JOB, "policies": [FAIL]}},
        {"signal": {"event": "PodFailed", "task": "w"}},
        {"action": "RestartJob", "delay_s": 5},
    ),
    (
        "policy",
        {"job": JOB},
        {"signal": {"command": "AbortJob"}},
        {"action": "AbortJob", "delay_s": 0},
    ),
    (
        "policy",
        {"job": JOB},
        {"pod_change": {"kind": "deleted", "task": "w", "pod": "j-w-1"}},
        {"event": "PodEvicted"},
    ),
    (
        "policy",
        {"job": JOB},
        {
            "pod_change": {
                "kind": "deleted",
                "task": "w",
                "pod": "j-w-1",
                "marked_out_of_sync": True,
            }
        },
        {"event": "OutOfSync"},
    ),
    (
        "state",
        {"job": STATE, "counts": {}, "pods": PODS},
        {"action": "AbortJob"},
        {"phase": "Aborting", "killed": ["j-w-0"], "kept": ["j-w-1"], "version": 1},
    ),
    (
        "state",
        {"job": {**STATE, "phase": "Restarting"}, "counts": {}, "pods": PODS},
        {"action": "RestartPod", "target": {"scope": "pod", "task": "w", "pod": "j-w-1"}},
        {"killed": ["j-w-1"], "kept": ["j-w-0"], "version": 0},
    ),
    (
        "gc",
        {"job": {"phase": "Failed", "finished_at": "2025-01-01T10:00:00Z", "ttl_s": 60}},
        {"operation": "check", "now": NOW},
        {"expired": True},
    ),
    (
        "gc",
        {"job": {"phase": "Failed", "finished_at": "2025-01-01T10:00:00Z", "ttl_s": 600}},
        {"operation": "time-left", "now": NOW},
        {"left_s": 300.0},
    ),
    (
        "queue-state",
        {"handled_as": "Open", "queue": {"state": "Open"}, "gangs": 1},
        {"action": "CloseQueue"},
        {"state": "Closing"},
    ),
    (
        "queue-state",
        {"queues": [{"name": "a", "parent": "root", "state": "Open"}, {"name": "root"}]},
        {"action": "CloseQueue", "queue": "root"},
        {"state": "Open", "error": "root-protected"},
    ),
    (
        "admission-job",
        {"queues": [{"name": "default", "state": "Closed"}]},
        {"operation": "create", "manifest": VOLCANO},
        {"allowed": False, "faults": [{"field": "spec.queue", "keyword": "queue-not-open"}]},
    ),
    (
        "admission-job",
        {"old_manifest": VOLCANO},
        {"operation": "update", "manifest": VOLCANO},
        {"allowed": True},
    ),
    (
        "admission-other",
        {"queues": []},
        {"operation": "create", "gang_record": {"name": "g", "queue": "x"}},
        {"allowed": False, "faults": [{"field": "queue", "keyword": "queue-not-found"}]},
    ),
    (
        "admission-queue",
        {"config": {"max_depth": 5}, "queues": []},
        {"operation": "create", "queue": {**QUEUE, "weight": 0}},
        {"allowed": False, "faults": [{"field": "weight", "keyword": "weight-out-of-range"}]},
    ),
    (
        "mutate",
        {"kind": "Job"},
        {"operation": "create", "manifest": VOLCANO},
        {"changed": True, "allowed": True},
    ),
    (
        "mutate",
        {"kind": "Queue"},
        {"operation": "create", "queue": {"name": "q", "hierarchy": {"path": "a", "weights": "2"}}},
        {
            "changed": True,
            "queue": {
                "name": "q",
                "weight": 1,
                "reclaimable": True,
                "parent": "root",
                "hierarchy": {"path": "root/a", "weights": "1/2"},
            },
        },
    ),
    (
        "plugin",
        {
            "plugin": "mpi",
            "args": [],
            "job": {"name": "j", "tasks": [{"name": "master", "replicas": 1}]},
        },
        {"hook": "pod-create", "pod": {"task": "master", "index": 0, "containers": ["m"]}},
        {"env": {"m": {}}, "ports": {"m": []}},
    ),
    (
        "plugin",
        {"plugin": "hcclrank", "args": [], "job": {"name": "j", "tasks": []}},
        {"hook": "pod-create", "pod": {"index": 0, "container_env": [{}, {"RANK": "5"}]}},
        {"annotations": {"hccl/rankIndex": "5"}},
    ),
    (
        "plugin",
        {"plugin": "hcclrank", "variable": "RANK"},
        {"hook": "read-env", "pod": {"container_env": [{"OTHER": "5"}]}},
        {"value": ""},
    ),
    (
        "plugin",
        {
            "plugin": "env",
            "args": [],
            "job": {"name": "j", "tasks": [{"name": "w", "replicas": 1}]},
        },
        {"hook": "pod-create", "pod": {"task": "w", "index": 0, "containers": ["m"]}},
        {"env": {"m": {"VK_TASK_INDEX": "0", "VC_TASK_INDEX": "0"}}},
    ),
    (
        "podgroup",
        {"tasks": [{"name": "w", "replicas": 2, "request": {"cpu": "50m"}}], "gang_size": 2},
        {"operation": "min-resources"},
        {"min_resources": {"pods": 2, "cpu": "100m"}},
    ),
    (
        "jobflow",
        {"flow": FLOW, "templates": ["a", "b"], "jobs": [{"name": "f-a", "phase": "Completed"}]},
        {"operation": "deploy"},
        {"error": False, "created": ["f-b"]},
    ),
    (
        "cronjob",
        {"cronjob": CRON},
        {"operation": "latest-slot", "now": NOW},
        {"latest_slot": NOW, "missed": "none"},
    ),
    (
        "cronjob",
        {},
        {"operation": "create", "schedule": "@daily", "time_zone": "Asia/./Tokyo"},
        {"faults": [{"field": "time_zone", "keyword": "unknown-zone"}]},
    ),
    (
        "cronjob",
        {"cronjob": {**CRON, "schedule": "TZ=UTC 5 10 * * *", "time_zone": "Asia/Tokyo"}},
        {"operation": "sync", "now": NOW},
        {"created": 1, "recheck_in_s": 86400.0},
    ),
    (
        "cronjob",
        {"cronjob": {**CRON, "time_zone": "no zone"}},
        {"operation": "sync", "now": NOW},
        {"error": True, "created": 0},
    ),
    (
        "cronjob",
        {"cronjob": CRON, "jobs": []},
        {"operation": "sync", "now": NOW},
        {"error": False, "created": 1, "recheck_in_s": 300.0, "active": 1},
    ),
    (
        "job-ops",
        {
            "job": {"name": "j", "volumes": [{"claim": "c", "mount_path": "/c"}] * 2},
            "task": {"name": "w", "partition_size": 3},
        },
        {"operation": "build-pod", "index": -2},
        {"volume_count": 1, "mount_paths": ["/c"]},
    ),
    (
        "job-ops",
        {
            "job": {"name": "j", "tasks": [{"name": "w", "replicas": 2}]},
            "pods": PODS[:1],
            "gang_record_phase": "Inqueue",
        },
        {"operation": "sync-job"},
        {"created": ["j-w-1"], "pod_count": 2},
    ),
]


@pytest.mark.parametrize(("family", "given", "when", "then"), CASES)
def test_a_case_is_answered(
    family: str, given: dict[str, Any], when: dict[str, Any], then: dict[str, Any]
) -> None:
    """Each family once or twice; the published cases are compared by their own checker."""
    answered = answer_controllers_case(family, {"id": "x", "given": given, "when": when})

    assert {key: answered.get(key) for key in then} == then


def test_a_family_that_nobody_knows_is_unsupported() -> None:
    """It is said, not guessed."""
    with pytest.raises(UnsupportedCaseError):
        answer_controllers_case("weather", {"given": {}, "when": {}})


@pytest.mark.parametrize("family", ["job-ops", "podgroup", "jobflow", "cronjob"])
def test_a_question_that_nobody_knows_is_unsupported(family: str) -> None:
    """Also where the family is known."""
    with pytest.raises(UnsupportedCaseError):
        answer_controllers_case(family, {"given": {}, "when": {"operation": "sing"}})
