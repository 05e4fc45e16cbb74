"""One-use links by which people choose a password: an invitation, or after a reset."""

import uuid

from django.conf import settings
from django.db import models


class LinkPurpose(models.TextChoices):
    """Why somebody was sent a link."""

    INVITE = "invite"
    RESET = "reset"


class AccountLink(models.Model):
    """A secret that lets whoever has it choose the password of one account, once."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="account_links"
    )
    purpose = models.CharField(max_length=16, choices=LinkPurpose)
    secret_hash = models.CharField(max_length=64, unique=True)
    """SHA-256 in hex; the secret has 256 random bits, so no slow hash is needed."""
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+"
    )
    created_at = models.DateTimeField()
    expires_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True, blank=True)
    """When it was used, or replaced by a newer one."""

    class Meta:
        indexes = [models.Index(fields=["user", "-created_at"], name="account_link_user")]

    def __str__(self) -> str:
        return f"{self.purpose} {self.user_id}"
