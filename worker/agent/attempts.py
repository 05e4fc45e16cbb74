"""One attempt as this node knows it: its records on the disk and what is still to be reported."""

from __future__ import annotations

import fcntl
import os
import shutil
import time
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from worker.agent.tailing import STREAMS, AttemptTails, LogTail, MetricsTail
from worker.protocol import AttemptReport, Launch, ProtocolError, decode, encode
from worker.shim import records

REPORTED: Final = "reported.json"


class AttemptState(StrEnum):
    """What a node can say of an attempt."""

    STARTING = "Starting"
    RUNNING = "Running"
    STOPPING = "Stopping"
    EXITED = "Exited"


ORDER: Final = list(AttemptState)


@dataclass(slots=True)
class Attempt:
    """The live view of one folder below `attempts`."""

    id: str
    folder: Path
    launch: Launch | None
    """None: the record was damaged, or a Stop came for an attempt that never was here."""
    tails: AttemptTails
    seen: int = -1
    """Index in ORDER of the last state that was observed; -1: none yet."""
    ports: dict[str, int] = field(default_factory=dict)
    pending: list[AttemptReport] = field(default_factory=list)
    """Reports in order, oldest first, that are not acknowledged yet."""
    sent: int = 0
    """How many of `pending` are on their way in the present session."""
    acknowledged_state: str = ""
    is_durable: bool = True
    is_collected: bool = False
    """Its outputs were brought to the control plane."""
    is_closed: bool = False
    """Settled, and so not to be looked at any more."""

    @property
    def state(self) -> AttemptState:
        """Return the present state."""
        return ORDER[max(0, self.seen)]

    @property
    def is_final(self) -> bool:
        """Whether the attempt is over."""
        return self.state is AttemptState.EXITED

    @property
    def is_settled(self) -> bool:
        """Whether the control plane knows all there is to know."""
        is_known = not self.pending and self.tails.is_drained()
        return self.is_final and self.is_collected and is_known

    def path(self, name: str) -> str:
        """Return the path of one of the records."""
        return str(self.folder / name)

    def read(self, name: str) -> dict[str, Any] | None:
        """Return one of the records."""
        return records.read(self.path(name))

    def write(self, name: str, record: dict[str, Any]) -> None:
        """Replace one of the records."""
        records.write(self.path(name), record, is_durable=self.is_durable)

    def observe(self, report: AttemptReport) -> bool:
        """Take over what happened; False if it is no news (states never go back)."""
        index = ORDER.index(AttemptState(report.state))
        if index <= self.seen:
            return False
        self.seen = index
        self.pending.append(report)
        return True

    def acknowledge_reports(self, count: int) -> None:
        """Drop the `count` oldest reports: they are committed."""
        self.acknowledged_state = self.pending[count - 1].state
        del self.pending[:count]
        self.sent -= count

    def rewind(self) -> None:
        """Send again what was not acknowledged."""
        self.sent = 0
        self.tails.rewind()

    def save_reported(self) -> None:
        """Note what was acknowledged, so that a restarted agent does not begin at the start.

        Never durable: an older note only means that something is sent twice.
        """
        record = {
            "state": self.acknowledged_state,
            "metrics": list(self.tails.metrics.acknowledged),
            **{tail.stream: tail.acknowledged for tail in self.tails.logs},
        }
        records.write(self.path(REPORTED), record, is_durable=False)

    def load_reported(self) -> None:
        """Read that note; a damaged one means that everything is sent again."""
        record = self.read(REPORTED) or {}
        state = record.get("state")
        if state in set(AttemptState):
            self.acknowledged_state = state
            self.seen = ORDER.index(AttemptState(state))
        for tail in self.tails.logs:
            offset = record.get(tail.stream, 0)
            if isinstance(offset, int) and 0 <= offset <= tail.size():
                tail.acknowledged = tail.sent = offset
        position = record.get("metrics", [0, 0])
        if isinstance(position, list) and [type(part) for part in position] == [int, int]:
            self.tails.metrics.acknowledged = self.tails.metrics.sent = (position[0], position[1])


def new_attempt(
    folder: Path, launch: Launch | None, *, metrics: Path | None, is_durable: bool = True
) -> Attempt:
    """Return the view of an attempt whose folder bears its id."""
    name = folder.name
    tails = AttemptTails(
        logs=[LogTail(name, stream, folder / f"{stream}.log") for stream in STREAMS],
        metrics=MetricsTail(name, metrics if metrics is not None else folder / "no-metrics"),
    )
    return Attempt(id=name, folder=folder, launch=launch, tails=tails, is_durable=is_durable)


def store_launch(attempt: Attempt, launch: Launch) -> None:
    """Make the folder and keep the command: from here on a repeated one changes nothing.

    Secrets are left out: they are in this process and in the task, and in no record.
    """
    attempt.folder.mkdir(mode=0o700, parents=False, exist_ok=True)
    launch = without_secrets(launch)
    attempt.write(records.LAUNCH, {"frame": encode(launch)})


def without_secrets(launch: Launch) -> Launch:
    """Return a command as it may be kept."""
    if not (launch.secret_environment or launch.secret_files):
        return launch
    return replace(launch, secret_environment={}, secret_files=[], are_secrets_left_out=True)


def read_launch(folder: Path) -> Launch | None:
    """Return the stored command; None where it is missing or damaged."""
    record = records.read(str(folder / records.LAUNCH))
    try:
        message = decode(str(record["frame"])) if record else None
    except (KeyError, ProtocolError):
        return None
    return message if isinstance(message, Launch) else None


def exit_record(*, reason: str, message: str = "", signal: int | None = None) -> dict[str, Any]:
    """Return the record of an end that no supervisor saw."""
    return {
        "at": time.time(),
        "exit_code": None,
        "signal": signal,
        "is_oom": False,
        "reason": reason,
        "message": message,
    }


def exit_report(attempt: str, record: dict[str, Any]) -> AttemptReport:
    """Turn an exit record into the report of it; fields that are damaged are left unknown."""
    exit_code, signal = record.get("exit_code"), record.get("signal")
    at = record.get("at")
    return AttemptReport(
        attempt=attempt,
        state=AttemptState.EXITED,
        at=float(at) if isinstance(at, (int, float)) else time.time(),
        exit_code=exit_code if isinstance(exit_code, int) else None,
        signal=signal if isinstance(signal, int) else None,
        is_oom=record.get("is_oom") is True,
        reason=str(record.get("reason") or ""),
        message=str(record.get("message") or "")[:2_000],
    )


def take_lock(folder: Path) -> int | None:
    """Return the open, locked file that says "somebody prepares or runs this"; None if taken."""
    path = folder / records.LOCK
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        return None
    return fd


def forget(attempt: Attempt, job_attempt_folder: Path | None) -> None:
    """Remove an attempt that is settled and old: records, logs, working folder."""
    for folder in (job_attempt_folder, attempt.folder):
        if folder is not None and folder.exists():
            shutil.rmtree(folder)
