"""The names of what can happen (events) and of what answers it (lifecycle actions)."""

from __future__ import annotations

from enum import StrEnum


class PolicyEvent(StrEnum):
    """What a policy can react to, with Volcano's strings; the last three are internal."""

    ANY = "*"
    POD_PENDING = "PodPending"
    POD_FAILED = "PodFailed"
    POD_EVICTED = "PodEvicted"
    UNKNOWN = "Unknown"
    TASK_COMPLETED = "TaskCompleted"
    TASK_FAILED = "TaskFailed"
    JOB_UPDATED = "JobUpdated"
    POD_RUNNING = "PodRunning"
    OUT_OF_SYNC = "OutOfSync"
    COMMAND_ISSUED = "CommandIssued"


INTERNAL_EVENTS = frozenset(
    {PolicyEvent.POD_RUNNING, PolicyEvent.OUT_OF_SYNC, PolicyEvent.COMMAND_ISSUED}
)
"""Events that no policy may name and that always lead to a plain sync."""

POLICY_EVENTS = tuple(event for event in PolicyEvent if event not in INTERNAL_EVENTS)
"""Events that a policy may name, in the order in which pages list them."""


class LifecycleAction(StrEnum):
    """What the lifecycle does in answer to an event, with Volcano's strings."""

    SYNC_JOB = "SyncJob"
    ABORT_JOB = "AbortJob"
    RESTART_JOB = "RestartJob"
    RESTART_TASK = "RestartTask"
    RESTART_POD = "RestartPod"
    RESTART_PARTITION = "RestartPartition"
    TERMINATE_JOB = "TerminateJob"
    COMPLETE_JOB = "CompleteJob"
    RESUME_JOB = "ResumeJob"


POLICY_ACTIONS = tuple(a for a in LifecycleAction if a is not LifecycleAction.SYNC_JOB)
"""Actions that a policy may name."""

TARGETED_ACTIONS = frozenset(
    {
        LifecycleAction.RESTART_TASK,
        LifecycleAction.RESTART_POD,
        LifecycleAction.RESTART_PARTITION,
    }
)
"""Actions that touch only a part of a job: a role, a task or a partition."""
