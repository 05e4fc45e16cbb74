"""`manage.py prepare`: bring the database to where this version can work with it."""

import json
from datetime import timedelta

from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils import timezone

from controlplane import first_login
from controlplane.backup import database
from scheduling.domain.bootstrap import ensure_installation
from scheduling.domain.nodes import join_token_create
from scheduling.models import Cluster
from tenants.domain.access import SYSTEM
from tenants.models import User

ADMIN_NAME = "admin"


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
        if database.is_being_restored():
            raise CommandError(
                "A restore was begun and not finished: run `manage.py restore` with the backup "
                "once more. It undoes the first try, and needs --replace if there was anything "
                "before it."
            )
        call_command("migrate", interactive=False, verbosity=0, skip_checks=True)
        call_command("createcachetable", verbosity=0)
        # Only once: names and trees that somebody changed stay changed.
        is_new = not User.objects.exists()
        if is_new:
            self._bootstrap()
        report = {
            "first_login": self._first_login(is_new=is_new),
            "join_token": self._join_token() if options["join_token"] else None,
        }
        self.stdout.write(json.dumps(report))

    def _bootstrap(self) -> None:
        password = first_login.new_password()
        # Before the row: a password that opens nothing is harmless, one that nobody knows is not.
        first_login.keep(ADMIN_NAME, password)
        ensure_installation(admin_username=ADMIN_NAME, admin_password=password, now=timezone.now())

    def _join_token(self) -> str | None:
        cluster = Cluster.objects.order_by("created_at").first()
        if cluster is None:
            return None
        _, secret = join_token_create(
            actor=SYSTEM, cluster=cluster, now=timezone.now(), valid_for=timedelta(minutes=5)
        )
        return secret

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
