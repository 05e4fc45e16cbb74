"""The database's clock, for entry points: times that are kept come from one clock only."""

from datetime import datetime

from django.db import connection


def database_now() -> datetime:
    """Return the time by the database, which goes on inside a transaction."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        now: datetime = cursor.fetchone()[0]
        return now
