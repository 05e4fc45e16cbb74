"""Uploaded code, outputs and finished log chunks; the bytes lie behind Django's storage API."""

import uuid

from django.conf import settings
from django.db import models

from scheduling.models.attempt import Attempt
from scheduling.models.job import Job
from tenants.models import OrgUnit
from tenants.models.scoped import ScopedQuerySet


class JobFile(models.Model):
    """A file of a job: code that was uploaded (maybe before the job exists), or an output."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    unit = models.ForeignKey(OrgUnit, on_delete=models.CASCADE, related_name="+")
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    job = models.ForeignKey(Job, null=True, on_delete=models.CASCADE, related_name="files")
    attempt = models.ForeignKey(Attempt, null=True, on_delete=models.CASCADE, related_name="+")
    purpose = models.CharField(max_length=10)
    """code or output."""
    path = models.CharField(max_length=500)
    """Relative path shown to people."""
    storage_name = models.CharField(max_length=300)
    size_bytes = models.BigIntegerField()
    sha256 = models.CharField(max_length=64)
    created_at = models.DateTimeField()

    objects = ScopedQuerySet.as_manager()

    class Meta:
        indexes = [models.Index(fields=["job", "purpose", "path"], name="job_file_path")]

    def __str__(self) -> str:
        return self.path


class LogChunk(models.Model):
    """Consecutive bytes of one attempt's output."""

    attempt = models.ForeignKey(Attempt, on_delete=models.CASCADE, related_name="log_chunks")
    stream = models.CharField(max_length=6)
    offset = models.BigIntegerField()
    size_bytes = models.PositiveIntegerField()
    data = models.BinaryField(null=True)
    """While the attempt is live; then folded into `storage_name`."""
    storage_name = models.CharField(max_length=300, blank=True)
    at = models.DateTimeField()

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["attempt", "stream", "offset"], name="log_chunk_offset_unique"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.attempt_id} {self.stream} {self.offset}"
