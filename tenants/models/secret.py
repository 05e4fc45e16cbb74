"""Secrets of org units: their names and what they hold; the values lie here sealed only."""

import uuid

from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.db import models

from tenants.models.org import OrgUnit


class SecretKind(models.TextChoices):
    """How a task gets a secret where its job does not say it."""

    VARIABLES = "variables"
    FILES = "files"
    REGISTRY = "registry"
    """The login of a registry of images."""


class Secret(models.Model):
    """Named values for the tasks of a unit and all below it; written and never read back."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    unit = models.ForeignKey(OrgUnit, on_delete=models.CASCADE, related_name="secrets")
    name = models.CharField(max_length=63)
    kind = models.CharField(max_length=12, choices=SecretKind)
    is_shared = models.BooleanField(default=True)
    """Whether everybody who submits jobs there may use it, or only its owner."""
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.PROTECT, related_name="+"
    )
    keys = ArrayField(models.CharField(max_length=253), default=list)
    """The names of what it holds, which are no secret."""
    key_id = models.CharField(max_length=16)
    wrapped_key = models.BinaryField()
    ciphertext = models.BinaryField()
    created_at = models.DateTimeField()
    changed_at = models.DateTimeField()
    last_used_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)
    """From then on no task gets it; the values are gone."""
    version = models.PositiveBigIntegerField(default=1)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["unit", "name"],
                name="secret_shared_name_unique",
                condition=models.Q(revoked_at__isnull=True, is_shared=True),
            ),
            models.UniqueConstraint(
                fields=["unit", "owner", "name"],
                name="secret_own_name_unique",
                condition=models.Q(revoked_at__isnull=True, is_shared=False),
            ),
        ]

    def __str__(self) -> str:
        return self.name
