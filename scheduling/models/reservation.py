"""Reservations: capacity kept free for a job, with owner and expiry."""

from django.db import models

from scheduling.models.job import Job


class Reservation(models.Model):
    """Amounts by node kept free for one job until it starts or the time is over."""

    job = models.OneToOneField(Job, on_delete=models.CASCADE, related_name="reservation")
    amounts_by_node = models.JSONField()
    """Node name -> resource -> amount."""
    places = models.JSONField(default=dict)
    """Task -> node that it was promised, where room was made by evictions."""
    reason = models.CharField(max_length=20)
    created_at = models.DateTimeField()
    expires_at = models.DateTimeField()
    starts_at = models.DateTimeField(null=True, blank=True)
    """When the job can start at the latest, by the time limits of what runs there; if known."""

    def __str__(self) -> str:
        return f"{self.job_id} until {self.expires_at}"
