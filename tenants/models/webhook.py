"""Addresses of other services that are told what happens to the jobs of a unit."""

import uuid

from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.db import models

from tenants.models.org import OrgUnit


class Webhook(models.Model):
    """One address; its signing secret is made from the installation's key and kept nowhere."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    unit = models.ForeignKey(OrgUnit, on_delete=models.CASCADE, related_name="webhooks")
    """It hears of the jobs of this unit and of all below it."""
    name = models.CharField(max_length=63)
    url = models.CharField(max_length=500)
    subjects = ArrayField(models.CharField(max_length=8))
    """job, task or attempt: whose changes it is told."""
    is_active = models.BooleanField(default=True)
    generation = models.PositiveIntegerField(default=1)
    """Counts its secrets: a new one makes the old one worthless."""
    cursor = models.CharField(max_length=40)
    """Up to which event it has been told, or is being told."""
    last_delivered_at = models.DateTimeField(null=True, blank=True)
    last_error = models.CharField(max_length=300, blank=True)
    """Why the last try failed; empty after one that did not."""
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+"
    )
    created_at = models.DateTimeField()
    version = models.PositiveBigIntegerField(default=1)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["unit", "name"], name="webhook_name_unique"),
        ]

    def __str__(self) -> str:
        return self.name
