"""`manage.py check_invariants`: say which rule that does not bend is broken, and by what row."""

import json
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from scheduling.domain import invariants


class Command(BaseCommand):
    """Check every invariant on rows and history."""

    help = "Check what must always hold, on rows and history; fail if anything does not."

    def add_arguments(self, parser: CommandParser) -> None:
        """Take the form of the answer."""
        parser.add_argument("--json", action="store_true", help="one JSON object a violation")

    def handle(self, *_: Any, **options: Any) -> None:
        """Print violations; raise if there are any."""
        found = invariants.check()
        for one in found:
            if options["json"]:
                line = {"rule": one.rule, "subject": one.subject, "detail": one.detail}
                self.stdout.write(json.dumps(line))
            else:
                self.stdout.write(f"{one.rule}: {one.subject}: {one.detail}")
        if found:
            raise CommandError(
                f"{len(found)} violations of {len({one.rule for one in found})} rules"
            )
        self.stdout.write(f"{len(invariants.RULES)} invariants hold.")
