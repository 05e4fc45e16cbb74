"""The states of attempts, tasks, jobs and queues, with Volcano's strings where it has them."""

from __future__ import annotations

from enum import StrEnum


class AttemptState(StrEnum):
    """How far one execution of a task has got; the last five are final."""

    BOUND = "Bound"
    STARTING = "Starting"
    RUNNING = "Running"
    STOPPING = "Stopping"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    EVICTED = "Evicted"
    CANCELLED = "Cancelled"
    LOST = "Lost"


LIVE_ATTEMPT_STATES = frozenset(
    {AttemptState.BOUND, AttemptState.STARTING, AttemptState.RUNNING, AttemptState.STOPPING}
)
FINAL_ATTEMPT_STATES = frozenset(AttemptState) - LIVE_ATTEMPT_STATES


class TaskState(StrEnum):
    """Where a task stands: waiting, as its live attempt, or ended."""

    PENDING = "Pending"
    BOUND = "Bound"
    STARTING = "Starting"
    RUNNING = "Running"
    STOPPING = "Stopping"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    CANCELLED = "Cancelled"
    """No attempt is wanted any more: the job is over, or the task was scaled away."""


ENDED_TASK_STATES = frozenset({TaskState.SUCCEEDED, TaskState.FAILED, TaskState.CANCELLED})


class JobPhase(StrEnum):
    """Volcano's ten phases of a job; what waits is Pending with a reason."""

    PENDING = "Pending"
    ABORTING = "Aborting"
    ABORTED = "Aborted"
    RUNNING = "Running"
    RESTARTING = "Restarting"
    COMPLETING = "Completing"
    COMPLETED = "Completed"
    TERMINATING = "Terminating"
    TERMINATED = "Terminated"
    FAILED = "Failed"


FINISHED_PHASES = frozenset({JobPhase.COMPLETED, JobPhase.FAILED, JobPhase.TERMINATED})
"""Final; Aborted is parked, not finished."""
SCHEDULABLE_PHASES = frozenset({JobPhase.PENDING, JobPhase.RUNNING, JobPhase.RESTARTING})
"""Phases in which pending tasks of a job are placed."""


class QueueState(StrEnum):
    """Whether a queue takes new work; Closing is closed with jobs left."""

    OPEN = "Open"
    CLOSING = "Closing"
    CLOSED = "Closed"
    UNKNOWN = "Unknown"


class StopReason(StrEnum):
    """Why a live attempt is being stopped; it decides in which final state it ends."""

    USER = "user"
    POLICY = "policy"
    RESTART = "restart"
    JOB_ENDED = "job_ended"
    SCALE_DOWN = "scale_down"
    TIME_LIMIT = "time_limit"
    PREEMPTED = "preempted"
    RECLAIMED = "reclaimed"
    DRAINED = "drained"


EVICTING_REASONS = frozenset({StopReason.PREEMPTED, StopReason.RECLAIMED, StopReason.DRAINED})
"""Reasons that take the task's place away: the attempt ends Evicted, others end Cancelled."""
