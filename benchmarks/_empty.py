"""What every benchmark with a database begins with: Django, and an installation without a job.

Import it before any model: it sets Django up.
"""

from __future__ import annotations

import os
import secrets
from typing import Final

import django
from django.core.management import call_command

PATIENT: Final = "TERRACE_STATEMENT_TIMEOUT_SECONDS"
"""Filling takes longer than any statement of production may; what is measured keeps its limits."""

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.settings")
os.environ.setdefault(PATIENT, "300")
django.setup()

from scheduling.domain import bootstrap  # noqa: E402 -- Django first
from scheduling.domain.clock import database_now  # noqa: E402 -- Django first
from scheduling.models import Job  # noqa: E402 -- Django first


def installation() -> bootstrap.Installation:
    """Migrate the database that DATABASE_URL names and make an installation in it.

    Raises:
        SystemExit: it has jobs, so it is in use.
    """
    call_command("migrate", verbosity=0)
    call_command("createcachetable", verbosity=0)
    if Job.objects.exists():
        raise SystemExit("DATABASE_URL names a database that is in use; give an empty one.")
    return bootstrap.ensure_installation(
        admin_username="bench", admin_password=secrets.token_urlsafe(), now=database_now()
    )
