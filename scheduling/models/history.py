"""The history of states: one row for each transition."""

from django.db import models

from scheduling.models.attempt import Attempt
from scheduling.models.job import Job
from scheduling.models.task import Task


class History(models.Model):
    """One transition of a job, task or attempt; `seq` counts without a gap within the job."""

    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="history")
    seq = models.PositiveBigIntegerField()
    task = models.ForeignKey(Task, null=True, on_delete=models.CASCADE, related_name="+")
    attempt = models.ForeignKey(Attempt, null=True, on_delete=models.CASCADE, related_name="+")
    subject = models.CharField(max_length=8)
    """job, task or attempt."""
    event = models.CharField(max_length=40)
    from_state = models.CharField(max_length=12, blank=True)
    to_state = models.CharField(max_length=12)
    at = models.DateTimeField()
    reason_code = models.CharField(max_length=60, blank=True)
    params = models.JSONField(default=dict)
    actor_label = models.CharField(max_length=200, blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["job", "seq"], name="history_seq_unique"),
        ]

    def __str__(self) -> str:
        return f"{self.job_id} #{self.seq} {self.to_state}"
