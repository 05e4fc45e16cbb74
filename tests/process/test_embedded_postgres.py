"""The embedded PostgreSQL comes up whole, or says why it does not, and never eats data."""

import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest

from controlplane.supervisor import identity, postgres
from controlplane.supervisor.errors import StartError
from controlplane.supervisor.postgres import PostgresServer
from controlplane.supervisor.processes import spawn
from tests.embedded import CHECKOUT, PLAIN_ENVIRONMENT
from tests.process.fake_gateway import wait_for


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    account = identity.service_account(None, CHECKOUT)
    folder = postgres.throw_away_folder(account)
    yield postgres.server(folder, folder, account, settings=postgres.THROW_AWAY)
    shutil.rmtree(folder)


@contextmanager
def running(server: PostgresServer) -> Iterator[subprocess.Popen[bytes]]:
    server.prepare()
    folder = server.data.parent
    process = spawn(
        server.command(),
        log=folder / "log",
        environment=PLAIN_ENVIRONMENT,
        folder=folder,
        account=server.account,
        ends_with_parent=signal.SIGINT,
    )
    server.wait_until_ready(process, folder / "log")
    yield process
    process.send_signal(signal.SIGINT)
    process.wait()


def test_rows_survive_a_kill(server: PostgresServer) -> None:
    """After kill -9 the next start removes the dead one's lock and finds what was committed."""
    server = replace(server, settings=tuple(postgres.DURABLE.items()))
    with running(server) as process, psycopg.connect(server.url(), autocommit=True) as connection:
        connection.execute("CREATE TABLE kept AS SELECT 42 AS answer")
        process.kill()
        process.wait()
    assert (server.data / "postmaster.pid").exists()

    with running(server), psycopg.connect(server.url()) as connection:
        assert connection.execute("SELECT answer FROM kept").fetchone() == (42,)


def test_interrupted_preparation_is_begun_anew(server: PostgresServer) -> None:
    """Half a data folder is not taken for a whole one."""
    draft = server.data.with_name("data.new")
    draft.mkdir()
    (draft / "PG_VERSION").write_text("18\n")

    with running(server), psycopg.connect(server.url()) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)
    assert not draft.exists()


def test_lost_passwords_do_not_cost_the_data(server: PostgresServer) -> None:
    """A database that cannot be entered is not replaced by an empty one."""
    server.prepare()
    server.password_file.unlink()

    with pytest.raises(StartError, match="passwords is gone, and with it the way into"):
        server.prepare()

    assert (server.data / "PG_VERSION").exists()


def test_running_server_is_not_started_twice(server: PostgresServer) -> None:
    """A server that nobody recorded keeps its lock."""
    with running(server) as process:
        with pytest.raises(StartError, match=rf"A PostgreSQL \(pid {process.pid}\) already runs"):
            server.prepare()

        assert (server.data / "postmaster.pid").exists()


def test_failed_start_shows_the_log(server: PostgresServer, tmp_path: Path) -> None:
    """The error quotes what PostgreSQL said."""
    server.prepare()
    log = tmp_path / "log"
    process = spawn(
        [*server.command(), "--no_such_setting=1"],
        log=log,
        environment=PLAIN_ENVIRONMENT,
        folder=server.data,
        account=server.account,
    )

    with pytest.raises(StartError, match="no_such_setting"):
        server.wait_until_ready(process, log)

    process.wait()


def test_connection_needs_the_password(server: PostgresServer) -> None:
    """Being the same user on the same machine is not enough."""
    with (
        running(server),
        pytest.raises(psycopg.OperationalError, match="password"),
    ):
        psycopg.connect(host=str(server.sockets), dbname="postgres", user="postgres", password="x")


def test_server_that_waits_for_its_clients_says_that_it_ends(server: PostgresServer) -> None:
    """SIGTERM alone never ends it while somebody is connected; that it was asked is to be read."""
    with running(server) as process, psycopg.connect(server.url()):
        assert not server.is_ending()
        process.send_signal(signal.SIGTERM)

        wait_for(server.is_ending, 30)
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        process.wait()
