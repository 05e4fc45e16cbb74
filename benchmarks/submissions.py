"""Submissions by sockets to web processes of their own: `python -m benchmarks submissions`.

Single POSTs by several clients whose connections stay open, as fast as the replies come and at a
steady rate, and batches of 1,000 jobs: each with its token, validated, judged, committed. Prints
JSON objects, one a line: jobs a second, and the CPU time of one in web, PostgreSQL and the client.
No scheduler runs beside. Uses an empty database named by DATABASE_URL, which it migrates and fills.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from benchmarks import _posts, _web
from benchmarks._machine import calibration
from benchmarks._rows import Rows, emit, percentile
from scheduling.domain.clock import database_now
from scheduling.models import Job
from tenants.domain import tokens

BATCH = 1_000
MUST_SINGLE, MUST_BATCHED = 200.0, 2_000.0
WARM_UP = 100

Order = Callable[..., dict[str, Any]]


def main() -> None:
    """Measure each way and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--singles", type=int, default=2_000)
    parser.add_argument("--batches", type=int, default=10)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--web", type=int, default=1, help="web processes")
    parser.add_argument("--rate", type=float, default=MUST_SINGLE, help="of the steady part")
    given = parser.parse_args()
    rows = Rows()
    token = _token(rows)
    statements = _statements(token)
    with _web.serving(given.web) as pids, _clients(pids, token, given.clients) as order:
        parts = {f"web{number}": pid for number, pid in enumerate(pids.values())}

        def measured(title: str, must: float, **asked: Any) -> None:
            before = _web.cpu_seconds(parts)
            said = order(**asked)
            used = {part: s - before[part] for part, s in _web.cpu_seconds(parts).items()}
            count = asked["requests"] * asked.get("jobs", 1)
            _emit(title, must, count, said, used, web=given.web, clients=asked["clients"])

        order(kind="single", name="warm", requests=WARM_UP, clients=given.clients)
        measured(
            "sustained submissions, jobs a second", MUST_SINGLE,
            kind="single", name="single", requests=given.singles, clients=given.clients,
        )  # fmt: skip
        measured(
            f"submissions at {given.rate:.0f} a second", given.rate,
            kind="single", name="steady", requests=given.singles, clients=given.clients,
            rate=given.rate,
        )  # fmt: skip
        measured(
            "submissions in batches, jobs a second", MUST_BATCHED,
            kind="batch", name="batch", requests=given.batches, clients=1, jobs=BATCH,
        )  # fmt: skip
    if Job.objects.count() != 2 + WARM_UP + 2 * given.singles + given.batches * BATCH:
        raise SystemExit("not every accepted job is a row")
    print(json.dumps({"benchmark": "statements of a submission", "value": len(statements)}))


def _token(rows: Rows) -> str:
    now = database_now()
    return tokens.create_token(
        actor=rows.actor,
        user=rows.admin,
        name="benchmark",
        verbs=[],
        unit=None,
        expires_at=now + timedelta(hours=1),
        now=now,
    )[1]


def _statements(token: str) -> list[str]:
    """Return what one submission says to PostgreSQL, the second one, since the first is special."""
    for number in range(2):
        with CaptureQueriesContext(connection) as seen:
            reply = Client(SERVER_NAME="127.0.0.1").post(
                "/api/v1/jobs",
                _posts.job(f"counted-{number}"),
                content_type="application/json",
                headers={"Authorization": f"Bearer {token}"},
            )
        if reply.status_code != 201:
            raise SystemExit(f"{reply.status_code}: {reply.content[:300]!r}")
    return [query["sql"] for query in seen.captured_queries]


@contextmanager
def _clients(pids: Mapping[int, int], token: str, count: int) -> Iterator[Order]:
    """Run the clients; what is yielded gives them an order and returns what they say."""
    ports = ",".join(str(port) for port in pids)
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks._posts", f"--ports={ports}", f"--clients={count}"],
        env={**os.environ, "POSTS_TOKEN": token},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None and process.stdout is not None  # noqa: S101, PT018 -- asked for
    sent, said = process.stdin, process.stdout

    def order(**asked: Any) -> dict[str, Any]:
        sent.write(json.dumps(asked) + "\n")
        sent.flush()
        line = said.readline()
        if not line:
            raise SystemExit("the clients ended")
        answer: dict[str, Any] = json.loads(line)
        return answer

    try:
        yield order
    finally:
        sent.close()
        process.wait(30)


def _emit(
    name: str,
    must: float,
    count: int,
    said: Mapping[str, Any],
    used: Mapping[str, float],
    **more: object,
) -> None:
    took, wall = said["took_ms"], said["seconds"]
    web = sum(seconds for part, seconds in used.items() if part.startswith("web"))
    emit(
        name,
        count / wall,
        must,
        jobs=count,
        p50_ms=round(percentile(took, 50), 1),
        p99_ms=round(percentile(took, 99), 1),
        web_cpu_ms_a_job=round(web * 1000 / count, 3),
        postgres_cpu_ms_a_job=round(used["postgres"] * 1000 / count, 3),
        web_busy_percent=round(100 * web / wall),
        postgres_busy_percent=round(100 * used["postgres"] / wall),
        **more,
        **calibration(),
    )


if __name__ == "__main__":
    main()
