"""Pages and lists at 1,000,000 tasks: `python -m benchmarks pages`.

Rows of 100,900 jobs with a million tasks, their attempts, history and audit trail, and of the
organisation that they belong to; then every address that answers to GET and every live part of a
page is asked for many times, in this process, signed in as an administrator, or as --user such as
person-0000, a researcher of one team. They are walked by the
URL configuration, so that no page is left out. Prints one JSON object each: the 95th percentile of
its time, the CPU time of this process and of PostgreSQL in it (on a shared machine wall time says
little), its queries and its size. An export counts to its first piece.

Uses an empty database named by DATABASE_URL, which it migrates and fills. With --shape FILE it
keeps there what it wrote, and asks the same database again the next time.
"""

from __future__ import annotations

import argparse
import re
import statistics
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import psutil
from django.db import connection
from django.http import StreamingHttpResponse
from django.test import Client
from django.test.utils import CaptureQueriesContext

from benchmarks._million import Shape, fill
from benchmarks._rows import emit, percentile
from scheduling.domain.clock import database_now
from scheduling.models import Task
from tenants.domain import tokens
from tenants.domain.access import Actor, load_actor
from tenants.domain.errors import NotFound
from tenants.models import User
from tests.web.walls.reads import addresses, draw, parts

MUST_MS = 100.0
MOST_QUERIES = 15
NO_SUCH_METHOD = 405


def main() -> None:
    """Fill, ask, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--large", type=int, default=900, help="finished jobs of 1,000 tasks")
    parser.add_argument("--small", type=int, default=100_000, help="finished jobs of one task")
    parser.add_argument("--times", type=int, default=30)
    parser.add_argument("--shape", type=Path, help="what was written before, or where to keep it")
    parser.add_argument("--user", help="who asks, by user name; an administrator of everything")
    parser.add_argument("--only", default="", help="a pattern that addresses and parts match")
    given = parser.parse_args()
    if given.shape and given.shape.exists():
        shape = Shape.read(given.shape)
    else:
        shape = fill(large=given.large, small=given.small)
        if given.shape:
            shape.write(given.shape)
    print(f"{Task.objects.count()} tasks", file=sys.stderr)
    who = {"username": given.user} if given.user else {"id": shape.admin_id}
    reader = User.objects.get(**who)
    browser, program = _clients(reader)
    for address in addresses(*shape.things):
        if re.search(given.only, address):
            client = program if address.startswith("/api/") else browser
            _measure(address, _asking(client, address), given.times)
    actor = load_actor(reader)
    for things in shape.things:
        for name, object_id in parts(things.other(user_id=str(reader.id))):
            label = f"part {name} of {object_id}"
            if re.search(given.only, label):
                _measure(label, _drawing(name, object_id, actor), given.times)


def _clients(reader: User) -> tuple[Client, Client]:
    """Return a browser that is signed in, and a program with a token."""
    now = database_now()
    _, secret = tokens.create_token(
        actor=load_actor(reader),
        user=reader,
        name=f"benchmark {now}",
        verbs=[],
        unit=None,
        expires_at=now + timedelta(hours=9),
        now=now,
    )
    browser = Client(SERVER_NAME="127.0.0.1")
    browser.force_login(reader)
    return browser, Client(SERVER_NAME="127.0.0.1", headers={"Authorization": f"Bearer {secret}"})


Asking = Callable[[], tuple[int, int]]
"""Asks once; returns the status and the bytes that came."""


def _asking(client: Client, address: str) -> Asking:
    def ask() -> tuple[int, int]:
        reply = client.get(address)
        if isinstance(reply, StreamingHttpResponse):
            pieces = iter(reply)
            size = len(next(pieces, b""))
            reply.close()
            return reply.status_code, size
        return reply.status_code, len(reply.content)

    return ask


def _drawing(name: str, object_id: str, actor: Actor) -> Asking:
    def ask() -> tuple[int, int]:
        try:
            return 200, len(draw(name, object_id, actor).encode())
        except NotFound:  # not for this reader
            return 404, 0

    return ask


def _measure(label: str, ask: Asking, times: int) -> None:
    """Ask, first for the queries, then for the time."""
    ask()
    with CaptureQueriesContext(connection) as seen:
        status, size = ask()
        queries = len(seen)  # the next request begins a new count
    if status == NO_SUCH_METHOD:
        return
    if status >= 300:
        print(f"{label}: {status}", file=sys.stderr)
        return
    database = _database_process()
    database_used = _cpu_seconds(database)
    wall, cpu = [], []
    for _ in range(times):
        begun, used = time.perf_counter(), time.process_time()
        ask()
        wall.append((time.perf_counter() - begun) * 1000)
        cpu.append((time.process_time() - used) * 1000)
    emit(
        f"{label}, p95 ms",
        percentile(wall, 95),
        MUST_MS,
        median=round(statistics.median(wall), 1),
        cpu_median=round(statistics.median(cpu), 1),
        cpu_p95=round(percentile(cpu, 95), 1),
        database_cpu_mean=round((_cpu_seconds(database) - database_used) * 1000 / times, 1),
        queries=queries,
        queries_must=MOST_QUERIES,
        kib=round(size / 1024, 1),
    )


def _database_process() -> psutil.Process:
    """Return PostgreSQL's process of this connection: it runs on this machine."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        return psutil.Process(cursor.fetchone()[0])


def _cpu_seconds(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system


if __name__ == "__main__":
    main()
