"""Who looks after what wants somebody on the Operations page."""

from django.conf import settings
from django.db import models


class AttentionMark(models.Model):
    """Somebody looks after a line of the list; the line itself is computed, never stored."""

    kind = models.CharField(max_length=30)
    subject = models.CharField(max_length=253)
    """The id of what the line is about: a job's, a node's name, a loop's scope."""
    assignee = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+"
    )
    at = models.DateTimeField()
    """When it was said; a mark does not last for ever."""

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["kind", "subject"], name="attention_mark_once"),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.subject}"
