"""`manage.py up`: run all of Terrace on this machine until Ctrl-C."""

import os
from pathlib import Path

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from controlplane import env
from controlplane.supervisor import start
from controlplane.supervisor.errors import StartError


class Command(BaseCommand):
    """Starts PostgreSQL, Redis, web, gateway, workers, beat and a local agent."""

    help = "Run all of Terrace on this machine until Ctrl-C."
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--no-agent", action="store_true", help="run no tasks on this machine")

    def handle(self, *args: object, **options: object) -> None:
        try:
            start.up(
                start.Options(
                    checkout=Path(settings.BASE_DIR),
                    data=settings.TERRACE_DATA,
                    bind=env.text("TERRACE_BIND", "127.0.0.1"),
                    web_port=env.integer("TERRACE_PORT", 8000, least=1, most=65535),
                    gateway_port=env.integer("TERRACE_GATEWAY_PORT", 8001, least=1, most=65535),
                    run_as=env.text("TERRACE_RUN_AS"),
                    given=start.Given(
                        database_url=env.secret("DATABASE_URL"),
                        redis_url=env.secret("REDIS_URL"),
                        secret_key=env.secret("SECRET_KEY"),
                        public_url=env.origin("PUBLIC_URL"),
                        gateway_url=env.origin("TERRACE_GATEWAY_URL"),
                    ),
                    environment=dict(os.environ),
                    with_agent=not options["no_agent"],
                ),
                self.say,
            )
        except StartError as error:
            raise CommandError(str(error)) from error

    def say(self, sentence: str) -> None:
        self.stdout.write(sentence)
        self.stdout.flush()
