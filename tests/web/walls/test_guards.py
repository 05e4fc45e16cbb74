"""The list of guards: each stands where it says, and a few by turns are missed when gone."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import UTC, datetime

import pytest
from django.conf import settings
from django.db import connection

from tests.web.walls.mutants import CHECKOUT, guards

COUNT = 2
FEWEST = 40


def test_the_list_keeps_up_with_the_code() -> None:
    """Most guards stand where the list says and can be taken away; `make guards` names the rest."""
    standing = [guard for guard in guards() if guard.stands]
    for guard in standing:
        compile(guard.mutated(), guard.file, "exec", dont_inherit=True)

    assert len(standing) >= FEWEST
    assert len({guard.what for guard in guards()}) == len(guards())


@pytest.mark.django_db
def test_guards_are_missed_when_they_are_gone() -> None:
    """Two guards a day are taken away, in processes of their own, and their tests notice."""
    addresses = {
        "TERRACE_TEST_DATABASE_URL": os.environ["DATABASE_URL"],
        "TERRACE_TEST_REDIS_URL": settings.REDIS_URL,
        "TERRACE_TEST_DATABASE_NAME": str(connection.settings_dict["NAME"]),
    }
    today = str(datetime.now(UTC).toordinal())

    done = subprocess.run(
        [sys.executable, "-m", "tests.web.walls.mutants", "--turn", today, "--count", str(COUNT)],
        cwd=CHECKOUT,
        env={**os.environ, **addresses},
        capture_output=True,
        check=False,
        text=True,
    )

    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert f"{COUNT} of {COUNT} guards noticed" in done.stdout
