"""`manage.py create_org FILE.yaml`: units, queues and people from a file."""

from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from scheduling.domain.clock import database_now
from scheduling.domain.org_files import Applied, apply_org_file
from scheduling.domain.wording import sentence
from scheduling.models import Cluster
from scheduling.spec.org_file import read_org_file
from tenants.domain.access import SYSTEM
from tenants.domain.errors import Conflict, Denied, Invalid


class Command(BaseCommand):
    """Can be run again: makes what is missing, sets what the file states, takes nothing away."""

    help = "Make the units, queues and people that a YAML file describes."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Take the file and the cluster."""
        parser.add_argument("file", type=Path, help="the organisation, as docs/queues.md shows")
        parser.add_argument("--cluster", default="default", help="whose queues (default: default)")

    def handle(self, *args: Any, **options: Any) -> None:
        """Print what was made, passwords included."""
        try:
            text = options["file"].read_bytes()
        except OSError as error:
            raise CommandError(f"{options['file']}: {error.strerror}") from error
        tenants, problems = read_org_file(text)
        if problems:
            raise CommandError(_lines((one.path, one.code, one.params) for one in problems))
        cluster = Cluster.objects.filter(name=options["cluster"]).first()
        if cluster is None:
            names = ", ".join(Cluster.objects.order_by("name").values_list("name", flat=True))
            raise CommandError(f"There is no cluster “{options['cluster']}”; there are: {names}")
        try:
            applied = apply_org_file(
                actor=SYSTEM, tenants=tenants, cluster=cluster, now=database_now()
            )
        except Invalid as error:
            raise CommandError(
                _lines((one.path, one.code, one.params) for one in error.problems)
            ) from error
        except (Conflict, Denied) as error:
            raise CommandError(sentence(error.code, error.params)) from error
        self._print(applied)

    def _print(self, applied: Applied) -> None:
        for title, names in (
            ("units", applied.units),
            ("queues", applied.queues),
            ("queues with new numbers", applied.changed_queues),
            ("grants", applied.grants),
        ):
            self.stdout.write(f"{title}: {', '.join(names) or 'nothing new'}")
        for username, password in applied.passwords.items():
            self.stdout.write(f"{username} signs in with {password} and must then change it")


def _lines(problems: Any) -> str:  # Any: problems of the two packages, which share a shape
    return "\n".join(f"{path}: {sentence(code, params)}" for path, code, params in problems)
