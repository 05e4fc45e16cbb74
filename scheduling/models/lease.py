"""Leases with epochs: the right of one process to act, and the number that fences its writes."""

from django.db import models


class Lease(models.Model):
    """One loop's right to run. Taking it adds 1 to the epoch; every write checks that epoch."""

    scope = models.CharField(max_length=100, primary_key=True)
    """`scheduler:<cluster id>`, `relay`, `reconcile`."""
    holder = models.CharField(max_length=100, blank=True)
    epoch = models.PositiveBigIntegerField(default=0)
    expires_at = models.DateTimeField()
    """By the database's clock."""
    acquired_at = models.DateTimeField()
    detail = models.JSONField(default=dict)
    """What the holder last said of itself, for the health page."""

    def __str__(self) -> str:
        return f"{self.scope} #{self.epoch}"
