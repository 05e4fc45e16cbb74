"""Lifecycle actions that wait for a policy's timeout."""

from django.db import models
from django.db.models import Q

from scheduling.models.attempt import Attempt
from scheduling.models.job import Job
from scheduling.models.task import Task


class DelayedAction(models.Model):
    """An action to take at `due_at` unless what caused it has passed by then."""

    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="delayed_actions")
    task = models.ForeignKey(Task, null=True, on_delete=models.CASCADE, related_name="+")
    attempt = models.ForeignKey(Attempt, null=True, on_delete=models.CASCADE, related_name="+")
    event = models.CharField(max_length=20)
    action = models.CharField(max_length=20)
    generation = models.PositiveIntegerField()
    due_at = models.DateTimeField()
    state = models.CharField(max_length=10, default="waiting")
    """waiting, done or dropped."""

    class Meta:
        indexes = [
            models.Index(
                fields=["due_at"],
                name="delayed_action_due",
                condition=Q(state="waiting"),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.job_id} {self.action} at {self.due_at}"
