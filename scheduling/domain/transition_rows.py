"""What a transition writes: the columns of each table that it changes, and the lines that are new.

A batch makes 10,000 of the lines; plain slotted records cost a third of what models would.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from operator import attrgetter
from typing import Any
from uuid import UUID

from scheduling.domain.lifecycle_views import COUNTER_NAMES
from scheduling.lifecycle.states import AttemptState
from scheduling.models import Attempt, Job, Role, Task

SIZE_FIELDS = ("spec", "gpu_milli", "cpu_milli", "memory_bytes")
"""The large spec and what is summed from it: written only where a role was resized."""
JOB_FIELDS = (
    "desired_state",
    "quarantine_strikes",
    "phase",
    "gang_phase",
    "wish",
    "reason_code",
    "reason_params",
    "reason_at",
    "retry_count",
    "user_restarts",
    "platform_restarts",
    "generation",
    "tasks_total",
    *COUNTER_NAMES,
    "started_at",
    "finished_at",
    "delete_after",
    "history_seq",
    "version",
)
ROLE_FIELDS = ("replicas", "min_available", *COUNTER_NAMES)
TASK_FIELDS = (
    "state",
    "attempt_number",
    "node",
    "reason_code",
    "reason_params",
    "not_before",
    "state_at",
    "version",
)
ATTEMPT_FIELDS = (
    "state",
    "stop_reason",
    "evicted_for",
    "exit_code",
    "signal",
    "is_oom",
    "reason_code",
    "message",
    "address",
    "ports",
    "started_at",
    "stopping_at",
    "finished_at",
    "version",
)


attempt_values: Callable[[Attempt], tuple[Any, ...]] = attrgetter(
    *("evicted_for_id" if name == "evicted_for" else name for name in ATTEMPT_FIELDS)
)
task_values: Callable[[Task], tuple[Any, ...]] = attrgetter(
    *("node_id" if name == "node" else name for name in TASK_FIELDS)
)


@dataclass(slots=True)
class HistoryLine:
    """The columns of a history row."""

    job_id: UUID
    seq: int
    subject: str
    event: str
    from_state: str
    to_state: str
    at: datetime
    reason_code: str
    params: dict[str, Any]
    actor_label: str
    task_id: int | None
    attempt_id: UUID | None


@dataclass(slots=True)
class OutboxLine:
    """The columns of an outbox row."""

    topic: str
    key: str
    payload: Mapping[str, object]
    node: UUID | None
    created_at: datetime
    not_before: datetime
    attempts: int = 0
    last_error: str = ""
    is_dead: bool = False


@dataclass(slots=True)
class NewAttempt:
    """The columns of an attempt that is just being bound."""

    id: UUID
    task_id: int
    job_id: UUID
    node_id: UUID
    number: int
    generation: int
    epoch: int
    ports: dict[str, int]
    bound_at: datetime
    state: str = AttemptState.BOUND
    stop_reason: str = ""
    evicted_for_id: UUID | None = None
    evicted_owner_id: UUID | None = None
    exit_code: int | None = None
    signal: int | None = None
    is_oom: bool = False
    reason_code: str = ""
    message: str = ""
    address: str = ""
    started_at: datetime | None = None
    stopping_at: datetime | None = None
    finished_at: datetime | None = None
    version: int = 1


@dataclass(slots=True)
class NewHold:
    """The columns of a hold that is just being taken."""

    id: int
    attempt_id: UUID
    node_id: UUID
    queue_id: UUID
    cpu_milli: int
    memory_bytes: int
    gpu_milli: int
    extended: dict[str, int]
    cpus: list[int]
    created_at: datetime
    released_at: datetime | None = None


def column_values(row: Job | Role, fields: tuple[str, ...]) -> list[Any]:
    """Return what a row has in these columns now."""
    return [getattr(row, name) for name in fields]
