"""The list of guards: each stands where it says, once, and one by turns is missed when gone."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import UTC, datetime

import pytest
from django.conf import settings
from django.db import connection

from tests.web.walls.mutants import CHECKOUT, Guard, guards

COUNT = 1
FEWEST = 40


def _stale(guard: Guard) -> str:
    """Return why a guard cannot be taken away; nothing if it can."""
    try:
        compile(guard.mutated(), guard.file, "exec", dont_inherit=True)
    except (OSError, ValueError, SyntaxError) as error:
        return f"{guard.what}: {error}"
    return ""


def test_the_list_keeps_up_with_the_code() -> None:
    """Each guard stands once where the list says and can be taken away; follow code that moved."""
    listed = guards()

    assert [stale for guard in listed if (stale := _stale(guard))] == []
    assert len(listed) >= FEWEST
    assert len({guard.what for guard in listed}) == len(listed)


@pytest.mark.django_db
def test_guards_are_missed_when_they_are_gone() -> None:
    """One guard a day is taken away, in a process of its own, and its test notices."""
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
