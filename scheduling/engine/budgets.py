"""How many of a job's tasks may be evicted at once, by what its owner states."""

from __future__ import annotations

import math
import re
from collections.abc import Collection

from scheduling.engine.types import Job, TaskState

MIN_AVAILABLE = "volcano.sh/jdb-min-available"
MAX_UNAVAILABLE = "volcano.sh/jdb-max-unavailable"
"""Annotations of a job: a number of its tasks, or a percentage of them, rounded up."""


def evictions_left(job: Job, evicted: Collection[str] = ()) -> int | None:
    """Return how many more running tasks may be evicted now, None where the job does not say.

    `max-unavailable` counts those that are not running, but for those that have ended; it wins
    over `min-available`, as in Volcano. `evicted` are tasks that are about to go.
    """
    if MAX_UNAVAILABLE not in job.annotations and MIN_AVAILABLE not in job.annotations:
        return None
    most = _number(job.annotations.get(MAX_UNAVAILABLE), len(job.tasks))
    least = _number(job.annotations.get(MIN_AVAILABLE), len(job.tasks))
    if most is None and least is None:
        return None
    running = sum(t.state is TaskState.RUNNING and t.key not in evicted for t in job.tasks)
    if most is not None:
        done = sum(t.state in (TaskState.SUCCEEDED, TaskState.FAILED) for t in job.tasks)
        return max(0, most - (len(job.tasks) - done - running))
    return max(0, running - (least or 0))


def _number(text: str | None, total: int) -> int | None:
    """Return a number, or a percentage of the total rounded up; None where neither is stated."""
    match = re.fullmatch(r"\s*(\d+)(%?)\s*", text or "")
    if match is None:
        return None
    number = int(match[1])
    return math.ceil(number * total / 100) if match[2] else number
