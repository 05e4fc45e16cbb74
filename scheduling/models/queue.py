"""Queues, their closure table and what the scheduler last computed for each."""

import uuid

from django.core.validators import MinValueValidator
from django.db import models

from scheduling.models.cluster import Cluster
from tenants.models import OrgUnit
from tenants.models.scoped import ScopedQuerySet


class QueueState(models.TextChoices):
    """Whether a queue takes new jobs."""

    OPEN = "Open"
    CLOSING = "Closing"
    CLOSED = "Closed"
    UNKNOWN = "Unknown"


class QueuePolicy(models.TextChoices):
    """In which order a queue serves its jobs."""

    PRIORITY = "priority"
    FIFO = "fifo"
    FAIR = "fair"
    SLA = "sla"


class Queue(models.Model):
    """An org unit's share of one cluster.

    `min` and `max` map a resource to an amount (milli-CPU, bytes, thousandths of anything else);
    a resource missing in `max` has no wall of its own here. Volcano: guarantee, capability.
    The root of a cluster's tree has neither parent nor unit.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    cluster = models.ForeignKey(Cluster, on_delete=models.PROTECT, related_name="queues")
    unit = models.ForeignKey(OrgUnit, null=True, on_delete=models.PROTECT, related_name="queues")
    parent = models.ForeignKey(
        "self", null=True, blank=True, on_delete=models.PROTECT, related_name="children"
    )
    name = models.CharField(max_length=253)
    """Unique in the cluster: what a manifest calls it."""
    min = models.JSONField(default=dict)
    max = models.JSONField(default=dict)
    weight = models.PositiveIntegerField(default=1, validators=[MinValueValidator(1)])
    priority = models.PositiveIntegerField(default=0)
    lend_min = models.BooleanField(default=True)
    reclaimable = models.BooleanField(default=True)
    policy = models.CharField(max_length=16, choices=QueuePolicy, default=QueuePolicy.PRIORITY)
    deserved = models.JSONField(null=True, blank=True)
    """Stated only by an imported manifest; None: computed by the scheduler."""
    state = models.CharField(max_length=16, choices=QueueState, default=QueueState.OPEN)
    is_closed_by_parent = models.BooleanField(default=False)
    are_logs_shared = models.BooleanField(default=False)
    """Whether others than the owner who see a job may read its logs."""
    annotations = models.JSONField(default=dict)
    created_at = models.DateTimeField()
    version = models.PositiveBigIntegerField(default=1)
    changed_xid = models.BigIntegerField(default=0, editable=False)

    objects = ScopedQuerySet.as_manager()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["cluster", "name"], name="queue_name_unique"),
            models.UniqueConstraint(fields=["cluster", "unit"], name="queue_unit_unique"),
            models.UniqueConstraint(
                fields=["cluster"],
                name="queue_one_root",
                condition=models.Q(parent__isnull=True),
            ),
            models.CheckConstraint(
                name="queue_weight_range",
                condition=models.Q(weight__gte=1, weight__lte=65535),
            ),
            models.CheckConstraint(
                name="queue_root_has_no_unit",
                condition=models.Q(parent__isnull=True, unit__isnull=True)
                | models.Q(parent__isnull=False, unit__isnull=False),
            ),
        ]

    def __str__(self) -> str:
        return self.name


class QueueClosure(models.Model):
    """One row for each (ancestor, descendant) pair, the pair of a queue with itself included."""

    ancestor = models.ForeignKey(Queue, on_delete=models.CASCADE, related_name="descendant_links")
    descendant = models.ForeignKey(Queue, on_delete=models.CASCADE, related_name="ancestor_links")
    depth = models.PositiveSmallIntegerField()

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["ancestor", "descendant"], name="queue_closure_pair_unique"
            ),
        ]
        indexes = [models.Index(fields=["descendant", "depth"], name="queue_closure_up")]

    def __str__(self) -> str:
        return f"{self.ancestor_id} > {self.descendant_id} ({self.depth})"


class QueueShare(models.Model):
    """What the last cycle computed for a queue (subtree sums); for pages and metrics only."""

    queue = models.OneToOneField(Queue, primary_key=True, on_delete=models.CASCADE)
    deserved = models.JSONField(default=dict)
    allocated = models.JSONField(default=dict)
    requested = models.JSONField(default=dict)
    updated_at = models.DateTimeField()

    def __str__(self) -> str:
        return str(self.queue_id)
