"""Nodes, their devices, how they join, and which runtime serves which image."""

import uuid

from django.db import models

from scheduling.models.cluster import Cluster
from tenants.models import OrgUnit


class NodeState(models.TextChoices):
    """Whether a node's agent (or kubelet) is heard of."""

    JOINING = "Joining"
    READY = "Ready"
    NOT_READY = "NotReady"
    REMOVED = "Removed"


class NodeKind(models.TextChoices):
    """Which backend reaches the node."""

    AGENT = "agent"
    KUBERNETES = "kubernetes"


class Node(models.Model):
    """A machine that runs tasks; labels, taints and cordon are the control plane's, not its own."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    cluster = models.ForeignKey(Cluster, on_delete=models.PROTECT, related_name="nodes")
    name = models.CharField(max_length=253)
    kind = models.CharField(max_length=16, choices=NodeKind, default=NodeKind.AGENT)
    state = models.CharField(max_length=16, choices=NodeState, default=NodeState.JOINING)
    is_cordoned = models.BooleanField(default=False)
    is_draining = models.BooleanField(default=False)
    is_simulated = models.BooleanField(default=False)
    labels = models.JSONField(default=dict)
    taints = models.JSONField(default=list)
    """[{"key", "value", "effect"}]."""
    capacity = models.JSONField(default=dict)
    allocatable = models.JSONField(default=dict)
    """Capacity less what is reserved for the system; same units as queues."""
    topology = models.JSONField(default=dict)
    """Sockets and NUMA nodes as reported."""
    runtimes = models.JSONField(default=list)
    """[{"name", "kind", "version"}] as reported."""
    warnings = models.JSONField(default=list)
    boot_id = models.CharField(max_length=64, blank=True)
    agent_version = models.CharField(max_length=40, blank=True)
    address = models.CharField(max_length=253, blank=True)
    credential_hash = models.CharField(max_length=64, blank=True, db_index=True)
    session_id = models.CharField(max_length=36, blank=True)
    session_epoch = models.PositiveBigIntegerField(default=0)
    gateway = models.CharField(max_length=100, blank=True)
    """The gateway copy that holds the session."""
    report_seq = models.PositiveBigIntegerField(default=0)
    """Highest committed report of the session."""
    last_seen_at = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField()
    version = models.PositiveBigIntegerField(default=1)
    changed_xid = models.BigIntegerField(default=0, editable=False)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["cluster", "name"], name="node_name_unique"),
        ]

    def __str__(self) -> str:
        return self.name


class Device(models.Model):
    """One accelerator of a node."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    node = models.ForeignKey(Node, on_delete=models.CASCADE, related_name="devices")
    uuid = models.CharField(max_length=100)
    """As the driver names it."""
    index = models.PositiveSmallIntegerField()
    resource = models.CharField(max_length=100, default="nvidia.com/gpu")
    model = models.CharField(max_length=100, blank=True)
    memory_bytes = models.BigIntegerField(default=0)
    is_healthy = models.BooleanField(default=True)
    health_reason = models.CharField(max_length=300, blank=True)
    is_present = models.BooleanField(default=True)
    numa_node = models.SmallIntegerField(default=-1)
    links = models.JSONField(default=dict)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["node", "uuid"], name="device_uuid_unique"),
        ]

    def __str__(self) -> str:
        return f"{self.node_id}/{self.index}"


class JoinToken(models.Model):
    """A one-use token with which a machine becomes a node; only its hash is kept."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="join_tokens")
    secret_hash = models.CharField(max_length=64, unique=True)
    labels = models.JSONField(default=dict)
    uses_left = models.PositiveIntegerField(default=1)
    """More than 1 only for a simulated fleet."""
    expires_at = models.DateTimeField()
    created_at = models.DateTimeField()

    def __str__(self) -> str:
        return str(self.id)


class ImageRule(models.Model):
    """Maps image names to a runtime of the nodes: the first matching rule by position decides."""

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="image_rules")
    unit = models.ForeignKey(OrgUnit, null=True, blank=True, on_delete=models.CASCADE)
    """Only for jobs of this unit and below; None: for all."""
    position = models.PositiveIntegerField()
    pattern = models.CharField(max_length=300)
    """A shell-style pattern such as `docker.io/library/python:*`."""
    runtime = models.CharField(max_length=100)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["cluster", "position"], name="image_rule_position"),
        ]

    def __str__(self) -> str:
        return f"{self.pattern} -> {self.runtime}"
