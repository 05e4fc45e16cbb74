"""`manage.py rotate_secrets`: put all secrets under the first key of TERRACE_SECRETS_KEY."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone

from tenants.domain import secrets
from tenants.domain.errors import Conflict


class Command(BaseCommand):
    """Wraps the data keys anew; no value is decrypted, and running it twice changes nothing."""

    help = "Put all secrets under the first key of TERRACE_SECRETS_KEY; then the others may go."

    def handle(self, *args: Any, **options: Any) -> None:
        """Say how many were wrapped anew; fail with those that no key opens."""
        try:
            rotated, lost = secrets.rotate(timezone.now())
        except Conflict as error:
            raise CommandError("TERRACE_SECRETS_KEY is not set: there is no key") from error
        current = settings.TERRACE_SECRETS_KEYRING.current
        self.stdout.write(f"{rotated} secrets are under key {current} now")
        if lost:
            names = "\n".join(f"{one.name} ({one.unit}): under key {one.key_id}" for one in lost)
            raise CommandError(f"No key here opens these; keep their key, or revoke them:\n{names}")
