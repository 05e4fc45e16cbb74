"""The throw-away servers that the tests run on are what production demands of its own."""

import pytest
import redis
from django.conf import settings
from django.db import connection

pytestmark = pytest.mark.django_db


def test_database_has_the_locale_that_was_asked_for() -> None:
    """Text sorts by code point whatever the machine's locale is."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT datlocprovider::text, datlocale FROM pg_database"
            " WHERE datname = current_database()"
        )

        assert cursor.fetchone() == ("b", "C.UTF-8")


def test_role_is_not_a_superuser() -> None:
    """Terrace's own role may not read files or run programs through COPY."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT rolsuper FROM pg_roles WHERE rolname = current_user")

        assert cursor.fetchone() == (False,)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("lock_timeout", "2s"),
        ("statement_timeout", "10s"),
        ("idle_in_transaction_session_timeout", "15s"),
        ("dynamic_shared_memory_type", "mmap"),
        ("listen_addresses", ""),
    ],
)
def test_setting_holds(name: str, value: str) -> None:
    """Every connection has the limits, and the server listens in its private folder only."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_setting(%s)", [name])

        assert cursor.fetchone() == (value,)


def test_redis_refuses_without_password() -> None:
    """Nobody on the machine reads the broker without the password."""
    with_password = redis.Redis.from_url(settings.REDIS_URL)
    port = with_password.connection_pool.connection_kwargs["port"]
    without = redis.Redis(host="127.0.0.1", port=port)

    assert with_password.ping() is True
    with pytest.raises(redis.AuthenticationError):
        without.ping()
