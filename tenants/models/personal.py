"""What a person arranges for themself: saved views of lists, and what they want to be told."""

import uuid

from django.conf import settings
from django.db import models


class SavedView(models.Model):
    """A list's filters under a name: a tab that only its owner sees."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="saved_views"
    )
    page = models.CharField(max_length=20)
    """Which list: `jobs`."""
    name = models.CharField(max_length=40)
    query = models.CharField(max_length=500)
    """The address's query, of filters that the list knows."""
    created_at = models.DateTimeField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["user", "page", "name"], name="saved_view_name"),
        ]

    def __str__(self) -> str:
        return f"{self.page}: {self.name}"


class NotificationChoice(models.Model):
    """Of which events of their own jobs a person wants to be told, and up to when they have read.

    The events themselves are not stored again: history and attempts are the record.
    """

    user = models.OneToOneField(
        settings.AUTH_USER_MODEL,
        on_delete=models.CASCADE,
        primary_key=True,
        related_name="notification_choice",
    )
    wants_ended = models.BooleanField(default=True)
    wants_failed = models.BooleanField(default=True)
    wants_preempted = models.BooleanField(default=True)
    read_at = models.DateTimeField(null=True, blank=True)

    def __str__(self) -> str:
        return str(self.user_id)
