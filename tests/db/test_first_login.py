"""The generated first password and the file that keeps it."""

import stat
from pathlib import Path

import pytest
from allauth.account.adapter import get_adapter
from pytest_django.fixtures import Settings

from controlplane import first_login
from tenants.models import User

pytestmark = pytest.mark.django_db


@pytest.fixture
def admin(settings: Settings, tmp_path: Path) -> User:
    settings.TERRACE_DATA = tmp_path
    user = User(username="admin", must_change_password=True)
    user.set_password("generated")
    user.save()
    first_login.keep("admin", "generated")
    return user


@pytest.mark.usefixtures("admin")
def test_kept_login_is_private_and_readable_back() -> None:
    """The file has name and password and is closed to others."""
    assert first_login.current() == ("admin", "generated")
    assert stat.S_IMODE(first_login.path().stat().st_mode) == 0o600


def test_changing_the_password_removes_the_file(admin: User) -> None:
    """Nothing in clear is left once the person chose a password."""
    get_adapter().set_password(admin, "my own words")

    assert not first_login.path().exists()
    assert admin.must_change_password is False


def test_changing_another_password_keeps_the_file(admin: User) -> None:
    """Somebody else's change does not take the administrator's way in."""
    other = User.objects.create(username="other")

    get_adapter().set_password(other, "my own words")

    assert first_login.current() == (admin.username, "generated")


def test_stale_file_is_removed(admin: User) -> None:
    """A password that opens no door any more is not shown at the next start."""
    admin.set_password("changed elsewhere")
    admin.save()

    assert first_login.current() is None
    assert not first_login.path().exists()
