"""`manage.py prepare`: bring the database to where this version can work with it."""

import json

from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandParser
from django.utils import timezone

from controlplane import first_login
from scheduling.domain.bootstrap import ADMIN_NAME, bootstrap
from tenants.models import User


class Command(BaseCommand):
    """Migrates; on an empty database makes the first login, a tenant, a cluster and queues.

    Reports in JSON what `manage.py up` tells the person who started it.
    """

    help = "Migrate, and make what an empty installation starts with."
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--join-token", action="store_true", help="make a one-use token for a local agent"
        )

    def handle(self, *args: object, **options: object) -> None:
        call_command("migrate", interactive=False, verbosity=0, skip_checks=True)
        call_command("createcachetable", verbosity=0)
        password = first_login.new_password()
        if not User.objects.exists():
            # Before the row: a password that opens nothing is harmless, one that nobody knows not.
            first_login.keep(ADMIN_NAME, password)
        made = bootstrap(password=password, now=timezone.now())
        report = {
            "first_login": self._first_login(is_new=made.admin is not None),
            "join_token": None,
        }
        self.stdout.write(json.dumps(report))

    def _first_login(self, *, is_new: bool) -> dict[str, object] | None:
        login = first_login.current()
        if login is None:
            return None
        name, password = login
        return {
            "name": name,
            "password": password,
            "is_new": is_new,
            "file": str(first_login.path()),
        }
