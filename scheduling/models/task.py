"""Tasks: the replicas of a role."""

from django.db import models
from django.db.models import Q

from scheduling.models.job import Job, Role
from scheduling.models.node import Node


class TaskState(models.TextChoices):
    """A task's state: its live attempt's, Pending without one, or how its last attempt ended."""

    PENDING = "Pending"
    BOUND = "Bound"
    STARTING = "Starting"
    RUNNING = "Running"
    STOPPING = "Stopping"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    EVICTED = "Evicted"
    CANCELLED = "Cancelled"
    LOST = "Lost"


class Task(models.Model):
    """One replica of a role, with an index; stable over retries."""

    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="tasks")
    role = models.ForeignKey(Role, on_delete=models.CASCADE, related_name="tasks")
    index = models.PositiveIntegerField()
    state = models.CharField(max_length=12, choices=TaskState, default=TaskState.PENDING)
    attempt_number = models.PositiveIntegerField(default=0)
    """Of the newest attempt; 0 before the first."""
    node = models.ForeignKey(Node, null=True, on_delete=models.SET_NULL, related_name="+")
    """Of the newest attempt."""
    reason_code = models.CharField(max_length=60, blank=True)
    reason_params = models.JSONField(default=dict)
    not_before = models.DateTimeField(null=True, blank=True)
    """A retry's back-off."""
    state_at = models.DateTimeField()
    version = models.PositiveBigIntegerField(default=1)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["role", "index"], name="task_index_unique"),
        ]
        indexes = [
            models.Index(fields=["job", "state"], name="task_job_state"),
            models.Index(
                fields=["node"],
                name="task_node_live",
                condition=Q(state__in=["Bound", "Starting", "Running", "Stopping"]),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.role_id}-{self.index}"
