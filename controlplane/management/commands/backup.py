"""`manage.py backup DIR`: write everything that cannot be made again into a folder."""

from pathlib import Path

from django.core.management.base import BaseCommand, CommandError, CommandParser

from controlplane.backup import embedded_database, take
from controlplane.backup.errors import BackupError

MIB = 1 << 20


class Command(BaseCommand):
    """Backs up the database and the files, while Terrace runs or not."""

    help = "Back up database and files into a folder that is not there yet."
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("folder", type=Path, help="the folder to make")
        parser.add_argument(
            "--without-files",
            action="store_true",
            help="leave out uploaded code, outputs and logs: for a bucket that keeps versions",
        )

    def handle(self, *args: object, **options: object) -> None:
        folder = Path(str(options["folder"])).absolute()
        without_files = bool(options["without_files"])
        try:
            if embedded_database.is_reachable():
                self._take(folder, with_files=not without_files)
            else:
                embedded_database.run_beside(
                    ["backup", str(folder), *(["--without-files"] if without_files else [])],
                    self.say,
                )
        except BackupError as error:
            raise CommandError(str(error)) from error

    def _take(self, folder: Path, *, with_files: bool) -> None:
        made = take.take(folder, with_files=with_files, say=self.say)
        self.say(
            f"Backed up to {folder}: database {made.database_bytes / MIB:.1f} MiB, "
            f"{made.files} files {made.files_bytes / MIB:.1f} MiB."
        )
        self.say("Keep it where only you can read it; it has everybody's data.")

    def say(self, sentence: str) -> None:
        self.stdout.write(sentence)
        self.stdout.flush()  # a person waits, maybe behind a pipe
