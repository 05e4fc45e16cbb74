"""Jobs kept to be submitted again, each for its owner alone."""

import uuid

from django.conf import settings
from django.db import models


class JobTemplate(models.Model):
    """A job under a name: the text that the job form begins with."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    name = models.CharField(max_length=63)
    text = models.TextField()
    """YAML, which was valid when it was kept."""
    created_at = models.DateTimeField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["owner", "name"], name="job_template_name"),
        ]

    def __str__(self) -> str:
        return self.name
