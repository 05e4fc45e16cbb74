"""Status reports to committed rows: `python -m benchmarks reports`.

100 nodes report that tasks start, run and end, in frames as agents send them; what the gateway does
with them is done here: one thread decodes, checks and translates, another writes and commits what
came before. Prints one JSON object: reports a second, and the CPU time of one in this process and
in PostgreSQL. Uses an empty database named by DATABASE_URL, which it migrates and fills.
"""

from __future__ import annotations

import argparse
import time
from collections import defaultdict
from concurrent.futures import Future, ThreadPoolExecutor
from uuid import UUID

from django.db import connection, connections

from benchmarks import _web
from benchmarks._machine import calibration
from benchmarks._rows import Rows, emit
from scheduling.models import Attempt, History
from worker import protocol
from worker.gateway import border, translation
from worker.gateway.collector import BATCH_REPORTS
from worker.protocol import AttemptReport, Report

MUST_A_SECOND = 5_000.0
STATES: tuple[tuple[str, int | None], ...] = (
    ("Starting", None),
    ("Running", None),
    ("Exited", 0),
)


def main() -> None:
    """Fill, report, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=100)
    parser.add_argument("--jobs", type=int, default=200, help="jobs of 50 tasks")
    parser.add_argument(
        "--at-once",
        type=int,
        default=BATCH_REPORTS,
        help="frames that one commit takes; a busy gateway's as many as it may",
    )
    given = parser.parse_args()
    rows = Rows()
    rows.add_nodes(given.nodes)
    rows.run(rows.submit("job", given.jobs, tasks=50, cpu_milli=100))
    Attempt.objects.update(state="Bound", started_at=None)
    _as_bound()
    rows.settle()
    sent = _frames()
    before = _web.cpu_seconds({})
    begun = time.perf_counter()
    reports = _record(sent, given.at_once)
    wall = time.perf_counter() - begun
    used = {part: seconds - before[part] for part, seconds in _web.cpu_seconds({}).items()}
    lines = History.objects.filter(subject="attempt").count()
    if lines != reports:
        raise SystemExit(f"{reports} reports left {lines} lines of history")
    emit(
        "status reports to committed rows, a second",
        reports / wall,
        MUST_A_SECOND,
        reports=reports,
        cpu_ms_a_report=round(used["client"] * 1000 / reports, 3),
        postgres_cpu_ms_a_report=round(used["postgres"] * 1000 / reports, 3),
        **calibration(),
    )


def _record(sent: list[tuple[UUID, str]], at_once: int) -> int:
    """Write the frames, so many in one transaction; return how many reports they had.

    As in the gateway one thread reads frames while another writes those before them.
    """
    reports = 0
    written: list[Future[list[int | None]]] = []
    with ThreadPoolExecutor(max_workers=1) as writer:
        for first in range(0, len(sent), at_once):
            batch = []
            for node_id, text in sent[first : first + at_once]:
                report = protocol.decode(text)
                assert isinstance(report, Report)  # noqa: S101 -- this very program wrote it
                batch.append(translation.frame(node_id, "benchmark", report))
                reports += len(report.attempts)
            written.append(writer.submit(border.record, batch))
        if any(None in one.result() for one in written):
            raise SystemExit("a session was not taken for current")
        writer.submit(connections.close_all).result()
    return reports


def _as_bound() -> None:
    """Put tasks, roles and jobs back to where a bind leaves them."""
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE scheduling_task SET state = 'Bound';"
            "UPDATE scheduling_role SET tasks_starting = replicas, tasks_running = 0;"
            "UPDATE scheduling_job SET phase = 'Pending', tasks_starting = tasks_total,"
            " tasks_running = 0, started_at = NULL;"
        )


def _frames() -> list[tuple[UUID, str]]:
    """Return each node's frames: all its tasks start, then all run, then all end."""
    by_node: defaultdict[UUID, list[UUID]] = defaultdict(list)
    for node_id, attempt_id in Attempt.objects.order_by("id").values_list("node_id", "id"):
        by_node[node_id].append(attempt_id)
    return [
        (
            node_id,
            protocol.encode(
                Report(
                    session="benchmark",
                    seq=seq,
                    attempts=[
                        AttemptReport(str(one), state, time.time(), exit_code) for one in attempts
                    ],
                )
            ),
        )
        for seq, (state, exit_code) in enumerate(STATES, start=1)
        for node_id, attempts in by_node.items()
    ]


if __name__ == "__main__":
    main()
