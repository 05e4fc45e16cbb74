"""Backup and restore of an installation whose embedded PostgreSQL does not run now."""

from collections.abc import Callable, Sequence

from django.conf import settings

from controlplane.backup.errors import BackupError
from controlplane.supervisor import from_environment, start
from controlplane.supervisor.errors import StartError


def is_reachable() -> bool:
    """Tell whether there is a database to speak to: production's, or one that runs."""
    return str(settings.DATABASES["default"]["ENGINE"]) != "controlplane.no_database"


def run_beside(arguments: Sequence[str], say: Callable[[str], None]) -> None:
    """Run `manage.py` with these arguments once more, beside PostgreSQL, which is then ended.

    Raises:
        BackupError: PostgreSQL does not start.
        SystemExit: the command failed; its words were printed.
    """
    try:
        status = start.with_database(from_environment.options(with_agent=False), arguments, say)
    except StartError as error:
        raise BackupError(str(error)) from error
    if status != 0:
        raise SystemExit(status)
