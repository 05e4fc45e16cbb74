"""Change sets: several edits of queues that are checked, reviewed, applied and reverted as one."""

import uuid

from django.conf import settings
from django.db import models
from django.db.models import Q

from scheduling.models.cluster import Cluster
from scheduling.models.queue import Queue
from tenants.models import OrgUnit


class ChangeSetState(models.TextChoices):
    """How far a change set has come; the last four are final."""

    DRAFT = "draft"
    VALIDATED = "validated"
    IN_REVIEW = "in_review"
    APPROVED = "approved"
    SCHEDULED = "scheduled"
    APPLIED = "applied"
    REVERTED = "reverted"
    REJECTED = "rejected"
    FAILED = "failed"


class ChangeSet(models.Model):
    """One plan for the numbers of several queues of a cluster; it is in force wholly or not."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="change_sets")
    unit = models.ForeignKey(OrgUnit, null=True, on_delete=models.PROTECT, related_name="+")
    """The lowest unit above all its queues, for the audit trail; None: the installation."""
    author = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.PROTECT, related_name="+"
    )
    title = models.CharField(max_length=120)
    reason = models.CharField(max_length=500, blank=True)
    state = models.CharField(max_length=12, choices=ChangeSetState, default=ChangeSetState.DRAFT)
    impact = models.JSONField(null=True, blank=True)
    """Sums of the last simulation; names are found anew for each reader."""
    impact_at = models.DateTimeField(null=True, blank=True)
    problems = models.JSONField(default=list)
    """Why it was refused last: [{"path", "code", "params"}]."""
    reviewer = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.PROTECT, related_name="+"
    )
    """Who approved or rejected it."""
    reviewed_at = models.DateTimeField(null=True, blank=True)
    review_comment = models.CharField(max_length=500, blank=True)
    apply_at = models.DateTimeField(null=True, blank=True)
    scheduled_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.PROTECT, related_name="+"
    )
    """With whose rights the loop applies it."""
    applied_at = models.DateTimeField(null=True, blank=True)
    reverts = models.ForeignKey(
        "self", null=True, on_delete=models.SET_NULL, related_name="reverting"
    )
    """The change set whose old values this one brings back."""
    created_at = models.DateTimeField()
    version = models.PositiveBigIntegerField(default=1)

    class Meta:
        indexes = [
            models.Index(fields=["cluster", "-created_at", "-id"], name="change_set_newest"),
            models.Index(
                fields=["apply_at"],
                name="change_set_due",
                condition=Q(state="scheduled"),
            ),
        ]

    def __str__(self) -> str:
        return self.title


class ChangeItem(models.Model):
    """What a change set wants of one queue, and how the queue was when its author saw it."""

    change_set = models.ForeignKey(ChangeSet, on_delete=models.CASCADE, related_name="items")
    queue = models.ForeignKey(
        Queue, null=True, on_delete=models.SET_NULL, related_name="change_items"
    )
    """None: the queue was deleted since."""
    queue_name = models.CharField(max_length=253)
    expected_version = models.PositiveBigIntegerField()
    old = models.JSONField()
    """All fields that can be changed, as they were seen at `expected_version`."""
    new = models.JSONField()
    """Only the fields that shall be different."""
    applied_version = models.PositiveBigIntegerField(null=True, blank=True)
    """The queue's version right after applying: a revert is held against it."""

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["change_set", "queue"], name="change_item_queue"),
        ]

    def __str__(self) -> str:
        return f"{self.change_set_id} {self.queue_name}"
