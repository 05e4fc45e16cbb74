"""Celery workers, beat and a Redis of their own, on the database of the test."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit, urlunsplit

from django.db import connection

from controlplane.supervisor import redis
from controlplane.supervisor.ports import any_free
from scheduling.models import Lease
from tests.process.fake_gateway import wait_for

ROOT = Path(__file__).resolve().parents[2]


class OwnRedis:
    """A Redis that the test may kill and start again on the same port."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="tr-")
        self.server = redis.server(Path(self._folder.name), any_free(), None)
        self.server.prepare()
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        log = Path(self._folder.name) / "redis.log"
        with log.open("ab") as output:
            self._process = subprocess.Popen(self.server.command(), stdout=output, stderr=output)
        self.server.wait_until_ready(self._process, log)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait(20)
            self._process = None

    def close(self) -> None:
        self.kill()
        self._folder.cleanup()


class LoopProcess:
    """One Celery program in a session of its own, so that all of it can be killed or paused."""

    def __init__(self, redis_url: str, *arguments: str, **environment: str) -> None:
        parts = urlsplit(os.environ["DATABASE_URL"])
        name = connection.settings_dict["NAME"]
        self._log = tempfile.NamedTemporaryFile(  # noqa: SIM115 -- closed by stop()
            prefix="celery-", suffix=".log"
        )
        self.process = subprocess.Popen(
            [sys.executable, "-m", "celery", "-A", "worker.app", *arguments],
            cwd=ROOT,
            env={
                **os.environ,
                "DATABASE_URL": urlunsplit(parts._replace(path=f"/{name}")),
                "REDIS_URL": redis_url,
                **environment,
            },
            stdout=self._log,
            stderr=self._log,
            start_new_session=True,
        )

    @property
    def pid(self) -> int:
        return self.process.pid

    def signal(self, number: int) -> None:
        """Send a signal to the program and all its children."""
        os.killpg(self.process.pid, number)

    def ask_to_end(self) -> None:
        """Ask as a service manager does."""
        if self.process.poll() is None:
            self.signal(signal.SIGCONT)
            self.process.terminate()

    def outlast(self) -> None:
        """Wait until it has ended, by force if it does not."""
        try:
            self.process.wait(15)
        except subprocess.TimeoutExpired:
            self.signal(signal.SIGKILL)
            self.process.wait(10)
        self._log.close()

    def stop(self) -> None:
        """End it, and return when it has ended."""
        self.ask_to_end()
        self.outlast()

    def log(self) -> str:
        return Path(self._log.name).read_text()


class Loops:
    """Two workers for loops, one for short tasks, and beat: what a site of two machines runs."""

    def __init__(self, *, workers: int = 2, **environment: str) -> None:
        self.redis = OwnRedis()
        self._count = workers
        self._environment = environment
        self.workers: list[LoopProcess] = []
        self.others: list[LoopProcess] = []
        self._schedule = tempfile.TemporaryDirectory(prefix="beat-")

    def __enter__(self) -> Self:
        self.redis.start()
        for number in range(self._count):
            self.workers.append(self._worker("loops", f"loops{number}", 4))
        self.others.append(self._worker("celery", "tasks", 1))
        schedule = f"--schedule={self._schedule.name}/beat"
        self.others.append(
            LoopProcess(self.redis.server.url, "beat", schedule, **self._environment)
        )
        return self

    def __exit__(self, *_: object) -> None:
        processes = (*self.others, *self.workers)
        for process in processes:
            process.ask_to_end()
        for process in processes:
            process.outlast()
        self.redis.close()
        self._schedule.cleanup()

    def _worker(self, queue: str, name: str, concurrency: int) -> LoopProcess:
        return LoopProcess(
            self.redis.server.url,
            "worker",
            f"--queues={queue}",
            f"--concurrency={concurrency}",
            f"--hostname={name}@%h",
            "--without-gossip",
            "--without-mingle",
            **self._environment,
        )

    def holder(self, scope: str) -> LoopProcess | None:
        """Return the worker whose child holds a lease now."""
        lease = Lease.objects.filter(scope=scope).first()
        for worker in self.workers:
            if lease is not None and f":{worker.pid}:" in lease.holder:
                return worker
        return None

    def wait_until_ready(self, scope: str) -> LoopProcess:
        """Wait until the loop is held by one worker and another stands by for it."""
        standby = f"standby:{scope}"
        wait_for(lambda: self.is_held(scope) and self.is_held(standby), 150)
        holder = self.holder(scope)
        assert holder is not None
        assert self.holder(standby) is not holder
        return holder

    @staticmethod
    def is_held(scope: str) -> bool:
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT 1 FROM scheduling_lease WHERE scope = %s"
                " AND expires_at > clock_timestamp()",
                [scope],
            )
            return cursor.fetchone() is not None

    def logs(self) -> str:
        return "\n".join(process.log() for process in (*self.workers, *self.others))
