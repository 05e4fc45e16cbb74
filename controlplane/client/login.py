"""Where the command line finds the server and its token: the environment, or a file of its own."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path


class NotLoggedInError(Exception):
    """There is no address or no token."""


@dataclass(frozen=True, slots=True)
class Login:
    """An installation's address and a token for it."""

    url: str
    token: str


def config_path() -> Path:
    """Return the file that `terrace login` writes."""
    base = os.environ.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
    return Path(base) / "terrace" / "login.json"


def current() -> Login:
    """Return the login: TERRACE_URL and TERRACE_TOKEN come before the file.

    Raises:
        NotLoggedInError: something is missing.
    """
    kept = _read()
    url = os.environ.get("TERRACE_URL") or kept.get("url", "")
    token = os.environ.get("TERRACE_TOKEN") or kept.get("token", "")
    if not url or not token:
        missing = "address" if not url else "token"
        raise NotLoggedInError(
            f"No {missing} is known. Set TERRACE_URL and TERRACE_TOKEN, or run: terrace login URL"
        )
    return Login(url, token)


def keep(login: Login) -> Path:
    """Write the login where only this user reads it."""
    path = config_path()
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(opened, "w", encoding="utf-8") as file:
        json.dump({"url": login.url, "token": login.token}, file)
    path.chmod(0o600)
    return path


def _read() -> dict[str, str]:
    try:
        kept = json.loads(config_path().read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise NotLoggedInError(f"{config_path()} cannot be read: {error}") from error
    return kept if isinstance(kept, dict) else {}
