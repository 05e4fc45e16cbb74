"""The people and service accounts that sign in."""

import uuid

from django.contrib.auth.models import AbstractUser
from django.db import models
from django.db.models.functions import Lower

from tenants.models.org import OrgUnit


class User(AbstractUser):
    """A person or service account; grants alone say what it may do, never Django's flags."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    is_service = models.BooleanField(default=False)
    must_change_password = models.BooleanField(default=False)
    time_zone = models.CharField(max_length=64, default="UTC")
    language = models.CharField(max_length=16, blank=True)
    home = models.ForeignKey(
        OrgUnit, null=True, blank=True, on_delete=models.PROTECT, related_name="accounts"
    )
    """Who looks after it where grants do not say: of a service account always the unit that owns
    it, of a person the unit of the last grant that was taken."""
    removed_at = models.DateTimeField(null=True, blank=True)
    """Since when it has no grant, token or session any more; its name stays in the record."""
    version = models.PositiveBigIntegerField(default=1)

    class Meta:
        constraints = [
            models.UniqueConstraint(Lower("username"), name="user_username_unique_ci"),
            models.CheckConstraint(
                name="user_service_has_home",
                condition=models.Q(is_service=False) | models.Q(home__isnull=False),
            ),
        ]
