"""`manage.py seed_demo`: the demo's organisation, its people, and their tokens in a file."""

from __future__ import annotations

import json
import secrets
from argparse import ArgumentParser
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from controlplane.demo import organisation, traces
from controlplane.supervisor.services import write_private
from scheduling.domain.clock import database_now
from scheduling.domain.org_files import apply_org_file
from scheduling.domain.wording import sentence
from scheduling.models import Cluster
from scheduling.simulator.trace import TraceError
from tenants.domain import tokens, users
from tenants.domain.access import SYSTEM, load_actor
from tenants.domain.errors import Conflict, Denied, Invalid
from tenants.models import ApiToken, GrantRole, User

TOKEN_NAME = "demo"  # noqa: S105 -- what the token is called, not its secret
TOKEN_LIFE = timedelta(days=7)


class Command(BaseCommand):
    """Can be run again: makes what is missing, and new tokens in place of the old ones."""

    help = "Make the demo's two tenants with their queues, people and tokens."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Take the trace's folder, whose virtual clusters become teams, and what is divided."""
        parser.add_argument("--trace", type=Path, default=settings.BASE_DIR / "examples" / "philly")
        parser.add_argument("--gpus", type=int, default=400, help="GPUs of the simulated nodes")
        parser.add_argument("--largest", type=int, default=0, help="GPUs of the largest job")

    def handle(self, *_: Any, **options: Any) -> None:
        """Write the tokens where only we can read them, and say where."""
        try:
            clusters = traces.read_clusters(options["trace"])
        except (OSError, TraceError) as error:
            raise CommandError(f"--trace: {error}") from error
        now = database_now()
        try:
            applied = apply_org_file(
                actor=SYSTEM,
                tenants=organisation.tenants(
                    clusters, organisation.Fleet(options["gpus"], options["largest"])
                ),
                cluster=Cluster.objects.order_by("name").get(name="default"),
                now=now,
            )
            if not User.objects.filter(username=organisation.OPERATOR).exists():
                users.create_user(
                    actor=SYSTEM,
                    username=organisation.OPERATOR,
                    role=GrantRole.PLATFORM_ADMIN,
                    unit_id=None,
                    now=now,
                    password=secrets.token_urlsafe(24),
                    reason="demo",
                )
        except Invalid as error:
            lines = (f"{one.path}: {sentence(one.code, one.params)}" for one in error.problems)
            raise CommandError("\n".join(lines)) from error
        except (Conflict, Denied) as error:
            raise CommandError(sentence(error.code, error.params)) from error
        names = [
            organisation.OPERATOR,
            *(name for one in clusters for name in organisation.researchers(one)),
        ]
        folder = Path(settings.TERRACE_DATA) / "demo"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        file = folder / "people.json"
        people = {"tokens": {name: _new_token(name, now) for name in names}}
        write_private(file, json.dumps(people | {"passwords": applied.passwords}, indent=1))
        made = f"{len(applied.units)} units, {len(applied.queues)} queues"
        self.stdout.write(f"Made {made}; tokens of {len(names)} people are in {file}")


def _new_token(name: str, now: datetime) -> str:
    user = User.objects.get(username=name)
    actor = load_actor(user)
    for old in ApiToken.objects.filter(user=user, name=TOKEN_NAME, revoked_at=None):
        tokens.revoke_token(actor=actor, token_id=old.id, now=now, reason="demo")
    _, secret = tokens.create_token(
        actor=actor,
        user=user,
        name=TOKEN_NAME,
        verbs=[],
        unit=None,
        expires_at=now + TOKEN_LIFE,
        now=now,
    )
    return secret
