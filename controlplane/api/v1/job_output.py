"""How jobs and what belongs to them are written: rows to plain values, amounts with their units."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from scheduling.domain.queries import forecasts
from scheduling.domain.queries.waits import Wait
from scheduling.domain.wording import sentence
from scheduling.models import History, Job, Task

HIDDEN = "***"


class ReasonOut(serializers.Serializer[Any]):
    """Why something waits or ended: a stable code, its numbers, and the sentence."""

    code = serializers.CharField()
    params = serializers.JSONField()
    message = serializers.CharField()


def reason(code: str, params: Any) -> dict[str, Any] | None:
    """Write a reason, None where there is none."""
    return {"code": code, "params": params, "message": sentence(code, params)} if code else None


class TaskCountsOut(serializers.Serializer[Any]):
    """How many tasks of a job are in which state."""

    total = serializers.IntegerField(source="tasks_total")
    pending = serializers.IntegerField(source="tasks_pending")
    starting = serializers.IntegerField(source="tasks_starting")
    running = serializers.IntegerField(source="tasks_running")
    stopping = serializers.IntegerField(source="tasks_stopping")
    succeeded = serializers.IntegerField(source="tasks_succeeded")
    failed = serializers.IntegerField(source="tasks_failed")


class JobOut(serializers.Serializer[Any]):
    """A job as lists show it."""

    id = serializers.UUIDField()
    name = serializers.CharField()
    kind = serializers.CharField()
    queue = serializers.CharField(source="queue.name")
    queue_id = serializers.UUIDField()
    owner = serializers.CharField(source="owner.username")
    phase = serializers.CharField()
    desired_state = serializers.CharField()
    reason = serializers.SerializerMethodField()
    message = serializers.CharField()
    priority = serializers.IntegerField()
    min_available = serializers.IntegerField()
    min_success = serializers.IntegerField(allow_null=True)
    max_retry = serializers.IntegerField()
    retry_count = serializers.IntegerField()
    generation = serializers.IntegerField()
    tasks = TaskCountsOut(source="*")
    cpu_milli = serializers.IntegerField()
    memory_bytes = serializers.IntegerField()
    gpu_milli = serializers.IntegerField()
    created_at = serializers.DateTimeField()
    started_at = serializers.DateTimeField(allow_null=True)
    finished_at = serializers.DateTimeField(allow_null=True)
    version = serializers.IntegerField()

    @extend_schema_field(ReasonOut(allow_null=True))
    def get_reason(self, job: Job) -> dict[str, Any] | None:
        """Write why it waits."""
        return reason(job.reason_code, job.reason_params)


class RoleOut(serializers.Serializer[Any]):
    """A role of a job."""

    name = serializers.CharField()
    replicas = serializers.IntegerField()
    min_available = serializers.IntegerField()
    request = serializers.DictField(child=serializers.IntegerField())


class BasisField(serializers.DictField):
    """What a forecast goes by, as counts; by how much it was stretched is in its times already."""

    child = serializers.IntegerField()

    def to_representation(self, value: Any) -> Any:
        """Write the counts."""
        return super().to_representation({k: v for k, v in value.items() if isinstance(v, int)})


class ForecastOut(serializers.Serializer[Any]):
    """When a waiting job starts: with even odds by p50, nine times in ten by p90."""

    made_at = serializers.DateTimeField()
    p50_at = serializers.DateTimeField(allow_null=True)
    p90_at = serializers.DateTimeField(allow_null=True)
    basis = BasisField()


class JobDetailOut(JobOut):
    """A job with its roles and spec; values of variables only for those who may see them."""

    unit_id = serializers.UUIDField()
    forecast = serializers.SerializerMethodField()
    delete_after = serializers.DateTimeField(allow_null=True)
    roles = RoleOut(many=True)
    spec = serializers.SerializerMethodField()

    @extend_schema_field(ForecastOut(allow_null=True))
    def get_forecast(self, job: Job) -> dict[str, Any] | None:
        """Write when it will start, as far as that can be told."""
        if self.context.get("is_new"):
            return None  # no cycle has seen it yet
        found = forecasts.newest(job, now=datetime.now(UTC))
        return None if found is None else dict(ForecastOut(found).data)

    @extend_schema_field(OpenApiTypes.OBJECT)
    def get_spec(self, job: Job) -> dict[str, object]:
        """Write the plain representation."""
        shown = job.spec if self.context["may_read_env"] else hidden_env(job.spec)
        assert isinstance(shown, dict)  # noqa: S101 - a spec is a map
        return shown


def hidden_env(spec: object) -> object:
    """Hide the values of variables, which may be secrets; their names stay."""
    if isinstance(spec, list):
        return [hidden_env(one) for one in spec]
    if not isinstance(spec, dict):
        return spec
    return {
        key: dict.fromkeys(value, HIDDEN)
        if key == "env" and isinstance(value, dict)
        else hidden_env(value)
        for key, value in spec.items()
        if key != "template"  # the pod template as it was given has them too
    }


class TaskOut(serializers.Serializer[Any]):
    """A task of a job."""

    role = serializers.CharField(source="role.name")
    index = serializers.IntegerField()
    state = serializers.CharField()
    attempt_number = serializers.IntegerField()
    node = serializers.SerializerMethodField()
    reason = serializers.SerializerMethodField()
    not_before = serializers.DateTimeField(allow_null=True)
    state_at = serializers.DateTimeField()

    def get_node(self, task: Task) -> str | None:
        """Name the node of its newest attempt."""
        return task.node.name if task.node else None

    @extend_schema_field(ReasonOut(allow_null=True))
    def get_reason(self, task: Task) -> dict[str, Any] | None:
        """Write why it waits."""
        return reason(task.reason_code, task.reason_params)


class AttemptOut(serializers.Serializer[Any]):
    """One execution of a task."""

    id = serializers.UUIDField()
    role = serializers.CharField(source="task.role.name")
    index = serializers.IntegerField(source="task.index")
    number = serializers.IntegerField()
    generation = serializers.IntegerField()
    node = serializers.CharField(source="node.name")
    state = serializers.CharField()
    exit_code = serializers.IntegerField(allow_null=True)
    signal = serializers.IntegerField(allow_null=True)
    is_oom = serializers.BooleanField()
    stop_reason = serializers.CharField()
    reason_code = serializers.CharField()
    message = serializers.CharField()
    bound_at = serializers.DateTimeField()
    started_at = serializers.DateTimeField(allow_null=True)
    finished_at = serializers.DateTimeField(allow_null=True)


class HistoryOut(serializers.Serializer[Any]):
    """One transition of a job, task or attempt."""

    seq = serializers.IntegerField()
    at = serializers.DateTimeField()
    subject = serializers.CharField()
    role = serializers.SerializerMethodField()
    index = serializers.SerializerMethodField()
    attempt_id = serializers.UUIDField(allow_null=True)
    event = serializers.CharField()
    from_state = serializers.CharField()
    to_state = serializers.CharField()
    reason = serializers.SerializerMethodField()
    actor = serializers.CharField(source="actor_label")

    def get_role(self, row: History) -> str | None:
        """Name the role of the task that it is about."""
        return row.task.role.name if row.task else None

    def get_index(self, row: History) -> int | None:
        """Return the index of the task that it is about."""
        return row.task.index if row.task else None

    @extend_schema_field(ReasonOut(allow_null=True))
    def get_reason(self, row: History) -> dict[str, Any] | None:
        """Write why it happened."""
        return reason(row.reason_code, row.params)


class WaitOut(serializers.Serializer[Any]):
    """Why a job waited from one time to another; without an end it waits for it still."""

    since = serializers.DateTimeField()
    until = serializers.DateTimeField(allow_null=True)
    reason = serializers.SerializerMethodField()

    @extend_schema_field(ReasonOut())
    def get_reason(self, wait: Wait) -> dict[str, Any] | None:
        """Write what it waited for."""
        return reason(wait.code, wait.params)


class FileOut(serializers.Serializer[Any]):
    """A file of a job."""

    id = serializers.UUIDField()
    purpose = serializers.CharField()
    path = serializers.CharField()
    size_bytes = serializers.IntegerField()
    sha256 = serializers.CharField()
    attempt_id = serializers.UUIDField(allow_null=True)
    created_at = serializers.DateTimeField()
