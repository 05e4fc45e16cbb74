"""Take-over by a standby after kill -9 of the worker that leads: `python -m benchmarks takeover`.

Two workers for loops, one for short tasks and beat run as at a site of two machines. In each round
a job is submitted, the worker that holds the scheduler's lease is killed with all its children, and
another job is submitted; then the worker is started again, and another stands by. Prints JSON
objects, one a line: the time from the kill to the next epoch, and to the rows that bind the second
job. Uses an empty database named by DATABASE_URL, which it migrates and fills.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from benchmarks import _empty
from benchmarks._installation import CELERY, WORKER, wait_until
from benchmarks._machine import calibration
from benchmarks._rows import Rows, emit, percentile
from scheduling.domain import leases
from scheduling.domain.launches import scheduler_scope
from scheduling.models import Attempt, Lease, Node

LOOPS: Final = (*WORKER, "--queues=loops", "--concurrency=4")
MUST_MS: Final = 6_000.0
LOOK_SECONDS: Final = 0.02


class Site:
    """The processes of a site; each is the head of a session, so that all of it can be killed."""

    def __init__(self, folder: Path) -> None:
        self._log = (folder / "log").open("ab")
        self._environment = {**os.environ}
        self._environment.pop(_empty.PATIENT, None)
        self.workers = [self._loops(number) for number in range(2)]
        self.others = [
            self._start(*WORKER, "--queues=celery", "--concurrency=1", "--hostname=tasks@%h"),
            self._start(*CELERY, "beat", "--loglevel=WARNING", f"--schedule={folder}/beat"),
        ]

    def _start(self, *arguments: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, *arguments],
            env=self._environment,
            stdout=self._log,
            stderr=self._log,
            start_new_session=True,
        )

    def _loops(self, number: int) -> subprocess.Popen[bytes]:
        return self._start(*LOOPS, f"--hostname=loops{number}@%h")

    def leader(self, scope: str) -> int | None:
        """Return which worker holds a lease, None if none of them does."""
        holder = leases.holder_of(scope)
        found = [n for n, one in enumerate(self.workers) if f":{one.pid}:" in holder]
        return found[0] if found and leases.is_held(scope) else None

    def has_standby(self, scope: str) -> bool:
        """Tell whether the worker that does not lead stands by."""
        leader, standby = self.leader(scope), self.leader(f"standby:{scope}")
        return leader is not None and standby is not None and leader != standby

    def kill(self, number: int) -> None:
        """Kill a worker with all its children, and return when it is dead."""
        os.killpg(self.workers[number].pid, signal.SIGKILL)
        self.workers[number].wait()

    def replace(self, number: int) -> None:
        """Start a worker again, as a service manager does."""
        self.workers[number] = self._loops(number)

    def end(self) -> None:
        """End everything."""
        for process in (*self.others, *self.workers):
            process.terminate()
        for process in (*self.others, *self.workers):
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        self._log.close()


@contextmanager
def _site() -> Iterator[Site]:
    with tempfile.TemporaryDirectory(prefix="terrace-bench-") as folder:
        site = Site(Path(folder))
        try:
            yield site
        except BaseException:
            sys.stderr.write((Path(folder) / "log").read_text(errors="replace")[-6000:])
            raise
        finally:
            site.end()


def main() -> None:
    """Kill and measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    given = parser.parse_args()
    rows = Rows()
    rows.add_nodes(4)
    Node.objects.update(last_seen_at=None)  # of nodes that were never heard nobody says: silent
    scope = scheduler_scope(rows.cluster.id)
    epochs: list[float] = []
    binds: list[float] = []
    with _site() as site:
        for number in range(given.rounds):
            wait_until(lambda: site.has_standby(scope))
            before = Lease.objects.get(scope=scope).epoch
            (job,) = rows.submit(f"before-{number}", 1, cpu_milli=10)
            _wait(lambda job=job: Attempt.objects.filter(job=job).exists())  # type: ignore[misc]  # a default binds it
            leader = site.leader(scope)
            if leader is None:
                raise SystemExit("the lease changed hands by itself")
            site.kill(leader)
            killed = time.perf_counter()
            (job,) = rows.submit(f"after-{number}", 1, cpu_milli=10)
            _wait(lambda before=before: Lease.objects.get(scope=scope).epoch > before)  # type: ignore[misc]  # as above
            epochs.append((time.perf_counter() - killed) * 1000)
            _wait(lambda job=job: Attempt.objects.filter(job=job).exists())  # type: ignore[misc]  # as above
            binds.append((time.perf_counter() - killed) * 1000)
            site.replace(leader)
    for what, values in (("next epoch", epochs), ("next bind", binds)):
        emit(
            f"take-over after kill -9 to the {what}, p99 ms",
            percentile(values, 99),
            MUST_MS,
            median=round(percentile(values, 50), 1),
            rounds=len(values),
            **calibration(),
        )


def _wait(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        if time.monotonic() > deadline:
            raise SystemExit("nobody took over within a minute")
        time.sleep(LOOK_SECONDS)


if __name__ == "__main__":
    main()
