"""What the API says when the database could not do a request now."""

import psycopg
import pytest
from django.db import InterfaceError, InternalError, OperationalError
from django.test import RequestFactory

from controlplane.api import errors

SLEPT = psycopg.errors.IdleInTransactionSessionTimeout("terminating connection")
OTHER = psycopg.errors.InFailedSqlTransaction("current transaction is aborted")


def caused(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    "error",
    [
        OperationalError("couldn't get a connection after 5.00 sec"),
        InterfaceError("the connection is closed"),
        caused(InternalError("terminating connection"), SLEPT),
    ],
)
def test_request_that_may_do_later_is_told_when(error: Exception) -> None:
    """Nothing was done; the client is asked to come again with the same key."""
    reply = errors.handle(error, {"request": RequestFactory().get("/api/v1/jobs")})

    assert (reply.status_code, reply.data["code"]) == (503, "busy")
    assert reply.headers["Retry-After"] == "2"


def test_fault_of_ours_is_no_busy_database() -> None:
    """A statement in a transaction that had failed is an error of the program."""
    error = caused(InternalError("current transaction is aborted"), OTHER)

    reply = errors.handle(error, {"request": RequestFactory().get("/api/v1/jobs")})

    assert (reply.status_code, reply.data["code"]) == (500, "internal")
