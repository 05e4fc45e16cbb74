"""A memo saves reading what is the same; which jobs have changed is found wherever they stand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from scheduling.engine.cycle import Memo, plan
from scheduling.engine.tables import BLOCK, prepare
from scheduling.engine.types import Job
from tests.scenarios import read

MANY = BLOCK + 40

Jobs = tuple[Job, ...]


def _other(job: Job) -> Job:
    """Return a job that is not there yet."""
    return replace(job, key=f"{job.key}-again")


@pytest.mark.parametrize(
    "change",
    [
        lambda jobs: jobs[1:],
        lambda jobs: (_other(jobs[0]), *jobs),
        lambda jobs: (*jobs, _other(jobs[0])),
        lambda jobs: (*jobs[:-1], _other(jobs[-1])),
        lambda jobs: jobs[::-1],
        lambda jobs: tuple(replace(job) for job in jobs),
        lambda jobs: jobs[:0],
    ],
    ids=["first gone", "first new", "last new", "last changed", "turned round", "copies", "none"],
)
def test_memo_follows_the_jobs(change: Callable[[Jobs], Jobs]) -> None:
    """Tables brought up to date hold what tables read anew hold, and give the same plan."""
    jobs = "".join(f"  job q/j{i:04}: 1 x cpu=1 pending\n" for i in range(MANY))
    before = read("nodes n1 n2: cpu=100\nqueue q:\n" + jobs)
    after = replace(before, jobs=change(before.jobs))
    memo = Memo()
    plan(before, memo=memo)

    tables = prepare(after, memo)

    assert tables is memo.tables
    assert tables.rows.keys() == {job.key for job in after.jobs}
    requested = prepare(after).queue_requested
    assert tables.queue_requested["q"] == requested.get("q", [0] * tables.width)
    assert plan(after, memo=memo) == plan(after)
