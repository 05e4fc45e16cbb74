"""The command line's verbs about units, people, roles and tokens, against the real API."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tenants.models import ApiToken, Grant, User
from tests.web.api.conftest import Site
from tests.web.api.test_cli import run

__all__ = ["run"]
pytestmark = pytest.mark.django_db
Run = Callable[..., int]
Captured = pytest.CaptureFixture[str]


def test_units_are_shown_by_path(run: Run, capsys: Captured) -> None:
    """The tree of the own tenant, one path a line."""
    assert run("units") == 0

    lines = [line.split()[0] for line in capsys.readouterr().out.splitlines()[1:]]
    assert lines == ["lab", "lab/speech", "lab/vision", "lab/vision/robots"]


def test_person_is_invited(site: Site, run: Run, capsys: Captured) -> None:
    """The account is there with its role, and the link is written."""
    status = run("invite", "dora", "--role", "viewer", "--unit", "lab/vision")

    assert status == 0
    assert "/join/" in capsys.readouterr().out
    grant = Grant.objects.get(user__username="dora")
    assert (grant.role, grant.unit) == ("viewer", site.people.vision)


def test_service_account_is_made(run: Run, capsys: Captured) -> None:
    """A program's account has no link."""
    assert run("invite", "ci", "--service", "--unit", "vision") == 0

    assert "/join/" not in capsys.readouterr().out
    assert User.objects.get(username="ci").is_service


def test_grant_is_tried_given_and_taken(site: Site, run: Run, capsys: Captured) -> None:
    """--dry-run names what changes and writes nothing."""
    words = ("bob", "--role", "viewer", "--unit", "speech")

    assert run("grant", *words, "--dry-run") == 0
    assert "unit: 1 (speech)" in capsys.readouterr().out
    assert Grant.objects.filter(user=site.people.bob).count() == 1
    assert run("grant", *words) == 0
    assert Grant.objects.filter(user=site.people.bob).count() == 2
    assert run("revoke", *words, "--dry-run") == 0
    assert run("revoke", *words) == 0
    assert Grant.objects.filter(user=site.people.bob).count() == 1


def test_people_are_listed_with_roles(run: Run, capsys: Captured) -> None:
    """Names, states and roles; nobody of another tenant."""
    assert run("people") == 0

    text = capsys.readouterr().out
    assert "researcher@lab/vision" in text
    assert "charlie" not in text


def test_token_is_listed_and_revoked(run: Run, capsys: Captured) -> None:
    """The token is named by what it begins with."""
    token = ApiToken.objects.get()
    assert run("tokens") == 0
    assert token.prefix in capsys.readouterr().out

    assert run("revoke-token", token.prefix) == 0

    token.refresh_from_db()
    assert token.revoked_at is not None


def test_unknown_unit_is_misuse(run: Run) -> None:
    """Nothing is asked of the server for a unit that is not there."""
    assert run("grant", "bob", "--unit", "nowhere") == 2
