"""Draws docs/lifecycle.md from the tables; run as a module it prints the page."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence

from scheduling.lifecycle.events import POLICY_ACTIONS, POLICY_EVENTS, LifecycleAction, PolicyEvent
from scheduling.lifecycle.states import (
    FINAL_ATTEMPT_STATES,
    AttemptState,
    JobPhase,
    QueueState,
    TaskState,
)
from scheduling.lifecycle.table import (
    ATTEMPT_TABLE,
    JOB_TABLE,
    QUEUE_TABLE,
    STOPS_INTO,
    TASK_TABLE,
    WISHES,
    Decision,
    JobRow,
    QueueAction,
    Stop,
)
from scheduling.lifecycle.values import AttemptEvent, TaskEvent

_STOP_WORDS = {
    Stop.NONE: "",
    Stop.ALL: "stop and repeat all, ",
    Stop.LIVE: "stop what is live, ",
    Stop.TARGET: "stop and repeat the target, ",
}
_EVENT_WORDS = {
    PolicyEvent.ANY: "every event below; PodPending only with a timeout",
    PolicyEvent.POD_PENDING: "a task waits; acts only after the policy's timeout",
    PolicyEvent.POD_FAILED: "an attempt ended with an exit code other than 0, or could not start",
    PolicyEvent.POD_EVICTED: "an attempt was evicted, or its node was lost",
    PolicyEvent.UNKNOWN: "some tasks of the gang run and the rest cannot be placed",
    PolicyEvent.TASK_COMPLETED: "all tasks of a role succeeded",
    PolicyEvent.TASK_FAILED: "restarts inside attempts used up the role's max_retry",
    PolicyEvent.JOB_UPDATED: "accepted for Volcano's sake; never raised",
}
_ACTION_WORDS = {
    LifecycleAction.ABORT_JOB: "suspend: stop all, keep what ended; resume is possible",
    LifecycleAction.RESTART_JOB: "stop all tasks and execute them again",
    LifecycleAction.RESTART_TASK: "the same for one role",
    LifecycleAction.RESTART_POD: "the same for one task",
    LifecycleAction.RESTART_PARTITION: "the same for one group of a role",
    LifecycleAction.TERMINATE_JOB: "stop all, for good",
    LifecycleAction.COMPLETE_JOB: "stop all; the job counts as completed",
    LifecycleAction.RESUME_JOB: "go on with a suspended job",
}


_INTRODUCTION = (
    "This page is drawn from `scheduling/lifecycle/table.py` by "
    "`python -m scheduling.lifecycle.describe`; a test compares both."
)
_ABOUT_ATTEMPTS = (
    "What an event (column) makes of an attempt in a state (row). *by reason*: Evicted when "
    "it was stopped to take its place, else Cancelled. An empty cell: the report came late "
    "or twice, and is only noted."
)
_ABOUT_TASKS = (
    "A task that is leaving (its job is finished, or its index is beyond the replicas) "
    "becomes Cancelled where the table says Pending."
)
_ABOUT_JOBS = (
    "What an action makes of a job in a phase. Restart* stands for RestartTask, RestartPod "
    "and RestartPartition. *+1* counts a restart."
)
_ABOUT_DECISIONS = (
    "Decisions: *GangStarted*: Running once `min_available` tasks run or have ended. "
    "*Verdict*: Completed at `min_success` successes; when all tasks have ended Completed or "
    "Failed by `min_available`, the roles' minimums and `min_success`; Pending when more "
    "tasks wait than the gang can spare. *Restarted*: Failed when `max_retry` runs are used "
    "up; Pending once enough tasks are free of old attempts. *AllStopped*: "
)


def as_markdown() -> str:
    """Return the page that documents states, events and transitions."""
    parts = [
        "# Lifecycle",
        _INTRODUCTION,
        "## Attempts",
        _ABOUT_ATTEMPTS,
        _table(AttemptState, AttemptEvent, _attempt_cell, skip=FINAL_ATTEMPT_STATES),
        "Final: Succeeded, Failed, Evicted, Cancelled, Lost. Reaching one releases the hold.",
        "## Tasks",
        _ABOUT_TASKS,
        _table(TaskState, TaskEvent, _task_cell),
        "## Jobs",
        _ABOUT_JOBS,
        _job_table(),
        _ABOUT_DECISIONS + ", ".join(f"{a} becomes {b}" for a, b in STOPS_INTO.items()) + ".",
        "Kept as a wish and done as soon as the phase allows it: "
        + "; ".join(f"{phase}: {', '.join(actions)}" for phase, actions in WISHES.items())
        + ".",
        "### Events that a policy can react to",
        _list((event, _EVENT_WORDS[event]) for event in POLICY_EVENTS),
        "### Actions",
        _list((action, _ACTION_WORDS[action]) for action in POLICY_ACTIONS),
        "Role policies are looked at before the job's; in one list those by exit code come first.",
        "## Queues",
        "A queue without jobs / with jobs.",
        _table(QueueState, QueueAction, _queue_cell),
    ]
    return "\n\n".join(parts) + "\n"


def _list(entries: Iterable[tuple[str, str]]) -> str:
    return "\n".join(f"- `{name}`: {words}" for name, words in entries)


def _rows(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _table(states: type, events: type, cell: object, *, skip: Iterable[object] = ()) -> str:
    columns = [str(event) for event in events]  # type: ignore[attr-defined]  # an enumeration
    left_out = set(skip)
    rows = [
        [str(state), *(cell(state, event) for event in events)]  # type: ignore[attr-defined,operator]  # as above
        for state in states  # type: ignore[attr-defined]  # as above
        if state not in left_out
    ]
    return _rows(["", *columns], rows)


def _attempt_cell(state: AttemptState, event: AttemptEvent) -> str:
    row = ATTEMPT_TABLE.get((state, event))
    if row is None:
        return ""
    return "*by reason*" if row.to is None else str(row.to)


def _task_cell(state: TaskState, event: TaskEvent) -> str:
    row = TASK_TABLE.get((state, event))
    return "" if row is None else str(row.to)


def _queue_cell(state: QueueState, action: QueueAction) -> str:
    without, with_gangs = QUEUE_TABLE[state, action]
    return str(without) if without is with_gangs else f"{without} / {with_gangs}"


_JOB_COLUMNS = (
    ("SyncJob", LifecycleAction.SYNC_JOB),
    ("RestartJob", LifecycleAction.RESTART_JOB),
    ("Restart*", LifecycleAction.RESTART_POD),
    ("AbortJob", LifecycleAction.ABORT_JOB),
    ("TerminateJob", LifecycleAction.TERMINATE_JOB),
    ("CompleteJob", LifecycleAction.COMPLETE_JOB),
    ("ResumeJob", LifecycleAction.RESUME_JOB),
)


def _job_table() -> str:
    header = ["", *(name for name, _ in _JOB_COLUMNS)]
    rows = [
        [str(phase), *(_job_cell(JOB_TABLE[phase][action]) for _, action in _JOB_COLUMNS)]
        for phase in JobPhase
    ]
    return _rows(header, rows)


def _job_cell(row: JobRow) -> str:
    then = f"*{row.then}*" if isinstance(row.then, Decision) else str(row.then)
    counted = " +1" if row.counts_restart else ""
    return f"{_STOP_WORDS[row.stop]}{then}{counted}"


if __name__ == "__main__":
    sys.stdout.write(as_markdown())
