"""`manage.py check_all`: every check but the tests, each run even if one before it failed."""

import os
import secrets
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

SOURCES = ("controlplane", "scheduling", "tenants", "worker", "tests", "manage.py")
SCRIPTS = ("static/js", "static/css", "tests/js")
# What a production would be given, so that `check --deploy` judges that; nothing is connected to.
PRODUCTION = {
    "DATABASE_URL": "postgresql://terrace@db.invalid/terrace",
    "REDIS_URL": "redis://redis.invalid:6379/0",
    "PUBLIC_URL": "https://terrace.example",
    "TERRACE_GATEWAY_URL": "https://gateway.terrace.example",
}


@dataclass(frozen=True, slots=True)
class Check:
    """One command that exits with 0 if all is well."""

    name: str
    command: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)


def checks(base: Path) -> list[Check]:
    """Return the checks in the order in which they are worth reading."""
    python = sys.executable
    tools = Path(python).parent
    manage = (python, str(base / "manage.py"))
    templates = [str(path) for path in sorted((base / "templates").rglob("*.html"))]
    sources = [name for name in SOURCES if (base / name).exists()]
    found = [
        Check("format", (python, "-m", "ruff", "format", "--check", ".")),
        Check("ruff", (python, "-m", "ruff", "check", ".")),
        Check("imports", (str(tools / "lint-imports"),)),
        Check("types", (python, "-m", "mypy", *sources)),
        Check("migrations", (*manage, "makemigrations", "--check", "--dry-run")),
        Check(
            "deployment",
            (*manage, "check", "--deploy", "--fail-level=WARNING"),
            {**PRODUCTION, "SECRET_KEY": secrets.token_urlsafe(64)},
        ),
    ]
    if templates:
        found += [
            Check(
                "template format",
                (str(tools / "djade"), "--target-version=5.2", "--check", *templates),
            ),
            Check(
                "templates",
                (str(tools / "djlint"), "templates", "--lint", "--quiet"),
            ),
        ]
    # The program itself, without the npm package that would start it: it needs no Node.js.
    biome = next((base / "node_modules" / "@biomejs").glob("cli-linux-*/biome"), None)
    scripts = [name for name in SCRIPTS if (base / name).exists()]
    found.append(
        Check("scripts and styles", (str(biome or "biome"), "ci", "--colors=off", *scripts))
    )
    return found


class Command(BaseCommand):
    """Runs linters, types, import contracts, migrations, deployment settings and templates."""

    help = "Run every check but the tests."
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("names", nargs="*", help="only these checks")

    def handle(self, *args: object, names: Sequence[str], **options: object) -> None:
        base = Path(settings.BASE_DIR)
        chosen = [check for check in checks(base) if not names or check.name in names]
        failed = [check.name for check in chosen if not self._passes(check, base)]
        if failed:
            raise CommandError(f"{len(failed)} of {len(chosen)} checks failed: {', '.join(failed)}")
        self.stdout.write(f"All {len(chosen)} checks pass.")

    def _passes(self, check: Check, base: Path) -> bool:
        begun = time.monotonic()
        try:
            done = subprocess.run(
                list(check.command),
                cwd=base,
                env={**os.environ, **check.environment},
                capture_output=True,
                check=False,
                text=True,
            )
        except FileNotFoundError:
            message = f"{check.command[0]} is missing; `make lint` installs it."
            raise CommandError(message) from None
        passes = done.returncode == 0
        words = "ok" if passes else "FAILED"
        self.stdout.write(f"{check.name:<20} {words:<7} {time.monotonic() - begun:6.1f} s")
        if not passes:
            self.stdout.write(f"{done.stdout}{done.stderr}")
        self.stdout.flush()
        return passes
