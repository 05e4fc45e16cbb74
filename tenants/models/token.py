"""API tokens: hashed, scoped to verbs and a subtree, expiring."""

import uuid

from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.db import models

from tenants.models.org import OrgUnit


class ApiToken(models.Model):
    """A subset of its owner's rights, computed at each use; only the hash of the secret is kept."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="api_tokens"
    )
    name = models.CharField(max_length=100)
    prefix = models.CharField(max_length=12)
    """The first characters of the token, to recognise it by in lists."""
    secret_hash = models.CharField(max_length=64, unique=True)
    """SHA-256 in hex; the secret has 256 random bits, so no slow hash is needed."""
    verbs = ArrayField(models.CharField(max_length=40), default=list)
    """Empty: every verb of the owner."""
    unit = models.ForeignKey(OrgUnit, null=True, blank=True, on_delete=models.CASCADE)
    expires_at = models.DateTimeField()
    revoked_at = models.DateTimeField(null=True, blank=True)
    last_used_at = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField()

    def __str__(self) -> str:
        return f"{self.prefix}… {self.name}"
