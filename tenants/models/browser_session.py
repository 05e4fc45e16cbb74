"""Browser sessions with the person they belong to, so that they can be listed and ended."""

from django.conf import settings
from django.contrib.sessions.base_session import AbstractBaseSession
from django.db import models


class BrowserSession(AbstractBaseSession):
    """A row of the session store; without a user it belongs to somebody not signed in (yet)."""

    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.CASCADE, related_name="+"
    )
    created_at = models.DateTimeField(null=True)
    """When the person signed in."""
    ip = models.CharField(max_length=45, blank=True)
    user_agent = models.CharField(max_length=200, blank=True)

    class Meta(AbstractBaseSession.Meta):
        abstract = False
        indexes = [models.Index(fields=["user"], name="browser_session_user")]
