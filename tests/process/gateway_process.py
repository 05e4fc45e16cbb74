"""Run the real gateway on the test's database, and the few steps of scheduling around it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import urllib.request
from datetime import timedelta
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit, urlunsplit

from django.core.files.base import ContentFile
from django.db import connection

from scheduling.domain import apply_plan, clock, files, jobs, leases, nodes, snapshot
from scheduling.domain.bootstrap import Installation, ensure_installation
from scheduling.domain.launches import scheduler_scope
from scheduling.engine.types import Binding, Plan
from scheduling.models import Attempt, Job, Node, Task
from scheduling.spec.job_spec import JobSpec
from scheduling.spec.parse import Format, parse
from tenants.domain.access import Actor, load_actor
from tests.process.fake_gateway import wait_for

ROOT = Path(__file__).resolve().parents[2]


class GatewayProcess:
    """One copy of the gateway, started as `make up` starts it."""

    def __init__(self, port: int = 0, **environment: str) -> None:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
            self.port = probe.getsockname()[1]
        parts = urlsplit(os.environ["DATABASE_URL"])
        name = connection.settings_dict["NAME"]
        self._environment = {
            **os.environ,
            "DATABASE_URL": urlunsplit(parts._replace(path=f"/{name}")),
            "TERRACE_GATEWAY_URL": self.url,
            **environment,
        }
        self._log = tempfile.NamedTemporaryFile(prefix="gateway-")  # noqa: SIM115 -- __exit__ closes it
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        command = [sys.executable, "-m", "uvicorn", "--lifespan=off", "--no-access-log"]
        command += ["--ws=websockets-sansio", "--timeout-graceful-shutdown=3"]
        command += [f"--port={self.port}", "worker.gateway.asgi:application"]
        self._process = subprocess.Popen(
            command, cwd=ROOT, env=self._environment, stdout=self._log, stderr=self._log
        )
        wait_for(self._is_up, 30)
        return self

    def __exit__(self, *_: object) -> None:
        self.kill(signal.SIGTERM)
        self._log.close()

    def kill(self, number: int = signal.SIGKILL) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(number)
            self._process.wait(20)

    def log(self) -> str:
        return Path(self._log.name).read_text()

    def _is_up(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, self.log()
        try:
            with urllib.request.urlopen(f"{self.url}/readyz", timeout=2) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False


class Installed:
    """A fresh installation, and what a scheduler loop would do for it."""

    def __init__(self) -> None:
        self.now = clock.database_now()
        self.installation: Installation = ensure_installation(
            admin_username="root", admin_password="correct horse battery", now=self.now
        )
        self.actor: Actor = load_actor(self.installation.admin)
        self._cycles = 0

    def join_token(self, uses: int = 1) -> str:
        _, secret = nodes.join_token_create(
            actor=self.actor,
            cluster=self.installation.cluster,
            now=self.now,
            valid_for=timedelta(minutes=5),
            uses=uses,
        )
        return secret

    def submit(
        self, name: str, command: list[str], code: tuple[str, bytes] | None = None, **role: Any
    ) -> Job:
        """Submit a job of one task; `code` is the name and content of an uploaded file."""
        now = clock.database_now()
        uploaded = None
        if code is not None:
            uploaded = files.store_upload(
                actor=self.actor,
                unit_id=self.installation.tenant.id,
                path=code[0],
                content=ContentFile(code[1]),
                now=now,
            ).id
        role = {"cpu_milli": 100, "memory_bytes": 64 << 20, **role}
        spec = parse(
            {
                "name": name,
                "queue": "default",
                "roles": [{"name": "worker", "replicas": 1, "command": command, **role}],
            },
            form=Format.JSON,
        )
        assert isinstance(spec, JobSpec), spec
        return jobs.submit_job(actor=self.actor, spec=spec, now=now, code_file_id=uploaded)

    def bind(self, job: Job, node: Node) -> list[Attempt]:
        """Apply a plan that puts all waiting tasks of the job on one node, under a new epoch."""
        cluster = self.installation.cluster
        scope = scheduler_scope(cluster.id)
        self._cycles += 1
        epoch = leases.acquire(scope=scope, holder=f"test-{self._cycles}", ttl_seconds=0.001)
        assert epoch is not None
        now = clock.database_now()
        tasks = Task.objects.filter(job=job, state="Pending")
        binds = tuple(Binding(str(task.id), str(job.id), node.name) for task in tasks)
        applied = apply_plan.apply(
            Plan(binds=binds),
            cluster_id=cluster.id,
            scope=scope,
            epoch=epoch,
            snapshot=snapshot.build(cluster.id, now),
            now=now,
        )
        assert applied.binds == len(binds), applied.rejected
        return list(Attempt.objects.filter(job=job, state="Bound"))
