"""Patience with a busy machine, for tests that think for long between two queries."""

from __future__ import annotations

from django.db import connection


def be_patient() -> None:
    """Let this transaction idle and ask for longer than a web process may."""
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
        cursor.execute("SET LOCAL statement_timeout = 0")
