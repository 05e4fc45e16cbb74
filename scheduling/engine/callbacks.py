"""The callbacks that a plugin may define, the flags that switch them, and how they vote."""

from __future__ import annotations

from enum import Enum

from scheduling.engine.types import PluginConfig


class Vote(Enum):
    """A plugin's answer where votes are combined tier by tier."""

    REJECT = -1
    ABSTAIN = 0
    PERMIT = 1


CALLBACKS = (
    "queue_order",
    "job_order",
    "task_order",
    "victim_order",
    "job_valid",
    "job_ready",
    "job_pipelined",
    "job_starving",
    "job_overdue",
    "job_enqueueable",
    "job_enqueued",
    "job_lapsed",
    "predicate",
    "node_room",
    "node_order",
    "task_node_order",
    "task_predicate",
    "start_predicate",
    "device_filter",
    "cpu_set",
    "hyper_node_gradient",
    "hyper_node_order",
    "allocatable",
    "gang_allocatable",
    "overused",
    "preemptive",
    "preemptable",
    "reclaimable",
    "preempt_jobs",
    "reclaim_jobs",
    "preempt_queues",
    "reclaim_queues",
    "gang_evictable",
    "victims",
    "revocable",
    "on_placed",
    "on_undone",
)
"""Callbacks by name; `README.md` of this package says what each is asked."""

FLAG_OF = {
    "job_enqueueable": "job_enqueued",
    "job_lapsed": "job_enqueued",
    "gang_allocatable": "allocatable",
    "node_room": "predicate",
    "task_node_order": "node_order",
    "task_predicate": "predicate",
    "start_predicate": "predicate",
    "device_filter": "predicate",
    "cpu_set": "predicate",
    "victims": "victim",
    "revocable": "victim",
    "victim_order": "queue_order",
    "job_overdue": "job_order",
    "preempt_jobs": "preemptable",
    "reclaim_jobs": "reclaimable",
    "preempt_queues": "preemptable",
    "reclaim_queues": "reclaimable",
}
"""Callbacks that are switched by a flag of another name."""

UNGATED = frozenset({"job_valid", "gang_evictable", "on_placed", "on_undone"})
"""Callbacks that no flag switches off."""


def is_on(config: PluginConfig, flag: str) -> bool:
    """Return whether a flag of a plugin is set."""
    if flag in config.disabled:
        return False
    return config.enabled is None or flag in config.enabled
