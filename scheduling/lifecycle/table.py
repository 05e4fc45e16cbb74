"""The one declarative table of the lifecycle: (state, event) -> (state, effects).

`step` interprets it, `describe` draws docs/lifecycle.md and the pages from it. What is not in a
table of attempts and tasks is late or repeated: it changes nothing and is noted in the history.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from scheduling.lifecycle.events import POLICY_ACTIONS, TARGETED_ACTIONS, LifecycleAction
from scheduling.lifecycle.states import (
    FINISHED_PHASES,
    AttemptState,
    JobPhase,
    QueueState,
    TaskState,
)
from scheduling.lifecycle.values import AttemptEvent, TaskChange, TaskEvent

# --- attempts -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AttemptRow:
    """What an event does to an attempt. `to` None: the state that its stop reason decides."""

    to: AttemptState | None
    tells: TaskEvent | None
    sends_stop: bool = False


_A, _E, _T = AttemptState, AttemptEvent, TaskEvent
_BEFORE_START = (_A.BOUND, _A.STARTING)
_BEFORE_STOP = (_A.BOUND, _A.STARTING, _A.RUNNING)

ATTEMPT_TABLE: Mapping[tuple[AttemptState, AttemptEvent], AttemptRow] = {
    (_A.BOUND, _E.LAUNCHED): AttemptRow(_A.STARTING, _T.LAUNCHED),
    **{(s, _E.STARTED): AttemptRow(_A.RUNNING, _T.STARTED) for s in _BEFORE_START},
    **{(s, _E.STOP): AttemptRow(_A.STOPPING, _T.STOPPING, sends_stop=True) for s in _BEFORE_STOP},
    **{(s, _E.EXITED_ZERO): AttemptRow(_A.SUCCEEDED, _T.SUCCEEDED) for s in _BEFORE_STOP},
    **{(s, _E.EXITED_NONZERO): AttemptRow(_A.FAILED, _T.FAILED) for s in _BEFORE_STOP},
    **{(s, _E.LAUNCH_FAILED): AttemptRow(_A.FAILED, _T.FAILED) for s in _BEFORE_START},
    **{(s, _E.GONE): AttemptRow(_A.EVICTED, _T.EVICTED) for s in _BEFORE_STOP},
    **{(s, _E.LOST): AttemptRow(_A.LOST, _T.LOST) for s in (*_BEFORE_STOP, _A.STOPPING)},
    **{
        (_A.STOPPING, event): AttemptRow(None, None)
        for event in (_E.EXITED_ZERO, _E.EXITED_NONZERO, _E.LAUNCH_FAILED, _E.GONE)
    },
}

# --- tasks --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TaskRow:
    """What an event does to a task. Where `to` is Pending, a leaving task becomes Cancelled."""

    to: TaskState
    tells: tuple[TaskChange, ...] = ()


_S, _C = TaskState, TaskChange
_LIVE = (_S.BOUND, _S.STARTING, _S.RUNNING, _S.STOPPING)

TASK_TABLE: Mapping[tuple[TaskState, TaskEvent], TaskRow] = {
    (_S.PENDING, _T.BOUND): TaskRow(_S.BOUND),
    (_S.BOUND, _T.LAUNCHED): TaskRow(_S.STARTING),
    **{(s, _T.STARTED): TaskRow(_S.RUNNING, (_C.RUNNING,)) for s in (_S.BOUND, _S.STARTING)},
    **{(s, _T.STOPPING): TaskRow(_S.STOPPING) for s in (_S.BOUND, _S.STARTING, _S.RUNNING)},
    **{(s, _T.SUCCEEDED): TaskRow(_S.SUCCEEDED, (_C.SUCCEEDED,)) for s in _LIVE},
    **{(s, _T.FAILED): TaskRow(_S.FAILED, (_C.FAILED,)) for s in _LIVE},
    **{(s, _T.EVICTED): TaskRow(_S.PENDING, (_C.EVICTED, _C.PENDING)) for s in _LIVE},
    **{(s, _T.LOST): TaskRow(_S.PENDING, (_C.EVICTED, _C.PENDING)) for s in _LIVE},
    **{(s, _T.CANCELLED): TaskRow(_S.PENDING, (_C.STOPPED, _C.PENDING)) for s in _LIVE},
    **{
        (s, _T.RESET): TaskRow(_S.PENDING, (_C.PENDING,))
        for s in (_S.SUCCEEDED, _S.FAILED, _S.CANCELLED)
    },
    (_S.PENDING, _T.CLOSE): TaskRow(_S.CANCELLED),
}

# --- jobs ---------------------------------------------------------------------------------------


class Stop(StrEnum):
    """Which tasks an action stops."""

    NONE = "none"
    ALL = "all"
    """Every task; ended ones are executed again too (on the last retry they are kept)."""
    LIVE = "live"
    """Live attempts; what succeeded or failed keeps its result."""
    TARGET = "target"
    """Every task of the role, partition or task that is meant, ended or not."""


class Decision(StrEnum):
    """How the next phase is found where the table alone cannot say."""

    GANG_STARTED = "GangStarted"
    """Running once min_available tasks run or have ended, else Pending."""
    VERDICT = "Verdict"
    """Completed, Failed, Pending again or still Running, by the counts."""
    RESTARTED = "Restarted"
    """Failed when the retries are used up; Pending once enough tasks are free of old attempts."""
    ALL_STOPPED = "AllStopped"
    """The phase that was aimed at, once no attempt is live."""
    STAY = "Stay"


@dataclass(frozen=True, slots=True)
class JobRow:
    """What an action does in a phase: what is stopped, whether a restart is counted, what next."""

    then: JobPhase | Decision
    stop: Stop = Stop.NONE
    counts_restart: bool = False


_P, _L = JobPhase, LifecycleAction

STOPS_INTO: Mapping[JobPhase, JobPhase] = {
    _P.ABORTING: _P.ABORTED,
    _P.COMPLETING: _P.COMPLETED,
    _P.TERMINATING: _P.TERMINATED,
}
"""Phases that wait for the last attempt to end, and what follows."""


def _active(sync: Decision) -> dict[LifecycleAction, JobRow]:
    """Build the rows of Pending and Running, which differ only in what a sync decides."""
    return {
        _L.SYNC_JOB: JobRow(sync),
        _L.RESUME_JOB: JobRow(sync),
        _L.RESTART_JOB: JobRow(_P.RESTARTING, Stop.ALL, counts_restart=True),
        **{a: JobRow(_P.RESTARTING, Stop.TARGET, counts_restart=True) for a in TARGETED_ACTIONS},
        _L.ABORT_JOB: JobRow(_P.ABORTING, Stop.LIVE),
        _L.TERMINATE_JOB: JobRow(_P.TERMINATING, Stop.LIVE),
        _L.COMPLETE_JOB: JobRow(_P.COMPLETING, Stop.LIVE),
    }


JOB_TABLE: Mapping[JobPhase, Mapping[LifecycleAction, JobRow]] = {
    _P.PENDING: _active(Decision.GANG_STARTED),
    _P.RUNNING: _active(Decision.VERDICT),
    _P.RESTARTING: {
        _L.SYNC_JOB: JobRow(Decision.RESTARTED),
        _L.RESUME_JOB: JobRow(Decision.RESTARTED),
        _L.RESTART_JOB: JobRow(Decision.RESTARTED, Stop.ALL),
        **{a: JobRow(Decision.RESTARTED, Stop.TARGET) for a in TARGETED_ACTIONS},
        # The wish is kept and done as soon as the phase allows it; see WISHES.
        _L.ABORT_JOB: JobRow(Decision.RESTARTED, Stop.LIVE),
        _L.TERMINATE_JOB: JobRow(Decision.RESTARTED, Stop.LIVE),
        _L.COMPLETE_JOB: JobRow(Decision.RESTARTED, Stop.LIVE),
    },
    _P.ABORTING: {
        **{a: JobRow(Decision.ALL_STOPPED, Stop.LIVE) for a in LifecycleAction},
        _L.RESUME_JOB: JobRow(_P.RESTARTING, Stop.LIVE, counts_restart=True),
    },
    _P.ABORTED: {
        **{a: JobRow(Decision.STAY, Stop.LIVE) for a in LifecycleAction},
        _L.RESUME_JOB: JobRow(_P.RESTARTING, Stop.LIVE, counts_restart=True),
    },
    **{
        phase: {a: JobRow(Decision.ALL_STOPPED, Stop.LIVE) for a in LifecycleAction}
        for phase in (_P.COMPLETING, _P.TERMINATING)
    },
    **{
        phase: {a: JobRow(Decision.STAY, Stop.LIVE) for a in LifecycleAction}
        for phase in FINISHED_PHASES
    },
}

_ENDING = (_L.ABORT_JOB, _L.TERMINATE_JOB, _L.COMPLETE_JOB)

WISHES: Mapping[JobPhase, tuple[LifecycleAction, ...]] = {
    _P.RESTARTING: _ENDING,
    _P.ABORTING: (_L.TERMINATE_JOB,),
    _P.ABORTED: (_L.TERMINATE_JOB,),
}
"""Actions that a phase cannot take at once but keeps, to be done when it is left (ours)."""

WISH_TABLE: Mapping[tuple[JobPhase, LifecycleAction], JobRow] = {
    **{(p, a): JOB_TABLE[p][a] for p in (_P.PENDING, _P.RUNNING) for a in _ENDING},
    (_P.ABORTED, _L.TERMINATE_JOB): JobRow(_P.TERMINATING, Stop.LIVE),
}
"""Where a kept wish is done, and how."""

COMMANDS: tuple[LifecycleAction, ...] = POLICY_ACTIONS
"""Actions that a person may ask for."""

# --- queues -------------------------------------------------------------------------------------


class QueueAction(StrEnum):
    """What is asked of a queue, with Volcano's strings."""

    SYNC = "SyncQueue"
    OPEN = "OpenQueue"
    CLOSE = "CloseQueue"


_Q, _U = QueueState, QueueAction

QUEUE_TABLE: Mapping[tuple[QueueState, QueueAction], tuple[QueueState, QueueState]] = {
    (_Q.OPEN, _U.OPEN): (_Q.OPEN, _Q.OPEN),
    (_Q.OPEN, _U.CLOSE): (_Q.CLOSED, _Q.CLOSING),
    (_Q.OPEN, _U.SYNC): (_Q.OPEN, _Q.OPEN),
    (_Q.CLOSING, _U.OPEN): (_Q.OPEN, _Q.OPEN),
    (_Q.CLOSING, _U.CLOSE): (_Q.CLOSED, _Q.CLOSING),
    (_Q.CLOSING, _U.SYNC): (_Q.CLOSED, _Q.CLOSING),
    (_Q.CLOSED, _U.OPEN): (_Q.OPEN, _Q.OPEN),
    (_Q.CLOSED, _U.CLOSE): (_Q.CLOSED, _Q.CLOSED),
    (_Q.CLOSED, _U.SYNC): (_Q.CLOSED, _Q.CLOSING),
    (_Q.UNKNOWN, _U.OPEN): (_Q.OPEN, _Q.OPEN),
    (_Q.UNKNOWN, _U.CLOSE): (_Q.CLOSED, _Q.CLOSING),
    (_Q.UNKNOWN, _U.SYNC): (_Q.UNKNOWN, _Q.UNKNOWN),
}
"""(state, action) -> (state of a queue without gangs, state of one with gangs)."""
