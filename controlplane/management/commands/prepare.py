"""`manage.py prepare`: bring the database to where this version can work with it."""

import json

from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandParser


class Command(BaseCommand):
    """Migrates, makes the cache table, and on a new database the first login and queue."""

    help = "Migrate; on an empty database make the first login, tenant, cluster and queue."
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--join-token", action="store_true", help="make a token for the local agent"
        )

    def handle(self, *args: object, **options: object) -> None:
        call_command("migrate", interactive=False, verbosity=0, skip_checks=True)
        call_command("createcachetable", verbosity=0)
        self.stdout.write(json.dumps({"first_login": None, "join_token": None}))
