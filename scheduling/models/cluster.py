"""Clusters and the record of their scheduling cycles."""

import uuid

from django.conf import settings
from django.db import models


class Cluster(models.Model):
    """Nodes that one scheduler plans for, with its configuration."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    name = models.CharField(max_length=63, unique=True)
    scheduler_config = models.TextField(blank=True)
    """YAML like Volcano's; empty: the default. The last valid text, the one in force."""
    network_tiers = models.JSONField(default=list)
    """[{"name", "label"}], the nearest first: nodes with one value of a label lie together."""
    config_problem = models.CharField(max_length=1000, blank=True)
    created_at = models.DateTimeField()
    version = models.PositiveBigIntegerField(default=1)
    changed_xid = models.BigIntegerField(default=0, editable=False)

    def __str__(self) -> str:
        return self.name


class SchedulerConfig(models.Model):
    """One version of a cluster's scheduler configuration; the newest is in force."""

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="configs")
    number = models.PositiveIntegerField()
    text = models.TextField(blank=True)
    """Empty: the default."""
    author = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+"
    )
    reason = models.CharField(max_length=500, blank=True)
    created_at = models.DateTimeField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["cluster", "number"], name="config_number_unique"),
        ]

    def __str__(self) -> str:
        return f"{self.cluster_id} {self.number}"


class CycleRecord(models.Model):
    """What one cycle did; cycles that changed nothing are folded into the last idle row."""

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="cycles")
    number = models.PositiveBigIntegerField()
    epoch = models.PositiveBigIntegerField()
    started_at = models.DateTimeField()
    snapshot_ms = models.FloatField()
    plan_ms = models.FloatField()
    apply_ms = models.FloatField()
    binds = models.PositiveIntegerField(default=0)
    evictions = models.PositiveIntegerField(default=0)
    rejected = models.PositiveIntegerField(default=0)
    pending = models.PositiveIntegerField(default=0)
    error = models.CharField(max_length=1000, blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["cluster", "number"], name="cycle_number_unique"),
        ]

    def __str__(self) -> str:
        return f"{self.cluster_id} #{self.number}"
