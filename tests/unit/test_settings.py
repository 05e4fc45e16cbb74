"""What a start in production demands, and what it switches on."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parent.parent.parent
PRODUCTION = {
    "DATABASE_URL": "postgresql://terrace:pass%20word@db.example:5433/live?sslmode=require",
    "REDIS_URL": "rediss://:word@redis.example/0",
    "SECRET_KEY": "0123456789abcdef" * 4,
    "PUBLIC_URL": "https://terrace.example",
    "TERRACE_GATEWAY_URL": "https://gateway.example",
}


def load(expression: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Load the settings in a process with this environment only, and print an expression."""
    script = f"import json; from controlplane import settings as s; print(json.dumps({expression}))"
    return subprocess.run(
        [sys.executable, "-c", script],
        cwd=CHECKOUT,
        env={"PATH": os.defpath, **environment},
        capture_output=True,
        check=False,
        text=True,
    )


@pytest.mark.parametrize("name", [name for name in PRODUCTION if name != "DATABASE_URL"])
def test_production_without_a_required_setting_does_not_start(name: str) -> None:
    """The missing variable is named; nothing falls back to a default."""
    environment = {key: value for key, value in PRODUCTION.items() if key != name}

    done = load("s.DEBUG", **environment)

    assert done.returncode != 0
    assert f"ImproperlyConfigured: {name} is not set" in done.stderr


@pytest.mark.parametrize("key", ["secret", "x" * 64, "django-insecure"])
def test_production_with_a_guessable_key_does_not_start(key: str) -> None:
    """A short or monotonous key is refused, is not repeated, and the way to a good one is said."""
    done = load("s.DEBUG", **{**PRODUCTION, "SECRET_KEY": key})

    assert done.returncode != 0
    last = done.stderr.strip().splitlines()[-1]
    assert "SECRET_KEY is not at least 50 random characters; take the output of" in last
    assert key not in last.replace("secrets", "")


def test_production_over_https_locks_cookies() -> None:
    """Cookies belong to this host and never travel in clear; no page may frame ours."""
    done = load(
        "[s.DEBUG, s.SESSION_COOKIE_NAME, s.SESSION_COOKIE_SECURE, s.CSRF_COOKIE_SECURE,"
        " s.SESSION_COOKIE_HTTPONLY, s.CSRF_COOKIE_HTTPONLY, s.SESSION_COOKIE_SAMESITE,"
        " s.CSRF_COOKIE_SAMESITE, s.CACHES['default']['BACKEND'].rpartition('.')[2],"
        " s.SECURE_HSTS_SECONDS, s.ALLOWED_HOSTS, s.CSRF_TRUSTED_ORIGINS,"
        " s.CONTENT_SECURITY_POLICY['DIRECTIVES']['frame-ancestors']]",
        **PRODUCTION,
    )

    assert json.loads(done.stdout) == [
        False,
        "__Host-session",
        True,
        True,
        True,
        True,
        "Lax",
        "Lax",
        "DatabaseCache",  # guesses of passwords are counted for all processes together
        31536000,
        ["terrace.example"],
        ["https://terrace.example"],
        ["'none'"],
    ]


def test_production_over_https_passes_the_checks_of_deployment() -> None:
    """`check --deploy` finds nothing to warn of: default key, DEBUG, cookies, HSTS, redirects."""
    done = subprocess.run(
        [sys.executable, "manage.py", "check", "--deploy", "--fail-level", "WARNING"],
        cwd=CHECKOUT,
        env={"PATH": os.defpath, **PRODUCTION},
        capture_output=True,
        check=False,
        text=True,
    )

    assert done.returncode == 0, done.stderr


def test_database_address_is_taken_apart() -> None:
    """Passwords with escapes and options behind the question mark arrive whole."""
    done = load(
        "{k: s.DATABASES['default'][k] for k in ('NAME', 'USER', 'PASSWORD', 'HOST', 'PORT')}"
        " | {'sslmode': s.DATABASES['default']['OPTIONS']['sslmode']}",
        **PRODUCTION,
    )

    assert json.loads(done.stdout) == {
        "NAME": "live",
        "USER": "terrace",
        "PASSWORD": "pass word",
        "HOST": "db.example",
        "PORT": "5433",
        "sslmode": "require",
    }


def test_wrong_database_address_shows_an_example() -> None:
    """What is no PostgreSQL address stops the start, and the password is not repeated."""
    done = load("s.DEBUG", **{**PRODUCTION, "DATABASE_URL": "mysql://terrace:hush@db/live"})

    assert done.returncode != 0
    assert "for example DATABASE_URL=postgresql://" in done.stderr
    assert "hush" not in done.stderr.splitlines()[-1]


def test_without_anything_running_the_key_is_made_up_each_time(tmp_path: Path) -> None:
    """Nothing can be signed with a key that stands in the code."""
    first, second = (load("s.SECRET_KEY", TERRACE_DATA=str(tmp_path)).stdout for _ in range(2))

    assert len(json.loads(first)) >= 50
    assert first != second


def test_without_anything_running_a_query_says_what_to_do(tmp_path: Path) -> None:
    """A command that needs rows names the two ways to a database."""
    done = subprocess.run(
        [sys.executable, "manage.py", "showmigrations"],
        cwd=CHECKOUT,
        env={"PATH": os.defpath, "TERRACE_DATA": str(tmp_path)},
        capture_output=True,
        check=False,
        text=True,
    )

    assert done.returncode != 0
    assert "Start Terrace with `make up`, or set DATABASE_URL." in done.stderr
