"""Forecasts of when a job starts, and what came true."""

from django.db import models

from scheduling.models.job import Job


class StartForecast(models.Model):
    """What was foretold of a waiting job at one time; the newest row of a job is in force."""

    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="forecasts")
    made_at = models.DateTimeField()
    p50_at = models.DateTimeField(null=True)
    """None: in half of the plays it did not start within the horizon."""
    p90_at = models.DateTimeField(null=True)
    basis = models.JSONField(default=dict)
    """Live jobs of the cluster by where their run time was taken from; `plays`; and `stretched`,
    by how much p50 and p90 were, if earlier forecasts taught that."""
    started_at = models.DateTimeField(null=True)
    """What came true: the first start after the forecast."""

    class Meta:
        indexes = [
            models.Index(fields=["job", "-made_at"], name="forecast_newest"),
            models.Index(
                fields=["job"],
                name="forecast_open",
                condition=models.Q(started_at__isnull=True),
            ),
            models.Index(fields=["made_at"], name="forecast_made"),
        ]

    def __str__(self) -> str:
        return f"{self.job_id} {self.made_at}"
