"""The addresses before somebody is known: who may read each is in `account_doors.csv`.

They are django-allauth's. `stranger` and `person` are what a GET is answered: a status, or `login`
for the way to the sign-in, `home` for a redirect elsewhere.
"""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver

from tests.people import make_user
from tests.web.walls.routes import FOREIGN, PARAMETER

MATRIX = Path(__file__).with_name("account_doors.csv")
REGEX_PART = re.compile(r"\(\?P<(\w+)>[^)]*\)")
LOGIN = "/accounts/login/"


def declared() -> dict[str, dict[str, str]]:
    with MATRIX.open(encoding="utf-8", newline="") as file:
        return {row.pop("path"): row for row in csv.DictReader(file)}


def doors(patterns: list[URLPattern | URLResolver] | None = None, prefix: str = "") -> list[str]:
    """Return all addresses that `routes` leaves out, as their patterns are written."""
    found: list[str] = []
    for one in get_resolver().url_patterns if patterns is None else patterns:
        path = prefix + str(one.pattern)
        if isinstance(one, URLResolver):
            found += doors(one.url_patterns, path)
        elif path.startswith(FOREIGN) or "^" in path:
            found.append(path)
    return found


def address(path: str) -> str:
    """Fill in a pattern with what nobody has."""
    plain = REGEX_PART.sub("none", PARAMETER.sub("0", path))
    return "/" + plain.replace("^", "").replace("$", "").replace("(?:/|none)", "/")


def answer(client: Client, path: str) -> str:
    reply = client.get(address(path))
    if reply.status_code != 302:
        return str(reply.status_code)
    return "login" if reply.headers["Location"].startswith(LOGIN) else "home"


def test_every_door_has_a_row_and_every_row_a_door() -> None:
    """An address that comes with a new version of allauth fails here until it was looked at."""
    assert sorted(doors()) == sorted(declared())


@pytest.mark.django_db
def test_every_door_answers_as_the_matrix_says() -> None:
    """Strangers get to the sign-in and to nothing of anybody's."""
    stranger, person = Client(), Client()
    person.force_login(make_user("somebody"))

    found = {
        path: {"stranger": answer(stranger, path), "person": answer(person, path)}
        for path in declared()
        if not path.endswith("logout/")
    }

    assert found == {path: row for path, row in declared().items() if path in found}
