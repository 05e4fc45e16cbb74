"""The session store: Django's in the database, with a column that says whose a session is."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.contrib.auth import SESSION_KEY
from django.contrib.sessions.backends.db import SessionStore as DatabaseStore
from django.http import HttpRequest

from tenants.models import BrowserSession

ORIGIN = "_signed_in_from"
LONGEST_AGENT = 200


class SessionStore(DatabaseStore):
    """Keeps sessions as `tenants.models.BrowserSession`."""

    @classmethod
    def get_model_class(cls) -> type[BrowserSession]:
        """Return the table's model."""
        return BrowserSession

    def create_model_instance(self, data: dict[str, Any]) -> BrowserSession:
        """Return the row for the session's data, with whose it is and where it began."""
        row = super().create_model_instance(data)
        assert isinstance(row, BrowserSession)  # noqa: S101 - of the model above
        row.user_id = data.get(SESSION_KEY)
        origin = data.get(ORIGIN) or {}
        row.created_at = datetime.fromisoformat(origin["at"]) if "at" in origin else None
        row.ip = origin.get("ip", "")
        row.user_agent = origin.get("user_agent", "")
        return row


def note_origin(request: HttpRequest, at: datetime) -> None:
    """Keep in the session from where somebody signed in, for the list on their profile."""
    request.session[ORIGIN] = {
        "at": at.isoformat(),
        "ip": request.META.get("REMOTE_ADDR", "")[:45],
        "user_agent": request.headers.get("User-Agent", "")[:LONGEST_AGENT],
    }
