"""`manage.py record_day`: write the jobs of a span as a trace that the simulator replays."""

import json
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from scheduling.domain.queries.recorded import recorded_jobs


class Command(BaseCommand):
    """Write a recorded day."""

    help = (
        "Write the jobs that were submitted in a span and have ended, one JSON object a line, for"
        " `python -m scheduling.simulator FILE`. Names of jobs are left out, of users kept."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        """Take the span and the file."""
        parser.add_argument("file", type=Path)
        parser.add_argument("--since", required=True, help="such as 2026-03-01 or 2026-03-01T08:00")
        parser.add_argument("--until", required=True, help="likewise; without a zone it is UTC")

    def handle(self, *_: Any, **options: Any) -> None:
        """Write the file; a half one is never left under its name."""
        since, until = _time("since", options["since"]), _time("until", options["until"])
        if until <= since:
            raise CommandError("--until must be after --since")
        path: Path = options["file"]
        part = path.with_name(path.name + ".part")
        count = 0
        with part.open("w", encoding="utf-8") as file:
            for job in recorded_jobs(since=since, until=until):
                file.write(json.dumps(asdict(job)) + "\n")
                count += 1
        part.replace(path)
        self.stdout.write(f"{count} jobs written to {path}.")


def _time(name: str, text: str) -> datetime:
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise CommandError(
            f"--{name}: {text!r} is not a time; write it like 2026-03-01T08:00"
        ) from None
    return at if at.tzinfo is not None else at.replace(tzinfo=UTC)
