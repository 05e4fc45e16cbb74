"""`manage.py restore DIR`: bring back what `manage.py backup` has written."""

from pathlib import Path

from django.conf import settings
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError, CommandParser

from controlplane.backup import bring_back, embedded_database
from controlplane.backup.bring_back import Order
from controlplane.backup.errors import BackupError
from controlplane.supervisor import start


class Command(BaseCommand):
    """Restores while nothing else runs; everything of the backup, or nothing."""

    help = "Restore a backup into an empty installation, or over one with --replace."
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("folder", type=Path, help="what `manage.py backup` has written")
        parser.add_argument(
            "--replace",
            action="store_true",
            help="over an installation that has something in it, which is then gone",
        )

    def handle(self, *args: object, **options: object) -> None:
        folder = Path(str(options["folder"])).absolute()
        replaces = bool(options["replace"])
        try:
            if embedded_database.is_reachable():
                self._restore(folder, replaces=replaces)
            else:
                embedded_database.run_beside(
                    ["restore", str(folder), *(["--replace"] if replaces else [])],
                    self.say,
                )
        except BackupError as error:
            raise CommandError(str(error)) from error
        except KeyboardInterrupt:
            raise CommandError("Interrupted; everything is as it was.") from None

    def _restore(self, folder: Path, *, replaces: bool) -> None:
        identity = start.agent_identity(settings.TERRACE_DATA) if settings.IS_EMBEDDED else None
        order = Order(folder=folder, replaces=replaces, agent_identity=identity)
        found, changed = bring_back.bring_back(order, self.say)
        self.say(
            f"Restored the backup of {found.taken_at}: {found.files} files; "
            f"{changed.attempts_lost} attempts that ran then are lost and will be tried again."
        )
        self.say("Checking what must always hold, and the audit trail:")
        call_command("check_invariants", stdout=self.stdout)
        call_command("verify_audit", stdout=self.stdout)

    def say(self, sentence: str) -> None:
        self.stdout.write(sentence)
        self.stdout.flush()  # a person waits, maybe behind a pipe
