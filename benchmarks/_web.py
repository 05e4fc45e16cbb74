"""Web processes to measure, started as production starts them, and what processes cost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import psutil
from django.db import connection

from benchmarks import _empty
from benchmarks._installation import answers, wait_until
from controlplane.supervisor.ports import any_free
from controlplane.supervisor.programs import UVICORN

WEB = (
    *UVICORN, "--log-level=warning", "--ws-max-size=65536", "--ws-per-message-deflate=false",
    "controlplane.asgi:application",
)  # fmt: skip


@contextmanager
def serving(count: int = 1, *, cpu: int = -1) -> Iterator[dict[int, int]]:
    """Run web processes; yield their process ids by port. `cpu` names a core for all of them."""
    started: list[subprocess.Popen[bytes]] = []
    pids: dict[int, int] = {}
    try:
        for _ in range(count):
            port = any_free()
            environment = {**os.environ, "PUBLIC_URL": f"http://127.0.0.1:{port}"}
            environment.pop(_empty.PATIENT, None)
            process = subprocess.Popen([sys.executable, *WEB, f"--port={port}"], env=environment)
            started.append(process)
            pids[port] = process.pid
            if cpu >= 0:
                os.sched_setaffinity(process.pid, {cpu})
        for port in pids:
            wait_until(lambda port=port: answers(f"http://127.0.0.1:{port}"))  # type: ignore[misc]  # a default binds it
        yield pids
    finally:
        for process in started:
            process.send_signal(signal.SIGTERM)
        for process in started:
            process.wait()


def cpu_seconds(parts: Mapping[str, int]) -> dict[str, float]:
    """Return the CPU time of each part so far, its children's included, and PostgreSQL's."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        backend = int(cursor.fetchone()[0])
    everything = {**parts, "postgres": psutil.Process(backend).ppid(), "client": os.getpid()}
    return {name: _cpu_of_tree(psutil.Process(pid)) for name, pid in everything.items()}


def _cpu_of_tree(root: psutil.Process) -> float:
    seconds = 0.0
    for process in (root, *root.children(recursive=True)):
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue  # counted among its parent's children by now
        seconds += times.user + times.system + times.children_user + times.children_system
    return seconds
