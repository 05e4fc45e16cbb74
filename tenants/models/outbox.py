"""The transactional outbox: what must happen outside the database, written with its cause."""

from django.db import models


class OutboxRow(models.Model):
    """A message to be delivered at least once; it is deleted when delivered.

    `node` is set for commands to an agent: these rows are sent by the gateway copy that holds the
    node's session, the others by the relay.
    """

    topic = models.CharField(max_length=64)
    key = models.CharField(max_length=200)
    """What makes the effect happen once, such as the attempt's id."""
    payload = models.JSONField()
    node = models.UUIDField(null=True, blank=True)
    created_at = models.DateTimeField()
    not_before = models.DateTimeField()
    attempts = models.PositiveIntegerField(default=0)
    last_error = models.CharField(max_length=500, blank=True)
    is_dead = models.BooleanField(default=False)
    """Given up after the last try; shown on the health page, never deleted by itself."""

    class Meta:
        indexes = [
            models.Index(
                fields=["not_before", "id"],
                name="outbox_due",
                condition=models.Q(node__isnull=True, is_dead=False),
            ),
            models.Index(
                fields=["node", "id"],
                name="outbox_node",
                condition=models.Q(node__isnull=False, is_dead=False),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.topic} {self.key}"
