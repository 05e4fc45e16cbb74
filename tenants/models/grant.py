"""Grants: (principal, role, org unit), inherited downwards."""

import uuid

from django.conf import settings
from django.db import models

from tenants.models.org import OrgUnit


class GrantRole(models.TextChoices):
    """The roles of the permission matrix (docs/permissions.md)."""

    VIEWER = "viewer"
    RESEARCHER = "researcher"
    QUEUE_MANAGER = "queue_manager"
    ORG_ADMIN = "org_admin"
    AUDITOR = "auditor"
    PLATFORM_ADMIN = "platform_admin"


class Grant(models.Model):
    """Gives a user a role on a unit and all below it; without a unit, on the whole installation."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="grants"
    )
    role = models.CharField(max_length=16, choices=GrantRole)
    unit = models.ForeignKey(
        OrgUnit, null=True, blank=True, on_delete=models.CASCADE, related_name="grants"
    )
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+"
    )
    created_at = models.DateTimeField()

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["user", "role", "unit"],
                name="grant_unique",
                nulls_distinct=False,
            ),
            models.CheckConstraint(
                name="grant_unit_or_installation",
                condition=models.Q(unit__isnull=False)
                | models.Q(role__in=["platform_admin", "auditor"]),
            ),
            models.CheckConstraint(
                name="grant_platform_admin_everywhere",
                condition=~models.Q(role="platform_admin") | models.Q(unit__isnull=True),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.user_id} {self.role} {self.unit_id or 'installation'}"
