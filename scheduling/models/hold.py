"""Holds: which attempt keeps which amounts and devices of which node."""

from django.db import models
from django.db.models import Q

from scheduling.models.attempt import Attempt
from scheduling.models.node import Device, Node
from scheduling.models.queue import Queue


class Hold(models.Model):
    """Amounts of a node kept by one attempt until it has certainly ended.

    Usage of a queue or node is the sum over its live holds, never a counter.
    """

    attempt = models.OneToOneField(Attempt, on_delete=models.CASCADE, related_name="hold")
    node = models.ForeignKey(Node, on_delete=models.PROTECT, related_name="holds")
    queue = models.ForeignKey(Queue, on_delete=models.PROTECT, related_name="holds")
    cpu_milli = models.BigIntegerField(default=0)
    memory_bytes = models.BigIntegerField(default=0)
    gpu_milli = models.BigIntegerField(default=0)
    extended = models.JSONField(default=dict)
    """Other resources, in thousandths; `pods` is implied: 1000 a hold."""
    cpus = models.JSONField(default=list)
    """Ids of the CPUs pinned for it."""
    created_at = models.DateTimeField()
    released_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [
            models.CheckConstraint(
                name="hold_not_negative",
                condition=Q(cpu_milli__gte=0, memory_bytes__gte=0, gpu_milli__gte=0),
            ),
        ]
        indexes = [
            models.Index(
                fields=["queue"],
                name="hold_queue_live",
                condition=Q(released_at__isnull=True),
                include=["cpu_milli", "memory_bytes", "gpu_milli"],
            ),
            models.Index(
                fields=["node"],
                name="hold_node_live",
                condition=Q(released_at__isnull=True),
                include=["cpu_milli", "memory_bytes", "gpu_milli"],
            ),
        ]

    def __str__(self) -> str:
        return f"{self.attempt_id} on {self.node_id}"


class DeviceHold(models.Model):
    """A device, or a part of one, kept by a hold; a whole one can be kept only once."""

    hold = models.ForeignKey(Hold, on_delete=models.CASCADE, related_name="devices")
    device = models.ForeignKey(Device, on_delete=models.PROTECT, related_name="holds")
    gpu_milli = models.PositiveIntegerField(default=1000)
    memory_bytes = models.BigIntegerField(default=0)
    is_whole = models.BooleanField(default=True)
    released_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["device"],
                name="device_held_whole_once",
                condition=Q(released_at__isnull=True, is_whole=True),
            ),
        ]
        indexes = [
            models.Index(
                fields=["device"],
                name="device_hold_live",
                condition=Q(released_at__isnull=True),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.hold_id} {self.device_id}"
