"""Short time series of clusters and queues, for the Operations and queue pages."""

from django.db import models

from scheduling.models.cluster import Cluster
from scheduling.models.queue import Queue


class ClusterSample(models.Model):
    """What a cluster could give and what was held of it at a moment."""

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="samples")
    at = models.DateTimeField()
    capacity = models.JSONField()
    """Of the nodes on which tasks may be placed."""
    allocated = models.JSONField()
    waiting = models.PositiveIntegerField()
    running = models.PositiveIntegerField()

    class Meta:
        indexes = [models.Index(fields=["cluster", "-at"], name="cluster_sample_newest")]

    def __str__(self) -> str:
        return f"{self.cluster_id} {self.at}"


class QueueSample(models.Model):
    """What a queue and all below it deserved and held from a moment on.

    Written only when it differs from the one before: a value holds until the next row.
    """

    queue = models.ForeignKey(Queue, on_delete=models.CASCADE, related_name="samples")
    at = models.DateTimeField()
    deserved = models.JSONField()
    allocated = models.JSONField()
    requested = models.JSONField()

    class Meta:
        indexes = [
            models.Index(fields=["queue", "-at"], name="queue_sample_newest"),
            models.Index(fields=["at"], name="queue_sample_at"),
        ]

    def __str__(self) -> str:
        return f"{self.queue_id} {self.at}"
