"""One throw-away PostgreSQL and Redis for a run of the tests.

The addresses are fixed before Django reads its settings; the servers start only when a test that
may need them was collected, so that a run of unit tests alone stays quick.
"""

import atexit
import os
import secrets
import shutil
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path

from controlplane.supervisor import identity, postgres, processes, redis
from controlplane.supervisor.ports import any_free

CHECKOUT = Path(__file__).resolve().parent.parent
PLAIN_ENVIRONMENT = {"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC"}


class EmbeddedServices:
    """The two servers of this run, or the addresses of those that the caller brought."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        """Choose addresses; start nothing yet."""
        self.given_database = environment.get("TERRACE_TEST_DATABASE_URL")
        self.given_redis = environment.get("TERRACE_TEST_REDIS_URL")
        self.account = identity.service_account(environment.get("TERRACE_RUN_AS"), CHECKOUT)
        self.folder = postgres.throw_away_folder(self.account)
        atexit.register(self.stop)
        self.postgres = postgres.server(
            self.folder, self.folder, self.account, settings=postgres.THROW_AWAY
        )
        self.redis = redis.server(self.folder, any_free(), self.account)
        self.running: list[tuple[subprocess.Popen[bytes], signal.Signals]] = []
        self.is_started = False

    def settings(self) -> dict[str, str]:
        """Return the environment that Terrace's settings read."""
        self.postgres.write_passwords()
        return {
            "DATABASE_URL": self.given_database or self.postgres.url(),
            "REDIS_URL": self.given_redis or self.redis.url,
            "SECRET_KEY": secrets.token_urlsafe(48),
            "PUBLIC_URL": "http://testserver",
            "TERRACE_GATEWAY_URL": "http://gateway.testserver",
            "TERRACE_DATA": str(self.folder / "data"),
            "TERRACE_DATABASE_POOL": "0",
        }

    def start(self) -> None:
        """Start what was not brought; once."""
        if self.is_started:
            return
        self.is_started = True
        if self.given_database is None:
            self.postgres.prepare()
            self._run("postgres", self.postgres, signal.SIGINT)
        if self.given_redis is None:
            self.redis.prepare()
            self._run("redis", self.redis, signal.SIGTERM)

    def stop(self) -> None:
        """End the servers and remove their data."""
        while self.running:
            process, number = self.running.pop()
            process.send_signal(number)
            process.wait(timeout=30)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _run(
        self, name: str, server: postgres.PostgresServer | redis.RedisServer, end: signal.Signals
    ) -> None:
        log = self.folder / f"{name}.log"
        process = processes.spawn(
            server.command(),
            log=log,
            environment=PLAIN_ENVIRONMENT,
            folder=self.folder,
            account=self.account,
            ends_with_parent=end,
        )
        self.running.append((process, end))
        server.wait_until_ready(process, log)
