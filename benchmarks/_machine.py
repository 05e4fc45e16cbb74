"""What the benchmarks of the engine share: clocks, how fast this machine is, where traces lie."""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Self

import numpy as np


class Clock:
    """Wall and processor seconds of a block; on a busy machine the second tells more."""

    def __enter__(self) -> Self:
        """Start."""
        self._wall, self._cpu = time.perf_counter(), time.process_time()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop."""
        self.wall = time.perf_counter() - self._wall
        self.cpu = time.process_time() - self._cpu


def median_cpu_ms(run: Callable[[], object], *, repeats: int) -> float:
    """Return the CPU milliseconds that a call takes, the median of some."""
    seconds = []
    for _ in range(repeats):
        with Clock() as clock:
            run()
        seconds.append(clock.cpu)
    return statistics.median(seconds) * 1000


@cache
def loop_ms() -> float:
    """Return the CPU milliseconds of a fixed loop, Python and numpy in about equal parts."""
    best = float("inf")
    for _ in range(3):
        with Clock() as clock:
            counts: dict[int, int] = {}
            for i in range(250_000):
                counts[i % 977] = counts.get(i % 977, 0) + i
            column = np.arange(5000, dtype=np.int64)
            for _ in range(2500):
                column = np.where(column > 0, column - 1, 5000)
                column.argmax()
        best = min(best, clock.cpu)
    return best * 1000


def calibration() -> dict[str, float]:
    """Return what tells runs on different machines, or at different loads, apart."""
    return {
        "machine_loop_ms": round(loop_ms(), 1),
        "load_average": round(os.getloadavg()[0], 1),
    }


def peak_mib() -> float:
    """Return the most memory that this process has had; its parent's does not count."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    raise SystemExit("/proc/self/status names no VmHWM; memory is measured on Linux only.")


def traces_folder(given: Path | None) -> Path:
    """Return the folder of the published traces, named by argument or environment.

    Raises: SystemExit saying how to name it.
    """
    found = given or os.environ.get("TERRACE_TRACES")
    if not found:
        sys.exit("Say where the traces lie: --traces FOLDER or TERRACE_TRACES.")
    return Path(found)


def show(row: dict[str, object]) -> None:
    """Print one result, with the machine's calibration, as a JSON object on a line."""
    print(json.dumps({**row, **calibration()}), flush=True)
