"""`manage.py up`: run all of Terrace on this machine until Ctrl-C."""

from django.core.management.base import BaseCommand, CommandError, CommandParser

from controlplane.supervisor import from_environment, start
from controlplane.supervisor.errors import StartError


class Command(BaseCommand):
    """Starts PostgreSQL, Redis, web, gateway, workers, beat and a local agent."""

    help = "Run all of Terrace on this machine until Ctrl-C."
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--no-agent", action="store_true", help="run no tasks on this machine")

    def handle(self, *args: object, **options: object) -> None:
        try:
            start.up(from_environment.options(with_agent=not options["no_agent"]), self.say)
        except StartError as error:
            raise CommandError(str(error)) from error

    def say(self, sentence: str) -> None:
        self.stdout.write(sentence)
        self.stdout.flush()
