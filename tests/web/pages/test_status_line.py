"""The sentence above a job's tabs."""

from datetime import UTC, datetime, timedelta

import pytest

from controlplane.pages.status_line import status_line
from scheduling.models import Attempt, Job, Role, Task

START = datetime(2026, 3, 1, 12, tzinfo=UTC)


def failed_job() -> Job:
    """Return a job whose one task failed after a minute."""
    return Job(
        phase="Failed",
        tasks_total=1,
        tasks_failed=1,
        reason_code="tasks_failed",
        reason_params={"succeeded": 0, "failed": 1, "min_available": 1},
        created_at=START,
        started_at=START + timedelta(seconds=2),
        finished_at=START + timedelta(seconds=62),
    )


@pytest.mark.parametrize(
    ("ended", "words"),
    [
        ({"exit_code": 3}, "main-0 ended with exit code 3. Failed: 0 tasks succeeded"),
        ({"exit_code": 127}, "exit code 127. Its command was not found"),
        ({"exit_code": 137, "is_oom": True}, "main-0: It reached its memory limit"),
        ({"exit_code": 139, "signal": 11}, "main-0 was ended by signal 11."),
        ({"reason_code": "LaunchFailed"}, "main-0: The node could not start it"),
    ],
)
def test_failed_job_says_what_failed_first(ended: dict[str, object], words: str) -> None:
    """The task that failed first, how it ended and what that most often means come first."""
    task = Task(role=Role(name="main"), index=0)
    failure = Attempt(task=task, state="Failed", **ended)

    told = status_line(failed_job(), failure=failure)

    assert words in told
    assert told.endswith("It ran for 1 min 00 s after waiting 2 s.")


@pytest.mark.parametrize(
    ("running", "total", "words"),
    [
        (1, 1, "Its one task is running."),
        (8, 8, "All 8 tasks are running."),
        (7, 8, "7 of 8 tasks are running."),
    ],
)
def test_running_job_says_how_many_tasks_run(running: int, total: int, words: str) -> None:
    """All of them are named as such."""
    job = Job(phase="Running", tasks_running=running, tasks_total=total)

    assert status_line(job) == words
