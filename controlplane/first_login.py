"""The generated password of the first administrator, kept in a file until it is changed."""

import secrets
from pathlib import Path

from django.conf import settings

from controlplane.supervisor import services
from tenants.models import User


def path() -> Path:
    """Return where the file lies; its folder is made by `manage.py up`."""
    return Path(settings.TERRACE_DATA) / "login" / "first-login"


def new_password() -> str:
    """Make up a password that can be typed."""
    return "-".join(secrets.token_hex(3) for _ in range(4))


def keep(name: str, password: str) -> None:
    """Write the file, readable by its owner only."""
    path().parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    services.write_private(path(), f"{name}\n{password}\n")


def current() -> tuple[str, str] | None:
    """Return name and password if they still open the door; remove the file if they do not."""
    try:
        name, password = path().read_text(encoding="utf-8").split()
    except FileNotFoundError:
        return None
    user = User.objects.filter(username=name, is_active=True).first()
    if user is None or not user.check_password(password):
        path().unlink(missing_ok=True)
        return None
    return name, password


def forget(name: str) -> None:
    """Remove the file if it is this user's, who has a password of their own now."""
    try:
        kept_name = path().read_text(encoding="utf-8").split()[0]
    except (FileNotFoundError, PermissionError, IndexError):
        return  # nothing kept, or kept on another machine than this
    if kept_name == name:
        path().unlink(missing_ok=True)
