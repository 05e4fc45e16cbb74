"""Quotas: what a unit, or a user in it, may have in all, beside what the queues give."""

import uuid

from django.conf import settings
from django.db import models

from scheduling.spec.job_spec import GPU_RESOURCE
from tenants.models import OrgUnit
from tenants.models.scoped import ScopedQuerySet


class QuotaScope(models.TextChoices):
    """Whose jobs and files a quota counts."""

    UNIT = "unit"
    """Of everybody in the unit and all below it together."""
    EACH_USER = "each_user"
    """Of every user there by themselves."""
    USER = "user"
    """Of one user there, in the place of what every user has."""


class QuotaResource(models.TextChoices):
    """What is counted."""

    RUNNING_JOBS = "running_jobs"
    """Jobs that hold something."""
    QUEUED_JOBS = "queued_jobs"
    """Jobs that have not ended and hold nothing, suspended ones included."""
    CPU = "cpu"
    """Held, in milli-CPU."""
    MEMORY = "memory"
    """Held, in bytes."""
    GPU = GPU_RESOURCE
    """Held, in milli-GPU."""
    STORAGE = "storage"
    """Bytes of uploaded code and of outputs."""


class Quota(models.Model):
    """One wall: what it counts and where; its numbers are its limits."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    unit = models.ForeignKey(OrgUnit, on_delete=models.CASCADE, related_name="quotas")
    scope = models.CharField(max_length=12, choices=QuotaScope)
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.CASCADE, related_name="+"
    )
    created_at = models.DateTimeField()
    version = models.PositiveBigIntegerField(default=1)

    objects = ScopedQuerySet.as_manager()

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["unit", "scope", "user"], name="quota_unique", nulls_distinct=False
            ),
            models.CheckConstraint(
                name="quota_user_by_scope",
                condition=models.Q(scope="user", user__isnull=False)
                | (~models.Q(scope="user") & models.Q(user__isnull=True)),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.unit_id} {self.scope} {self.user_id or ''}".rstrip()


class QuotaLimit(models.Model):
    """How much of one resource; a row of its own, so that each is locked by those who need it."""

    quota = models.ForeignKey(Quota, on_delete=models.CASCADE, related_name="limits")
    resource = models.CharField(max_length=40, choices=QuotaResource)
    amount = models.BigIntegerField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["quota", "resource"], name="quota_limit_unique"),
            models.CheckConstraint(
                name="quota_limit_not_negative", condition=models.Q(amount__gte=0)
            ),
        ]

    def __str__(self) -> str:
        return f"{self.quota_id} {self.resource} {self.amount}"
