"""The record of what people and clients changed, and the seals that make tampering visible."""

from django.conf import settings
from django.db import models

from tenants.models.org import OrgUnit


class AuditRow(models.Model):
    """One change by a person or client, written in the transaction of the change itself."""

    tenant = models.ForeignKey(OrgUnit, null=True, on_delete=models.PROTECT, related_name="+")
    unit = models.ForeignKey(OrgUnit, null=True, on_delete=models.PROTECT, related_name="+")
    at = models.DateTimeField()
    actor = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.PROTECT, related_name="+"
    )
    actor_label = models.CharField(max_length=200)
    """Name at that time; `system` for bootstrap and policies."""
    action = models.CharField(max_length=64)
    """`<object>.<verb>`, such as `queue.update`."""
    subject_type = models.CharField(max_length=40)
    subject_id = models.CharField(max_length=64)
    subject_label = models.CharField(max_length=200, blank=True)
    before = models.JSONField(null=True)
    after = models.JSONField(null=True)
    reason = models.CharField(max_length=500, blank=True)
    request_id = models.CharField(max_length=64, blank=True)

    class Meta:
        indexes = [
            models.Index(fields=["tenant", "-id"], name="audit_tenant"),
            models.Index(fields=["subject_type", "subject_id", "-id"], name="audit_subject"),
            models.Index(fields=["actor", "-id"], name="audit_actor"),
        ]

    def __str__(self) -> str:
        return f"{self.action} {self.subject_type} {self.subject_id}"


class AuditSeal(models.Model):
    """A link of a tenant's chain: hash(previous hash + the row's content), sealed in order."""

    row = models.OneToOneField(AuditRow, on_delete=models.PROTECT, related_name="seal")
    chain = models.CharField(max_length=36)
    """The tenant's id, or `installation`."""
    position = models.PositiveBigIntegerField()
    hash = models.CharField(max_length=64)
    sealed_at = models.DateTimeField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["chain", "position"], name="audit_seal_position"),
        ]

    def __str__(self) -> str:
        return f"{self.chain} #{self.position}"
