"""The people and service accounts that sign in."""

import uuid

from django.contrib.auth.models import AbstractUser
from django.db import models
from django.db.models.functions import Lower


class User(AbstractUser):
    """A person or service account; grants alone say what it may do, never Django's flags."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    is_service = models.BooleanField(default=False)
    must_change_password = models.BooleanField(default=False)
    time_zone = models.CharField(max_length=64, default="UTC")
    language = models.CharField(max_length=16, blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(Lower("username"), name="user_username_unique_ci"),
        ]
