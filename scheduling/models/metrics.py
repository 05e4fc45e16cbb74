"""What tasks measure of themselves, and what the agent measures of tasks, devices and nodes."""

from django.db import models

from scheduling.models.attempt import Attempt
from scheduling.models.job import Job
from scheduling.models.node import Node


class MetricSample(models.Model):
    """One line that a task appended to the file named by TERRACE_METRICS."""

    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="metric_samples")
    attempt = models.ForeignKey(Attempt, on_delete=models.CASCADE, related_name="+")
    line = models.PositiveIntegerField()
    at = models.DateTimeField()
    values = models.JSONField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["attempt", "line"], name="metric_line_unique"),
        ]
        indexes = [models.Index(fields=["job", "id"], name="metric_job")]

    def __str__(self) -> str:
        return f"{self.attempt_id} {self.line}"


class Usage(models.Model):
    """Measured use of a node, a device (by uuid) or an attempt; the newest is kept finest.

    None means not measured, never zero.
    """

    node = models.ForeignKey(Node, on_delete=models.CASCADE, related_name="+")
    attempt = models.ForeignKey(Attempt, null=True, on_delete=models.CASCADE, related_name="+")
    device_uuid = models.CharField(max_length=100, blank=True)
    at = models.DateTimeField()
    cpu_milli = models.IntegerField(null=True)
    memory_bytes = models.BigIntegerField(null=True)
    gpu_percent = models.FloatField(null=True)
    gpu_memory_bytes = models.BigIntegerField(null=True)
    temperature_celsius = models.FloatField(null=True)
    power_watts = models.FloatField(null=True)

    class Meta:
        indexes = [
            models.Index(fields=["node", "device_uuid", "-at"], name="usage_node"),
            models.Index(
                fields=["attempt", "-at"],
                name="usage_attempt",
                condition=models.Q(attempt__isnull=False),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.node_id} {self.at}"
