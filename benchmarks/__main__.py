"""Run every benchmark on a throw-away database of its own: `python -m benchmarks [NAME ...]`.

Each prints one JSON object a line on standard output; what it says on the way goes to standard
error. The database is as durable as production's, so that commits cost what they cost.
"""

import os
import secrets
import shutil
import signal
import subprocess
import sys
from pathlib import Path

from controlplane.supervisor import identity, postgres, processes, redis
from controlplane.supervisor.ports import any_free

HERE = Path(__file__).resolve().parent
PLAIN_ENVIRONMENT = {"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC"}


def main(names: list[str]) -> int:
    """Run the named benchmarks, or all; return how many failed."""
    known = sorted(path.stem for path in HERE.glob("[a-z]*.py"))
    unknown = set(names) - set(known)
    if unknown:
        sys.exit(f"No benchmark {', '.join(sorted(unknown))}; there are {', '.join(known)}.")
    return sum(not _run(name) for name in names or known)


def _run(name: str) -> bool:
    account = identity.service_account(None, HERE.parent)
    folder = postgres.throw_away_folder(account)
    database = postgres.server(folder, folder, account)
    broker = redis.server(folder, any_free(), account)
    started: list[tuple[subprocess.Popen[bytes], signal.Signals]] = []
    try:
        for server, end in ((database, signal.SIGINT), (broker, signal.SIGTERM)):
            server.prepare()
            log = folder / "server.log"
            process = processes.spawn(
                server.command(),
                log=log,
                environment=PLAIN_ENVIRONMENT,
                folder=folder,
                account=account,
                ends_with_parent=end,
            )
            started.append((process, end))
            server.wait_until_ready(process, log)
        print(f"-- {name}", file=sys.stderr)
        environment = {
            **os.environ,
            "DATABASE_URL": database.url(),
            "REDIS_URL": broker.url,
            "SECRET_KEY": secrets.token_urlsafe(48),
            "PUBLIC_URL": "http://127.0.0.1:8000",
            "TERRACE_GATEWAY_URL": "http://127.0.0.1:8001",
            "TERRACE_DATA": str(folder / "data"),
            "TERRACE_LOG_LEVEL": "WARNING",
        }
        command = [sys.executable, "-m", f"benchmarks.{name}"]
        return subprocess.run(command, env=environment, check=False).returncode == 0
    finally:
        for process, end in reversed(started):
            process.send_signal(end)
            process.wait()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
