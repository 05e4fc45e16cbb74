"""Why a job waited, over time."""

from django.db import models

from scheduling.models.job import Job


class PastReason(models.Model):
    """What the cycles said of a waiting job from a time on: one row a minute, the last said in it.

    A row stands until the next one, or until the job's next change of phase.
    """

    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="past_reasons")
    minute = models.DateTimeField()
    """`at`, cut to the minute: reasons that take turns fill no table."""
    at = models.DateTimeField()
    code = models.CharField(max_length=60)
    params = models.JSONField(default=dict)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["job", "minute"], name="past_reason_unique"),
        ]

    def __str__(self) -> str:
        return f"{self.job_id} {self.at} {self.code}"
