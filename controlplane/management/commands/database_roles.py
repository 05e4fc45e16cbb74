"""`manage.py database_roles`: print the SQL that gives each kind of process its own role."""

from django.conf import settings
from django.core.management.base import BaseCommand

from controlplane import database_roles


class Command(BaseCommand):
    """Prints statements for the database's owner; it runs none of them."""

    help = "Print SQL for roles of web, gateway and workers, who cannot alter the audit trail."
    requires_system_checks = ()

    def handle(self, *args: object, **options: object) -> None:
        owner = str(settings.DATABASES["default"].get("USER") or "terrace")
        for statement in database_roles.statements(owner):
            self.stdout.write(f"{statement};")
