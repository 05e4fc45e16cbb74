"""The database's part: PostgreSQL's own pg_dump and pg_restore, told where by a service file.

While a restore is under way the schema of before stands aside under another name; it is also the
mark by which everybody else sees that the database is not to be used (`is_being_restored`).
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from django.db import connection

from controlplane.backup.errors import BackupError
from controlplane.supervisor import postgres
from controlplane.supervisor.errors import StartError

ASIDE = "terrace_before_restore"
DEBIAN = Path("/usr/lib/postgresql")
LOCK_WAIT = "60s"
# Of Django's options for the connection, those that are not libpq's.
NOT_LIBPQ = frozenset({"pool", "options", "application_name", "connect_timeout"})


def dump(target: Path) -> None:
    """Write the whole database, as it is at one moment, in PostgreSQL's custom format.

    Raises:
        BackupError: no pg_dump fits, or it failed.
    """
    _run(
        "pg_dump",
        ["--format=custom", "--no-owner", "--no-privileges", f"--exclude-schema={ASIDE}"],
        [f"--lock-wait-timeout={LOCK_WAIT}", f"--file={target}"],
    )


def restore(source: Path) -> None:
    """Bring back everything of ours in one transaction, into an empty schema.

    An extension that an administrator added for measuring lies in no schema and is left alone.

    Raises:
        BackupError: no pg_restore fits, or it failed; nothing was written then.
    """
    _run(
        "pg_restore",
        ["--no-owner", "--no-privileges", "--schema=public", "--exit-on-error"],
        ["--single-transaction", "--dbname=service=terrace", str(source)],
    )


# --- the schemas ----------------------------------------------------------------------------------


def others() -> list[str]:
    """Return the names of the other programs that are connected to the database.

    Of another role's sessions the kind is hidden; those without a role are the server's own.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT DISTINCT coalesce(nullif(application_name, ''), 'unnamed')"
            " FROM pg_stat_activity WHERE datname = current_database() AND usesysid IS NOT NULL"
            " AND coalesce(backend_type, 'client backend') = 'client backend'"
            " AND pid <> pg_backend_pid() ORDER BY 1"
        )
        return [row[0] for row in cursor.fetchall()]


def is_empty() -> bool:
    """Tell whether there is no table yet."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT NOT EXISTS (SELECT 1 FROM pg_tables WHERE schemaname = 'public')")
        return bool(cursor.fetchone()[0])


def is_being_restored() -> bool:
    """Tell whether a restore was begun and not finished."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT EXISTS (SELECT 1 FROM pg_namespace WHERE nspname = %s)", [ASIDE])
        return bool(cursor.fetchone()[0])


def set_aside() -> None:
    """Put what is there under another name, and an empty schema in its place."""
    _execute(
        f"ALTER SCHEMA public RENAME TO {ASIDE}",
        "CREATE SCHEMA public",
        # As PostgreSQL makes it, so that the next dump does not speak of it.
        "ALTER SCHEMA public OWNER TO pg_database_owner",
        "GRANT USAGE ON SCHEMA public TO PUBLIC",
    )


def put_back() -> None:
    """Undo an unfinished restore: what was there before is there again."""
    _execute("DROP SCHEMA IF EXISTS public CASCADE", f"ALTER SCHEMA {ASIDE} RENAME TO public")


def drop_aside() -> None:
    """Finish: what was there before is gone. Belongs into the transaction that ends a restore."""
    with connection.cursor() as cursor:
        cursor.execute(f"DROP SCHEMA {ASIDE} CASCADE")


def _execute(*statements: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute("BEGIN; " + "; ".join(statements) + "; COMMIT")


def take_time() -> None:
    """Lift the limit on the length of a statement for this connection."""
    with connection.cursor() as cursor:
        cursor.execute("SET statement_timeout = 0")
        cursor.execute("SET idle_in_transaction_session_timeout = 0")


# --- PostgreSQL's programs ------------------------------------------------------------------------


def _run(program: str, *arguments: Sequence[str]) -> None:
    path = find_program(program, server_version() // 10_000)
    words = [word for part in arguments for word in part]
    with _service() as environment:
        done = subprocess.run(  # noqa: S603 -- PostgreSQL's own program, no shell
            [str(path), "--no-password", *words],
            env={**environment, "PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC"},
            capture_output=True,
            check=False,
            text=True,
            errors="replace",
        )
    if done.returncode != 0:
        message = f"{program} ({path}) failed:\n{done.stderr.strip()[-4000:]}"
        raise BackupError(message)


def server_version() -> int:
    """Return the server's version as a number: 180001 for 18.1."""
    connection.ensure_connection()
    return int(connection.pg_version)  # type: ignore[attr-defined]  # PostgreSQL's wrapper has it


def find_program(name: str, at_least: int) -> Path:
    """Return the oldest of the programs at hand that is not older than the server.

    An older one refuses; a much newer one may write what an old server does not understand.

    Raises:
        BackupError: none is new enough.
    """
    found: dict[int, Path] = {}
    for path in _candidates(name):
        version = _major(path)
        if version is not None:
            found.setdefault(version, path)
    usable = [version for version in found if version >= at_least]
    if not usable:
        message = (
            f"There is no {name} for PostgreSQL {at_least} on this machine: "
            f"apt install postgresql-client-{at_least}."
        )
        raise BackupError(message)
    return found[min(usable)]


def _candidates(name: str) -> Iterator[Path]:
    on_path = shutil.which(name)
    if on_path:
        yield Path(on_path)
    yield from sorted(DEBIAN.glob(f"*/bin/{name}"))
    try:
        embedded = postgres.find_binaries() / name
    except StartError:
        return
    if embedded.exists():
        yield embedded


def _major(path: Path) -> int | None:
    command = [str(path), "--version"]
    done = subprocess.run(command, capture_output=True, check=False, text=True)  # noqa: S603 -- same
    found = re.search(r"\(PostgreSQL\) (\d+)", done.stdout)
    return int(found[1]) if found else None


@contextmanager
def _service() -> Iterator[dict[str, str]]:
    """Say where the database is by a private file: a command line is for all to read."""
    described = connection.settings_dict
    values = {
        "dbname": described["NAME"],
        "user": described["USER"],
        "password": described["PASSWORD"],
        "host": described["HOST"],
        "port": described["PORT"],
        **{key: str(value) for key, value in described["OPTIONS"].items() if key not in NOT_LIBPQ},
        "application_name": "terrace-backup",
    }
    lines = ["[terrace]", *(f"{key}={value}" for key, value in values.items() if value)]
    with tempfile.TemporaryDirectory(prefix="terrace-backup-") as folder:
        file = Path(folder) / "service"
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            stream.write("\n".join(lines) + "\n")
        yield {"PGSERVICEFILE": str(file), "PGSERVICE": "terrace"}
