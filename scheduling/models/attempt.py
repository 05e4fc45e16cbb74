"""Attempts: executions of a task."""

import uuid

from django.conf import settings
from django.db import models
from django.db.models import Q

from scheduling.models.job import Job
from scheduling.models.node import Node
from scheduling.models.task import Task


class AttemptState(models.TextChoices):
    """Live: Bound, Starting, Running, Stopping; the others are final."""

    BOUND = "Bound"
    STARTING = "Starting"
    RUNNING = "Running"
    STOPPING = "Stopping"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    EVICTED = "Evicted"
    CANCELLED = "Cancelled"
    LOST = "Lost"


LIVE_STATES = (
    AttemptState.BOUND,
    AttemptState.STARTING,
    AttemptState.RUNNING,
    AttemptState.STOPPING,
)


class Attempt(models.Model):
    """One execution of a task; its id exists before it is dispatched and is in every report."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    task = models.ForeignKey(Task, on_delete=models.CASCADE, related_name="attempts")
    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="attempts")
    node = models.ForeignKey(Node, on_delete=models.PROTECT, related_name="attempts")
    number = models.PositiveIntegerField()
    generation = models.PositiveIntegerField()
    """The job's generation when it was bound."""
    epoch = models.PositiveBigIntegerField()
    """The scheduler's epoch when it was bound."""
    state = models.CharField(max_length=12, choices=AttemptState, default=AttemptState.BOUND)
    stop_reason = models.CharField(max_length=40, blank=True)
    """Why it is being stopped: evicted, cancelled, restart, scale_down, time_limit, drain."""
    evicted_for = models.ForeignKey(Job, null=True, on_delete=models.SET_NULL, related_name="+")
    evicted_owner = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        null=True,
        on_delete=models.PROTECT,
        related_name="+",
        db_index=False,
        editable=False,
    )
    """The job's owner, once it was evicted: a trigger notes it, since the bell asks by it."""
    exit_code = models.IntegerField(null=True, blank=True)
    signal = models.PositiveSmallIntegerField(null=True, blank=True)
    is_oom = models.BooleanField(default=False)
    reason_code = models.CharField(max_length=60, blank=True)
    message = models.CharField(max_length=1000, blank=True)
    address = models.CharField(max_length=253, blank=True)
    ports = models.JSONField(default=dict)
    bound_at = models.DateTimeField()
    started_at = models.DateTimeField(null=True, blank=True)
    stopping_at = models.DateTimeField(null=True, blank=True)
    finished_at = models.DateTimeField(null=True, blank=True)
    version = models.PositiveBigIntegerField(default=1)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["task", "number"], name="attempt_number_unique"),
            models.UniqueConstraint(
                fields=["task"],
                name="attempt_one_live",
                condition=Q(state__in=["Bound", "Starting", "Running", "Stopping"]),
            ),
        ]
        indexes = [
            models.Index(
                fields=["node"],
                name="attempt_node_live",
                condition=Q(state__in=["Bound", "Starting", "Running", "Stopping"]),
            ),
            models.Index(fields=["job", "-bound_at"], name="attempt_job"),
            models.Index(
                fields=["-finished_at"],
                name="attempt_evicted",
                condition=Q(state="Evicted"),
            ),
            models.Index(
                fields=["evicted_owner", "-finished_at", "-id"],
                name="attempt_evicted_owner",
                condition=Q(state="Evicted"),
            ),
        ]

    def __str__(self) -> str:
        return str(self.id)
