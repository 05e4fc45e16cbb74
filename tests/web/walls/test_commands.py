"""What the operator's commands write: `commands.csv` says it by hand, reading ones are held to it.

Commands ask for no rights: who runs them has the database's address. What they may do is a matter
of the row they have here, and of the role of the database they are given.
"""

from __future__ import annotations

import csv
from contextlib import suppress
from io import StringIO
from pathlib import Path

import pytest
from django.apps import apps
from django.core.management import CommandError, call_command, get_commands
from django.db import connection, transaction

from tests.web.walls.scene import make_scene

MATRIX = Path(__file__).with_name("commands.csv")
OURS = {"controlplane", "scheduling", "tenants", "worker"}
READ_ONLY = "SET TRANSACTION READ ONLY"


def declared() -> dict[str, str]:
    """Return what each command writes: nothing, files, or rows."""
    with MATRIX.open(encoding="utf-8", newline="") as file:
        return {row["command"]: row["writes"] for row in csv.DictReader(file)}


def test_every_command_has_a_row_and_every_row_a_command() -> None:
    """A new command fails here until somebody has said what it writes."""
    assert {one.name for one in apps.get_app_configs()} >= OURS
    found = {name for name, app in get_commands().items() if app in OURS}

    assert found == declared().keys()
    assert set(declared().values()) == {"nothing", "files", "rows"}


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    "name", sorted(one for one, what in declared().items() if what == "nothing")
)
def test_a_command_that_writes_nothing_runs_where_nothing_can_be_written(name: str) -> None:
    """In a transaction that may only read it does its work all the same."""
    make_scene()
    out = StringIO()

    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute(READ_ONLY)
        # The scene is no whole installation: what a check finds wrong there is not asked here.
        with suppress(CommandError):
            call_command(name, stdout=out, stderr=out)

    assert out.getvalue()
